import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads records of a topic several times from several servers in turn; prints records per second. */
public final class Consume {
    public static void main(String[] arguments) {
        String topic = arguments[0];
        int partitions = Integer.parseInt(arguments[1]);
        long count = Long.parseLong(arguments[2]);
        int rounds = Integer.parseInt(arguments[3]);
        for (int round = 0; round < rounds; round++) {
            for (int turn = 4; turn < arguments.length; turn++) {
                // Whichever comes first in a round is slower, so the order alternates.
                int server = round % 2 == 0 ? turn : arguments.length + 3 - turn;
                System.out.printf("%d %.1f%n", server - 4, rate(arguments[server], topic, partitions, count));
            }
        }
    }

    private static double rate(String server, String topic, int partitions, long count) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", server,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class,
            "enable.auto.commit", false,
            "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> all =
                IntStream.range(0, partitions).mapToObj(each -> new TopicPartition(topic, each)).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long seen = consumer.poll(Duration.ofSeconds(30)).count();
            long first = seen;
            long begun = System.nanoTime();
            while (seen < count) {
                int more = consumer.poll(Duration.ofSeconds(30)).count();
                if (more == 0) {
                    throw new IllegalStateException("only " + seen + " of " + count + " records came");
                }
                seen += more;
            }
            return (seen - first) / ((System.nanoTime() - begun) / 1e9);
        }
    }
}
