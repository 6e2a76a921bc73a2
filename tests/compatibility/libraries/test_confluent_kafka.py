"""confluent-kafka's (librdkafka's) admin, producer and consumer calls against a live Bradbury."""

import json
from collections.abc import Iterator
from importlib.metadata import version

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool

pytestmark = pytest.mark.slow
SECONDS = 60


@pytest.fixture
def tool(recorder: Recorder) -> Tool:
    return recorder.tool("confluent-kafka", version("confluent-kafka"))


@pytest.fixture(scope="module")
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


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


@pytest.fixture
def consumer(servers: str, new_name: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{new_name}-reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    yield consumer
    consumer.close()


def one(futures: dict) -> object:
    (future,) = futures.values()
    return future.result(SECONDS)


# --- admin ---------------------------------------------------------------------------------------


def test_topics(admin: AdminClient, tool: Tool, new_name: str) -> None:
    with tool.call("AdminClient.create_topics"):
        one(admin.create_topics([NewTopic(new_name, 2, 1, config={"retention.ms": "60000"})]))
    with tool.call("AdminClient.list_topics"):
        assert len(admin.list_topics(new_name, SECONDS).topics[new_name].partitions) == 2
    with tool.call("AdminClient.describe_topics"):
        described = one(admin.describe_topics(TopicCollection([new_name])))
        assert len(described.partitions) == 2
        assert described.topic_id
    with tool.call("AdminClient.create_partitions"):
        one(admin.create_partitions([NewPartitions(new_name, 4)]))
        described = one(admin.describe_topics(TopicCollection([new_name])))
        assert len(described.partitions) == 4
    with tool.call("AdminClient.delete_topics"):
        one(admin.delete_topics([new_name]))
        assert new_name not in admin.list_topics(timeout=SECONDS).topics


def test_configs(admin: AdminClient, tool: Tool, topic: str) -> None:
    def shown() -> dict[str, str]:
        found = one(admin.describe_configs([ConfigResource("topic", topic)]))
        return {name: entry.value for name, entry in found.items()}

    with tool.call("AdminClient.describe_configs"):
        assert shown()["cleanup.policy"] == "delete"
    with tool.call("AdminClient.incremental_alter_configs"):
        entry = ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        one(admin.incremental_alter_configs([resource]))
        assert shown()["retention.ms"] == "777"
    with tool.call("AdminClient.alter_configs"):
        resource = ConfigResource("topic", topic, set_config={"segment.bytes": "2000000"})
        one(admin.alter_configs([resource]))
        found = shown()
        assert (found["segment.bytes"], found["retention.ms"]) == ("2000000", "604800000")


def test_partitions(admin: AdminClient, tool: Tool, filled: str) -> None:
    partition = TopicPartition(filled, 0)
    for name, spec, offset in (
        ("earliest", OffsetSpec.earliest(), 0),
        ("latest", OffsetSpec.latest(), 10),
        ("max_timestamp", OffsetSpec.max_timestamp(), 9),
        ("for_timestamp", OffsetSpec.for_timestamp(3_500), 3),
    ):
        with tool.call(f"AdminClient.list_offsets ({name})"):
            assert one(admin.list_offsets({partition: spec})).offset == offset
    with tool.call("AdminClient.list_offsets (read_committed)"):
        found = admin.list_offsets(
            {partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
        )
        assert one(found).offset == 10
    with tool.call("AdminClient.delete_records"):
        assert one(admin.delete_records([TopicPartition(filled, 0, 4)])).low_watermark == 4
    with tool.call("AdminClient.elect_leaders"):
        result = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(SECONDS)
        (error,) = result.values()
        assert error is None or error.name() == "ELECTION_NOT_NEEDED"


def test_the_cluster(admin: AdminClient, tool: Tool, servers: str) -> None:
    with tool.call("AdminClient.describe_cluster"):
        described = admin.describe_cluster().result(SECONDS)
        assert [f"{node.host}:{node.port}" for node in described.nodes] == [servers]
        assert described.cluster_id
    with tool.call("AdminClient.describe_configs (broker)"):
        found = one(admin.describe_configs([ConfigResource("broker", str(described.nodes[0].id))]))
        assert "log.retention.ms" in found


def test_groups(admin: AdminClient, tool: Tool, filled: str, group: str) -> None:
    with tool.call("AdminClient.list_consumer_groups"):
        listed = admin.list_consumer_groups().result(SECONDS)
        assert group in {found.group_id for found in listed.valid}
    with tool.call("AdminClient.describe_consumer_groups"):
        assert one(admin.describe_consumer_groups([group])).state.name == "EMPTY"
    with tool.call("AdminClient.list_consumer_group_offsets"):
        asked = [ConsumerGroupTopicPartitions(group)]
        (found,) = one(admin.list_consumer_group_offsets(asked)).topic_partitions
        assert (found.topic, found.offset) == (filled, 5)
    with tool.call("AdminClient.alter_consumer_group_offsets"):
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(filled, 0, 7)])
        one(admin.alter_consumer_group_offsets([wanted]))
        (found,) = one(admin.list_consumer_group_offsets(asked)).topic_partitions
        assert found.offset == 7
    with tool.call("AdminClient.delete_consumer_groups"):
        one(admin.delete_consumer_groups([group]))
        listed = admin.list_consumer_groups().result(SECONDS)
        assert group not in {found.group_id for found in listed.valid}


