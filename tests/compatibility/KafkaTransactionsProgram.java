import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.OutputStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/**
 * Java's producer and consumer in transactions; see tests/compatibility/support/programs.py. Runs with
 * the clients of any version since 2.5.
 *
 * copy: moves records of one topic to the same partitions of another one, exactly once, until stdin ends;
 * with "mark", what is going to be aborted ends with "!". source: as tests/crash/chains/chain_links.py.
 */
public class KafkaTransactionsProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static OutputStream out;
    private static JsonNode settings;

    private static void say(String name, Object value) throws Exception {
        out.write((JSON.writeValueAsString(Map.of(name, value)) + "\n").getBytes("UTF-8"));
        out.flush();
    }

    private static Properties configure(Map<String, String> more) {
        Properties config = new Properties();
        config.put("bootstrap.servers", settings.get("servers").get(0).asText());
        for (String name : List.of("key", "value")) {
            config.put(name + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            config.put(name + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        config.putAll(more);
        return config;
    }

    private static KafkaConsumer<String, String> consumer() {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(configure(Map.of(
                "group.id", settings.get("group").asText(),
                "isolation.level", "read_committed",
                "enable.auto.commit", "false",
                "auto.offset.reset", "earliest",
                "session.timeout.ms", "6000",
                "heartbeat.interval.ms", "500",
                "max.poll.records", settings.get("size").asText())));
        consumer.subscribe(List.of(settings.get("topic").asText()));
        return consumer;
    }

    private static KafkaProducer<String, String> producer() {
        KafkaProducer<String, String> producer = new KafkaProducer<>(configure(Map.of(
                "transactional.id", settings.get("id").asText(),
                "transaction.timeout.ms", "10000",
                "linger.ms", "5")));
        producer.initTransactions();
        return producer;
    }

    /** Back to what the group has committed: the records of a transaction that was not. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            if (offset == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, offset.offset());
            }
        }
    }

    private static void send(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records,
            String mark) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> read : records) {
            producer.send(new ProducerRecord<>(
                    settings.get("output").asText(), read.partition(), read.key(), read.value() + mark));
            offsets.put(new TopicPartition(read.topic(), read.partition()), new OffsetAndMetadata(read.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    private static void copy(AtomicBoolean running) throws Exception {
        KafkaProducer<String, String> producer = producer();
        try (KafkaConsumer<String, String> consumer = consumer()) {
            for (int number = 1; running.get(); ) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                boolean aborts = number++ % settings.get("abortEvery").asInt() == 0;
                try {
                    producer.beginTransaction();
                    send(producer, consumer, records, aborts && settings.has("mark") ? "!" : "");
                    if (!aborts) {
                        producer.commitTransaction();
                        say("committed", records.count());
                        continue;
                    }
                } catch (ProducerFencedException
                        | InvalidProducerEpochException
                        | OutOfOrderSequenceException
                        | AuthorizationException
                        | UnsupportedVersionException fatal) {
                    throw fatal; // another one has this id, or it cannot be
                } catch (KafkaException abortable) {
                    say("failed", abortable.toString());
                }
                producer.abortTransaction();
                say("aborted", records.count());
                rewind(consumer);
            }
        }
        producer.close();
        say("left", true);
    }

    /** A line of a history: see tests/crash/chains/chain_history.py. */
    private static void note(String event, int number) throws Exception {
        Map<String, Object> line = Map.of("event", event, "time", System.nanoTime(), "number", number);
        out.write((JSON.writeValueAsString(line) + "\n").getBytes("UTF-8"));
        out.flush();
    }

    private static void source(AtomicBoolean running) throws Exception {
        String name = settings.get("name").asText();
        int size = settings.get("partitions").asInt();
        KafkaProducer<String, String> producer = producer();
        note("ready", 0);
        for (int number = 1; running.get(); number++) {
            boolean aborts = number % 4 == 0;
            note("begin", number);
            try {
                producer.beginTransaction();
                for (int index = 0; index < size; index++) {
                    int amount = index % 2 == 1 ? number : -number;
                    String value = name + ":" + number + ":" + index + ":" + size + ":" + (aborts ? "a" : "c") + ":" + amount;
                    producer.send(new ProducerRecord<>(settings.get("output").asText(), index, "" + index, value));
                }
                if (!aborts) {
                    producer.commitTransaction();
                    note("committed", number);
                    Thread.sleep(settings.get("pauseMs").asInt());
                    continue;
                }
                producer.flush();
            } catch (ProducerFencedException
                    | InvalidProducerEpochException
                    | OutOfOrderSequenceException
                    | AuthorizationException
                    | UnsupportedVersionException fatal) {
                throw fatal;
            } catch (KafkaException abortable) {
                note("failed", number);
            }
            producer.abortTransaction();
            note("aborted", number);
            Thread.sleep(settings.get("pauseMs").asInt());
        }
        producer.close();
    }

    public static void main(String[] arguments) throws Exception {
        out = System.out;
        System.setOut(System.err);
        settings = JSON.readTree(arguments[1]);
        AtomicBoolean running = new AtomicBoolean(true);
        Thread input = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException closed) {
                // as good as its end
            }
            running.set(false);
        });
        input.setDaemon(true);
        input.start();
        switch (arguments[0]) {
            case "copy" -> copy(running);
            case "source" -> source(running);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }
}
