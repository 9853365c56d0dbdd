import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** A partition from its creation to its end, step by step. */
final class Life {
    private final JsonNode question;
    private final Hands hands;
    private UnifiedLog log;

    private Life(JsonNode question) throws Exception {
        this.question = question;
        hands = new Hands(question.get("now").asLong());
        log = PartitionDirectory.open(question, hands);
    }

    /**
     * Executes "steps" in a new "directory"; reports their outcomes and the state of the log.
     *
     * <p>Before the log is closed, the directory is copied to "copy".
     */
    static void live(JsonNode question, ObjectNode answer) throws Exception {
        Life life = new Life(question);
        try {
            ArrayNode outcomes = answer.putArray("outcomes");
            for (JsonNode step : question.get("steps")) {
                life.hands.put(step.get("now").asLong());
                life.outcome(step, outcomes);
            }
            PartitionDirectory.tell(life.log, question, answer);
            copy(Path.of(question.get("directory").asText()), Path.of(question.get("copy").asText()));
        } finally {
            life.log.close();
        }
    }

    private void outcome(JsonNode step, ArrayNode outcomes) throws Exception {
        try {
            outcomes.add(take(step));
        } catch (RuntimeException refused) { // all of Kafka's own errors are RuntimeExceptions
            outcomes.add(refused.getClass().getSimpleName());
        }
    }

    private long take(JsonNode step) throws Exception {
        switch (step.get("do").asText()) {
            case "append" -> {
                return appended(Appends.append(log, step));
            }
            case "follow" -> {
                return appended(Appends.follow(log, step));
            }
            case "roll" -> {
                return log.roll().baseOffset();
            }
            case "delete" -> {
                log.maybeIncrementLogStartOffset(
                    step.get("offset").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
                log.deleteOldSegments();
                return log.logStartOffset();
            }
            case "clean" -> {
                return Cleaning.round(Cleaning.range(log, step), step).getValue().messagesWritten();
            }
            case "truncate" -> log.truncateTo(step.get("offset").asLong());
            case "reopen" -> reopen(step);
            default -> throw new IllegalArgumentException("unknown step: " + step);
        }
        return log.logEndOffset();
    }

    private long appended(long offset) throws IOException {
        log.updateHighWatermark(log.logEndOffset());
        return offset;
    }

    private void reopen(JsonNode step) throws Exception {
        ObjectNode again = question.deepCopy();
        again.set("clean", step.get("clean"));
        again.put("logStartOffset", log.logStartOffset());
        again.put("recoveryPoint", step.get("clean").asBoolean() ? log.logEndOffset() : 0);
        log.close();
        log = PartitionDirectory.open(again, hands);
        log.updateHighWatermark(log.logEndOffset());
    }

    private static void copy(Path from, Path to) throws IOException {
        Files.createDirectories(to);
        List<Path> files;
        try (Stream<Path> listed = Files.list(from)) {
            files = listed.toList();
        }
        for (Path file : files) {
            Files.copy(file, to.resolve(file.getFileName()));
        }
    }
}
