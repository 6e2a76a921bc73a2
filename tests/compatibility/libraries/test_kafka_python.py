"""kafka-python's admin, producer and consumer calls against a live Bradbury."""

import time
from collections.abc import Iterator
from importlib.metadata import version

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    GroupState,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
)
from kafka.structs import OffsetAndMetadata

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.support.ray.three_nodes import until

pytestmark = pytest.mark.slow


@pytest.fixture
def tool(recorder: Recorder) -> Tool:
    return recorder.tool("kafka-python", version("kafka-python"))


@pytest.fixture(scope="module")
def admin(servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=30_000)
    yield client
    client.close()


@pytest.fixture
def group(servers: str, filled: str, new_name: str) -> str:
    """A group that has read five of the ten records, and has no member."""
    name = f"{new_name}-group"
    with bradbury.Consumer(
        filled, bootstrap=servers, group=name, enable_auto_commit=False
    ) as consumer:
        consumer.poll(3000)
        consumer.commit({(filled, 0): 5})
    return name


# --- topics and configs --------------------------------------------------------------------------


def test_topics(admin: KafkaAdminClient, tool: Tool, new_name: str) -> None:
    with tool.call("KafkaAdminClient.create_topics", "KafkaAdminClient.wait_for_topics"):
        wanted = {"num_partitions": 2, "configs": {"retention.ms": "60000"}}
        admin.create_topics({new_name: wanted})
        admin.wait_for_topics([new_name])
    with tool.call("KafkaAdminClient.list_topics"):
        assert new_name in admin.list_topics()
    with tool.call("KafkaAdminClient.describe_topics"):
        (found,) = admin.describe_topics([new_name])
        assert len(found["partitions"]) == 2
    with tool.call("KafkaAdminClient.create_partitions"):
        admin.create_partitions({new_name: 4})
        (found,) = admin.describe_topics([new_name])
        assert len(found["partitions"]) == 4
    with tool.call("KafkaAdminClient.describe_topic_partitions"):
        found = admin.describe_topic_partitions([new_name], response_partition_limit=3)
        assert len(found["topics"][0]["partitions"]) == 3
        assert found["next_cursor"]["partition_index"] == 3
    with tool.call("KafkaAdminClient.delete_topics"):
        admin.delete_topics([new_name])
        assert new_name not in admin.list_topics()


def test_configs(admin: KafkaAdminClient, tool: Tool, topic: str) -> None:
    def shown(name: str) -> str | None:
        found = admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
        )
        (by_name,) = next(iter(found.values())).values()
        return by_name[name]["value"]

    with tool.call("KafkaAdminClient.describe_configs"):
        assert shown("cleanup.policy") == "delete"
    with tool.call("KafkaAdminClient.alter_configs"):
        changed = {"retention.ms": "54321", "cleanup.policy": "compact"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changed)])
        assert (shown("retention.ms"), shown("cleanup.policy")) == ("54321", "compact")
    with tool.call("KafkaAdminClient.alter_configs (append)"):
        append = {"cleanup.policy": ("APPEND", "delete")}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, append)])
        assert set((shown("cleanup.policy") or "").split(",")) == {"compact", "delete"}
    with tool.call("KafkaAdminClient.reset_configs"):
        names = {"retention.ms": None}
        admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, names)])
        assert shown("retention.ms") == "604800000"


# --- partitions ----------------------------------------------------------------------------------


def test_records_and_offsets(admin: KafkaAdminClient, tool: Tool, filled: str) -> None:
    partition = TopicPartition(filled, 0)
    specs = {
        OffsetSpec.EARLIEST: 0,
        OffsetSpec.LATEST: 10,
        OffsetSpec.MAX_TIMESTAMP: 9,
        OffsetSpec.EARLIEST_LOCAL: 0,
        OffsetTimestamp(3_500): 3,
    }
    for spec, offset in specs.items():
        name = getattr(spec, "name", "OffsetTimestamp")
        with tool.call(f"KafkaAdminClient.list_partition_offsets ({name})"):
            assert admin.list_partition_offsets({partition: spec})[partition].offset == offset
    with tool.call("KafkaAdminClient.delete_records"):
        assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
        found = admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})
        assert found[partition].offset == 4


