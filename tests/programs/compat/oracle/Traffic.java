import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Many records to and from a real broker; consumed records are reported as fingerprints. */
final class Traffic {
    private static final long STALLED_MS = 60_000;
    private static final String[] WORDS = ("the log keeps what a broker wrote and a reader finds it"
        + " again by offset or by time while segments roll and old ones go").split(" ");

    /** Transactional producers by id; one with an open transaction continues in the next question. */
    private static final Map<String, KafkaProducer<byte[], byte[]>> TRANSACTIONAL = new HashMap<>();
    private static final Map<String, Boolean> IS_OPEN = new HashMap<>();

    private Traffic() { }

    /**
     * Sends "count" records of about "size" bytes to "partitions" of a "topic" with "codec".
     *
     * <p>Batches have at most "batch" bytes. "random" values are incompressible. "keys" is the number
     * of distinct keys; without it, some are null. With "id", the records are sent in one
     * transaction, and "end" is commit, abort or leave.
     */
    static void send(JsonNode question, ObjectNode answer) throws Exception {
        String id = question.path("id").asText(null);
        if (id == null) {
            try (KafkaProducer<byte[], byte[]> producer = producer(question, null)) {
                answer.put("sent", sendAll(producer, question));
            }
            return;
        }
        KafkaProducer<byte[], byte[]> producer = TRANSACTIONAL.get(id);
        if (producer == null) {
            producer = producer(question, id);
            producer.initTransactions();
            TRANSACTIONAL.put(id, producer);
        }
        if (!IS_OPEN.getOrDefault(id, false)) {
            producer.beginTransaction();
        }
        answer.put("sent", sendAll(producer, question));
        String end = question.get("end").asText();
        IS_OPEN.put(id, end.equals("leave"));
        if (end.equals("commit")) {
            producer.commitTransaction();
        } else if (end.equals("abort")) {
            producer.abortTransaction();
        }
    }

    /** Forgets all transactional producers; open transactions stay open on the broker. */
    static void forget() {
        TRANSACTIONAL.values().forEach(each -> each.close(Duration.ZERO));
        TRANSACTIONAL.clear();
        IS_OPEN.clear();
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode question, String id) {
        Map<String, Object> settings = Clients.settings(question);
        settings.put("compression.type", question.get("codec").asText());
        settings.put("batch.size", (int) Oracle.number(question, "batch", 200_000));
        settings.put("linger.ms", 20);
        settings.put("enable.idempotence", id != null || question.path("idempotent").asBoolean());
        if (id != null) {
            settings.put("transactional.id", id);
            settings.put("transaction.timeout.ms", 900_000); // the maximum that a broker allows
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static long sendAll(KafkaProducer<byte[], byte[]> producer, JsonNode question)
            throws Exception {
        String topic = question.get("topic").asText();
        int partitions = question.get("partitions").asInt();
        int keys = (int) Oracle.number(question, "keys", 0);
        int count = question.get("count").asInt();
        Random random = new Random(question.get("seed").asLong());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            byte[] key = keys > 0 ? bytes("key-" + random.nextInt(keys))
                : i % 7 == 0 ? null : bytes(i % 17 == 0 ? "" : "key-" + i);
            ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(topic, i % partitions, key, value(i, question, random));
            for (int h = 0; h < i % 4; h++) {
                record.headers().add(
                    new RecordHeader(h == 2 ? "ключ" : "h", h == 1 ? null : bytes("v" + i)));
            }
            sent.add(producer.send(record));
        }
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        return sent.size();
    }

    private static byte[] value(int i, JsonNode question, Random random) {
        int size = question.get("size").asInt() / 2 + random.nextInt(question.get("size").asInt());
        if (i % 11 == 0) {
            return i % 2 == 0 ? null : new byte[0];
        }
        if (question.path("random").asBoolean()) {
            byte[] value = new byte[size];
            random.nextBytes(value);
            return value;
        }
        StringBuilder text = new StringBuilder(size + 16);
        while (text.length() < size) {
            text.append(WORDS[random.nextInt(WORDS.length)]).append(' ');
        }
        return bytes(text.toString());
    }

    /**
     * Answers with the fingerprint of each partition of a "topic" as a consumer of "isolation"
     * gets it: the number of records, and the sum of their digests; with "each" also every offset
     * with its digest.
     */
    static void fingerprint(JsonNode question, ObjectNode answer) throws Exception {
        String topic = question.get("topic").asText();
        Map<String, Object> settings = Clients.settings(question);
        settings.put("isolation.level", question.get("isolation").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", 5000);
        settings.put("fetch.max.bytes", 8 << 20);
        ObjectNode found = answer.putObject("partitions");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(each -> new TopicPartition(topic, each.partition())).toList();
            long[] counts = new long[partitions.size()];
            long[] sums = new long[partitions.size()];
            boolean wantsEach = question.path("each").asBoolean();
            partitions.forEach(each -> {
                ObjectNode node = found.putObject(String.valueOf(each.partition()));
                if (wantsEach) {
                    node.putArray("each");
                }
            });
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long moved = System.currentTimeMillis();
            while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                if (System.currentTimeMillis() > moved + STALLED_MS) {
                    throw new IllegalStateException("nothing of " + topic + " for a minute");
                }
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100))) {
                    moved = System.currentTimeMillis();
                    if (each.offset() >= ends.get(new TopicPartition(topic, each.partition()))) {
                        continue;
                    }
                    long digest = digest(each);
                    counts[each.partition()]++;
                    sums[each.partition()] += digest;
                    if (wantsEach) {
                        ((ArrayNode) found.get(String.valueOf(each.partition())).get("each"))
                            .addArray().add(each.offset()).add(Long.toUnsignedString(digest));
                    }
                }
            }
            for (TopicPartition each : partitions) {
                ((ObjectNode) found.get(String.valueOf(each.partition())))
                    .put("count", counts[each.partition()])
                    .put("sum", Long.toUnsignedString(sums[each.partition()]))
                    .put("end", ends.get(each));
            }
        }
    }

    /** The first 8 bytes of SHA-256 over all fields of a record, each with its length. */
    private static long digest(ConsumerRecord<byte[], byte[]> record) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeLong(record.offset());
        out.writeLong(record.timestamp());
        out.writeByte(record.timestampType().id);
        put(out, record.key());
        put(out, record.value());
        out.writeInt(record.headers().toArray().length);
        for (Header header : record.headers()) {
            put(out, bytes(header.key()));
            put(out, header.value());
        }
        return ByteBuffer.wrap(
            MessageDigest.getInstance("SHA-256").digest(bytes.toByteArray())).getLong();
    }

    private static void put(DataOutputStream out, byte[] field) throws IOException {
        out.writeInt(field == null ? -1 : field.length);
        if (field != null) {
            out.write(field);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
