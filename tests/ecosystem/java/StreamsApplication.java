import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Instances of an application with state: words are counted, in total and by window, and joined with a table.
 * Exactly once. Arguments: addresses, application id, state directory, protocol (classic or streams), in-memory
 * stores (memory or disk), and the name of the instance. Prints its state when the state changes.
 */
public class StreamsApplication {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put("group.protocol", arguments[3]);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, arguments[4].equals("memory")
            ? "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"
            : "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDBDslStoreSuppliers");
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, arguments[5]);
        settings.put(StreamsConfig.APPLICATION_SERVER_CONFIG, "localhost:" + arguments[6]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put("auto.offset.reset", "earliest");
        if (arguments[3].equals("classic")) {
            settings.put("session.timeout.ms", 6000);
            settings.put("heartbeat.interval.ms", 1000);
            settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        }
        KafkaStreams streams = new KafkaStreams(topology(), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
        while (true) {
            Thread.sleep(500);
            System.out.println("tasks " + streams.metadataForLocalThreads().stream()
                .mapToInt(thread -> thread.activeTasks().size()).sum()
                + " standby " + streams.metadataForLocalThreads().stream()
                .mapToInt(thread -> thread.standbyTasks().size()).sum()
                + " instances " + streams.metadataForAllStreamsClients().size());
        }
    }

    private static org.apache.kafka.streams.Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Produced<String, String> texts = Produced.with(Serdes.String(), Serdes.String());
        KTable<String, String> kinds = builder.table("kinds");
        KStream<String, String> words = builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .selectKey((key, word) -> word);
        words.groupByKey().count().toStream().mapValues(count -> Long.toString(count)).to("counts", texts);
        words.groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofDays(3650))).count().toStream()
            .map((word, count) -> KeyValue.pair(word.key(), Long.toString(count))).to("windows", texts);
        words.join(kinds, (word, kind) -> word + " is " + kind).to("joined", texts);
        return builder.build();
    }
}
