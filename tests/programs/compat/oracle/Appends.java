import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** Batches built by Kafka's own builders and appended as by its leader. */
final class Appends {
    private Appends() { }

    /**
     * Appends a batch of "records", the "marker" (COMMIT or ABORT) of a transaction, or "bytes".
     *
     * @return its base offset
     */
    static long append(UnifiedLog log, JsonNode batch) {
        boolean isMarker = batch.has("marker");
        int epoch = (int) Oracle.number(batch, "leaderEpoch", log.latestEpoch().orElse(0));
        return log.appendAsLeader(
            isMarker ? marker(batch) : batch.has("bytes") ? any(batch) : records(batch, epoch),
            epoch,
            isMarker ? AppendOrigin.COORDINATOR : AppendOrigin.CLIENT,
            RequestLocal.noCaching(),
            VerificationGuard.SENTINEL,
            (short) 0).firstOffset();
    }

    /**
     * Appends "bytes" with their own offsets and epochs, as Kafka's follower does.
     *
     * @return the first offset
     */
    static long follow(UnifiedLog log, JsonNode batches) {
        return log.appendAsFollower(any(batches), Integer.MAX_VALUE).firstOffset();
    }

    private static MemoryRecords marker(JsonNode batch) {
        ControlRecordType type = ControlRecordType.valueOf(batch.get("marker").asText());
        return MemoryRecords.withEndTransactionMarker(
            0,
            batch.get("timestamp").asLong(),
            RecordBatch.NO_PARTITION_LEADER_EPOCH,
            batch.get("producerId").asLong(),
            (short) batch.get("producerEpoch").asInt(),
            new EndTransactionMarker(type, (int) Oracle.number(batch, "coordinatorEpoch", 0)));
    }

    private static MemoryRecords records(JsonNode batch, int epoch) {
        List<SimpleRecord> records = new ArrayList<>();
        for (JsonNode each : batch.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : Oracle.array(each, "headers")) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            records.add(new SimpleRecord(
                each.get("timestamp").asLong(),
                bytes(each.get("key")),
                bytes(each.get("value")),
                headers.toArray(Header[]::new)));
        }
        String codec = batch.path("compression").asText("none");
        return MemoryRecords.withRecords(
            RecordBatch.CURRENT_MAGIC_VALUE,
            0,
            Compression.of(CompressionType.forName(codec)).build(),
            TimestampType.CREATE_TIME,
            Oracle.number(batch, "producerId", RecordBatch.NO_PRODUCER_ID),
            (short) Oracle.number(batch, "producerEpoch", RecordBatch.NO_PRODUCER_EPOCH),
            (int) Oracle.number(batch, "baseSequence", RecordBatch.NO_SEQUENCE),
            epoch,
            batch.path("isTransactional").asBoolean(false),
            records.toArray(SimpleRecord[]::new));
    }

    private static MemoryRecords any(JsonNode batch) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(batch.get("bytes"))));
    }

    private static byte[] bytes(JsonNode base64) {
        return base64.isNull() ? null : Base64.getDecoder().decode(base64.asText());
    }
}
