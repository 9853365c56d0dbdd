package streamlog;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Collectors;
import kafka.raft.KafkaRaftManager;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;
import kafka.server.metadata.KRaftMetadataCache;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.mockito.Mockito;

/**
 * A gateway behind the classes of a broker and a controller, for tests that look at their insides:
 * answers what a client can find out. Any other question ends the test as skipped.
 */
final class BrokerView {
    private final GatewayCluster cluster;

    BrokerView(GatewayCluster cluster) {
        this.cluster = cluster;
    }

    BrokerServer broker() {
        KafkaConfig config = config();
        return view(BrokerServer.class, Map.of(
            "config", none -> config,
            "isShutdown", none -> cluster.stopped(),
            "clusterId", none -> cluster.clusterId(),
            "metadataCache", none -> metadata(),
            "groupCoordinator", none -> view(GroupCoordinator.class, Map.of(
                "groupMetadataTopicConfigs", nothing -> new Properties())),
            "sharedServer", none -> view(SharedServer.class, new HashMap<>() {{
                put("loader", nothing -> null); // there is no metadata log to wait for
            }}),
            "boundPort", listener -> cluster.brokerBoundPorts().get(0),
            "socketServer", none -> view(SocketServer.class, Map.of(
                "boundPort", listener -> cluster.brokerBoundPorts().get(0)))));
    }

    ControllerServer controller() {
        return view(ControllerServer.class, Map.of(
            "raftManager", none -> Mockito.mock(KafkaRaftManager.class, Mockito.RETURNS_DEEP_STUBS),
            "controller", none -> view(Controller.class, Map.of(
                "findAllTopicIds", context -> CompletableFuture.completedFuture(topics().entrySet()
                    .stream().collect(Collectors.toMap(
                        Map.Entry::getKey, each -> each.getValue().topicId())))))));
    }

    private KafkaConfig config() {
        Map<String, String> settings = new HashMap<>(cluster.config().serverProperties());
        settings.put("node.id", "0");
        settings.put("process.roles", "broker,controller");
        settings.put("controller.quorum.bootstrap.servers", "localhost:1");
        settings.put("controller.listener.names", "CONTROLLER");
        settings.put("listeners", cluster.clientListener().value() + "://localhost:0,CONTROLLER://localhost:0");
        settings.put("advertised.listeners", cluster.clientListener().value() + "://" + cluster.bootstrapServers());
        settings.put("listener.security.protocol.map",
            cluster.clientListener().value() + ":" + cluster.config().brokerSecurityProtocol()
            + ",CONTROLLER:PLAINTEXT");
        settings.put("inter.broker.listener.name", cluster.clientListener().value());
        return KafkaConfig.fromProps(asProperties(settings));
    }

    private static Properties asProperties(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        return properties;
    }

    private Map<String, TopicDescription> topics() {
        return cluster.ask(admin -> admin.describeTopics(admin.listTopics(
            new ListTopicsOptions().listInternal(true)).names().get())
            .allTopicNames().get());
    }

    private KRaftMetadataCache metadata() {
        return view(KRaftMetadataCache.class, Map.of(
            "contains", of -> topics().containsKey(String.valueOf(of[0])),
            "numPartitions", of -> Optional.ofNullable(topics().get(of[0]))
                .map(topic -> topic.partitions().size()),
            "getLeaderAndIsr", of -> Optional.ofNullable(topics().get(of[0]))
                .filter(topic -> (int) of[1] < topic.partitions().size())
                .map(topic -> new LeaderAndIsr(
                    topic.partitions().get((int) of[1]).leader().id(), List.of(0)))));
    }

    private static <T> T view(Class<T> kind, Map<String, Function<Object[], Object>> answers) {
        return Mockito.mock(kind, invocation -> {
            String name = invocation.getMethod().getName();
            if (answers.containsKey(name)) {
                return answers.get(name).apply(invocation.getArguments());
            }
            if (List.of("toString", "hashCode", "equals").contains(name)) {
                return Mockito.RETURNS_DEFAULTS.answer(invocation);
            }
            throw GatewayCluster.unavailable(kind.getSimpleName() + "." + name + "()");
        });
    }
}
