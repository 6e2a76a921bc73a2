"""Where do the messages of a Producer go, when, and what do its handlers see?"""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kafka
import numpy as np
import pytest

import bradbury
from bradbury.clients.classic import (
    CallbackHandler,
    DefaultEventHandler,
    Encoder,
    EventHandler,
    Producer,
    ProducerConfig,
    ProducerData,
    QueueClosed,
    QueueFull,
    QueueItem,
    StringEncoder,
    SyncProducer,
)
from bradbury.protocol.errors import (
    InvalidConfig,
    MessageTooLarge,
    UnknownTopicOrPartition,
)
from bradbury.tests.support.client_threads import client_threads

NewTopic = Callable[..., str]
SECONDS = 60.0


def read(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes | None, bytes]]:
    """(partition, key, payload) with kafka-python, in the order of each partition."""
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None
    )
    found: list[tuple[int, bytes | None, bytes]] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            found += [(one.partition, one.key, one.value) for one in records]
    consumer.close()
    assert len(found) == count
    return found


def payloads(bootstrap: str, topic: str, count: int) -> list[bytes]:
    return [payload for _, _, payload in read(bootstrap, topic, count)]


# --- synchronous ---------------------------------------------------------------------------------


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer[str, bytes]]:
    with Producer[str, bytes]({"broker.list": bootstrap}) as made:
        yield made


def test_what_send_returned_from_is_in_the_log(
    bootstrap: str, new_topic: NewTopic, producer: Producer[str, bytes], admin: bradbury.Admin
) -> None:
    topic = new_topic()
    producer.send(ProducerData(topic, None, b"one"))
    assert admin.list_offsets({(topic, 0): "latest"})[topic, 0].offset == 1
    producer.send(ProducerData(topic, None, [b"two", b"three"]))
    assert payloads(bootstrap, topic, 3) == [b"one", b"two", b"three"]


def test_several_producer_data_go_out_together(
    bootstrap: str, new_topic: NewTopic, producer: Producer[str, bytes]
) -> None:
    first, second = new_topic(), new_topic()
    producer.send([ProducerData(first, None, [b"a", b"b"]), ProducerData(second, None, b"c")])
    assert payloads(bootstrap, first, 2) == [b"a", b"b"]
    assert payloads(bootstrap, second, 1) == [b"c"]
    producer.send([])
    producer.send(ProducerData(first, None, []))


def test_a_key_places_as_in_every_kafka_client_and_is_stored(
    bootstrap: str, new_topic: NewTopic, producer: Producer[str, bytes]
) -> None:
    topic, theirs = new_topic(8), new_topic(8)
    other = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    keys = [f"key-{number}" for number in range(40)]
    for key in keys:
        producer.send(ProducerData(topic, key, b"v"))
        other.send(theirs, b"v", key.encode())
    other.close()
    assert sorted(read(bootstrap, topic, 40)) == sorted(read(bootstrap, theirs, 40))


def test_without_a_key_the_partition_is_random_and_the_same_for_one_producer_data(
    bootstrap: str, new_topic: NewTopic, producer: Producer[str, bytes]
) -> None:
    topic = new_topic(4)
    producer.send([ProducerData(topic, None, [b"%d" % n] * 5) for n in range(60)])
    found = read(bootstrap, topic, 300)
    partitions = {payload: partition for partition, _, payload in found}
    assert all(partitions[payload] == partition for partition, _, payload in found)
    assert set(partitions.values()) == {0, 1, 2, 3}


class Modulo:
    """Of numpy's numbers, as where a whole column was hashed before."""

    def partition(self, key: int, partition_count: int) -> int:
        return np.int64(key) % partition_count  # type: ignore[no-any-return]


