import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Where a consumer group goes on in the cluster that a mirror fills, as MirrorMaker 2's library tells
 * its users.
 *
 * Arguments:  alias of the source, group, then settings of the client (name=value).
 * On stdout:  a line for each partition, in order: topic, partition, offset.
 */
public class TranslatedOffsets {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        for (int i = 2; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        Map<TopicPartition, OffsetAndMetadata> translated = RemoteClusterUtils.translateOffsets(
                settings, arguments[0], arguments[1], Duration.ofSeconds(60));
        Map<String, Long> lines = new TreeMap<>();
        translated.forEach((partition, offset) ->
                lines.put(partition.topic() + " " + partition.partition(), offset.offset()));
        lines.forEach((where, offset) -> System.out.println(where + " " + offset));
    }
}
