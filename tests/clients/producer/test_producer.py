"""What does a producer promise? Other clients read back what it wrote."""

import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from typing import Any

import confluent_kafka
import kafka
import numpy as np
import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

import bradbury
from bradbury.clients.wire.record_metadata import OffsetRange
from bradbury.protocol.errors import (
    InvalidConfig,
    InvalidTopicException,
    KafkaError,
    MessageTooLarge,
    UnknownTopicOrPartition,
)

NewTopic = Callable[..., str]


def read_back(bootstrap: str, topic: str, count: int) -> dict[int, list[Any]]:
    """kafka-python's records by partition."""
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
        check_crcs=True,
    )
    found: dict[int, list[Any]] = defaultdict(list)
    for number, record in enumerate(consumer, 1):
        found[record.partition].append(record)
        if number == count:
            break
    consumer.close()
    return found


def test_the_future_says_where_the_record_is(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    with bradbury.Producer(bootstrap) as producer:
        sent = producer.send(
            topic, b"v", b"k", partition=2, timestamp_ms=1_700_000_000_000, headers={"h": b"1"}
        ).result(60)
        again = producer.send(topic, "text", partition=2).result(60)
    assert sent == (topic, 2, 0, 1_700_000_000_000)
    assert again.offset == 1
    first, second = read_back(bootstrap, topic, 2)[2]
    assert (first.key, first.value, first.offset) == (b"k", b"v", 0)
    assert (first.timestamp, first.headers) == (1_700_000_000_000, [("h", b"1")])
    assert (second.key, second.value) == (None, b"text")


def test_keys_are_placed_as_other_clients_place_them(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(5)
    keys = [b"key-%d" % number for number in range(200)]
    with bradbury.Producer(bootstrap) as producer:
        one_by_one = [producer.send(topic, b"", key) for key in keys]
        producer.send_batch(topic, [(key, b"") for key in keys]).result(60)
        for key, future in zip(keys, one_by_one, strict=True):
            assert future.result(60).partition == (murmur2(key) & 0x7FFFFFFF) % 5
    for partition, records in read_back(bootstrap, topic, 400).items():
        for record in records:
            assert (murmur2(record.key) & 0x7FFFFFFF) % 5 == partition


def test_records_without_a_key_spread_over_all_partitions(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(4)
    with bradbury.Producer(bootstrap, batch_size=4096) as producer:
        ranges = producer.send_batch(topic, [b"x" * 100] * 2000).result(60).ranges
    assert {one.partition for one in ranges} == {0, 1, 2, 3}


def test_single_records_and_tables_of_one_thread_stay_in_order(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    with bradbury.Producer(bootstrap, linger_ms=50, batch_size=2000) as producer:
        number = 0
        for _ in range(30):
            for _ in range(20):
                producer.send(topic, b"%d" % number, b"%d" % (number % 7))
                number += 1
            rows = range(number, number + 50)
            producer.send_batch(topic, [(b"%d" % (row % 7), b"%d" % row) for row in rows])
            number += 50
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for records in read_back(bootstrap, topic, number).values():
        for record in records:
            by_key[record.key].append(int(record.value))
    assert sorted(chain.from_iterable(by_key.values())) == list(range(number))
    assert all(values == sorted(values) for values in by_key.values())


def test_threads_share_a_producer(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with bradbury.Producer(bootstrap, batch_size=1000) as producer:

        def work(name: int) -> None:
            for number in range(300):
                producer.send(topic, b"%d" % number, b"%d" % name)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for records in read_back(bootstrap, topic, 1200).values():
        for record in records:
            by_key[record.key].append(int(record.value))
    assert by_key == {b"%d" % name: list(range(300)) for name in range(4)}


def test_a_table_brings_keys_timestamps_headers_and_partitions(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    table = pa.table(
        {
            "name": ["a", None, "c"],
            "body": pa.array([b"1", b"2", None], pa.large_binary()),
            "timestamp": pa.array([1_700_000_000_000, None, 5], pa.timestamp("ms", "UTC")),
            "headers": [[{"key": "h", "value": b"x"}], [], None],
            "where": pa.array([2, 0, 2], pa.int64()),
        }
    )
    with bradbury.Producer(bootstrap) as producer:
        done = producer.send_batch(topic, table, key="name", value="body", partition="where")
        assert done.result(60).ranges == (OffsetRange(0, 0, 1), OffsetRange(2, 0, 2))
    found = read_back(bootstrap, topic, 3)
    first, third = found[2]
    assert (first.key, first.value, first.timestamp) == (b"a", b"1", 1_700_000_000_000)
    assert first.headers == [("h", b"x")]
    assert (third.key, third.value, third.timestamp) == (b"c", None, 5)
    assert found[0][0].key is None
    assert found[0][0].timestamp > 1_700_000_000_000


def test_a_sliced_record_batch_is_sent_as_its_slice(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    whole = pa.record_batch({"key": [f"k{n}" for n in range(100)], "value": ["v"] * 100})
    with bradbury.Producer(bootstrap) as producer:
        assert producer.send_batch(topic, whole.slice(40, 20)).result(60).count == 20
    records = read_back(bootstrap, topic, 20)[0]
    assert [record.key for record in records] == [b"k%d" % n for n in range(40, 60)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_every_codec(bootstrap: str, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    values = [b"value %d " % number * 10 for number in range(500)]
    with bradbury.Producer(bootstrap, compression_type=codec) as producer:
        producer.send_batch(topic, values).result(60)
        producer.send(topic, b"last").result(60)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < 501:
        messages = consumer.consume(501, 10)
        assert messages
        found += [message.value() for message in messages]
    consumer.close()
    assert found == [*values, b"last"]


def test_a_batch_that_the_topic_refuses_for_its_size_is_split(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(1, max_message_bytes="2000")
    with bradbury.Producer(bootstrap, linger_ms=100) as producer:
        futures = [producer.send(topic, b"%04d" % number + b"x" * 96) for number in range(300)]
        table = producer.send_batch(topic, [b"%04d" % n + b"y" * 96 for n in range(300, 600)])
        assert [future.result(60).offset for future in futures] == list(range(300))
        assert table.result(60).ranges == (OffsetRange(0, 300, 600),)
    records = read_back(bootstrap, topic, 600)[0]
    assert [int(record.value[:4]) for record in records] == list(range(600))


def test_a_first_batch_that_is_refused_for_its_size_is_not_overtaken(
    bootstrap: str, new_topic: NewTopic
) -> None:
    """A partition that knows nothing of a producer would take the next batch for its first."""
    topic = new_topic(1, max_message_bytes="100000")
    sizes, numbers = (9_039, 1, 3_000, 3_000), iter(range(15_040))
    with bradbury.Producer(bootstrap) as producer:
        sent = [
            producer.send_batch(topic, [b"%08d" % next(numbers) for _ in range(size)])
            for size in sizes
        ]
        ends = [one.result(60).ranges[-1].end for one in sent]
    assert ends == [9_039, 9_040, 12_040, 15_040]
    records = read_back(bootstrap, topic, 15_040)[0]
    assert [int(record.value) for record in records] == list(range(15_040))


def test_one_record_that_is_too_large_fails_alone(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(1, max_message_bytes="2000")
    with bradbury.Producer(bootstrap, linger_ms=50) as producer:
        before = producer.send(topic, b"small")
        large = producer.send(topic, b"x" * 3000)
        after = producer.send(topic, b"small too")
        with pytest.raises(MessageTooLarge):
            large.result(60)
        assert before.result(60).offset == 0
        assert after.result(60).offset == 1
        with pytest.raises(MessageTooLarge, match="max_request_size"):
            producer.send(topic, b"x" * 2_000_000)


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acknowledgements_are_not_idempotent_but_arrive(
    bootstrap: str, new_topic: NewTopic, acks: int
) -> None:
    topic = new_topic()
    with bradbury.Producer(bootstrap, acks=acks) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(100)]
        offsets = [future.result(60).offset for future in futures]
    assert offsets == ([-1] * 100 if acks == 0 else list(range(100)))
    assert len(read_back(bootstrap, topic, 100)[0]) == 100


def test_callbacks_are_called_once_each(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    seen: list[int] = []
    with bradbury.Producer(bootstrap) as producer:
        for number in range(50):
            future = producer.send(topic, b"", partition=number % 2)
            future.add_done_callback(lambda done: seen.append(done.result().offset))
        future.result(60)
        future.add_done_callback(lambda done: seen.append(-7))
        assert seen[-1] == -7
    assert sorted(seen) == sorted([-7, *range(25), *range(25)])


def test_an_own_partitioner_is_asked_with_key_and_number_of_partitions(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(4)

    def by_length(key: bytes | None, partition_count: int) -> int:
        return len(key or b"") % partition_count

    with bradbury.Producer(bootstrap, partitioner=by_length) as producer:
        assert producer.send(topic, b"", b"12345").result(60).partition == 1
        ranges = producer.send_batch(topic, [("ab", ""), ("abc", "")]).result(60).ranges
        assert [one.partition for one in ranges] == [2, 3]
        assert producer.send(topic, b"", b"12345", partition=3).result(60).partition == 3


@pytest.mark.parametrize("chosen", [2, -1, 0.5, "1", None, 2**40])
def test_a_partition_that_there_is_not_is_named_and_nothing_is_sent(
    bootstrap: str, new_topic: NewTopic, chosen: object
) -> None:
    topic, refused = new_topic(2), f"chose partition {chosen!r} of topic .*, which has 0 to 1"

    def choose(key: bytes | None, count: int) -> Any:
        return chosen if key == b"wrong" else count - 1

    with bradbury.Producer(bootstrap, partitioner=choose) as producer:
        with pytest.raises(ValueError, match=refused):
            producer.send_batch(topic, [("right", "v"), ("wrong", "v")])
        with pytest.raises(ValueError, match=refused):
            producer.send(topic, b"v", b"wrong").result(60)
        assert producer.send(topic, b"v", b"right").result(60)[:3] == (topic, 1, 0)


def test_flush_returns_when_everything_is_acknowledged(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with bradbury.Producer(bootstrap, linger_ms=20_000) as producer:
        futures = [producer.send(topic, b"") for _ in range(10)]
        assert not any(future.done() for future in futures)
        producer.flush(10)
        assert all(future.done() for future in futures)


def test_an_unknown_topic_is_named_with_the_remedy(bootstrap: str) -> None:
    with bradbury.Producer(bootstrap) as producer:
        with pytest.raises(UnknownTopicOrPartition, match=r"'nowhere'.*create_topic"):
            producer.send("nowhere", b"")
    with bradbury.Producer(bootstrap, max_block_ms=300) as impatient:
        with pytest.raises(UnknownTopicOrPartition, match=r"'nowhere'.*create_topic"):
            impatient.send("nowhere", b"")


def test_a_name_that_no_topic_may_have_is_refused_with_the_rule(bootstrap: str) -> None:
    with (
        bradbury.Producer(bootstrap) as producer,
        pytest.raises(InvalidTopicException, match="'bad topic!' has characters other than"),
    ):
        producer.send("bad topic!", b"")


def test_a_partition_that_was_added_is_found_when_it_is_asked_for(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    with (
        bradbury.Producer(bootstrap) as producer,
        bradbury.Consumer(bootstrap=bootstrap) as consumer,
        bradbury.Admin(bootstrap) as early,
        bradbury.Admin(bootstrap) as admin,
    ):
        producer.send(topic, b"old", partition=0).result(60)
        consumer.assign([(topic, 0)])
        assert early.list_offsets([(topic, 0)])[topic, 0].offset == 1
        admin.create_partitions(topic, 3)
        assert producer.send(topic, b"new", partition=1).result(60).partition == 1
        assert producer.send_batch(topic, [b"new"], partition=2).result(60).count == 1
        assert early.list_offsets([(topic, 2)])[topic, 2].offset == 1
        assert early.delete_records({(topic, 2): "latest"}) == {(topic, 2): 1}
        consumer.assign([(topic, 1)])
        assert consumer.position((topic, 1)) == 1  # at the end: nothing is committed
        with pytest.raises(ValueError, match="partitions 0 to 2, not 3"):
            producer.send(topic, b"", partition=3)


def test_what_cannot_be_sent_is_refused_at_the_call(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with bradbury.Producer(bootstrap) as producer:
        with pytest.raises(ValueError, match="partitions 0 to 1, not 2"):
            producer.send(topic, b"", partition=2)
        with pytest.raises(TypeError, match="bytes, str or None, not int"):
            producer.send(topic, 5)
        with pytest.raises(ValueError, match="no column 'value'"):
            producer.send_batch(topic, pa.table({"v": [b""]}))
        with pytest.raises(ValueError, match="not int64"):
            producer.send_batch(topic, pa.table({"value": [1, 2]}))
        with pytest.raises(ValueError, match="not dict"):
            producer.send_batch(topic, {"value": [b""]})
        with pytest.raises(ValueError, match="all bytes or all str"):
            producer.send_batch(topic, [b"a", 1])
        with pytest.raises(ValueError, match="its length is not its size"):
            producer.send_batch(topic, [memoryview(array("i", [1, 2]))])
        table = pa.table({"value": [b""], "p": pa.array([7], pa.int32())})
        with pytest.raises(ValueError, match="not 7"):
            producer.send_batch(topic, table, partition="p")
        assert producer.send_batch(topic, []).result(60).count == 0
        assert producer.send(topic, b"still works").result(60).offset == 0


def test_settings_that_contradict_each_other_are_refused() -> None:
    for options in (
        {"acks": 1, "enable_idempotence": True},
        {"acks": 7},
        {"max_in_flight": 6, "enable_idempotence": True},
        {"compression_type": "brotli"},
        {"partitioner": "random"},
        {"delivery_timeout_ms": 10},
        {"batch_size": 0},
    ):
        with pytest.raises(InvalidConfig):
            bradbury.Producer("127.0.0.1:1", **options)


def test_a_closed_producer_takes_nothing_more(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = bradbury.Producer(bootstrap)
    sent = producer.send(topic, b"before")
    producer.close()
    producer.close()
    assert sent.result(0).offset == 0
    with pytest.raises(KafkaError, match="closed"):
        producer.send(topic, b"after")
    with pytest.raises(KafkaError, match="closed"):
        producer.send("another", b"after")


def test_a_dropped_producer_ends_its_thread(bootstrap: str, new_topic: NewTopic) -> None:
    producer = bradbury.Producer(bootstrap, client_id="dropped")
    producer.send(new_topic(), b"").result(60)
    assert "dropped-io" in {thread.name for thread in threading.enumerate()}
    del producer
    deadline = time.monotonic() + 60
    while "dropped-io" in {thread.name for thread in threading.enumerate()}:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_offsets_of_a_large_batch_are_contiguous_per_partition(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    keys = pa.array([b"%d" % n for n in range(20_000)])
    table = pa.table({"key": keys, "value": keys, "timestamp": np.arange(20_000) + 10**12})
    with bradbury.Producer(bootstrap, batch_size=10_000, compression_type="lz4") as producer:
        done = producer.send_batch(topic, table).result(30)
    assert done.count == 20_000
    assert [(one.partition, one.start) for one in done.ranges] == [(0, 0), (1, 0), (2, 0)]
    assert sum(one.end for one in done.ranges) == 20_000


def test_a_list_may_have_bytes_and_text_together(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with bradbury.Producer(bootstrap) as producer:
        rows = [("\xfc", b"a"), (None, "b"), (b"k", None)]
        producer.send_batch(topic, rows).result(60)
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        table = consumer.poll(5_000)
    assert table["key"].to_pylist() == ["\xfc".encode(), None, b"k"]
    assert table["value"].to_pylist() == [b"a", b"b", None]
