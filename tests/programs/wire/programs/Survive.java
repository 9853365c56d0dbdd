import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Produces numbers to `events` and consumes what is committed, while its server comes and goes.
 *
 * Arguments: bootstrap servers, `idempotent` or `transactional`, a directory for the results. Prints
 * a line per progress, ends once stdin does. The files of the results have a number per line:
 * `acknowledged`, `failed` and `seen` records; `committed`, `aborted` and `unknown` transactions, of
 * which number N has the records 10 N to 10 N + 4.
 */
public class Survive {
    private static final TopicPartition EVENTS = new TopicPartition("events", 0);

    private final String bootstrap;
    private final Path results;
    private final AtomicBoolean isOver = new AtomicBoolean();
    private final AtomicBoolean isComplete = new AtomicBoolean();
    private final List<Integer> seen = Collections.synchronizedList(new ArrayList<>());

    private Survive(String bootstrap, Path results) {
        this.bootstrap = bootstrap;
        this.results = results;
    }

    public static void main(String[] args) throws Exception {
        Survive survive = new Survive(args[0], Path.of(args[2]));
        Thread waiting = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException error) {
                error.printStackTrace();
            }
            survive.isOver.set(true);
        });
        waiting.setDaemon(true);
        waiting.start();
        Thread consumer = new Thread(survive::consume);
        consumer.start();
        if (args[1].equals("idempotent")) {
            survive.produce();
        } else {
            survive.transact();
        }
        survive.isComplete.set(true);
        consumer.join();
        survive.write("seen", survive.seen);
    }

    private void produce() throws Exception {
        List<Integer> acknowledged = Collections.synchronizedList(new ArrayList<>());
        List<Integer> failed = Collections.synchronizedList(new ArrayList<>());
        try (KafkaProducer<String, String> producer = producer(null)) {
            for (int number = 0; !isOver.get(); number++) {
                int mine = number;
                producer.send(new ProducerRecord<>("events", 0, null, "" + number), (at, error) -> {
                    (error == null ? acknowledged : failed).add(mine);
                    if (error == null && mine % 100 == 0) {
                        System.out.println("progress");
                    }
                });
                if (number % 20 == 0) {
                    Thread.sleep(2);
                }
            }
            producer.flush();
        }
        write("acknowledged", acknowledged);
        write("failed", failed);
    }

    private void transact() throws Exception {
        List<Integer> committed = new ArrayList<>();
        List<Integer> aborted = new ArrayList<>();
        List<Integer> unknown = new ArrayList<>();
        KafkaProducer<String, String> producer = producer("writer");
        for (int number = 1; !isOver.get(); number++) {
            boolean isDecided = false;
            try {
                producer.beginTransaction();
                for (int place = 0; place < 5; place++) {
                    producer.send(new ProducerRecord<>("events", 0, null, "" + (10 * number + place)));
                }
                producer.flush();
                if (number % 3 == 0) {
                    producer.abortTransaction();
                    aborted.add(number);
                    continue;
                }
                isDecided = true;
                commit(producer);
                committed.add(number);
                System.out.println("progress");
            } catch (KafkaException error) {
                (isDecided ? unknown : aborted).add(number);
                producer.close(Duration.ZERO);
                producer = producer("writer");
            }
        }
        producer.close();
        producer("writer").close(); // ends what is open
        write("committed", committed);
        write("aborted", aborted);
        write("unknown", unknown);
    }

    private static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                // The same call may be repeated.
            }
        }
    }

    private void consume() {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", "read_committed",
            "reconnect.backoff.max.ms", 100,
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(EVENTS));
            consumer.seekToBeginning(List.of(EVENTS));
            while (true) {
                boolean isLast = isComplete.get();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    seen.add(Integer.parseInt(record.value()));
                }
                if (isLast && consumer.position(EVENTS) >= consumer.endOffsets(List.of(EVENTS)).get(EVENTS)) {
                    return;
                }
            }
        }
    }

    private KafkaProducer<String, String> producer(String transactionalId) {
        Map<String, Object> settings = new java.util.HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "enable.idempotence", true,
            "reconnect.backoff.max.ms", 100,
            "retry.backoff.max.ms", 200,
            "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class));
        if (transactionalId == null) {
            return new KafkaProducer<>(settings);
        }
        settings.put("transactional.id", transactionalId);
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        while (true) {
            try {
                producer.initTransactions();
                return producer;
            } catch (TimeoutException error) {
                // The same call may be repeated.
            }
        }
    }

    private void write(String name, List<Integer> numbers) throws Exception {
        List<String> lines = numbers.stream().map(String::valueOf).toList();
        Files.write(results.resolve(name), lines);
    }
}
