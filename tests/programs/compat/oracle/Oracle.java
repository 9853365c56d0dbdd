import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;

/**
 * Answers questions with Apache Kafka's own classes: one JSON object per line, in and out.
 *
 * <p>Field "ask" names the question; each is a method here or a class beside this one. An answer
 * has the field "error" if Kafka threw. Output of Kafka does not mix with the answers.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();

    private static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();

    private Oracle() { }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        PrintStream printed = new PrintStream(PRINTED, true, StandardCharsets.UTF_8);
        System.setOut(printed);
        System.setErr(printed);
        BufferedReader questions =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null;) {
            ObjectNode answer = JSON.createObjectNode();
            PRINTED.reset();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Throwable thrown) { // Kafka's errors are answers too
                answer.put("error", thrown.getClass().getSimpleName());
                answer.put("message", String.valueOf(thrown.getMessage()));
                thrown.printStackTrace();
            }
            answer.put("printed", PRINTED.toString(StandardCharsets.UTF_8));
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0); // despite threads that Kafka may have left
    }

    private static void answer(JsonNode question, ObjectNode answer) throws Exception {
        switch (question.get("ask").asText()) {
            case "open" -> PartitionDirectory.open(question, answer);
            case "live" -> Life.live(question, answer);
            case "dump" -> dump(question);
            case "checkpoint" -> checkpoint(question, answer);
            case "retain" -> Retention.retain(question, answer);
            case "clean" -> Cleaning.clean(question, answer);
            case "measure" -> Measure.measure(question, answer);
            case "consume" -> Clients.consume(question, answer);
            case "produce" -> Clients.produce(question, answer);
            case "describe" -> Clients.describe(question, answer);
            case "create" -> Clients.create(question);
            case "configure" -> Clients.configure(question);
            case "delete" -> Clients.delete(question);
            case "commit" -> Clients.commit(question);
            case "send" -> Traffic.send(question, answer);
            case "forget" -> Traffic.forget();
            case "fingerprint" -> Traffic.fingerprint(question, answer);
            case "committed" -> Clients.committed(question, answer);
            default -> throw new IllegalArgumentException("unknown question: " + question);
        }
    }

    /** Prints the output of Kafka's dump tool for "files". */
    private static void dump(JsonNode question) {
        String files = question.get("files").asText();
        kafka.tools.DumpLogSegments.main(
            new String[] {"--deep-iteration", "--print-data-log", "--files", files});
    }

    /** Answers with the "offsets" that a checkpoint file of a log root holds, by partition. */
    private static void checkpoint(JsonNode question, ObjectNode answer) throws Exception {
        ObjectNode offsets = answer.putObject("offsets");
        File file = new File(question.get("file").asText());
        new OffsetCheckpointFile(file, null).read()
            .forEach((partition, offset) -> offsets.put(partition.toString(), offset));
    }

    /** A field of a question, or its default. */
    static long number(JsonNode question, String field, long otherwise) {
        return question.has(field) ? question.get(field).asLong() : otherwise;
    }

    static ArrayNode array(JsonNode question, String field) {
        return question.has(field) ? (ArrayNode) question.get(field) : JSON.createArrayNode();
    }
}
