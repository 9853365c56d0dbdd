import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

/** One round of Kafka's own cleaner over a partition's directory, in place. */
final class Cleaning {
    private static final int BUFFER = 512 << 10;
    private static final int MAX_BUFFER = 64 << 20;

    private Cleaning() { }

    /**
     * Cleans "directory" from "checkpoint" on at the time "now", with "memory" bytes for keys.
     *
     * <p>The other fields are those of {@link PartitionDirectory#open}. The CPU time is that of the
     * round alone.
     */
    static void clean(JsonNode question, ObjectNode answer) throws Exception {
        try (UnifiedLog log = PartitionDirectory.open(question)) {
            log.updateHighWatermark(log.logEndOffset());
            LogToClean range = range(log, question);
            answer.put("firstDirtyOffset", range.firstDirtyOffset());
            answer.put("endOffset", range.firstUncleanableOffset());
            answer.put("cleanBytes", range.cleanBytes());
            answer.put("cleanableBytes", range.cleanableBytes());
            var thread = ManagementFactory.getThreadMXBean();
            long wall = System.nanoTime();
            long cpu = thread.getCurrentThreadCpuTime();
            Map.Entry<Long, CleanerStats> done = round(range, question);
            answer.put("cpuSeconds", (thread.getCurrentThreadCpuTime() - cpu) / 1e9);
            answer.put("seconds", (System.nanoTime() - wall) / 1e9);
            answer.put("checkpoint", done.getKey());
            answer.put("recordsRead", done.getValue().messagesRead());
            answer.put("recordsWritten", done.getValue().messagesWritten());
        }
    }

    /** What may be cleaned of an open log, from "checkpoint" on at the time "now". */
    static LogToClean range(UnifiedLog log, JsonNode question) throws Exception {
        Optional<Long> checkpoint = question.has("checkpoint")
            ? Optional.of(question.get("checkpoint").asLong()) : Optional.empty();
        long now = question.get("now").asLong();
        var offsets = LogCleanerManager.cleanableOffsets(log, checkpoint, now);
        return new LogToClean(
            log, offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset(), false);
    }

    /** Cleans it once; reports the end of the round and the records read and written. */
    static Map.Entry<Long, CleanerStats> round(LogToClean range, JsonNode question)
        throws Exception {
        Cleaner cleaner = new Cleaner(
            0,
            new SkimpyOffsetMap((int) Oracle.number(question, "memory", 128 << 20)),
            BUFFER,
            MAX_BUFFER,
            0.9,
            new Throttler(Double.MAX_VALUE, 1000, "cleaner-io", "bytes", Time.SYSTEM),
            Time.SYSTEM,
            partition -> { });
        return cleaner.doClean(range, question.get("now").asLong());
    }
}
