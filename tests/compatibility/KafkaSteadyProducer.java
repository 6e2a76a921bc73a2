import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java's producer, which sends one record after the other until one is refused; see
 * tests/compatibility/support/programs.py.
 *
 * steady: says of each record when it was sent (ms) and how many connections there are by then.
 */
public class KafkaSteadyProducer {
    private static long connections(KafkaProducer<String, String> producer) {
        return producer.metrics().entrySet().stream()
                .filter(each -> each.getKey().name().equals("connection-creation-total"))
                .filter(each -> each.getKey().group().equals("producer-metrics"))
                .mapToLong(each -> ((Double) each.getValue().metricValue()).longValue())
                .sum();
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream out = System.out;
        System.setOut(System.err);
        JsonNode settings = json.readTree(arguments[1]);
        Properties config = new Properties();
        settings.get("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        String topic = settings.get("topic").asText();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            while (true) {
                long began = System.currentTimeMillis();
                try {
                    producer.send(new ProducerRecord<>(topic, "a record")).get();
                } catch (ExecutionException refused) {
                    out.println(json.writeValueAsString(Map.of(
                            "refused", refused.getCause().getClass().getSimpleName(),
                            "connections", connections(producer))));
                    break;
                }
                out.println(json.writeValueAsString(Map.of(
                        "acknowledged", began, "connections", connections(producer))));
            }
        }
    }
}
