package streamlog;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Permission;
import java.security.Policy;
import java.security.ProtectionDomain;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Pattern;
import org.apache.kafka.common.test.api.ClusterTemplate;
import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTests;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestDescriptor;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.reporting.ReportEntry;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherConfig;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs the cluster tests of classes and writes a line of JSON per result.
 *
 * Arguments: the file for the results, a pattern that `Class.method` must
 * contain, one that it must not match, and class names.
 */
public final class RunTests implements TestExecutionListener {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final PrintStream results;
    private final Map<String, String> brokers = new HashMap<>();

    private RunTests(Path results) throws Exception {
        this.results = new PrintStream(Files.newOutputStream(results), true, StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws Exception {
        Pattern wanted = Pattern.compile(args[1]), omitted = Pattern.compile(args[2]);
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(Arrays.stream(args).skip(3).map(DiscoverySelectors::selectClass).toList())
            .filters((PostDiscoveryFilter) test -> filter(test, wanted, omitted))
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.extensions.autodetection.exclude",
                "org.apache.kafka.common.test.junit.ClusterTestExtensions")
            .configurationParameter("junit.jupiter.execution.timeout.testtemplate.method.default",
                System.getProperty("streamlog.timeout"))
            .build();
        // Without Kafka's own filters, which choose tests by lists of its build.
        LauncherConfig config = LauncherConfig.builder()
            .enablePostDiscoveryFilterAutoRegistration(false).build();
        keepProcess();
        LauncherFactory.create(config).execute(request, new RunTests(Path.of(args[0])));
        Runtime.getRuntime().halt(0); // threads that tests left behind do not keep the process
    }

    /** Lets tools that end the process fail their test instead; newer Javas have no such means. */
    @SuppressWarnings("removal")
    private static void keepProcess() {
        try {
            Policy.setPolicy(new Policy() {
                @Override
                public boolean implies(ProtectionDomain domain, Permission permission) {
                    return true;
                }
            });
            System.setSecurityManager(new SecurityManager() {
                @Override
                public void checkExit(int status) {
                    boolean isOurs = Arrays.stream(Thread.currentThread().getStackTrace())
                        .anyMatch(each -> each.getMethodName().equals("halt"));
                    if (!isOurs) {
                        throw new SecurityException("exit(" + status + ")");
                    }
                }
            });
        } catch (UnsupportedOperationException error) {
            System.err.println("a tool that fails ends the run: " + error);
        }
    }

    private static FilterResult filter(TestDescriptor test, Pattern wanted, Pattern omitted) {
        Optional<MethodSource> source = test.getSource()
            .filter(MethodSource.class::isInstance).map(MethodSource.class::cast);
        if (source.isEmpty()) {
            return FilterResult.included("a class");
        }
        var method = source.get().getJavaMethod();
        boolean needsCluster = method.isAnnotationPresent(ClusterTest.class)
            || method.isAnnotationPresent(ClusterTests.class)
            || method.isAnnotationPresent(ClusterTemplate.class);
        String name = name(source.get());
        return FilterResult.includedIf(
            needsCluster && wanted.matcher(name).find() && !omitted.matcher(name).matches());
    }

    private static String name(MethodSource source) {
        String type = source.getClassName();
        return type.substring(type.lastIndexOf('.') + 1) + "." + source.getMethodName();
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        GatewayCluster.missing = null;
    }

    @Override
    public void reportingEntryPublished(TestIdentifier test, ReportEntry entry) {
        brokers.put(test.getUniqueId(), entry.getKeyValuePairs().get("brokers"));
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        write(test, "skipped", reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        boolean failed = result.getStatus() != TestExecutionResult.Status.SUCCESSFUL;
        if (!test.isTest() && !failed) {
            return;
        }
        String missing = GatewayCluster.missing;
        if (!failed) {
            write(test, "passed", "");
        } else if (missing != null) {
            write(test, "skipped", "needs " + missing);
        } else {
            write(test, "failed", result.getThrowable().map(RunTests::trace).orElse(""));
        }
    }

    private static String trace(Throwable thrown) {
        StringWriter text = new StringWriter();
        thrown.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    private void write(TestIdentifier test, String result, String note) {
        String name = test.getSource().filter(MethodSource.class::isInstance)
            .map(source -> name((MethodSource) source)).orElse(test.getDisplayName());
        String index = test.isTest() && test.getDisplayName().startsWith("[") ? test.getDisplayName() : "";
        Map<String, String> fields = new LinkedHashMap<>();
        fields.put("test", name);
        fields.put("index", index);
        fields.put("result", result);
        fields.put("brokers", brokers.getOrDefault(test.getUniqueId(), ""));
        fields.put("note", note);
        try {
            results.println(JSON.writeValueAsString(fields));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
