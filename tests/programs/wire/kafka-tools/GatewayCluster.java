package streamlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.ForwardingAdmin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;
import org.opentest4j.TestAbortedException;

/**
 * A gateway as a cluster of Kafka's tests. What a test asks of it that no client could ask is
 * answered by `BrokerView` or ends the test: it is then reported as skipped, with the reason.
 *
 * Gateways come from the port that the system property `streamlog.gateways` names: a connection
 * sends settings in one line of JSON, gets an address in another, and its end stops the gateway.
 */
final class GatewayCluster implements ClusterInstance {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String GROUP_PROTOCOLS = "group.coordinator.rebalance.protocols";

    /** The features of a gateway; all others are at level 0. */
    private static final Map<String, Integer> FEATURES =
        Map.of("group.version", 1, "transaction.version", 2);

    /** What the running test asked for in vain; it has then failed for that reason. */
    static volatile String missing;

    private final ClusterConfig config;
    private Socket connection;
    private String address;
    private boolean stopped;

    GatewayCluster(ClusterConfig config) {
        this.config = config;
    }

    static TestAbortedException unavailable(String what) {
        missing = what;
        return new TestAbortedException("needs " + what);
    }

    // ---- life -------------------------------------------------------------------------------
    @Override
    public void start() {
        if (connection != null) {
            return;
        }
        check();
        Map<String, String> properties = new HashMap<>(config.serverProperties());
        properties.putAll(config.perServerOverrideProperties().getOrDefault(0, Map.of()));
        String users = "";
        if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
            users = JaasUtils.KAFKA_PLAIN_ADMIN + ":" + JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD + "\n"
                + JaasUtils.KAFKA_PLAIN_USER1 + ":" + JaasUtils.KAFKA_PLAIN_USER1_PASSWORD + "\n";
        }
        try {
            connection = new Socket(
                InetAddress.getLoopbackAddress(), Integer.getInteger("streamlog.gateways"));
            String wanted = JSON.writeValueAsString(Map.of("properties", properties, "users", users));
            connection.getOutputStream().write((wanted + "\n").getBytes(StandardCharsets.UTF_8));
            String line = new BufferedReader(
                new InputStreamReader(connection.getInputStream(), StandardCharsets.UTF_8)).readLine();
            JsonNode answer = JSON.readTree(line);
            if (answer.has("error")) {
                throw new IllegalStateException(answer.get("error").asText());
            }
            address = answer.get("address").asText();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void check() {
        SecurityProtocol protocol = config.brokerSecurityProtocol();
        if (config.serverProperties().containsKey("authorizer.class.name")) {
            throw unavailable("an authorizer");
        }
        if (protocol != SecurityProtocol.PLAINTEXT && protocol != SecurityProtocol.SASL_PLAINTEXT) {
            throw unavailable("the security protocol " + protocol);
        }
        if (config.serverProperties().containsKey("remote.log.storage.system.enable")) {
            throw unavailable("remote storage");
        }
        if (config.numControllers() > 1) {
            throw unavailable(config.numControllers() + " controllers");
        }
        if (config.numDisksPerBroker() > 1) {
            throw unavailable(config.numDisksPerBroker() + " disks");
        }
        if (config.metadataVersion().isLessThan(MetadataVersion.latestProduction())) {
            throw unavailable("metadata version " + config.metadataVersion());
        }
        config.features().forEach((feature, level) -> {
            if (level.intValue() != FEATURES.getOrDefault(feature.featureName(), 0)) {
                throw unavailable(feature.featureName() + " " + level);
            }
        });
    }

    @Override
    public void stop() {
        stopped = true;
        if (connection != null) {
            try {
                connection.shutdownOutput();
                while (connection.getInputStream().read() >= 0) {
                }
                connection.close();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    @Override
    public boolean started() {
        return connection != null;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    // ---- what it is -------------------------------------------------------------------------
    @Override
    public Type type() {
        return config.clusterTypes().contains(Type.CO_KRAFT) ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public String bootstrapServers() {
        return address;
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return List.of(Integer.parseInt(address.substring(address.lastIndexOf(':') + 1)));
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public Set<Integer> brokerIds() {
        return new HashSet<>(Set.of(0));
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return Map.of(0, new BrokerView(this).broker());
    }

    @Override
    public String clusterId() {
        return ask(admin -> admin.describeCluster().clusterId().get());
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        String protocols = config.serverProperties().getOrDefault(GROUP_PROTOCOLS, "consumer");
        return protocols.contains("consumer")
            ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // ---- topics ------------------------------------------------------------------------------
    @Override
    public Admin admin(Map<String, Object> configs, boolean usingBootstrapControllers) {
        if (usingBootstrapControllers) {
            bootstrapControllers();
        }
        Map<String, Object> settings = new HashMap<>(configs);
        settings.putIfAbsent(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, address);
        return new OneBrokerAdmin(setClientSaslConfig(settings), config.numBrokers());
    }

    /** Ends tests of several brokers that create topics on them. */
    private static final class OneBrokerAdmin extends ForwardingAdmin {
        private final int brokers;

        OneBrokerAdmin(Map<String, Object> settings, int brokers) {
            super(settings);
            this.brokers = brokers;
        }

        @Override
        public CreateTopicsResult createTopics(
                Collection<NewTopic> topics, CreateTopicsOptions options) {
            for (NewTopic topic : topics) {
                int replicas = topic.replicationFactor();
                boolean elsewhere = topic.replicasAssignments() != null
                    && !topic.replicasAssignments().values().stream().allMatch(List.of(0)::equals);
                if (brokers > 1 && (elsewhere || replicas > 1 && replicas <= brokers)) {
                    throw unavailable(brokers + " brokers, and places replicas on them");
                }
            }
            return super.createTopics(topics, options);
        }
    }

    @Override
    public void waitForReadyBrokers() {
        ask(admin -> admin.describeCluster().nodes().get());
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        TestUtils.waitForCondition(
            () -> ask(admin -> admin.listTopics(all()).names().get()).contains(topic)
                && ask(admin -> admin.describeTopics(List.of(topic)).allTopicNames().get())
                    .get(topic).partitions().size() == partitions,
            topic + " was not created");
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        TestUtils.waitForCondition(
            () -> !ask(admin -> admin.listTopics(all()).names().get()).contains(topic),
            topic + " was not deleted");
    }

    @Override
    public void ensureConsistentMetadata() {
        waitForReadyBrokers();
    }

    private static ListTopicsOptions all() {
        return new ListTopicsOptions().listInternal(true);
    }

    interface Question<T> {
        T ask(Admin admin) throws Exception;
    }

    <T> T ask(Question<T> question) {
        try (Admin admin = admin()) {
            return question.ask(admin);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    // ---- what it has not --------------------------------------------------------------------
    @Override
    public Map<Integer, ControllerServer> controllers() {
        return Map.of(0, new BrokerView(this).controller());
    }

    @Override
    public Set<Integer> controllerIds() {
        if (config.numBrokers() > 1) {
            throw unavailable("brokers that are no controllers");
        }
        return Set.of(0);
    }

    @Override
    public ListenerName controllerListenerName() {
        throw unavailable("a controller's listener");
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        throw unavailable("a controller's port");
    }

    @Override
    public String bootstrapControllers() {
        throw unavailable("a controller that clients connect to");
    }

    @Override
    public List<Authorizer> authorizers() {
        throw unavailable("an authorizer");
    }

    @Override
    public void shutdownBroker(int brokerId) {
        throw unavailable("a broker that stops while others go on");
    }

    @Override
    public void startBroker(int brokerId) {
        throw unavailable("a broker that starts again");
    }
}