def test_a_partitioner_of_ones_own_gets_the_key_and_the_number_of_partitions(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    with Producer[int, bytes]({"broker.list": bootstrap}, partitioner=Modulo()) as producer:
        producer.send([ProducerData(topic, number, b"%d" % number) for number in range(9)])
    found = read(bootstrap, topic, 9)
    assert all(int(payload) % 3 == partition for partition, _, payload in found)
    assert {key for _, key, _ in found} == {None}  # a number is not stored without a key encoder


def test_new_partitions_are_used_after_the_refresh_interval(
    bootstrap: str, new_topic: NewTopic, admin: bradbury.Admin
) -> None:
    topic, config = new_topic(1), {"broker.list": bootstrap, "topic.refresh.interval.ms": 20}
    with Producer[int, bytes](config, partitioner=Modulo()) as producer:
        producer.send(ProducerData(topic, 1, b"0"))
        admin.create_partitions(topic, 2)
        deadline = time.monotonic() + SECONDS
        while not admin.list_offsets({(topic, 1): "latest"})[topic, 1].offset:
            assert time.monotonic() < deadline
            producer.send(ProducerData(topic, 1, b"1"))


class NumberEncoder:
    def to_message(self, event: int) -> bytes:
        return b"%d" % event


def test_encoders_make_payloads_and_keys(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer[int, str](
        {"broker.list": bootstrap},
        encoder=StringEncoder(),
        partitioner=Modulo(),
        key_encoder=NumberEncoder(),
    ) as producer:
        producer.send(ProducerData(topic, 7, "größer"))
    assert read(bootstrap, topic, 1) == [(0, b"7", "größer".encode())]


class Beyond:
    def partition(self, key: object, partition_count: int) -> int:
        return partition_count


def test_what_cannot_be_placed_or_encoded_is_named_and_nothing_is_sent(
    bootstrap: str, new_topic: NewTopic, producer: Producer[str, bytes], admin: bradbury.Admin
) -> None:
    topic = new_topic(2)
    with Producer[str, bytes]({"broker.list": bootstrap}, partitioner=Beyond()) as beyond:
        with pytest.raises(ValueError, match=f"chose partition 2 for key 'k'; topic '{topic}'"):
            beyond.send([ProducerData(topic, None, b"v"), ProducerData(topic, "k", b"v")])
    with pytest.raises(TypeError, match="int is not bytes"):
        producer.send(ProducerData(topic, None, [b"v", 5]))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="key of type int"):
        producer.send(ProducerData(topic, 5, b"v"))  # type: ignore[arg-type]
    with Producer[str, Any]({"broker.list": bootstrap}, encoder=StringEncoder()) as strings:
        with pytest.raises(TypeError, match="StringEncoder takes str, not b'v'"):
            strings.send(ProducerData(topic, None, b"v"))
    with pytest.raises(TypeError, match="partitioner=<built-in.* has no method `partition`; give"):
        Producer[str, bytes]({"broker.list": bootstrap}, partitioner=hash)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="send takes ProducerData"):
        producer.send((topic, None, b"v"))  # type: ignore[arg-type]
    offsets = admin.list_offsets({(topic, 0): "latest", (topic, 1): "latest"})
    assert [answer.offset for answer in offsets.values()] == [0, 0]


@pytest.mark.slow
@pytest.mark.usefixtures("unknown_soon")
def test_an_unknown_topic_is_an_error_of_send(producer: Producer[str, bytes]) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        producer.send(ProducerData("no-such-topic", None, b"v"))


