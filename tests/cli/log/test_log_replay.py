"""bradbury log replay: what arrives in the other topic is what was in the first."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import bradbury
from bradbury import LocalCluster
from bradbury.clients.admin.admin import NewTopic
from bradbury.tests.support.command_line import Command

Seen = list[tuple[int, int, bytes | None, bytes | None, list | None]]


@pytest.fixture
def cluster(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster


@pytest.fixture
def topics(cluster: LocalCluster, bradbury_topic: str) -> Iterator[tuple[str, str]]:
    """Two topics of two partitions; the source has 300 keyed records in small batches."""
    source, target = f"{bradbury_topic}-from", f"{bradbury_topic}-to"
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(source, 2), NewTopic(target, 2)])
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "batch.num.messages": 7,
            "compression.type": "lz4",
        }
    )
    for number in range(300):
        producer.produce(
            source,
            None if number % 10 == 9 else b"value %d" % number,
            b"key %d" % number,
            number % 2,
            timestamp=1_700_000_000_000 + number * 1_000,
            headers=[("n", b"%d" % number), ("n", None)] if number % 3 == 0 else None,
        )
    assert producer.flush(20) == 0
    yield source, target
    with cluster.admin() as admin:
        admin.delete_topics([source, target])


def seen(cluster: LocalCluster, topic: str, partition: int) -> Seen:
    """The records as librdkafka reads them: (offset, timestamp, key, value, headers)."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
    records: Seen = []
    while len(records) < end:
        for record in consumer.consume(end - len(records), 5):
            assert record.error() is None
            records.append(
                (
                    record.offset(),
                    record.timestamp()[1],
                    record.key(),
                    record.value(),
                    record.headers(),
                )
            )
    consumer.close()
    return records


def replayed(command: Command, *arguments: str) -> dict:
    outcome = command("log", "replay", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_keys_values_headers_timestamps_and_order_stay(
    command: Command, cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    report = replayed(command, source, target)
    assert report["records"] == 300
    assert report["batches_encoded_again"] == 0  # all went as they were
    assert report["batches_as_they_are"] > 20
    for partition in (0, 1):
        assert seen(cluster, target, partition) == seen(cluster, source, partition)


def test_a_range_of_offsets_cuts_batches_where_it_must(
    command: Command, cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    report = replayed(command, source, target, "--from", "10", "--to", "100", "-p", "1:0")
    assert report["records"] == 90
    assert 0 < report["batches_encoded_again"] <= 2
    arrived = seen(cluster, target, 0)
    assert [record[1:] for record in arrived] == [
        record[1:] for record in seen(cluster, source, 1)[10:100]
    ]
    assert seen(cluster, target, 1) == []


def test_a_range_of_times_takes_the_records_between(
    command: Command, cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    begin, end = "2023-11-14T22:14:00Z", "@1700000100000"  # 1700000040000
    assert replayed(command, source, target, "--from", begin, "--to", end)["records"] == 60
    times = [record[1] for one in (0, 1) for record in seen(cluster, target, one)]
    assert (min(times), max(times)) == (1_700_000_040_000, 1_700_000_099_000)


def test_by_key_the_records_of_a_key_meet_in_the_partition_of_their_key(
    command: Command, cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    replayed(command, source, target, "--by-key")
    arrived = [record for one in (0, 1) for record in seen(cluster, target, one)]
    assert sorted(record[2] for record in arrived) == sorted(
        record[2] for one in (0, 1) for record in seen(cluster, source, one)
    )
    from kafka.partitioner.default import murmur2

    for partition in (0, 1):
        keys = [record[2] for record in seen(cluster, target, partition)]
        assert {(murmur2(key) & 0x7FFFFFFF) % 2 for key in keys} == {partition}


def test_what_the_broker_stamped_is_encoded_again_with_its_time(
    command: Command, cluster: LocalCluster, topics: tuple[str, str], bradbury_topic: str
) -> None:
    _, target = topics
    with cluster.admin() as admin:
        admin.create_topic(bradbury_topic, configs={"message.timestamp.type": "LogAppendTime"})
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        table = pa.table({"value": [b"a", b"b"], "timestamp": [1, 2]})
        producer.send_batch(bradbury_topic, table).result()
    assert replayed(command, bradbury_topic, target)["batches_encoded_again"] == 1
    stamped = seen(cluster, bradbury_topic, 0)
    assert [record[1] for record in seen(cluster, target, 0)] == [record[1] for record in stamped]


def test_into_another_cluster(command: Command, topics: tuple[str, str]) -> None:
    source, _ = topics
    with bradbury.local() as other:
        with other.admin() as admin:
            admin.create_topic(source, 2)
        servers = other.bootstrap_servers
        assert replayed(command, source, source, "--to-bootstrap", servers)["records"] == 300
        assert len(seen(other, source, 0)) == 150


def test_nothing_to_copy_is_no_error(command: Command, topics: tuple[str, str]) -> None:
    source, target = topics
    assert replayed(command, target, source)["records"] == 0
    assert replayed(command, source, target, "--from", "latest")["records"] == 0


def test_what_makes_no_sense_is_refused(command: Command, topics: tuple[str, str]) -> None:
    source, target = topics
    assert "into itself" in command("log", "replay", source, source).usage
    assert "does not exist" in command("log", "replay", source, "absent").error
    assert "does not exist" in command("log", "replay", "absent", target).error
    assert "0 to 1, not 7" in command("log", "replay", source, target, "-p", "0:7").error
    assert "0 to 1, not 7" in command("log", "replay", source, target, "-p", "7").error
    assert "twice" in command("log", "replay", source, target, "-p", "0", "-p", "0:1").usage
    assert "--partition 'x'" in command("log", "replay", source, target, "-p", "x").usage
    assert "--from 'never'" in command("log", "replay", source, target, "--from", "never").usage
    assert "--by-key" in command("log", "replay", source, target, "-p", "0:1", "--by-key").usage