def test_replicas(admin: KafkaAdminClient, tool: Tool, filled: str) -> None:
    partition = TopicPartition(filled, 0)
    with tool.call("KafkaAdminClient.describe_log_dirs"):
        (broker,) = admin.describe_log_dirs([filled])
        assert filled in str(broker)
    with tool.call("KafkaAdminClient.elect_leaders"):
        admin.elect_leaders(0, {filled: [0]}, raise_errors=False)
    with tool.call("KafkaAdminClient.list_partition_reassignments"):
        assert not admin.list_partition_reassignments()
    with tool.call("KafkaAdminClient.alter_partition_reassignments"):
        (found,) = admin.describe_topics([filled])
        replicas = found["partitions"][0]["replica_nodes"]
        assert admin.alter_partition_reassignments({partition: replicas}) == {partition: None}
    with tool.call("KafkaAdminClient.describe_producers"):
        state = admin.describe_producers([partition])[partition]
        assert len(state.active_producers) == 1


def test_the_cluster(admin: KafkaAdminClient, tool: Tool) -> None:
    with tool.call("KafkaAdminClient.describe_cluster"):
        found = admin.describe_cluster()
        assert found["cluster_id"]
        assert len(found["brokers"]) == 1
    with tool.call("KafkaAdminClient.api_versions", "KafkaAdminClient.get_broker_version_data"):
        assert admin.api_versions()
        assert admin.get_broker_version_data(found["brokers"][0]["broker_id"])
    with tool.call("KafkaAdminClient.list_config_resources"):
        assert admin.list_config_resources(["TOPIC"])


# --- groups --------------------------------------------------------------------------------------


def test_groups(admin: KafkaAdminClient, tool: Tool, filled: str, group: str) -> None:
    partition = TopicPartition(filled, 0)
    with tool.call("KafkaAdminClient.list_groups"):
        assert group in str(admin.list_groups())
        assert group not in str(admin.list_groups(states_filter=[GroupState.STABLE]))
    with tool.call("KafkaAdminClient.describe_groups"):
        assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    with tool.call("KafkaAdminClient.list_group_offsets"):
        assert admin.list_group_offsets({group: None})[group][partition].offset == 5
    with tool.call("KafkaAdminClient.alter_group_offsets"):
        admin.alter_group_offsets(group, {partition: OffsetAndMetadata(7, "", -1)})
        assert admin.list_group_offsets({group: None})[group][partition].offset == 7
    with tool.call("KafkaAdminClient.reset_group_offsets"):
        admin.reset_group_offsets(group, {partition: OffsetTimestamp(2_500)})
        assert admin.list_group_offsets({group: None})[group][partition].offset == 2
    with tool.call("KafkaAdminClient.delete_groups"):
        admin.delete_groups([group])
        assert group not in str(admin.list_groups())


def test_a_member_is_removed(
    admin: KafkaAdminClient, tool: Tool, servers: str, filled: str, new_name: str
) -> None:
    with bradbury.Consumer(
        filled, bootstrap=servers, group=f"{new_name}-static", group_instance_id="one"
    ) as consumer:
        while not consumer.assignment():
            consumer.poll(100)
        with tool.call("KafkaAdminClient.remove_group_members"):
            admin.remove_group_members(
                f"{new_name}-static", [MemberToRemove(group_instance_id="one")]
            )
            described = admin.describe_groups([f"{new_name}-static"])
            assert not described[f"{new_name}-static"]["members"]


def test_the_metadata_quorum(admin: KafkaAdminClient, tool: Tool) -> None:
    with tool.call("KafkaAdminClient.describe_metadata_quorum"):
        described = admin.describe_metadata_quorum()
        assert "current_voters" in str(described), described


# --- producing and consuming ---------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, "gzip", "snappy"])  # the others need more libraries
def test_producer(tool: Tool, servers: str, topic: str, codec: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, compression_type=codec, linger_ms=5)
    with tool.call(f"KafkaProducer.send (compression_type={codec})", "KafkaProducer.flush"):
        futures = [
            producer.send(
                topic, b"value" * 20, b"key", headers=[("h", b"v")], partition=0, timestamp_ms=5
            )
            for _ in range(20)
        ]
        producer.flush()
        assert [future.get(10).offset for future in futures] == list(range(20))
    with tool.call("KafkaProducer.partitions_for"):
        assert producer.partitions_for(topic) == {0, 1}
    producer.close()


