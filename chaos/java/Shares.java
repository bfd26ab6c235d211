import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group: accepts or releases all records until its standard input ends, and prints each step.
 *
 * Lines: `accepts VALUE` or `releases VALUE` for a delivery, and `accepted VALUE` when its acceptance was answered.
 */
public class Shares {
    static final double RELEASES = 0.1;

    final Map<String, Object> settings = new HashMap<>();
    final String topic;
    final Random random;

    Shares(String bootstrap, String topic, String group, long seed) {
        this.topic = topic;
        this.random = new Random(seed);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", 50);
        settings.put("fetch.max.wait.ms", 100);
        settings.put("retry.backoff.ms", 20);
        settings.put("retry.backoff.max.ms", 200);
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("request.timeout.ms", 5000);
        settings.put("default.api.timeout.ms", 10000);
    }

    public static void main(String[] arguments) throws Exception {
        Shares shares = new Shares(arguments[0], arguments[1], arguments[2], Long.parseLong(arguments[3]));
        Thread stopping = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException e) {
                // The input is gone: that is its end, too.
            }
        });
        stopping.setDaemon(true);
        stopping.start();
        while (stopping.isAlive()) {
            try {
                shares.work(stopping);
            } catch (KafkaException e) {
                Thread.sleep(500);
            }
        }
    }

    void work(Thread stopping) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings, bytes, bytes);
        try {
            consumer.subscribe(List.of(topic));
            while (stopping.isAlive()) {
                Map<TopicPartition, List<String>> accepted = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    String value = new String(record.value(), StandardCharsets.UTF_8);
                    boolean releases = random.nextDouble() < RELEASES;
                    System.out.println((releases ? "releases " : "accepts ") + value);
                    consumer.acknowledge(record, releases ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    if (!releases) {
                        accepted.computeIfAbsent(partition, key -> new ArrayList<>()).add(value);
                    }
                }
                commit(consumer, accepted);
            }
        } finally {
            consumer.close(Duration.ofSeconds(5));
        }
    }

    void commit(KafkaShareConsumer<byte[], byte[]> consumer, Map<TopicPartition, List<String>> accepted) {
        Map<TopicIdPartition, Optional<KafkaException>> answers = consumer.commitSync(Duration.ofSeconds(10));
        answers.forEach((partition, error) -> {
            if (error.isEmpty()) {
                for (String value : accepted.getOrDefault(partition.topicPartition(), List.of())) {
                    System.out.println("accepted " + value);
                }
            }
        });
    }
}
