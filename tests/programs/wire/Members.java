import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;

/**
 * Consumers of one group that come and go by commands on standard input:
 *
 *   start NAME PROTOCOL SUBSCRIPTION [KEY=VALUE ...]    SUBSCRIPTION: a topic, or /pattern/
 *   stop NAME
 *   state                                               answers a line: NAME PARTITIONS READ ERROR; ...
 *
 * Argument: bootstrap servers. Each consumer commits what it has read.
 */
public class Members {
    static class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final TreeSet<String> assigned = new TreeSet<>();
        private volatile boolean isStopping;
        private int read;
        private String error = "-";

        Member(String bootstrap, String protocol, String subscription, String[] more) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            properties.put("group.id", "g");
            properties.put("group.protocol", protocol);
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            properties.put("metadata.max.age.ms", "1000");
            if (protocol.equals("classic")) {
                properties.put("session.timeout.ms", "10000");
                properties.put("heartbeat.interval.ms", "300");
            }
            String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
            properties.put("key.deserializer", bytes);
            properties.put("value.deserializer", bytes);
            for (String each : more) {
                properties.put(each.split("=", 2)[0], each.split("=", 2)[1]);
            }
            consumer = new KafkaConsumer<>(properties);
            if (subscription.startsWith("/")) {
                String pattern = subscription.substring(1, subscription.length() - 1);
                consumer.subscribe(new SubscriptionPattern(pattern), this);
            } else {
                consumer.subscribe(List.of(subscription), this);
            }
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> assigned.add(each.toString()));
        }

        @Override
        public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> assigned.remove(each.toString()));
        }

        @Override
        public synchronized void onPartitionsLost(Collection<TopicPartition> partitions) {
            error = "lost";
            onPartitionsRevoked(partitions);
        }

        private synchronized void note(int count) {
            read += count;
        }

        synchronized String state() {
            String partitions = assigned.isEmpty() ? "-" : String.join(",", assigned);
            return partitions + " " + read + " " + error;
        }

        @Override
        public void run() {
            try (consumer) {
                while (!isStopping) {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                    if (records.isEmpty()) {
                        continue;
                    }
                    note(records.count());
                    try {
                        consumer.commitSync();
                    } catch (CommitFailedException | org.apache.kafka.common.errors.RebalanceInProgressException late) {
                        note(0); // the next owner reads them again
                    }
                }
            } catch (Exception raised) {
                synchronized (this) {
                    error = raised.toString().replace(' ', '_').replace(';', ',');
                }
            }
        }

        void end() throws InterruptedException {
            isStopping = true;
            join();
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, Member> members = new TreeMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "start" -> {
                    String[] more = java.util.Arrays.copyOfRange(words, 4, words.length);
                    Member member = new Member(args[0], words[2], words[3], more);
                    members.put(words[1], member);
                    member.start();
                    System.out.println("started");
                }
                case "stop" -> {
                    Member member = members.remove(words[1]);
                    member.end();
                    System.out.println("stopped " + member.state());
                }
                default -> System.out.println(members.entrySet().stream()
                    .map(each -> each.getKey() + " " + each.getValue().state())
                    .collect(Collectors.joining(";")));
            }
        }
        for (Member each : members.values()) {
            each.end();
        }
    }
}
