// What Apache Kafka's own assignors answer to the subscriptions on standard input, one JSON value a line.
//
//   {"assignor": "range", "counts": {"a": 3}, "members": [{"id": "m", "instance": null, "subscription": "<base64>"}]}
//   -> {"assignment": {"m": [["a", 0], ...]}, "subscriptions": {"m": "<the same, written by Java>"}}
//   {"sticky": [["a", 0]], "generation": 3}  -> {"sticky": "<base64>", "cooperative": "<base64>"}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class JavaAssignors {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            System.out.println(JSON.writeValueAsString(asked.has("sticky") ? userData(asked) : assign(asked)));
        }
    }

    static ConsumerPartitionAssignor named(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    static ObjectNode assign(JsonNode asked) {
        Node node = new Node(0, "localhost", 1);
        List<PartitionInfo> partitions = new ArrayList<>();
        asked.get("counts").fields().forEachRemaining(topic -> {
            for (int number = 0; number < topic.getValue().asInt(); number++)
                partitions.add(new PartitionInfo(topic.getKey(), number, node, new Node[] {node}, new Node[] {node}));
        });
        Cluster cluster = new Cluster("c", List.of(node), partitions, new HashSet<>(), new HashSet<>());
        Map<String, ConsumerPartitionAssignor.Subscription> subscriptions = new HashMap<>();
        ObjectNode answer = JSON.createObjectNode();
        ObjectNode rewritten = answer.putObject("subscriptions");
        for (JsonNode member : asked.get("members")) {
            byte[] bytes = Base64.getDecoder().decode(member.get("subscription").asText());
            ConsumerPartitionAssignor.Subscription read = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(bytes));
            rewritten.put(member.get("id").asText(), base64(ConsumerProtocol.serializeSubscription(read)));
            if (!member.get("instance").isNull())
                read.setGroupInstanceId(Optional.of(member.get("instance").asText()));
            subscriptions.put(member.get("id").asText(), read);
        }
        ObjectNode assignment = answer.putObject("assignment");
        named(asked.get("assignor").asText())
            .assign(cluster, new ConsumerPartitionAssignor.GroupSubscription(subscriptions))
            .groupAssignment()
            .forEach((id, given) -> {
                ArrayNode list = assignment.putArray(id);
                for (TopicPartition one : given.partitions())
                    list.addArray().add(one.topic()).add(one.partition());
            });
        return answer;
    }

    static ObjectNode userData(JsonNode asked) {
        List<TopicPartition> owned = new ArrayList<>();
        for (JsonNode one : asked.get("sticky"))
            owned.add(new TopicPartition(one.get(0).asText(), one.get(1).asInt()));
        ObjectNode answer = JSON.createObjectNode();
        for (String name : List.of("sticky", "cooperative")) {
            ConsumerPartitionAssignor assignor = named(name);
            assignor.onAssignment(
                new ConsumerPartitionAssignor.Assignment(owned),
                new ConsumerGroupMetadata("g", asked.get("generation").asInt(), "m", Optional.empty()));
            answer.put(name, base64(assignor.subscriptionUserData(new HashSet<>())));
        }
        return answer;
    }

    static String base64(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
