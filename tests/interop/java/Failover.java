import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client while leaders die: sends numbers one after the other, says which are acknowledged, and reads them
 * beside that. Every error that the client does not deal with by itself ends the program.
 */
public class Failover {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        CompletableFuture<List<String>> read = CompletableFuture.supplyAsync(() -> consume(bootstrap, topic, count));
        produce(bootstrap, topic, count);
        for (String value : read.get()) {
            System.out.println("read " + value);
        }
    }

    static void produce(String bootstrap, String topic, int count) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < count; number++) {
                byte[] value = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
                System.out.println("acknowledged " + number);
            }
        }
    }

    static List<String> consume(String bootstrap, String topic, int count) {
        TopicPartition where = new TopicPartition(topic, 0);
        List<String> values = new ArrayList<>();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(where));
            consumer.seek(where, 0);
            while (values.size() < count) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1)).records(where)) {
                    values.add(new String(record.value(), StandardCharsets.UTF_8));
                }
            }
        }
        return values;
    }
}
