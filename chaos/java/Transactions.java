import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A transactional producer: runs transactions of several records until its standard input ends, and prints each step.
 *
 * Lines: `begin`, `sent PARTITION VALUE`, `acknowledged VALUE OFFSET`, then `committed`, `aborted` or `unknown`. A
 * transaction whose commit was never requested is aborted, whatever happens to its producer.
 */
public class Transactions {
    static final int RECORDS_MAX = 6;
    static final double ABORTS = 0.2;
    static final int PAUSE_MS = 40;
    static final int COMMITS_MAX = 20;

    final Map<String, Object> settings = new HashMap<>();
    final String topic;
    final int partitions;
    final Random random;
    long value;
    KafkaProducer<byte[], byte[]> producer;

    Transactions(String bootstrap, String topic, int partitions, String name, long seed, long value) {
        this.topic = topic;
        this.partitions = partitions;
        this.random = new Random(seed);
        this.value = value;
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", name);
        settings.put("transaction.timeout.ms", 10000);
        settings.put("linger.ms", 2);
        settings.put("retry.backoff.ms", 20);
        settings.put("retry.backoff.max.ms", 200);
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("request.timeout.ms", 5000);
        settings.put("delivery.timeout.ms", 8000);
        settings.put("max.block.ms", 5000);
    }

    public static void main(String[] arguments) throws Exception {
        Transactions transactions = new Transactions(arguments[0], arguments[1], Integer.parseInt(arguments[2]),
                arguments[3], Long.parseLong(arguments[4]), Long.parseLong(arguments[5]));
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
            transactions.runOne();
            Thread.sleep(transactions.random.nextInt(2 * PAUSE_MS));
        }
        transactions.close();
    }

    static synchronized void print(String line) {
        System.out.println(line);
    }

    void close() {
        if (producer != null) {
            producer.close(Duration.ofSeconds(5));
            producer = null;
        }
    }

    void runOne() {
        try {
            if (producer == null) {
                producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                producer.initTransactions();
            }
            producer.beginTransaction();
        } catch (KafkaException e) {
            close();
            return;
        }
        print("begin");
        try {
            send();
        } catch (KafkaException e) {
            abort();
            return;
        }
        if (random.nextDouble() < ABORTS) {
            abort();
        } else {
            commit();
        }
    }

    void send() {
        int count = 2 + random.nextInt(RECORDS_MAX - 1);
        for (int i = 0; i < count; i++) {
            long number = value++;
            int partition = random.nextInt(partitions);
            print("sent " + partition + " " + number);
            byte[] bytes = Long.toString(number).getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(topic, partition, null, bytes), (metadata, error) -> {
                if (error == null) {
                    print("acknowledged " + number + " " + metadata.offset());
                }
            });
        }
    }

    /** No commit was requested: if the abort fails, too, the transaction times out. */
    void abort() {
        try {
            producer.abortTransaction();
        } catch (KafkaException e) {
            close();
        }
        print("aborted");
    }

    void commit() {
        for (int attempt = 0; attempt < COMMITS_MAX; attempt++) {
            try {
                producer.commitTransaction();
                print("committed");
                return;
            } catch (TimeoutException e) {
                continue;
            } catch (KafkaException e) {
                break;
            }
        }
        try {
            producer.abortTransaction();
            print("aborted");
        } catch (KafkaException | IllegalStateException e) {
            // After a commit that timed out, the client allows only another commit.
            close();
            print("unknown");
        }
    }
}
