import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What the Java client sees and sends: writes a topic of its own, one partition per codec, then prints all of it
 * and all of a topic that others wrote, a line per record: partition, offset, key, value, headers.
 */
public class RoundTrip {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final int EACH = 3;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String theirs = arguments[1];
        String ours = arguments[2];
        administer(bootstrap, ours);
        for (int partition = 0; partition < CODECS.length; partition++) {
            produce(bootstrap, ours, partition);
        }
        produceLarge(bootstrap, arguments[3]);
        consume(bootstrap, List.of(theirs, ours));
    }

    static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    static void administer(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(properties(bootstrap))) {
            NewTopic wanted = new NewTopic(topic, CODECS.length, (short) 1).configs(Map.of("retention.ms", "123456789"));
            admin.createTopics(List.of(wanted)).all().get();
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            check(found.partitions().size() == CODECS.length, "partitions");
            check(found.partitions().get(0).leader().id() == 1, "leader");
            check(admin.describeCluster().nodes().get().size() == 1, "cluster");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            String retention = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
            check(retention.equals("123456789"), "configs");
            TopicPartition first = new TopicPartition(topic, 0);
            check(admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset() == 0, "offsets");
            check(admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).size() == 1, "log directories");
            check(admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"), "features");
        }
    }

    /** A value of exactly 1 MiB that no codec makes smaller. */
    static void produceLarge(String bootstrap, String topic) throws Exception {
        byte[] value = new byte[1 << 20];
        new Random(1).nextBytes(value);
        for (String codec : CODECS) {
            Properties properties = properties(bootstrap);
            properties.put("max.request.size", Integer.toString(2 << 20));
            properties.put("compression.type", codec);
            try (KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
                producer.send(new ProducerRecord<>(topic, 0, bytes("key"), value)).get();
            }
        }
    }

    static void produce(String bootstrap, String topic, int partition) throws Exception {
        Properties properties = properties(bootstrap);
        properties.put("compression.type", CODECS[partition]);
        properties.put("linger.ms", "20");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < EACH; i++) {
                byte[] value = i == EACH - 1 ? null : bytes(CODECS[partition] + " " + i + " " + "x".repeat(200));
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, i == 0 ? null : bytes("key"), value);
                record.headers().add("codec", bytes(CODECS[partition])).add("codec", bytes("")).add("null", null);
                producer.send(record);
            }
            producer.flush();
        }
    }

    static void consume(String bootstrap, List<String> topics) {
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties(bootstrap), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : topics) {
                consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = new HashMap<>(consumer.endOffsets(partitions));
            while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                consumer.poll(Duration.ofMillis(200)).forEach(RoundTrip::print);
            }
        }
    }

    static void print(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(header.key() + "=" + text(header.value()));
        }
        System.out.println(String.join("\t", record.topic(), "" + record.partition(), "" + record.offset(),
                text(record.key()), text(record.value()), headers.stream().collect(Collectors.joining(","))));
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? "null" : "'" + new String(bytes, StandardCharsets.UTF_8) + "'";
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
