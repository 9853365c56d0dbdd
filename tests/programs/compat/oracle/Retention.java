import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Deletion by retention, and on request. */
final class Retention {
    private Retention() { }

    /**
     * Opens "directory" as "open" does, deletes its records below "logStartOffset", and runs
     * retention below "highWatermark".
     */
    static void retain(JsonNode question, ObjectNode answer) throws Exception {
        try (UnifiedLog log = PartitionDirectory.open(question)) {
            log.updateHighWatermark(question.get("highWatermark").asLong());
            answer.put("deleted", log.deleteOldSegments());
            PartitionDirectory.tellOffsets(log, answer);
            PartitionDirectory.tellEpochs(log, answer.putArray("leaderEpochs"));
        }
    }
}
