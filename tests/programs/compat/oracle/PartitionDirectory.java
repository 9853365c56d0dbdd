import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Comparator;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** A partition's directory, opened and changed in place by Kafka's log. */
final class PartitionDirectory {
    private static final BrokerTopicStats STATISTICS = new BrokerTopicStats();
    private static final int DAY_MS = 86_400_000;

    private PartitionDirectory() { }

    /**
     * Opens "directory", appends what "append" asks for, closes it, and reports its state.
     *
     * <p>If "clean", Kafka trusts indexes, snapshots and epochs; otherwise it recovers
     * from "recoveryPoint" on. "now" is the time in ms, "config" the topic's settings.
     */
    static void open(JsonNode question, ObjectNode answer) throws Exception {
        try (UnifiedLog log = open(question)) {
            for (JsonNode batch : Oracle.array(question, "append")) {
                answer.withArray("appended").add(Appends.append(log, batch));
            }
            tell(log, question, answer);
        }
    }

    /** Reports the state of the log; omits "batches" if that field is false. */
    static void tell(UnifiedLog log, JsonNode question, ObjectNode answer) throws Exception {
        log.updateHighWatermark(log.logEndOffset());
        tellOffsets(log, answer);
        tellProducers(log, answer.putArray("producers"));
        tellEpochs(log, answer.putArray("leaderEpochs"));
        tellAborted(log, answer.putArray("aborted"));
        ObjectNode found = answer.putObject("offsetsForTimes");
        for (JsonNode timestamp : Oracle.array(question, "timestamps")) {
            tellTime(log, timestamp.asLong(), found.putArray(timestamp.asText()));
        }
        if (!question.path("batches").asBoolean(true)) {
            return;
        }
        Committed.tell(log, answer.putArray("committed"));
        ArrayNode batches = answer.putArray("batches");
        for (LogSegment segment : log.logSegments()) {
            for (RecordBatch batch : segment.log().batches()) {
                if (batch.lastOffset() >= log.logStartOffset()) {
                    tellBatch(batch, batches.addObject());
                }
            }
        }
    }

    static UnifiedLog open(JsonNode question) throws Exception {
        long now = Oracle.number(question, "now", -1);
        return open(question, now < 0 ? Time.SYSTEM : new Hands(now));
    }

    static UnifiedLog open(JsonNode question, Time time) throws Exception {
        Properties config = new Properties();
        if (question.has("config")) {
            question.get("config").properties()
                .forEach(each -> config.put(each.getKey(), each.getValue().asText()));
        }
        return UnifiedLog.create(
            new File(question.get("directory").asText()),
            new LogConfig(config),
            Oracle.number(question, "logStartOffset", 0),
            Oracle.number(question, "recoveryPoint", 0),
            new AtOnce(),
            STATISTICS,
            time,
            DAY_MS,
            new ProducerStateManagerConfig(DAY_MS, false),
            DAY_MS,
            new LogDirFailureChannel(1),
            question.path("clean").asBoolean(false),
            Optional.empty());
    }

    static void tellOffsets(UnifiedLog log, ObjectNode answer) {
        answer.put("logStartOffset", log.logStartOffset());
        answer.put("logEndOffset", log.logEndOffset());
        answer.put("lastStableOffset", log.lastStableOffset());
        answer.put("recoveryPoint", log.recoveryPoint());
        answer.put("topicId", log.topicId().map(Uuid::toString).orElse(null));
        ArrayNode segments = answer.putArray("segments");
        log.logSegments().forEach(each -> segments.addArray().add(each.baseOffset()).add(each.size()));
    }

    private static void tellProducers(UnifiedLog log, ArrayNode answer) {
        log.producerStateManager().activeProducers().values().stream()
            .sorted(Comparator.comparingLong(each -> each.producerId()))
            .forEach(each -> answer.addObject()
                .put("producerId", each.producerId())
                .put("producerEpoch", each.producerEpoch())
                .put("lastSequence", each.lastSeq())
                .put("lastOffset", each.lastDataOffset())
                .put("coordinatorEpoch", each.coordinatorEpoch())
                .put("currentTxnFirstOffset", each.currentTxnFirstOffset().orElse(-1)));
    }

    /** Each epoch with its start offset, and the end offset that a follower would get for it. */
    static void tellEpochs(UnifiedLog log, ArrayNode answer) {
        log.leaderEpochCache().epochEntries().forEach(each -> answer.addArray()
            .add(each.epoch())
            .add(each.startOffset())
            .add(log.endOffsetForEpoch(each.epoch()).orElseThrow().offset()));
    }

    private static void tellAborted(UnifiedLog log, ArrayNode answer) {
        log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset())
            .forEach(each -> answer.addArray()
                .add(each.producerId())
                .add(each.firstOffset())
                .add(each.lastOffset())
                .add(each.lastStableOffset()));
    }

    private static void tellTime(UnifiedLog log, long timestamp, ArrayNode answer) {
        log.fetchOffsetByTimestamp(timestamp, Optional.empty()).timestampAndOffsetOpt()
            .ifPresent(found -> answer.add(found.offset).add(found.timestamp));
    }

    private static void tellBatch(RecordBatch batch, ObjectNode answer) {
        answer.put("baseOffset", batch.baseOffset()).put("lastOffset", batch.lastOffset());
        answer.put("size", batch.sizeInBytes()).put("isValid", batch.isValid());
        answer.put("compressionType", batch.compressionType().name);
        answer.put("timestampType", batch.timestampType().name);
        answer.put("maxTimestamp", batch.maxTimestamp());
        answer.put("partitionLeaderEpoch", batch.partitionLeaderEpoch());
        answer.put("producerId", batch.producerId()).put("producerEpoch", batch.producerEpoch());
        answer.put("baseSequence", batch.baseSequence()).put("lastSequence", batch.lastSequence());
        answer.put("isTransactional", batch.isTransactional());
        answer.put("isControl", batch.isControlBatch());
        ArrayNode records = answer.putArray("records");
        try (CloseableIterator<Record> each = batch.streamingIterator(BufferSupplier.create())) {
            each.forEachRemaining(record -> tellRecord(record, records.addObject()));
        }
    }

    private static void tellRecord(Record record, ObjectNode answer) {
        answer.put("offset", record.offset()).put("timestamp", record.timestamp());
        answer.put("sequence", record.sequence());
        answer.put("key", base64(record.key())).put("value", base64(record.value()));
        ArrayNode headers = answer.putArray("headers");
        for (Header each : record.headers()) {
            byte[] value = each.value();
            headers.addArray().add(each.key())
                .add(base64(value == null ? null : ByteBuffer.wrap(value)));
        }
    }

    private static String base64(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
