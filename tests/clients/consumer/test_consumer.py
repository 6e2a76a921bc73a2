"""What does a consumer hand out, and where does it go on?"""

import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import kafka
import pyarrow as pa
import pytest

import bradbury
from bradbury.clients.consumer.consumer import SCHEMA
from bradbury.protocol.errors import (
    InvalidConfig,
    InvalidGroupId,
    InvalidTopicException,
    KafkaError,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from bradbury.protocol.messages.metadata import MetadataRequest
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.tests.support.wire.scripted_broker import ScriptedBroker

NewTopic = Callable[..., str]


def fill(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    with bradbury.Producer(bootstrap, batch_size=1000) as producer:
        producer.send_batch(topic, [b"%d" % n for n in range(count)], partition=partition).result(
            20
        )


def values(table: pa.Table) -> list[int]:
    return [int(value) for value in table.column("value").to_pylist()]


def poll_until(consumer: bradbury.Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        table = consumer.poll(10_000)
        assert table.num_rows, f"{len(found)} of {count} records came"
        found += values(table)
    return found


def test_a_poll_is_a_table_of_whole_batches(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with bradbury.Producer(bootstrap) as producer:
        producer.send(topic, b"v", b"k", timestamp_ms=1_700_000_000_123, headers={"h": b"x"})
        producer.send(topic)
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        table = consumer.poll(10_000)
    assert table.schema == SCHEMA
    first, second = table.to_pylist()
    assert first.pop("timestamp").timestamp() == 1_700_000_000.123
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": b"k",
        "value": b"v",
        "headers": [{"key": "h", "value": b"x"}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, [])


def test_nothing_new_is_an_empty_table_of_the_same_schema(
    bootstrap: str, new_topic: NewTopic
) -> None:
    with bradbury.Consumer(new_topic(), bootstrap=bootstrap) as consumer:
        started = time.monotonic()
        table = consumer.poll(100)
        assert 0.1 <= time.monotonic() - started < 20
    assert (table.num_rows, table.schema) == (0, SCHEMA)


def test_without_a_group_a_consumer_reads_every_partition(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        fill(bootstrap, topic, 50, partition)
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        assert consumer.assignment() == [(topic, 0), (topic, 1), (topic, 2)]
        assert sorted(poll_until(consumer, 150)) == sorted([*range(50)] * 3)
        assert consumer.lag() == {(topic, partition): 0 for partition in range(3)}


def test_the_latest_position_is_known_before_records_arrive(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    with bradbury.Consumer(topic, bootstrap=bootstrap) as consumer:
        assert consumer.position((topic, 0)) == 10
        fill(bootstrap, topic, 3)
        assert poll_until(consumer, 3) == [0, 1, 2]


def test_max_records_cuts_exactly_and_the_rest_comes_next(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 1000)
    with bradbury.Consumer(
        topic, bootstrap=bootstrap, auto_offset_reset="earliest", max_poll_records=300
    ) as consumer:
        assert values(consumer.poll(10_000, max_records=7)) == list(range(7))
        assert consumer.position((topic, 0)) == 7
        rest = poll_until(consumer, 993)
        assert rest == list(range(7, 1000))
        consumer.seek((topic, 0), 0)
        assert 0 < consumer.poll(10_000).num_rows <= 300


def test_seek_goes_to_the_record_even_in_the_middle_of_a_batch(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 500)
    with bradbury.Consumer(bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert values(consumer.poll(10_000, max_records=5)) == [0, 1, 2, 3, 4]
        consumer.seek((topic, 0), 333)
        assert poll_until(consumer, 167)[0] == 333
        consumer.seek_to_beginning()
        assert values(consumer.poll(10_000))[0] == 0
        consumer.seek_to_end((topic, 0))
        assert consumer.position((topic, 0)) == 500
        assert consumer.poll(50).num_rows == 0


def test_a_parked_fetch_does_not_hold_up_a_seek(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    with bradbury.Consumer(topic, bootstrap=bootstrap, fetch_max_wait_ms=20_000) as consumer:
        assert consumer.poll(200).num_rows == 0
        consumer.seek((topic, 0), 4)
        assert poll_until(consumer, 6) == [4, 5, 6, 7, 8, 9]


def test_a_paused_partition_waits_and_loses_nothing(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, 100, 0)
    fill(bootstrap, topic, 100, 1)
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.pause((topic, 1))
        assert poll_until(consumer, 100) == list(range(100))
        assert consumer.poll(50).num_rows == 0
        assert consumer.position((topic, 1)) == 0
        consumer.resume((topic, 1))
        assert poll_until(consumer, 100) == list(range(100))


def test_records_one_by_one_move_the_position_one_by_one(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 100)
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        for record in consumer:
            assert consumer.position((topic, 0)) == record.offset + 1
            if record.value == b"41":
                break
        assert poll_until(consumer, 58) == list(range(42, 100))
        consumer.seek((topic, 0), 95)
        assert [record.offset for record in consumer.records(200)] == [95, 96, 97, 98, 99]


def test_a_seek_while_iterating_takes_effect_at_once(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 100)
    seen = []
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        for record in consumer.records(500):
            seen.append(record.offset)
            if record.offset == 3:
                consumer.seek((topic, 0), 97)
    assert seen == [0, 1, 2, 3, 97, 98, 99]


def test_an_offset_that_is_gone_is_reset_or_raised(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.seek((topic, 0), 10_000)
        assert poll_until(consumer, 10) == list(range(10))
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="none") as consumer:
        with pytest.raises(OffsetOutOfRange, match="no offset is committed; seek"):
            consumer.poll(5_000)
        consumer.seek((topic, 0), 10_000)
        with pytest.raises(OffsetOutOfRange, match=r"offset 10000 .*auto_offset_reset"):
            consumer.poll(5_000)
        consumer.seek((topic, 0), 9)
        assert poll_until(consumer, 1) == [9]


def test_a_batch_larger_than_the_fetch_comes_nevertheless(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with bradbury.Producer(bootstrap) as producer:
        producer.send(topic, b"x" * 300_000).result(60)
        producer.send(topic, b"y").result(60)
    with bradbury.Consumer(
        topic,
        bootstrap=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_bytes=1000,
        max_partition_fetch_bytes=1000,
    ) as consumer:
        sizes = [len(record.value or b"") for record in consumer.records(1000)]
    assert sizes == [300_000, 1]


def test_what_is_fetched_ahead_is_bounded(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    for partition in range(4):
        with bradbury.Producer(bootstrap, batch_size=10_000) as producer:
            producer.send_batch(topic, [b"x" * 1000] * 2000, partition=partition).result(60)
    with bradbury.Consumer(
        topic,
        bootstrap=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=50_000,
        fetch_max_bytes=200_000,
    ) as consumer:
        rows = 0
        most = 0
        while rows < 8000:
            rows += consumer.poll(10_000, max_records=20).num_rows
            states = consumer._fetcher.states().values()
            most = max(most, sum(state.buffered_bytes for state in states))
    assert rows == 8000
    assert most <= 2 * 200_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_wrote_is_read_in_every_codec(
    bootstrap: str, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic()
    theirs = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(500):
        theirs.produce(topic, b"%d" % number, b"key", headers={"h": b"%d" % number})
    assert theirs.flush(20) == 0
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        records = list(consumer.records(1000))
    assert [record.value for record in records] == [b"%d" % number for number in range(500)]
    assert records[7].headers == [("h", b"7")]


def test_a_consumer_goes_on_where_its_group_committed(bootstrap: str, new_topic: NewTopic) -> None:
    topic, group = new_topic(), f"resume-{time.time_ns()}"
    fill(bootstrap, topic, 100)
    options = {"bootstrap": bootstrap, "group": group, "auto_offset_reset": "earliest"}
    with bradbury.Consumer(topic, enable_auto_commit=False, **options) as consumer:
        assert values(consumer.poll(20_000, max_records=30)) == list(range(30))
        consumer.commit()
        consumer.poll(10_000, max_records=30)  # handed out, but never committed
        assert consumer.committed((topic, 0)) == {(topic, 0): 30}
    with bradbury.Consumer(topic, **options) as consumer:
        assert values(consumer.poll(20_000, max_records=5)) == list(range(30, 35))
    theirs = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
    assert theirs.committed(kafka.TopicPartition(topic, 0)) == 35  # by auto-commit at close
    theirs.close()


def test_given_offsets_are_committed_without_being_a_member(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, group = new_topic(), f"alone-{time.time_ns()}"
    fill(bootstrap, topic, 10)
    options = {"bootstrap": bootstrap, "group": group, "enable_auto_commit": False}
    with bradbury.Consumer(**options) as consumer:
        assert consumer.committed((topic, 0)) == {(topic, 0): None}
        consumer.commit({(topic, 0): 6})
    with bradbury.Consumer(auto_offset_reset="none", **options) as consumer:
        consumer.assign([(topic, 0)])
        assert poll_until(consumer, 4) == [6, 7, 8, 9]


def test_two_of_ours_and_one_of_kafka_python_share_a_group(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, group = new_topic(6), f"shared-{time.time_ns()}"
    options = {
        "bootstrap": bootstrap,
        "group": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
    }
    ours = [bradbury.Consumer(topic, **options) for _ in range(2)]
    theirs = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
    )
    deadline = time.monotonic() + 60
    owned: list[set[TopicPartitionPair]] = []
    while time.monotonic() < deadline:
        for consumer in ours:
            assert consumer.poll(50).num_rows == 0
        assert not theirs.poll(50)
        owned = [set(consumer.assignment()) for consumer in ours]
        owned.append({(one.topic, one.partition) for one in theirs.assignment()})
        if [len(one) for one in owned] == [2, 2, 2]:
            break
    assert set().union(*owned) == {(topic, partition) for partition in range(6)}
    for partition in range(6):
        fill(bootstrap, topic, 50, partition)
    counts = [0, 0, 0]
    while sum(counts) < 300 and time.monotonic() < deadline:
        for index, consumer in enumerate(ours):
            counts[index] += consumer.poll(50).num_rows
        counts[2] += sum(map(len, theirs.poll(50).values()))
    assert counts == [100, 100, 100]
    theirs.close()
    ours[1].close()
    while len(ours[0].assignment()) < 6 and time.monotonic() < deadline:
        assert ours[0].poll(50).num_rows == 0  # everything is committed
    assert len(ours[0].assignment()) == 6
    ours[0].close()


def test_a_member_that_does_not_poll_leaves_and_comes_back(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, group = new_topic(), f"idle-{time.time_ns()}"
    fill(bootstrap, topic, 20)
    options = {
        "bootstrap": bootstrap,
        "group": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 50,
    }
    with bradbury.Consumer(topic, max_poll_interval_ms=2_000, **options) as idle:
        idle.poll(20_000, max_records=5)
        idle.commit()
        with bradbury.Consumer(topic, **options) as other:
            # long before the session of the first ends, which takes 45 seconds
            assert values(other.poll(20_000, max_records=10)) == list(range(5, 15))
        assert idle.group_metadata().generation == -1
        assert values(idle.poll(20_000))[0] == 15


def test_a_static_member_keeps_its_partitions_over_a_restart(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, group = new_topic(2), f"static-{time.time_ns()}"
    options = {
        "bootstrap": bootstrap,
        "group": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
    }
    one = bradbury.Consumer(topic, group_instance_id="one", **options)
    two = bradbury.Consumer(topic, group_instance_id="two", **options)
    deadline = time.monotonic() + 30
    while not (len(one.assignment()) == len(two.assignment()) == 1):
        assert time.monotonic() < deadline
        one.poll(50)
        two.poll(50)
    mine, generation = one.assignment(), two.group_metadata().generation
    one.close()
    with bradbury.Consumer(topic, group_instance_id="one", **options) as again:
        while not again.assignment():
            assert time.monotonic() < deadline
            again.poll(50)
            two.poll(50)
        assert again.assignment() == mine
        assert two.group_metadata().generation == generation
    two.close()


@pytest.mark.parametrize("allowed", [True, False])
def test_a_request_says_whether_the_broker_may_create_topics(allowed: bool) -> None:
    with ScriptedBroker({"t": 1}) as broker:
        options: dict[str, Any] = {"allow_auto_create_topics": allowed}
        with bradbury.Consumer(bootstrap=broker.address, **options) as consumer:
            assert consumer.partitions_for("t") == 1
        asked = broker.wait_for(MetadataRequest)
    assert {one.allow_auto_topic_creation for one in asked} == {allowed}


@pytest.mark.usefixtures("unknown_soon")
def test_what_a_consumer_cannot_do_it_says(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with bradbury.Consumer(bootstrap=bootstrap) as consumer:
        with pytest.raises(InvalidGroupId, match="group="):
            consumer.subscribe([topic])
        with pytest.raises(InvalidGroupId, match="group="):
            consumer.commit()
        with pytest.raises(ValueError, match="not assigned"):
            consumer.seek((topic, 0), 0)
        with pytest.raises(ValueError, match="partitions 0 to 0, not 5"):
            consumer.assign([(topic, 5)])
        with pytest.raises(UnknownTopicOrPartition, match="create_topic"):
            consumer.assign([("nowhere", 0)])
        with pytest.raises(InvalidTopicException, match="'bad topic!' has characters other than"):
            consumer.assign([("bad topic!", 0)])
    with pytest.raises(InvalidTopicException, match="'bad topic!' has characters other than"):
        bradbury.Consumer("bad topic!", bootstrap=bootstrap, group="g")
    with pytest.raises(KafkaError, match="closed"):
        consumer.poll(0)
    with bradbury.Consumer(topic, bootstrap=bootstrap, group="g") as consumer:
        with pytest.raises(ValueError, match="subscribed"):
            consumer.assign([(topic, 0)])
    for options in (
        {"auto_offset_reset": "newest"},
        {"isolation_level": "serializable"},
        {"group_instance_id": "a"},
        {"heartbeat_interval_ms": 50_000},
    ):
        with pytest.raises(InvalidConfig):
            bradbury.Consumer(bootstrap="127.0.0.1:1", **options)
    for group in (None, "g"):
        with pytest.raises(TypeError, match="not .'t', 'u'.; give topics one by one"):
            bradbury.Consumer(["t", "u"], bootstrap="127.0.0.1:1", group=group)


def test_a_dropped_consumer_ends_its_thread(bootstrap: str, new_topic: NewTopic) -> None:
    consumer = bradbury.Consumer(
        new_topic(), bootstrap=bootstrap, group="dropped", client_id="dropped"
    )
    consumer.poll(50)
    assert "dropped-io" in {thread.name for thread in threading.enumerate()}
    del consumer
    deadline = time.monotonic() + 60
    while "dropped-io" in {thread.name for thread in threading.enumerate()}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