def test_an_idempotent_producer(tool: Tool, servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all")
    with tool.call("KafkaProducer.send (enable_idempotence)"):
        assert producer.send(topic, b"x", partition=1).get(10).offset == 0
    producer.close()


def test_a_transactional_producer(
    admin: KafkaAdminClient, tool: Tool, servers: str, topic: str
) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=topic)
    with tool.call("KafkaProducer.init_transactions"):
        producer.init_transactions()
    with tool.call("KafkaProducer.begin_transaction", "KafkaProducer.commit_transaction"):
        producer.begin_transaction()
        producer.send(topic, b"kept", partition=0)
        producer.commit_transaction()
    producer.close(timeout=10)
    with tool.call("KafkaAdminClient.list_transactions"):
        assert topic in str(admin.list_transactions())
    with tool.call("KafkaAdminClient.describe_transactions"):
        # A commit is answered when it is decided; its markers follow.
        until(lambda: "COMPLETECOMMIT" in _letters(admin.describe_transactions([topic])))


def _letters(answer: object) -> str:
    return str(answer).upper().replace("_", "")


def test_consumer_by_hand(tool: Tool, servers: str, filled: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    zero, one = TopicPartition(filled, 0), TopicPartition(filled, 1)
    with tool.call("KafkaConsumer.topics", "KafkaConsumer.partitions_for_topic"):
        assert filled in consumer.topics()
        assert consumer.partitions_for_topic(filled) == {0, 1}
    with tool.call("KafkaConsumer.assign", "KafkaConsumer.assignment", "KafkaConsumer.poll"):
        consumer.assign([zero, one])
        assert consumer.assignment() == {zero, one}
        records = consumer.poll(5_000)[zero]
        assert [record.value for record in records] == [b"value %d" % n for n in range(1, 11)]
        assert records[2].timestamp == 3_000
    with tool.call("KafkaConsumer.position", "KafkaConsumer.highwater"):
        assert consumer.position(zero) == 10
        assert consumer.highwater(zero) == 10
    with tool.call("KafkaConsumer.beginning_offsets", "KafkaConsumer.end_offsets"):
        assert consumer.beginning_offsets([zero]) == {zero: 0}
        assert consumer.end_offsets([zero]) == {zero: 10}
    with tool.call("KafkaConsumer.offsets_for_times"):
        assert consumer.offsets_for_times({zero: 4_200})[zero].offset == 4
    with tool.call("KafkaConsumer.seek"):
        consumer.seek(zero, 8)
        assert [record.offset for record in consumer.poll(5_000)[zero]] == [8, 9]
    with tool.call("KafkaConsumer.seek_to_beginning", "KafkaConsumer.seek_to_end"):
        consumer.seek_to_beginning(zero)
        assert consumer.position(zero) == 0
        consumer.seek_to_end(zero)
        assert consumer.position(zero) == 10
    with tool.call("KafkaConsumer.pause", "KafkaConsumer.paused", "KafkaConsumer.resume"):
        consumer.pause(zero)
        assert consumer.paused() == {zero}
        consumer.seek(zero, 5)
        assert not consumer.poll(300)
        consumer.resume(zero)
        assert consumer.poll(5_000)[zero][0].offset == 5
    consumer.close()


def test_consumer_in_a_group(tool: Tool, servers: str, filled: str, new_name: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=f"{new_name}-reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=10_000,
    )
    partition = TopicPartition(filled, 0)
    with tool.call("KafkaConsumer.subscribe", "KafkaConsumer.subscription", "KafkaConsumer (iter)"):
        consumer.subscribe([filled])
        assert consumer.subscription() == {filled}
        assert [record.offset for _, record in zip(range(10), consumer, strict=False)] == list(
            range(10)
        )
    with tool.call("KafkaConsumer.commit", "KafkaConsumer.committed"):
        consumer.commit({partition: OffsetAndMetadata(6, "here", -1)})
        assert consumer.committed(partition) == 6
        assert consumer.committed(partition, metadata=True).metadata == "here"
    with tool.call("KafkaConsumer.commit_async"):
        future = consumer.commit_async({partition: OffsetAndMetadata(7, "", -1)})
        deadline = time.monotonic() + 10
        while not future.is_done and time.monotonic() < deadline:
            consumer.poll(100)
        assert consumer.committed(partition) == 7
    with tool.call("KafkaConsumer.unsubscribe"):
        consumer.unsubscribe()
        assert consumer.assignment() == set()
    consumer.close()
