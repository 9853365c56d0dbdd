import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Measures Kafka's log at the operations of our benchmarks.
 *
 * <p>The answer has elapsed "seconds", "cpuSeconds" of this thread, and the amount "done".
 */
final class Measure {
    private static final int CHUNK = 1 << 20;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private Measure() { }

    static void measure(JsonNode question, ObjectNode answer) throws Exception {
        Watch watch = Watch.start();
        try (UnifiedLog log = PartitionDirectory.open(question)) {
            watch.tell(answer, log.numberOfSegments());
            log.updateHighWatermark(log.logEndOffset());
            switch (question.get("what").asText()) {
                case "open" -> { }
                case "append" -> append(log, question, answer);
                case "lookup" -> lookup(log, question, answer);
                case "read" -> read(log, answer);
                default -> throw new IllegalArgumentException("cannot measure: " + question);
            }
        }
    }

    /** The start of a measurement, in elapsed time and in CPU time of this thread. */
    private record Watch(long wall, long cpu) {
        static Watch start() {
            return new Watch(System.nanoTime(), THREADS.getCurrentThreadCpuTime());
        }

        void tell(ObjectNode answer, long done) {
            answer.put("seconds", (System.nanoTime() - wall) / 1e9);
            answer.put("cpuSeconds", (THREADS.getCurrentThreadCpuTime() - cpu) / 1e9);
            answer.put("done", done);
        }
    }

    /** Appends the batch in "file" as a leader, "count" times. */
    private static void append(UnifiedLog log, JsonNode question, ObjectNode answer)
        throws Exception {
        byte[] bytes = Files.readAllBytes(Path.of(question.get("file").asText()));
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        long count = question.get("count").asLong();
        Watch watch = Watch.start();
        for (long each = 0; each < count; each++) {
            buffer.putLong(0, 0); // the last append has overwritten the base offset
            log.appendAsLeader(MemoryRecords.readableRecords(buffer), 0);
        }
        watch.tell(answer, count);
    }

    /** Finds the batches that hold "count" offsets drawn at random. */
    private static void lookup(UnifiedLog log, JsonNode question, ObjectNode answer)
        throws Exception {
        Random random = new Random(1);
        long count = question.get("count").asLong();
        long[] offsets = random.longs(count, log.logStartOffset(), log.logEndOffset()).toArray();
        long found = 0;
        Watch watch = Watch.start();
        for (long offset : offsets) {
            found += log.read(offset, 1, FetchIsolation.LOG_END, true).records.sizeInBytes();
        }
        watch.tell(answer, count);
        answer.put("bytes", found);
    }

    /** Reads everything, checks each batch and accesses each record's bytes. */
    private static void read(UnifiedLog log, ObjectNode answer) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(2 * CHUNK);
        long records = 0;
        long bytes = 0;
        Watch watch = Watch.start();
        for (long offset = log.logStartOffset(); offset < log.logEndOffset();) {
            FetchDataInfo info = log.read(offset, CHUNK, FetchIsolation.LOG_END, true);
            buffer.clear();
            ((FileRecords) info.records).readInto(buffer, 0);
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    bytes += record.valueSize();
                    records++;
                }
                offset = batch.nextOffset();
            }
        }
        watch.tell(answer, records);
        answer.put("bytes", bytes);
    }
}
