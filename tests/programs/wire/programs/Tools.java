import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after another in this JVM.
 *
 * Each line on stdin is {"tool": class, "arguments": [...], "input": text}; each line on stdout
 * {"code": exit code, "out": text, "error": text}.
 */
public class Tools {
    /** Unwinds a tool that exits. */
    static final class Exited extends RuntimeException {
        Exited() {
            super(null, null, false, false);
        }
    }

    private static final ByteArrayOutputStream SAID = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream COMPLAINED = new ByteArrayOutputStream();

    /** What the tool wants done when it ends. */
    private static final List<Runnable> HOOKS = new ArrayList<>();

    /** The code with which the tool exited first: some catch what unwinds them, and exit again. */
    private static Integer exitCode;

    private static void exit(int code, String message) {
        if (exitCode == null) {
            exitCode = code;
            if (message != null) {
                System.err.println(message);
            }
        }
        throw new Exited();
    }

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure(Tools::exit);
        Exit.setHaltProcedure(Tools::exit);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        ObjectMapper json = new ObjectMapper();
        PrintStream stdout = System.out;
        System.setOut(new PrintStream(SAID, true, "UTF-8")); // once: Scala's Console keeps the first
        System.setErr(new PrintStream(COMPLAINED, true, "UTF-8"));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = json.readTree(line);
            stdout.println(json.writeValueAsString(run(request, json)));
            stdout.flush();
        }
        System.exit(0); // threads of a tool that was cut off may remain
    }

    private static Map<String, Object> run(JsonNode request, ObjectMapper json) throws Exception {
        SAID.reset();
        COMPLAINED.reset();
        System.setIn(new ByteArrayInputStream(request.get("input").asText().getBytes("UTF-8")));
        exitCode = null;
        try {
            String[] arguments = json.treeToValue(request.get("arguments"), String[].class);
            Class.forName(request.get("tool").asText())
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (exitCode == null) {
                failure.getCause().printStackTrace();
                exitCode = 1;
            }
        } finally {
            HOOKS.forEach(Runnable::run);
            HOOKS.clear();
            System.out.flush();
            System.err.flush();
        }
        int code = exitCode == null ? 0 : exitCode;
        return Map.of("code", code, "out", SAID.toString("UTF-8"), "error", COMPLAINED.toString("UTF-8"));
    }
}
