"""A compacted topic, as a client sees it: the last value of each key, at the offset it was given."""

import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from prometheus_client.parser import text_string_to_metric_families

import bradbury
from bradbury.tests.support.cleaned_log import wait_until_clean

PATIENCE = 60.0
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0",
    "file.delete.delay.ms": "0",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bradbury.LocalCluster]:
    config = {"log.cleaner.backoff.ms": 50, "log.cleaner.threads": 2}
    with bradbury.local(str(tmp_path_factory.mktemp("data")), config=config) as running:
        yield running


def read_to_the_end(servers: str, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of all records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "nobody",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(PATIENCE)
        assert message is not None, "nothing came"
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF"
            break
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


@pytest.mark.parametrize(
    "codec",
    [
        "none",
        "zstd",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("lz4", "gzip", "snappy")),
    ],
)
def test_only_the_last_value_of_each_key_is_left_at_its_offset(
    cluster: bradbury.LocalCluster, codec: str
) -> None:
    servers = cluster.bootstrap_servers
    topic = f"compacted-{codec}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=COMPACTED)])[topic].result(60)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "batch.num.messages": 50,
            "enable.idempotence": True,
        }
    )
    random_ = random.Random(7)
    last: dict[bytes, tuple[int, bytes | None]] = {}

    def remember(error: object, message: object) -> None:
        assert error is None
        last[message.key()] = (message.offset(), message.value())  # type: ignore[attr-defined]

    for number in range(20_000):
        key = b"key-%d" % random_.randrange(100)
        value = None if number % 97 == 0 else b"%d " % number + random_.randbytes(20)
        producer.produce(topic, value, key, on_delivery=remember)
        if number % 1000 == 0:
            producer.poll(0)
    # The last records close the segment before, and are never compacted themselves.
    for number in range(1000):
        producer.produce(topic, b"x" * 20, b"last-%d" % number, on_delivery=remember)
        if number % 50 == 0:
            producer.flush(PATIENCE)
    assert producer.flush(PATIENCE) == 0

    clean_to = wait_until_clean(cluster, topic)
    assert clean_to > 15_000
    found = read_to_the_end(servers, topic)
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    seen = {key: (offset, value) for offset, key, value in found}
    assert seen == last
    clean = [key for offset, key, _ in found if offset < clean_to]
    assert len(clean) == len(set(clean)) >= 100
    with urllib.request.urlopen(f"http://{cluster.nodes[0].status()['metrics']}/metrics") as answer:
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(answer.read().decode())
            for sample in family.samples
        }
    assert samples["bradbury_cleanings_total"] >= 1
    read, written = (
        samples[f"bradbury_cleaner_{done}_bytes_total"] for done in ("read", "written")
    )
    assert read > written > 0
    assert samples["kafka_log_logcleanermanager_uncleanable_partitions_count"] == 0


def committed(servers: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    partitions = [TopicPartition(topic, number) for number in range(3)]
    found = [each.offset for each in consumer.committed(partitions, timeout=PATIENCE)]
    consumer.close()
    return found


@pytest.mark.long  # tests/groups/offsets and tests/storage/cleaner have its two halves
def test_committed_offsets_survive_compaction_and_a_restart(tmp_path: Path) -> None:
    config = {"log.cleaner.backoff.ms": 50, "offsets.topic.num.partitions": 1}
    expected: dict[str, list[int]] = {}
    with bradbury.local(str(tmp_path), config=config) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result(60)
        for group in range(10):
            consumer = Consumer({"bootstrap.servers": servers, "group.id": f"group-{group}"})
            for number in range(300):
                partition = number % 2  # partition 2 never gets a commit
                offset = 1000 * group + number
                consumer.commit(
                    offsets=[TopicPartition("t", partition, offset)], asynchronous=False
                )
                expected.setdefault(f"group-{group}", [-1001] * 3)[partition] = offset
            consumer.close()
            if group == 0:
                resource = ConfigResource(ConfigResource.Type.TOPIC, "__consumer_offsets")
                for name, value in (("segment.bytes", "20000"), ("min.cleanable.dirty.ratio", "0")):
                    resource.add_incremental_config(
                        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                    )
                for future in admin.incremental_alter_configs([resource]).values():
                    future.result(60)
        for group in (3, 4):
            admin.delete_consumer_groups([f"group-{group}"])[f"group-{group}"].result(60)
            expected[f"group-{group}"] = [-1001] * 3
        before = {group: committed(servers, group, "t") for group in expected}
        assert before == expected
        clean_to = wait_until_clean(cluster, "__consumer_offsets")
        assert clean_to > 2000
        directory = next(tmp_path.rglob("__consumer_offsets-0"))
        assert log_bytes(directory) < 60_000
    with bradbury.local(str(tmp_path), config=config) as cluster:
        servers = cluster.bootstrap_servers
        assert {group: committed(servers, group, "t") for group in expected} == expected
