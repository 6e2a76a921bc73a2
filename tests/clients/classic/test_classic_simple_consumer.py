"""What does a SimpleConsumer read, from where, and what does it say when it cannot?"""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import kafka
import pytest
from hypothesis import given, strategies as st

import bradbury
from bradbury.clients.classic import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchRequest,
    InvalidMessageSize,
    Message,
    MessageAndOffset,
    MessageSet,
    SimpleConsumer,
)
from bradbury.protocol.errors import (
    ConnectionFailed,
    CorruptMessage,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from bradbury.tests.support.storage.batches import make_batch

NewTopic = Callable[..., str]
MEGABYTE = 1_000_000


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[SimpleConsumer]:
    with connect(bootstrap) as simple:
        yield simple


def connect(bootstrap: str, so_timeout: int = 10_000) -> SimpleConsumer:
    host, port = bootstrap.rsplit(":", 1)
    return SimpleConsumer(host, int(port), so_timeout, 64 * 1024)


def fill(bootstrap: str, topic: str, payloads: list[bytes], **settings: object) -> None:
    """Produce with librdkafka: one batch for all, unless the settings say otherwise."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, **settings}
    )
    for payload in payloads:
        producer.produce(topic, payload, partition=0)
    assert producer.flush(10) == 0


def read(consumer: SimpleConsumer, topic: str, offset: int, max_size: int) -> list[bytes | None]:
    """Fetch after fetch to the end of the log, as 0.7's loops did."""
    found: list[bytes | None] = []
    while True:
        messages = list(consumer.fetch(FetchRequest(topic, 0, offset, max_size)))
        if not messages:
            return found
        found += [message.payload for message, _ in messages]
        offset = messages[-1].offset


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


# --- fetch ---------------------------------------------------------------------------------------


def test_each_message_comes_with_the_offset_to_fetch_on_at(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic()
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, b"one", b"key", timestamp_ms=1_700_000_000_123)
    producer.send(topic, b"two", timestamp_ms=1_700_000_000_456)
    producer.close()
    found = consumer.fetch(FetchRequest(topic, 0, 0, MEGABYTE))
    assert list(found) == [
        MessageAndOffset(Message(b"one", b"key", 1_700_000_000_123), 1),
        MessageAndOffset(Message(b"two", None, 1_700_000_000_456), 2),
    ]
    assert list(found) == list(found)  # it may be opened again
    assert (found.next_offset, found.high_watermark, found.is_cut) == (2, 2, False)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_batch_is_opened_here(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer, codec: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, numbers(0, 500), **{"compression.type": codec})
    assert read(consumer, topic, 0, MEGABYTE) == numbers(0, 500)


def test_a_fetch_amid_a_batch_begins_at_its_offset(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, numbers(0, 100))
    assert read(consumer, topic, 42, MEGABYTE) == numbers(42, 100)


def test_messages_are_fetched_in_pieces_of_max_size(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic()
    payloads = [b"%06d" % number * 20 for number in range(200)]
    fill(bootstrap, topic, payloads, **{"batch.num.messages": 5})
    first = consumer.fetch(FetchRequest(topic, 0, 0, 5_000))
    assert 0 < first.size_in_bytes <= 5_000
    assert read(consumer, topic, 0, 5_000) == payloads


def test_at_the_end_of_the_log_there_is_nothing_at_once(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, [b"one"])
    found = consumer.fetch(FetchRequest(topic, 0, 1, MEGABYTE))
    assert (list(found), found.next_offset, found.size_in_bytes) == ([], 1, 0)


def test_a_max_size_that_is_too_small_is_an_error_that_says_how_much_is_needed(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, [b"x" * 10_000])
    with pytest.raises(InvalidMessageSize, match=r"offset 0 take 100\d\d bytes") as caught:
        consumer.fetch(FetchRequest(topic, 0, 0, 1_000))
    needed = int(str(caught.value).split(" bytes")[0].rsplit(" ", 1)[1])
    assert list(consumer.fetch(FetchRequest(topic, 0, 0, needed)))
    with pytest.raises(InvalidMessageSize):
        consumer.fetch(FetchRequest(topic, 0, 0, needed - 1))


def test_an_offset_outside_the_log_is_out_of_range(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic()
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0"):
        consumer.fetch(FetchRequest(topic, 0, 7, MEGABYTE))


def test_a_topic_or_partition_that_is_not_there_is_named(
    new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="no-such-topic-0"):
        consumer.fetch(FetchRequest("no-such-topic", 0, 0, MEGABYTE))
    with pytest.raises(UnknownTopicOrPartition, match="-5 at"):
        consumer.fetch(FetchRequest(new_topic(), 5, 0, MEGABYTE))


def test_a_broker_that_does_not_lead_says_so() -> None:
    with bradbury.local(nodes=2) as cluster, bradbury.Admin(cluster.bootstrap_servers) as admin:
        [partition] = admin.create_topic("t").partitions
        brokers = {broker.node_id: broker for broker in admin.describe_cluster().brokers}
        leader = brokers.pop(partition.leader)
        [other] = brokers.values()
        with SimpleConsumer(other.host, other.port) as simple:
            with pytest.raises(NotLeaderOrFollower, match=f"t-0 at .*:{other.port}"):
                simple.fetch(FetchRequest("t", 0, 0, MEGABYTE))
        with SimpleConsumer(leader.host, leader.port) as simple:
            assert list(simple.fetch(FetchRequest("t", 0, 0, MEGABYTE))) == []


def test_a_broker_that_follows_answers_fetches_and_tells_no_offsets() -> None:
    with bradbury.local(nodes=2) as cluster, bradbury.Admin(cluster.bootstrap_servers) as admin:
        [partition] = admin.create_topic("t", 1, 2).partitions
        brokers = {broker.node_id: broker for broker in admin.describe_cluster().brokers}
        del brokers[partition.leader]
        [follower] = brokers.values()
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            producer.send("t", b"one").result()
        deadline = time.monotonic() + 60
        with SimpleConsumer(follower.host, follower.port) as simple:
            while not (found := list(simple.fetch(FetchRequest("t", 0, 0, MEGABYTE)))):
                assert time.monotonic() < deadline  # it has not heard yet that it is committed
            assert [message.payload for message, _ in found] == [b"one"]
            with pytest.raises(NotLeaderOrFollower, match="t-0 at"):
                simple.get_offsets_before("t", 0, LATEST_TIME, 1)


@pytest.mark.parametrize(
    "arguments", [("t", -1, 0, 1), ("t", 0, -1, 1), ("t", 0, 0, 0), ("t", 0, 0, -5)]
)
def test_a_fetch_request_of_nonsense_is_refused(arguments: tuple[str, int, int, int]) -> None:
    with pytest.raises(ValueError, match="use at least"):
        FetchRequest(*arguments)


# --- multifetch ----------------------------------------------------------------------------------


def test_a_multifetch_answers_in_the_order_of_its_requests(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    first, second = new_topic(), new_topic(2)
    fill(bootstrap, first, numbers(0, 10))
    fill(bootstrap, second, numbers(100, 110))
    found = consumer.multifetch(
        [
            FetchRequest(second, 0, 5, MEGABYTE),
            FetchRequest(first, 0, 8, MEGABYTE),
            FetchRequest(second, 1, 0, MEGABYTE),
        ]
    )
    assert [[message.payload for message, _ in one] for one in found] == [
        numbers(105, 110),
        numbers(8, 10),
        [],
    ]
    assert [(one.topic, one.partition) for one in found] == [(second, 0), (first, 0), (second, 1)]


def test_a_refused_partition_does_not_spoil_the_others(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, numbers(0, 10))
    bad, good = consumer.multifetch(
        [FetchRequest(topic, 1, 99, MEGABYTE), FetchRequest(topic, 0, 0, MEGABYTE)]
    )
    assert len(list(good)) == 10
    assert isinstance(bad.error, OffsetOutOfRange)
    with pytest.raises(OffsetOutOfRange):
        list(bad)


def test_a_message_too_large_for_the_second_part_of_a_multifetch_is_an_error_too(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    """The broker sends the first part whole and the second not at all."""
    first, second = new_topic(), new_topic()
    fill(bootstrap, first, [b"x" * 10_000])
    fill(bootstrap, second, [b"y" * 10_000])
    good, bad = consumer.multifetch(
        [FetchRequest(first, 0, 0, MEGABYTE), FetchRequest(second, 0, 0, 1_000)]
    )
    assert len(list(good)) == 1
    with pytest.raises(InvalidMessageSize, match=r"take 100\d\d bytes"):
        list(bad)


def test_a_multifetch_of_nothing_or_of_one_partition_twice_is_refused(
    consumer: SimpleConsumer,
) -> None:
    with pytest.raises(ValueError, match="at least one"):
        consumer.multifetch([])
    with pytest.raises(ValueError, match="t-0 is 2 times"):
        consumer.multifetch([FetchRequest("t", 0, 0, 1), FetchRequest("t", 0, 9, 1)])


# --- offsets -------------------------------------------------------------------------------------


def test_offsets_are_those_of_segments_newest_first(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic(segment_bytes="200")
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
    for number in range(6):
        producer.send(topic, b"x" * 100, timestamp_ms=1_000 + number).get(10)
    producer.close()
    every = consumer.get_offsets_before(topic, 0, LATEST_TIME, 100)
    assert every == [6, 5, 4, 3, 2, 1, 0]
    assert consumer.get_offsets_before(topic, 0, LATEST_TIME, 1) == [6]
    assert consumer.get_offsets_before(topic, 0, LATEST_TIME, 3) == [6, 5, 4]
    assert consumer.get_offsets_before(topic, 0, EARLIEST_TIME, 100) == [0]
    assert consumer.get_offsets_before(topic, 0, 1_002, 100) == [2, 1, 0]
    assert consumer.get_offsets_before(topic, 0, 999, 100) == []
    low, high = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "watermarks"}
    ).get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0))
    assert (every[-1], every[0]) == (low, high)


def test_questions_about_offsets_that_make_no_sense_are_refused(
    consumer: SimpleConsumer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with pytest.raises(ValueError, match="max_offsets=.*: use at least 1"):
        consumer.get_offsets_before(topic, 0, LATEST_TIME, 0)
    with pytest.raises(ValueError, match="time_ms=-3"):
        consumer.get_offsets_before(topic, 0, -3, 1)
    with pytest.raises(UnknownTopicOrPartition, match=f"{topic}-4"):
        consumer.get_offsets_before(topic, 4, LATEST_TIME, 1)


# --- the connection ------------------------------------------------------------------------------


def test_a_connection_that_was_lost_between_requests_is_opened_again() -> None:
    with bradbury.local() as cluster:
        servers = cluster.bootstrap_servers
        with bradbury.Admin(servers) as admin:
            admin.create_topic("t")
        fill(servers, "t", numbers(0, 3))
        with connect(servers) as simple:
            assert read(simple, "t", 0, MEGABYTE) == numbers(0, 3)
            for connection in simple._client._connections.values():
                assert connection._socket is not None
                connection._socket.shutdown(socket.SHUT_RDWR)
            assert read(simple, "t", 0, MEGABYTE) == numbers(0, 3)


def test_a_broker_that_is_not_there_is_an_error_within_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with SimpleConsumer("127.0.0.1", port, 1_000) as simple:
        with pytest.raises(ConnectionFailed, match="cannot connect"):
            simple.fetch(FetchRequest("t", 0, 0, 1))


def test_a_peer_that_says_nothing_is_given_up_after_so_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with SimpleConsumer("127.0.0.1", silent.getsockname()[1], 300) as simple:
            with pytest.raises(ConnectionFailed):
                simple.fetch(FetchRequest("t", 0, 0, 1))


def test_the_receive_buffer_has_the_size_that_was_asked_for(bootstrap: str) -> None:
    host, port = bootstrap.rsplit(":", 1)
    sizes = []
    for buffer_size in (16 * 1024, 64 * 1024):
        with SimpleConsumer(host, int(port), 10_000, buffer_size) as simple:
            with pytest.raises(KafkaError):
                simple.fetch(FetchRequest("no-such-topic", 0, 0, 1))
            [connection] = simple._client._connections.values()
            assert connection._socket is not None
            sizes.append(connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
    assert sizes == [2 * 16 * 1024, 2 * 64 * 1024]  # Linux doubles it for its own bookkeeping


def test_after_close_it_says_that_it_is_closed(bootstrap: str) -> None:
    simple = connect(bootstrap)
    simple.close()
    simple.close()
    with pytest.raises(ConnectionFailed, match="closed"):
        simple.fetch(FetchRequest("t", 0, 0, 1))


def test_threads_may_share_one(
    bootstrap: str, new_topic: NewTopic, consumer: SimpleConsumer
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, numbers(0, 100))
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(read(consumer, topic, 0, MEGABYTE))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [100] * 8


# --- the bytes of a set, by themselves -----------------------------------------------------------


def message_set(records: bytes | bytearray, max_size: int = MEGABYTE) -> MessageSet:
    return MessageSet(records, topic="t", partition=0, initial_offset=0, max_size=max_size)


def three_batches() -> bytes:
    """Three batches of kafka-python: offsets 0-1, 2-3, 4-5."""
    out = b""
    for base_offset in (0, 2, 4):
        batch = make_batch(2, value=b"value-%d" % base_offset)
        batch[:8] = base_offset.to_bytes(8, "big")
        out += batch
    return out


@given(st.integers(0, len(three_batches())))
def test_a_set_cut_anywhere_hands_out_its_whole_batches_and_says_where_to_go_on(end: int) -> None:
    whole = three_batches()
    size = len(whole) // 3
    found = message_set(whole[:end])
    if 0 < end < size:
        assert isinstance(found.error, InvalidMessageSize)
        return
    count = end // size * 2
    assert [offset for _, offset in found] == list(range(1, count + 1))
    assert (found.next_offset, found.is_cut) == (count, end % size != 0)


def test_a_wrong_crc_is_found_when_the_iteration_gets_there() -> None:
    damaged = bytearray(three_batches())
    damaged[-1] ^= 0xFF
    found = []
    with pytest.raises(CorruptMessage, match="offset 4"):
        for one in message_set(damaged):
            found.append(one.offset)
    assert found == [1, 2, 3, 4]


@given(st.binary(max_size=300))
def test_garbage_is_nothing_or_an_error_of_ours(garbage: bytes) -> None:
    try:
        list(message_set(garbage))
    except KafkaError:
        pass


@given(st.integers(0, len(three_batches()) - 1), st.integers(1, 255))
def test_a_flipped_byte_never_yields_a_message_that_was_not_sent(position: int, flip: int) -> None:
    damaged = bytearray(three_batches())
    damaged[position] ^= flip
    sent = {b"value-0", b"value-2", b"value-4"}
    try:
        for message, _ in message_set(damaged):
            assert message.payload in sent
    except KafkaError:
        pass