def test_a_failure_is_raised_when_the_others_are_in_the_log(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Producer[str, bytes]({"broker.list": bootstrap, "max.message.size": 1000}) as producer:
        with pytest.raises(MessageTooLarge):
            producer.send(
                [
                    ProducerData(topic, None, b"before"),
                    ProducerData(topic, None, b"x" * 2000),
                    ProducerData(topic, None, b"after"),
                ]
            )
    assert payloads(bootstrap, topic, 2) == [b"before", b"after"]


def test_only_compressed_topics_are_compressed(
    bootstrap: str, new_topic: NewTopic, admin: bradbury.Admin
) -> None:
    packed, plain = new_topic(), new_topic()
    values = [b"the same again and again " * 20] * 100
    with Producer[str, bytes](
        {"broker.list": bootstrap, "compression.codec": 1, "compressed.topics": packed}
    ) as producer:
        producer.send([ProducerData(packed, None, values), ProducerData(plain, None, values)])
    sizes = {
        (replica.topic, replica.partition): replica.size
        for log_dir in admin.describe_log_dirs([packed, plain])
        for replica in log_dir.partitions
    }
    assert sizes[packed, 0] * 10 < sizes[plain, 0]
    assert payloads(bootstrap, packed, 100) == payloads(bootstrap, plain, 100) == values


def test_after_close_nothing_is_sent(bootstrap: str, new_topic: NewTopic) -> None:
    for kind in ("sync", "async"):
        producer = Producer[str, bytes]({"broker.list": bootstrap, "producer.type": kind})
        producer.close()
        producer.close()
        with pytest.raises(QueueClosed):
            producer.send(ProducerData(new_topic(), None, b"v"))


def test_handlers_need_a_queue(bootstrap: str) -> None:
    with pytest.raises(InvalidConfig, match="producer.type=async"):
        Producer({"broker.list": bootstrap}, callback_handler=CallbackHandler[bytes]())


# --- asynchronous --------------------------------------------------------------------------------


class Held(EventHandler[bytes]):
    """Sends nothing until `go`: the queue fills. Notes every batch."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.batches: list[list[bytes]] = []
        self.closed = 0

    def handle(
        self,
        events: Sequence[QueueItem[bytes]],
        producer: SyncProducer,
        encoder: Encoder[bytes],
    ) -> None:
        self.begun.set()
        assert self.go.wait(SECONDS)
        self.batches.append([event.data for event in events])

    def close(self) -> None:
        self.closed += 1

    @property
    def messages(self) -> list[bytes]:
        return [message for batch in self.batches for message in batch]


def asynchronous(bootstrap: str, **settings: object) -> ProducerConfig:
    return ProducerConfig(bootstrap=bootstrap, producer_type="async", **settings)  # type: ignore[arg-type]


def test_messages_leave_when_there_are_batch_size_of_them(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, handler = new_topic(), Held()
    handler.go.set()
    config = asynchronous(bootstrap, batch_size=10, queue_time_ms=60_000)
    with Producer[str, bytes](config, event_handler=handler) as producer:
        producer.send(ProducerData(topic, None, [b"%d" % n for n in range(25)]))
    assert [len(batch) for batch in handler.batches] == [10, 10, 5]
    assert handler.messages == [b"%d" % n for n in range(25)]
    assert handler.closed == 1


def test_messages_leave_when_the_queue_time_is_over(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    config = asynchronous(bootstrap, batch_size=1000, queue_time_ms=50)
    with Producer[str, bytes](config) as producer:
        producer.send(ProducerData(topic, None, [b"one", b"two"]))
        assert payloads(bootstrap, topic, 2) == [b"one", b"two"]  # before close


def test_close_sends_what_is_queued_in_order(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    with Producer[str, bytes](asynchronous(bootstrap)) as producer:
        for number in range(1000):
            producer.send(ProducerData(topic, f"key-{number % 7}", b"%d" % number))
    found = read(bootstrap, topic, 1000)
    by_key: dict[bytes | None, list[int]] = {}
    for _, key, payload in found:
        by_key.setdefault(key, []).append(int(payload))
    assert len(by_key) == 7
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert (producer.failed_count, producer.dropped_count, producer.queue_length) == (0, 0, 0)


def test_a_full_queue_is_an_error_at_once_without_an_enqueue_timeout(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, handler = new_topic(), Held()
    config = asynchronous(bootstrap, queue_size=5, batch_size=1)
    with Producer[str, bytes](config, event_handler=handler) as producer:
        producer.send(ProducerData(topic, None, b"first"))
        assert handler.begun.wait(SECONDS)
        producer.send(ProducerData(topic, None, [b"%d" % n for n in range(5)]))
        began = time.monotonic()
        with pytest.raises(QueueFull, match="5 messages"):
            producer.send(ProducerData(topic, None, b"too many"))
        assert time.monotonic() - began < 20
        assert (producer.queue_length, producer.dropped_count) == (5, 1)
        handler.go.set()
    assert handler.messages == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_a_full_queue_is_waited_for_as_long_as_the_enqueue_timeout_says(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, handler = new_topic(), Held()
    config = asynchronous(bootstrap, queue_size=1, batch_size=1, enqueue_timeout_ms=300)
    with Producer[str, bytes](config, event_handler=handler) as producer:
        producer.send(ProducerData(topic, None, b"first"))
        assert handler.begun.wait(SECONDS)
        producer.send(ProducerData(topic, None, b"second"))
        began = time.monotonic()
        with pytest.raises(QueueFull, match="enqueueTimeout.ms=300"):
            producer.send(ProducerData(topic, None, b"third"))
        assert 0.3 <= time.monotonic() - began < 20
        handler.go.set()


def test_with_an_enqueue_timeout_of_minus_one_send_waits_for_room(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, handler = new_topic(), Held()
    config = asynchronous(bootstrap, queue_size=2, batch_size=1, enqueue_timeout_ms=-1)
    with Producer[str, bytes](config, event_handler=handler) as producer:
        sending = threading.Thread(
            target=producer.send, args=[ProducerData(topic, None, [b"%d" % n for n in range(50)])]
        )
        sending.start()
        assert handler.begun.wait(SECONDS)
        assert sending.is_alive()
        handler.go.set()
        sending.join(SECONDS)
        assert not sending.is_alive()
    assert handler.messages == [b"%d" % n for n in range(50)]


def test_a_send_that_waits_for_room_fails_when_the_producer_closes(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, handler = new_topic(), Held()
    config = asynchronous(bootstrap, queue_size=1, batch_size=1, enqueue_timeout_ms=-1)
    producer = Producer[str, bytes](config, event_handler=handler)
    failures: list[Exception] = []

    def send() -> None:
        try:
            producer.send(ProducerData(topic, None, [b"%d" % n for n in range(50)]))
        except QueueClosed as error:
            failures.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    assert handler.begun.wait(SECONDS)
    closing = threading.Thread(target=producer.close)
    closing.start()
    sending.join(SECONDS)
    handler.go.set()
    closing.join(SECONDS)
    assert len(failures) == 1
    assert not closing.is_alive()


class Recorder(CallbackHandler[bytes]):
    """Notes every call, and changes something in each place that may."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.calls: list[str] = []

    def before_enqueue(self, item: QueueItem[bytes]) -> QueueItem[bytes]:
        self.calls.append("before_enqueue")
        return item._replace(data=item.data + b"+enqueued")

    def after_enqueue(self, item: QueueItem[bytes], added: bool) -> None:
        self.calls.append(f"after_enqueue {added}")

    def after_dequeuing_existing_data(
        self, item: QueueItem[bytes] | None
    ) -> Sequence[QueueItem[bytes]]:
        if item is None:
            return []
        self.calls.append("after_dequeuing_existing_data")
        return [item, item._replace(data=b"a copy")]

    def before_sending_data(self, items: Sequence[QueueItem[bytes]]) -> Sequence[QueueItem[bytes]]:
        self.calls.append(f"before_sending_data {len(items)}")
        return [item for item in items if item.data != b"drop+enqueued"]

    def last_batch_before_close(self) -> Sequence[QueueItem[bytes]]:
        self.calls.append("last_batch_before_close")
        return [QueueItem(b"the end", self.topic, 0)]

    def close(self) -> None:
        self.calls.append("close")


def test_hooks_are_called_on_the_way_and_may_change_what_passes(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    recorder = Recorder(topic)
    config = asynchronous(bootstrap, queue_time_ms=60_000, batch_size=100)
    with Producer[str, bytes](config, callback_handler=recorder) as producer:
        producer.send(ProducerData(topic, None, [b"one", b"drop"]))
    assert payloads(bootstrap, topic, 4) == [b"one+enqueued", b"a copy", b"a copy", b"the end"]
    calls = Counter(recorder.calls)
    assert calls["before_enqueue"] == calls["after_enqueue True"] == 2
    assert calls["after_dequeuing_existing_data"] == 2
    assert recorder.calls[-3:] == ["last_batch_before_close", "before_sending_data 5", "close"]


class CountsIdling(CallbackHandler[bytes]):
    def __init__(self) -> None:
        self.idle = 0

    def after_dequeuing_existing_data(
        self, item: QueueItem[bytes] | None
    ) -> Sequence[QueueItem[bytes]]:
        self.idle += item is None
        return super().after_dequeuing_existing_data(item)


def test_without_a_queue_time_messages_leave_at_once_and_an_idle_queue_costs_nothing(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, counting = new_topic(), CountsIdling()
    config = asynchronous(bootstrap, queue_time_ms=0)
    with Producer[str, bytes](config, callback_handler=counting) as producer:
        producer.send(ProducerData(topic, None, b"one"))
        assert payloads(bootstrap, topic, 1) == [b"one"]
        counting.idle = 0
        threading.Event().wait(0.5)
        assert 1 <= counting.idle <= 10


def test_a_hook_is_called_when_the_queue_was_full(bootstrap: str, new_topic: NewTopic) -> None:
    topic, handler = new_topic(), Held()
    recorder = Recorder(topic)
    config = asynchronous(bootstrap, queue_size=1, batch_size=1)
    with Producer[str, bytes](config, event_handler=handler, callback_handler=recorder) as producer:
        producer.send(ProducerData(topic, None, b"one"))
        assert handler.begun.wait(SECONDS)
        producer.send(ProducerData(topic, None, b"two"))
        with pytest.raises(QueueFull):
            producer.send(ProducerData(topic, None, b"three"))
        handler.go.set()
    assert recorder.calls.count("after_enqueue False") == 1


class Failing(DefaultEventHandler):
    """Fails the first batch, then sends."""

    def __init__(self) -> None:
        self.failed = False

    def handle(
        self,
        events: Sequence[QueueItem[bytes]],
        producer: SyncProducer,
        encoder: Encoder[bytes],
    ) -> None:
        if not self.failed:
            self.failed = True
            raise RuntimeError("not this one")
        super().handle(events, producer, encoder)


def test_a_handler_that_raises_costs_its_batch_and_nothing_else(
    bootstrap: str, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    config = asynchronous(bootstrap, batch_size=3, queue_time_ms=60_000)
    with Producer[str, bytes](config, event_handler=Failing()) as producer:
        producer.send(ProducerData(topic, None, [b"%d" % n for n in range(8)]))
    assert payloads(bootstrap, topic, 5) == [b"3", b"4", b"5", b"6", b"7"]
    assert producer.failed_count == 3
    assert "3 messages may not have been sent" in caplog.text


class SendsAgain(DefaultEventHandler):
    """Sends on through its own producer, and closes it in the end."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.producer: Producer[str, bytes] | None = None
        self.failures: list[Exception] = []

    def handle(
        self,
        events: Sequence[QueueItem[bytes]],
        producer: SyncProducer,
        encoder: Encoder[bytes],
    ) -> None:
        super().handle(events, producer, encoder)
        assert self.producer is not None
        if events[0].data == b"first":
            try:
                self.producer.send(ProducerData(self.topic, None, [b"again"] * 5))
            except QueueFull as error:
                self.failures.append(error)
            self.producer.close()


def test_a_handler_that_sends_and_closes_does_not_wait_for_itself(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    handler = SendsAgain(topic)
    config = asynchronous(bootstrap, queue_size=3, batch_size=1, enqueue_timeout_ms=-1)
    before = client_threads()
    handler.producer = Producer[str, bytes](config, event_handler=handler)
    handler.producer.send(ProducerData(topic, None, b"first"))
    assert payloads(bootstrap, topic, 4) == [b"first", b"again", b"again", b"again"]
    assert len(handler.failures) == 1
    deadline = time.monotonic() + SECONDS
    while client_threads() - before and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert not client_threads() - before


@pytest.mark.slow
def test_close_with_a_timeout_ends_though_no_broker_answers() -> None:
    cluster = bradbury.local()
    try:
        with bradbury.Admin(cluster.bootstrap_servers) as admin:
            admin.create_topic("t")
        config = asynchronous(cluster.bootstrap_servers, batch_size=2, queue_time_ms=0)
        producer = Producer[str, bytes](config)
        producer.send(ProducerData("t", None, b"there"))
        deadline = time.monotonic() + SECONDS
        while producer.queue_length and time.monotonic() < deadline:
            threading.Event().wait(0.01)
    finally:
        cluster.close()
    producer.send(ProducerData("t", None, [b"nobody", b"takes", b"these"]))
    began = time.monotonic()
    producer.close(timeout=0.5)
    assert time.monotonic() - began < 20
    assert producer.failed_count >= 3


def test_a_producer_that_is_dropped_sends_what_is_queued(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = Producer[str, bytes](asynchronous(bootstrap, queue_time_ms=60_000))
    producer.send(ProducerData(topic, None, [b"one", b"two"]))
    del producer
    assert payloads(bootstrap, topic, 2) == [b"one", b"two"]


def test_no_broker_named_anywhere_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BRADBURY_BOOTSTRAP", raising=False)
    # A home and a process of its own: other tests' clusters, or one that was joined, would be found.
    monkeypatch.setenv("HOME", str(tmp_path))
    lines = "from bradbury.classic import Producer; Producer({})"
    done = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "ConnectionFailed: no cluster found" in done.stderr
