import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Real clients of a real broker; each question names the broker in "bootstrap". */
final class Clients {
    private static final long PATIENCE_MS = 60_000;

    private Clients() { }

    /** Answers with all "records" of a topic's partitions, by partition. */
    static void consume(JsonNode question, ObjectNode answer) throws Exception {
        String topic = question.get("topic").asText();
        Map<String, Object> settings = settings(question);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        ObjectNode records = answer.putObject("records");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(each -> new TopicPartition(topic, each.partition())).toList();
            partitions.forEach(each -> records.putArray(String.valueOf(each.partition())));
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("no end of " + topic + " within a minute");
                }
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100))) {
                    put(each, (ArrayNode) records.get(String.valueOf(each.partition())));
                }
            }
        }
    }

    private static void put(ConsumerRecord<byte[], byte[]> record, ArrayNode to) {
        ObjectNode node = to.addObject().put("offset", record.offset())
            .put("timestamp", record.timestamp())
            .put("key", text(record.key()))
            .put("value", text(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
    }

    /** Appends "count" records to a "partition" as an idempotent producer; answers "offsets". */
    static void produce(JsonNode question, ObjectNode answer) throws Exception {
        String topic = question.get("topic").asText();
        int partition = question.get("partition").asInt();
        Map<String, Object> settings = settings(question);
        settings.put("enable.idempotence", "true");
        settings.put("compression.type", "zstd");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < question.get("count").asInt(); i++) {
                byte[] value = ("from the broker's producer " + i).getBytes();
                sent.add(producer.send(new ProducerRecord<>(topic, partition, null, value)));
            }
        }
        ArrayNode offsets = answer.putArray("offsets");
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
    }

    /** Creates a "topic" with "partitions", with its own settings in "configs". */
    static void create(JsonNode question) throws Exception {
        try (Admin admin = Admin.create(settings(question))) {
            String topic = question.get("topic").asText();
            int partitions = question.get("partitions").asInt();
            Map<String, String> configs = new HashMap<>();
            question.path("configs").fields()
                .forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
            NewTopic made = new NewTopic(topic, partitions, (short) 1).configs(configs);
            admin.createTopics(List.of(made)).all().get();
        }
    }

    /** Commits that "group" has read "topic" up to "offset" of its partition 0. */
    static void commit(JsonNode question) throws Exception {
        try (Admin admin = Admin.create(settings(question))) {
            TopicPartition partition = new TopicPartition(question.get("topic").asText(), 0);
            admin.alterConsumerGroupOffsets(question.get("group").asText(),
                Map.of(partition, new OffsetAndMetadata(question.get("offset").asLong()))).all().get();
        }
    }

    /** Answers with the "offset" that "group" has committed for partition 0 of "topic". */
    static void committed(JsonNode question, ObjectNode answer) throws Exception {
        try (Admin admin = Admin.create(settings(question))) {
            TopicPartition partition = new TopicPartition(question.get("topic").asText(), 0);
            answer.put("offset", admin.listConsumerGroupOffsets(question.get("group").asText())
                .partitionsToOffsetAndMetadata().get().get(partition).offset());
        }
    }

    /** Deletes a "topic". */
    static void delete(JsonNode question) throws Exception {
        try (Admin admin = Admin.create(settings(question))) {
            admin.deleteTopics(List.of(question.get("topic").asText())).all().get();
        }
    }

    /** Sets "key" of a "topic" to "value". */
    static void configure(JsonNode question) throws Exception {
        try (Admin admin = Admin.create(settings(question))) {
            ConfigEntry entry =
                new ConfigEntry(question.get("key").asText(), question.get("value").asText());
            ConfigResource topic =
                new ConfigResource(ConfigResource.Type.TOPIC, question.get("topic").asText());
            admin.incrementalAlterConfigs(
                Map.of(topic, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    /** Answers with a topic's "topicId", its own "configs", and the "producers" of a "partition". */
    static void describe(JsonNode question, ObjectNode answer) throws Exception {
        try (Admin admin = Admin.create(settings(question))) {
            String topic = question.get("topic").asText();
            TopicDescription described =
                admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            answer.put("topicId", described.topicId().toString());
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            ObjectNode configs = answer.putObject("configs");
            for (ConfigEntry each : admin.describeConfigs(List.of(resource)).all().get()
                    .get(resource).entries()) {
                if (each.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                    configs.put(each.name(), each.value());
                }
            }
            TopicPartition partition = new TopicPartition(topic, question.get("partition").asInt());
            ObjectNode producers = answer.putObject("producers");
            admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                .activeProducers().forEach(each -> producers.putArray(String.valueOf(each.producerId()))
                    .add(each.producerEpoch()).add(each.lastSequence()));
        }
    }

    static Map<String, Object> settings(JsonNode question) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", question.get("bootstrap").asText());
        return settings;
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
