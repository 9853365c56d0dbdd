import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;

/**
 * Copies `input` to `output` in transactions of five records with Kafka's own clients, aborts each
 * third one, then checks that a second producer fences the first.
 *
 * Arguments: bootstrap servers, number of input records. Prints a line per fact.
 */
public class Transact {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        int count = Integer.parseInt(args[1]);
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap);
             KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, "copy")) {
            producer.initTransactions();
            consumer.subscribe(List.of("input"));
            TopicPartition input = new TopicPartition("input", 0);
            for (int done = 0, turn = 1; done < count; ) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(10));
                if (records.isEmpty()) {
                    continue;
                }
                long first = records.records(input).get(0).offset();
                long next = first;
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : records.records(input)) {
                    producer.send(new ProducerRecord<>("output", record.value()));
                    next = record.offset() + 1;
                }
                producer.sendOffsetsToTransaction(
                    Map.of(input, new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (turn++ % 3 == 0) {
                    producer.abortTransaction();
                    consumer.seek(input, first);
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
            System.out.println("committed " + consumer.committed(java.util.Set.of(input)).get(input).offset());
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("output", "lost".getBytes())).get();
            try (KafkaProducer<byte[], byte[]> second = producer(bootstrap)) {
                second.initTransactions();
                try {
                    producer.commitTransaction();
                    System.out.println("not fenced");
                } catch (ProducerFencedException | InvalidProducerEpochException error) {
                    System.out.println("fenced");
                }
            }
        }
        try (KafkaConsumer<byte[], byte[]> reader = consumer(bootstrap, "reader")) {
            reader.assign(List.of(new TopicPartition("output", 0)));
            int seen = 0;
            for (int empty = 0; empty < 2; ) {
                ConsumerRecords<byte[], byte[]> records = reader.poll(Duration.ofSeconds(1));
                empty = records.isEmpty() ? empty + 1 : 0;
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (!new String(record.value()).equals("" + seen++)) {
                        System.out.println("out of order: " + new String(record.value()));
                    }
                }
            }
            System.out.println("read " + seen);
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", "copy");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        return new KafkaProducer<>(settings);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "5");
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        return new KafkaConsumer<>(settings);
    }
}
