import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.OutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Applications of Kafka Streams, one for each command; see tests/compatibility/support/programs.py.
 *
 * They read topics whose names begin with "topic", write others, and run until stdin ends.
 */
public class KafkaStreamsProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static OutputStream out;
    private static String topic;

    private static synchronized void say(String name, Object value) {
        try {
            out.write((JSON.writeValueAsString(Map.of(name, value)) + "\n").getBytes("UTF-8"));
            out.flush();
        } catch (java.io.IOException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Words of lines: repartitioned by word. */
    private static void counts(StreamsBuilder builder) {
        KStream<String, String> lines = builder.stream(topic);
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(String::valueOf)
                .to(topic + "-counts");
    }

    /** The numbers seen of each key: the same however often a record comes. */
    private static void distinct(StreamsBuilder builder) {
        KStream<String, String> numbers = builder.stream(topic);
        numbers.groupByKey()
                .aggregate(() -> "", KafkaStreamsProgram::with, Materialized.as("distinct"))
                .toStream()
                .to(topic + "-distinct");
    }

    private static String with(String key, String number, String before) {
        TreeSet<Integer> seen = new TreeSet<>();
        for (String one : (before.isEmpty() ? number : before + "," + number).split(",")) {
            seen.add(Integer.valueOf(one));
        }
        return String.join(",", seen.stream().map(String::valueOf).toList());
    }

    /** Sums by windows that tumble (each told once, when it is over), that overlap, of activity. */
    private static void windows(StreamsBuilder builder) {
        KStream<String, String> amounts = builder.stream(topic);
        KGroupedStream<String, Long> grouped =
                amounts.mapValues(text -> Long.valueOf(text)).groupByKey(Grouped.with(Serdes.String(), Serdes.Long()));
        grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW))
                .reduce(Long::sum)
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
                .toStream((window, sum) -> name(window))
                .mapValues(String::valueOf)
                .to(topic + "-tumbling");
        grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW).advanceBy(WINDOW.dividedBy(2)))
                .reduce(Long::sum)
                .toStream((window, sum) -> name(window))
                .mapValues(String::valueOf)
                .to(topic + "-hopping");
        grouped.windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofSeconds(2)))
                .reduce(Long::sum)
                .toStream((window, sum) -> name(window))
                .mapValues(sum -> sum == null ? null : String.valueOf(sum))
                .to(topic + "-sessions");
    }

    private static String name(Windowed<String> window) {
        return window.key() + "@" + window.window().start() + "-" + window.window().end();
    }

    /** Orders "customer,amount" with customers, in all ways of joining. */
    private static void joins(StreamsBuilder builder) {
        KTable<String, String> customers = builder.table(topic + "-customers");
        GlobalKTable<String, String> regions = builder.globalTable(topic + "-regions");
        KStream<String, String> orders = builder.stream(topic + "-orders");
        KTable<String, String> table = orders.toTable(Materialized.as("orders"));
        KStream<String, String> byCustomer =
                orders.map((order, text) -> KeyValue.pair(text.split(",")[0], order));
        byCustomer.join(customers, (order, customer) -> order + ":" + customer).to(topic + "-inner");
        byCustomer.leftJoin(customers, (order, customer) -> order + ":" + customer).to(topic + "-left");
        byCustomer
                .join(regions, (customer, order) -> "region-" + customer.length(), (o, region) -> o + ":" + region)
                .to(topic + "-global");
        table.join(customers, text -> text.split(",")[0], (text, customer) -> text + ":" + customer)
                .toStream()
                .to(topic + "-foreign");
        KTable<String, Long> spent = orders.map(
                        (order, text) -> KeyValue.pair(text.split(",")[0], Long.valueOf(text.split(",")[1])))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .reduce(Long::sum, Materialized.with(Serdes.String(), Serdes.Long()));
        customers.outerJoin(spent, (customer, sum) -> customer + ":" + sum)
                .toStream()
                .to(topic + "-spent");
        KStream<String, String> payments = builder.stream(topic + "-payments");
        orders.outerJoin(
                        payments,
                        (order, payment) -> order + ":" + payment,
                        JoinWindows.ofTimeDifferenceWithNoGrace(WINDOW),
                        StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()))
                .to(topic + "-paid");
    }

    private static StreamsBuilder build(String command) {
        StreamsBuilder builder = new StreamsBuilder();
        switch (command) {
            case "counts" -> counts(builder);
            case "distinct" -> distinct(builder);
            case "windows" -> windows(builder);
            case "joins" -> joins(builder);
            default -> throw new IllegalArgumentException(command);
        }
        return builder;
    }

    private static Properties configure(JsonNode settings) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, settings.get("group").asText());
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, settings.get("servers").asText());
        config.put(StreamsConfig.STATE_DIR_CONFIG, settings.get("folder").asText());
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // each update is told
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        config.put(StreamsConfig.consumerPrefix(ConsumerConfig.METADATA_MAX_AGE_CONFIG), 2000);
        settings.get("config").properties().forEach(one -> config.put(one.getKey(), one.getValue().asText()));
        return config;
    }

    /** What the named store holds here. */
    private static Map<String, String> holds(KafkaStreams streams, String store) {
        Map<String, String> found = new TreeMap<>();
        ReadOnlyKeyValueStore<String, Object> local =
                streams.store(StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.keyValueStore()));
        try (KeyValueIterator<String, Object> all = local.all()) {
            all.forEachRemaining(one -> found.put(one.key, String.valueOf(one.value)));
        }
        return found;
    }

    private static List<String> tasks(KafkaStreams streams) {
        TreeSet<String> active = new TreeSet<>();
        streams.metadataForLocalThreads()
                .forEach(thread -> thread.activeTasks().forEach(task -> active.add(task.taskId().toString())));
        return new ArrayList<>(active);
    }

    public static void main(String[] arguments) throws Exception {
        out = System.out;
        System.setOut(System.err);
        JsonNode settings = JSON.readTree(arguments[1]);
        topic = settings.get("topic").asText();
        KafkaStreams streams = new KafkaStreams(build(arguments[0]).build(), configure(settings));
        CountDownLatch ended = new CountDownLatch(1);
        Throwable[] failure = new Throwable[1];
        streams.setUncaughtExceptionHandler(thrown -> {
            failure[0] = thrown;
            ended.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                say("tasks", tasks(streams));
            }
            say("state", now.name());
        });
        Thread input = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException closed) {
                // as good as its end
            }
            ended.countDown();
        });
        input.setDaemon(true);
        input.start();
        streams.start();
        ended.await();
        if (failure[0] != null) {
            for (Throwable cause = failure[0]; cause != null; cause = cause.getCause()) {
                System.err.println(cause);
            }
            Runtime.getRuntime().halt(1); // closing would try for a minute what has failed
        }
        if (settings.has("store")) {
            say("holds", holds(streams, settings.get("store").asText()));
        }
        streams.close(Duration.ofMinutes(2));
        say("left", true);
    }
}
