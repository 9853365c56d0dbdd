package streamlog;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.junit.ClusterTestExtensions;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Runs Kafka's cluster tests against gateways: reads their annotations as Kafka's own extension
 * does, and then gives each test a gateway on a fresh root in place of a cluster.
 */
public class GatewayExtension extends ClusterTestExtensions {
    @Override
    public Stream<TestTemplateInvocationContext> provideTestTemplateInvocationContexts(
            ExtensionContext context) {
        // Kafka runs a test once with its controllers in the brokers and once beside them. A gateway
        // has none, so that the two are one.
        Map<ClusterConfig, Invocation> invocations = new LinkedHashMap<>();
        super.provideTestTemplateInvocationContexts(context)
            .map(GatewayExtension::configOf)
            .forEach(config -> invocations.putIfAbsent(config, new Invocation(config)));
        return new ArrayList<TestTemplateInvocationContext>(invocations.values()).stream();
    }

    private static ClusterConfig configOf(TestTemplateInvocationContext context) {
        try {
            Field field = context.getClass().getDeclaredField("clusterConfig");
            field.setAccessible(true);
            return (ClusterConfig) field.get(context);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private record Invocation(ClusterConfig config) implements TestTemplateInvocationContext {
        @Override
        public String getDisplayName(int index) {
            return "[" + index + "]";
        }

        @Override
        public List<Extension> getAdditionalExtensions() {
            GatewayCluster cluster = new GatewayCluster(config);
            return List.of(
                (BeforeEachCallback) context -> {
                    context.publishReportEntry("brokers", String.valueOf(config.numBrokers()));
                    if (config.isAutoStart()) {
                        cluster.start();
                    }
                },
                (AfterTestExecutionCallback) context -> cluster.stop(),
                new Resolver(cluster));
        }
    }

    private record Resolver(GatewayCluster cluster) implements ParameterResolver {
        @Override
        public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
            return parameter.getParameter().getType().equals(ClusterInstance.class);
        }

        @Override
        public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
            return cluster;
        }
    }
}