def test_without_an_authorizer_there_are_no_rules(admin: AdminClient, tool: Tool) -> None:
    from confluent_kafka.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    with tool.call("AdminClient.describe_acls"):
        # The client does not show SECURITY_DISABLED, of Apache Kafka neither.
        assert admin.describe_acls(every).result(SECONDS) == []


# --- producing and consuming ---------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_producer(tool: Tool, servers: str, topic: str, codec: str) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True}
    )
    offsets = []
    with tool.call(f"Producer.produce (compression.type={codec})", "Producer.flush"):
        for number in range(20):
            producer.produce(
                topic,
                b"value" * 20,
                b"key",
                0,
                timestamp=1_000 + number,
                headers={"h": b"v"},
                on_delivery=lambda error, record: offsets.append(record.offset()),
            )
        assert producer.flush(SECONDS) == 0
        assert offsets == list(range(20))


def test_producer_by_the_batch(tool: Tool, servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": 1})
    with tool.call("Producer.produce_batch", "Producer.list_topics", "Producer.poll"):
        producer.produce_batch(topic, [{"value": b"a", "key": b"k"}] * 50)
        while len(producer):
            producer.poll(0.1)
        assert topic in producer.list_topics(timeout=SECONDS).topics
    with bradbury.Admin(servers) as admin:
        ends = admin.list_offsets([(topic, 0), (topic, 1)])
    assert sum(end.offset for end in ends.values()) == 50


def test_a_transactional_producer(tool: Tool, servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    with tool.call("Producer.init_transactions"):
        producer.init_transactions(SECONDS)
    with tool.call("Producer.begin_transaction", "Producer.commit_transaction"):
        producer.begin_transaction()
        producer.produce(topic, b"kept", partition=0)
        producer.commit_transaction(SECONDS)
    with tool.call("Producer.abort_transaction"):
        producer.begin_transaction()
        producer.produce(topic, b"not kept", partition=0)
        producer.abort_transaction(SECONDS)
    committed = {"isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": servers, "group.id": topic, **committed})
    with tool.call("Consumer (isolation.level)"):
        reader.assign([TopicPartition(topic, 0, 0)])
        found = []
        while not (found and found[-1].error()):
            found += reader.consume(1, SECONDS)
        assert [record.value() for record in found[:-1]] == [b"kept"]
    reader.close()


def test_consumer_by_hand(tool: Tool, consumer: Consumer, filled: str) -> None:
    with tool.call("Consumer.assign", "Consumer.assignment", "Consumer.consume"):
        consumer.assign([TopicPartition(filled, 0, 0), TopicPartition(filled, 1, 0)])
        assert len(consumer.assignment()) == 2
        records = consumer.consume(10, SECONDS)
        assert [record.value() for record in records] == [b"value %d" % n for n in range(1, 11)]
        assert records[2].timestamp()[1] == 3_000
    zero = TopicPartition(filled, 0)
    with tool.call("Consumer.position", "Consumer.get_watermark_offsets"):
        assert consumer.position([zero])[0].offset == 10
        assert consumer.get_watermark_offsets(zero, SECONDS) == (0, 10)
    with tool.call("Consumer.offsets_for_times"):
        (found,) = consumer.offsets_for_times([TopicPartition(filled, 0, 4_200)], SECONDS)
        assert found.offset == 4
    with tool.call("Consumer.seek", "Consumer.poll"):
        consumer.seek(TopicPartition(filled, 0, 8))
        record = consumer.poll(SECONDS)
        assert record.offset() == 8
    with tool.call("Consumer.pause", "Consumer.resume"):
        consumer.pause([zero])
        consumer.resume([zero])
    with tool.call("Consumer.incremental_unassign", "Consumer.incremental_assign"):
        consumer.incremental_unassign([zero])
        assert len(consumer.assignment()) == 1
        consumer.incremental_assign([TopicPartition(filled, 0, 9)])
        assert consumer.poll(SECONDS).offset() == 9
    with tool.call("Consumer.cluster_id", "Consumer.list_topics", "Consumer.unassign"):
        assert consumer.cluster_id(SECONDS)
        assert filled in consumer.list_topics(timeout=SECONDS).topics
        consumer.unassign()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_consumer_in_a_group(
    tool: Tool, servers: str, filled: str, new_name: str, strategy: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{new_name}-{strategy}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "partition.assignment.strategy": strategy,
        }
    )
    with tool.call(f"Consumer.subscribe ({strategy})"):
        consumer.subscribe([filled])
        assert len(consumer.consume(10, SECONDS)) == 10
    zero = TopicPartition(filled, 0)
    with tool.call("Consumer.commit", "Consumer.committed", "Consumer.store_offsets"):
        consumer.store_offsets(offsets=[TopicPartition(filled, 0, 6)])
        consumer.commit(asynchronous=False)
        assert consumer.committed([zero], SECONDS)[0].offset == 6
    with tool.call("Consumer.memberid", "Consumer.consumer_group_metadata"):
        assert consumer.memberid()
        assert consumer.consumer_group_metadata()
    with tool.call("Consumer.unsubscribe", "Consumer.close"):
        consumer.unsubscribe()
        consumer.close()


def test_statistics_name_the_broker_as_up(tool: Tool, servers: str, topic: str) -> None:
    seen: list[dict] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "statistics.interval.ms": 100,
            "stats_cb": lambda text: seen.append(json.loads(text)),
        }
    )
    with tool.call("Producer (stats_cb)"):
        producer.produce(topic, b"x")
        producer.flush(SECONDS)
        while not any(
            one["state"] == "UP" for one in (seen or [{"brokers": {}}])[-1]["brokers"].values()
        ):
            producer.poll(0.2)
