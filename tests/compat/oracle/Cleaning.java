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
     * Cleans "directory" from "checkpoint" on at the time "now", with "memory" bytes for its keys.
     *
     * <p>The rest of the question is that of {@link PartitionDirectory#open}. The time that the
     * thread ran is that of the round alone.
     */
    static void clean(JsonNode question, ObjectNode answer) throws Exception {
        try (UnifiedLog log = PartitionDirectory.open(question)) {
            log.updateHighWatermark(log.logEndOffset());
            long now = question.get("now").asLong();
            Optional<Long> checkpoint = question.has("checkpoint")
                ? Optional.of(question.get("checkpoint").asLong()) : Optional.empty();
            var offsets = LogCleanerManager.cleanableOffsets(log, checkpoint, now);
            LogToClean round = new LogToClean(
                log, offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset(), false);
            answer.put("firstDirtyOffset", round.firstDirtyOffset());
            answer.put("endOffset", round.firstUncleanableOffset());
            answer.put("cleanBytes", round.cleanBytes());
            answer.put("cleanableBytes", round.cleanableBytes());
            Cleaner cleaner = new Cleaner(
                0,
                new SkimpyOffsetMap((int) Oracle.number(question, "memory", 128 << 20)),
                BUFFER,
                MAX_BUFFER,
                0.9,
                new Throttler(Double.MAX_VALUE, 1000, "cleaner-io", "bytes", Time.SYSTEM),
                Time.SYSTEM,
                partition -> { });
            var thread = ManagementFactory.getThreadMXBean();
            long wall = System.nanoTime();
            long cpu = thread.getCurrentThreadCpuTime();
            Map.Entry<Long, CleanerStats> done = cleaner.doClean(round, now);
            answer.put("cpuSeconds", (thread.getCurrentThreadCpuTime() - cpu) / 1e9);
            answer.put("seconds", (System.nanoTime() - wall) / 1e9);
            answer.put("checkpoint", done.getKey());
            answer.put("recordsRead", done.getValue().messagesRead());
            answer.put("recordsWritten", done.getValue().messagesWritten());
        }
    }
}
