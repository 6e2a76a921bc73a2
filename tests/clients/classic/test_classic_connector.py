"""What do the streams of a connector hand out, whose is a partition, and what is committed?"""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import confluent_kafka
import pytest

import bradbury
from bradbury.clients.classic import (
    Blacklist,
    ConsumerConnector,
    ConsumerTimeoutException,
    KafkaStream,
    Message,
    StringDecoder,
    Whitelist,
)
from bradbury.protocol.errors import ConnectionFailed, OffsetOutOfRange, UnknownTopicOrPartition
from bradbury.tests.support.client_threads import client_threads, have_ended_as_garbage

NewTopic = Callable[..., str]
SECONDS = 60.0
_numbers = count()


@pytest.fixture
def group() -> str:
    return f"classic-{next(_numbers)}"


@pytest.fixture
def connect(bootstrap: str, group: str) -> Iterator[Callable[..., ConsumerConnector]]:
    """Makes connectors of one group, which are shut down at the end."""
    made: list[ConsumerConnector] = []

    def create(**settings: object) -> ConsumerConnector:
        """A connector; `consumer_timeout_ms=100` stands for `consumer.timeout.ms`."""
        properties: dict[str, object] = {
            "groupid": group,
            "bootstrap.servers": bootstrap,
            "heartbeat.interval.ms": 100,
            "topic.refresh.interval.ms": 100,
        }
        properties |= {name.replace("_", "."): value for name, value in settings.items()}
        connector = ConsumerConnector.create(properties)
        made.append(connector)
        return connector

    yield create
    for connector in made:
        connector.shutdown()


def fill(bootstrap: str, topic: str, numbers: range, partitions: int = 1) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in numbers:
        producer.produce(topic, str(number), f"key-{number}", partition=number % partitions)
    assert producer.flush(10) == 0


def committed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[int]:
    """As librdkafka sees it; -1001 for nothing."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [confluent_kafka.TopicPartition(topic, partition) for partition in range(partitions)]
    found = [answer.offset for answer in consumer.committed(asked, timeout=60)]
    consumer.close()
    return found


def until(happened: Callable[[], bool], every_s: float = 0.02) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(every_s)


def take(stream: KafkaStream[Message], number: int) -> list[int]:
    return [int(next(stream).message.payload or b"") for _ in range(number)]


def read_all(streams: Sequence[KafkaStream[Any]], number: int) -> list[list[Any]]:
    """What each stream hands out, a thread for each, until there are `number` in all, or more.

    The streams need a consumer timeout, so that the threads can look up.
    """
    found: list[list[Any]] = [[] for _ in streams]
    deadline = time.monotonic() + SECONDS

    def read(place: int) -> None:
        while sum(map(len, found)) < number and time.monotonic() < deadline:
            try:
                found[place].append(next(streams[place]))
            except (ConsumerTimeoutException, StopIteration):
                pass

    threads = [threading.Thread(target=read, args=[place]) for place in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 10)
    assert sum(map(len, found)) >= number
    return found


Connect = Callable[..., ConsumerConnector]

# --- what comes ----------------------------------------------------------------------------------


def test_a_message_comes_with_its_place(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"value", b"key", timestamp=1_700_000_000_123)
    producer.flush(10)
    [stream] = connect().create_message_streams({topic: 1})[topic]
    found = next(stream)
    assert found == (
        Message(b"value", b"key", 1_700_000_000_123),
        topic,
        0,
        0,
        b"key",
        1_700_000_000_123,
    )


def test_messages_of_a_partition_come_in_order_and_once(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(5000))
    [stream] = connect(fetch_size=4000, queuedchunks_max=2).create_message_streams({topic: 1})[
        topic
    ]
    assert take(stream, 5000) == list(range(5000))


def test_a_decoder_makes_what_is_handed_out(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(2))
    streams = connect().create_message_streams({topic: 1}, StringDecoder())[topic]
    assert [next(streams[0]).message for _ in range(2)] == ["0", "1"]


def test_a_message_that_cannot_be_decoded_is_an_error_once_and_then_passed(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for payload in (b"good", b"\xff\xfe", b"better"):
        producer.produce(topic, payload)
    producer.flush(10)
    [stream] = connect().create_message_streams({topic: 1}, StringDecoder())[topic]
    assert next(stream).message == "good"
    with pytest.raises(UnicodeDecodeError):
        next(stream)
    assert next(stream).message == "better"


def test_an_iterator_waits_for_what_is_sent_later(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic()
    [stream] = connect().create_message_streams({topic: 1})[topic]
    found: list[int] = []
    reading = threading.Thread(target=lambda: found.extend(take(stream, 3)))
    reading.start()
    until(lambda: bool(stream.assignment()))
    assert reading.is_alive()
    fill(bootstrap, topic, range(3))
    reading.join(SECONDS)
    assert found == [0, 1, 2]


def test_a_consumer_timeout_is_raised_and_the_iterator_goes_on_after_it(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(2))
    [stream] = connect(consumer_timeout_ms=300).create_message_streams({topic: 1})[topic]
    assert [len(one) for one in read_all([stream], 2)] == [2]
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(ConsumerTimeoutException, match=r"consumer\.timeout\.ms=300"):
            next(stream)
        assert 0.3 <= time.monotonic() - began < 20
    fill(bootstrap, topic, range(2, 3))
    assert [len(one) for one in read_all([stream], 1)] == [1]


def test_without_a_committed_offset_largest_begins_at_the_end(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(10))
    connector = connect(autooffset_reset="largest", consumer_timeout_ms=100)
    [stream] = connector.create_message_streams({topic: 1})[topic]
    until(lambda: bool(stream.assignment()))
    with pytest.raises(ConsumerTimeoutException):
        next(stream)
    fill(bootstrap, topic, range(10, 11))
    assert read_all([stream], 1)[0][0].offset == 10


def test_with_no_reset_the_iterator_raises_that_there_is_no_offset(
    bootstrap: str, new_topic: NewTopic, connect: Connect, admin: bradbury.Admin, group: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(10))
    with bradbury.Consumer(group=group, bootstrap=bootstrap, enable_auto_commit=False) as consumer:
        consumer.commit({(topic, 0): 3})
    admin.delete_records({(topic, 0): 5})
    [stream] = connect(autooffset_reset="none").create_message_streams({topic: 1})[topic]
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0"):
        next(stream)


# --- whose a partition is ------------------------------------------------------------------------


def test_streams_share_the_partitions_in_ranges(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic(5)
    fill(bootstrap, topic, range(500), partitions=5)
    connector = connect(consumer_timeout_ms=100)
    streams = connector.create_message_streams({topic: 2})[topic]
    until(lambda: [len(stream.assignment()) for stream in streams] == [3, 2])
    first, second = read_all(streams, 500)
    assert {one.partition for one in first} == {0, 1, 2}
    assert {one.partition for one in second} == {3, 4}
    assert sorted(int(one.message.payload) for one in first + second) == list(range(500))


def test_where_there_are_more_streams_than_partitions_some_are_idle(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, range(100), partitions=2)
    streams = connect(consumer_timeout_ms=100).create_message_streams({topic: 3})[topic]
    until(lambda: [len(stream.assignment()) for stream in streams] == [1, 1, 0])
    assert [len(found) for found in read_all(streams, 100)] == [50, 50, 0]


def test_each_topic_has_streams_of_its_own(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    first, second = new_topic(2), new_topic(1)
    fill(bootstrap, first, range(20), partitions=2)
    fill(bootstrap, second, range(10))
    streams = connect(consumer_timeout_ms=100).create_message_streams({first: 2, second: 1})
    assert {topic: len(of_topic) for topic, of_topic in streams.items()} == {first: 2, second: 1}
    until(lambda: all(stream.assignment() for stream in (*streams[first], *streams[second])))
    found = read_all([*streams[first], *streams[second]], 30)
    assert [{one.topic for one in handed_out} for handed_out in found] == [
        {first},
        {first},
        {second},
    ]


def test_a_connector_that_comes_takes_half_and_gives_it_back_when_it_goes(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    """Auto-commit: every message is handed out exactly once, since nobody was killed."""
    topic = new_topic(4)
    fill(bootstrap, topic, range(400), partitions=4)
    [first] = connect(consumer_timeout_ms=100).create_message_streams({topic: 1})[topic]
    found = read_all([first], 100)[0]
    assert len(first.assignment()) == 4

    guest = connect(consumer_timeout_ms=100)
    [second] = guest.create_message_streams({topic: 1})[topic]
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    assert not set(first.assignment()) & set(second.assignment())
    found += read_all([second], 20)[0]
    guest.shutdown()
    until(lambda: len(first.assignment()) == 4)
    found += read_all([first], 280)[0]
    assert sorted(int(one.message.payload) for one in found) == list(range(400))


def test_partitions_that_are_added_are_shared_out_too(
    bootstrap: str, new_topic: NewTopic, connect: Connect, admin: bradbury.Admin
) -> None:
    topic = new_topic(2)
    streams = connect(consumer_timeout_ms=100).create_message_streams({topic: 2})[topic]
    until(lambda: [len(stream.assignment()) for stream in streams] == [1, 1])
    admin.create_partitions(topic, 5)
    until(lambda: [len(stream.assignment()) for stream in streams] == [3, 2])
    fill(bootstrap, topic, range(100), partitions=5)
    assert [len(found) for found in read_all(streams, 100)] == [60, 40]


def test_a_stream_that_nobody_iterates_does_not_hold_up_its_group(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    """Neither does one whose message takes its owner forever: members live with the process."""
    topic = new_topic(2)
    fill(bootstrap, topic, range(100), partitions=2)
    [slow] = connect().create_message_streams({topic: 1})[topic]
    next(slow)  # and never again
    [idle] = connect().create_message_streams({topic: 1})[topic]  # not even once
    until(lambda: len(idle.assignment()) == 1)
    connector = connect(consumer_timeout_ms=100)
    [late] = connector.create_message_streams({topic: 1})[topic]
    until(lambda: len(slow.assignment()) + len(idle.assignment()) + len(late.assignment()) == 2)
    for other in (slow, idle):
        assert other.connector is not None
        other.connector.shutdown()
    until(lambda: len(late.assignment()) == 2)
    assert len(read_all([late], 99)[0]) == 99


def test_a_partition_that_moved_away_is_not_handed_out_any_further(
    bootstrap: str, new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, range(2000), partitions=2)
    [slow] = connect(consumer_timeout_ms=100).create_message_streams({topic: 1})[topic]
    found = [int(one.message.payload) for one in read_all([slow], 10)[0]]  # amid a fetched chunk
    [other] = connect(consumer_timeout_ms=100).create_message_streams({topic: 1})[topic]
    until(lambda: len(other.assignment()) == len(slow.assignment()) == 1)
    for handed_out in read_all([slow, other], 1990):
        assert len({one.partition for one in handed_out}) == 1
        found += [int(one.message.payload) for one in handed_out]
    assert sorted(found) == list(range(2000))


# --- what is committed ---------------------------------------------------------------------------


def test_commit_offsets_stores_what_was_handed_out_and_not_what_lies_fetched(
    bootstrap: str, new_topic: NewTopic, connect: Connect, group: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(1000))
    connector = connect(autocommit_enable="false")
    [stream] = connector.create_message_streams({topic: 1})[topic]
    take(stream, 7)
    assert committed(bootstrap, group, topic) == [-1001]
    connector.commit_offsets()
    assert committed(bootstrap, group, topic) == [7]
    take(stream, 3)
    connector.shutdown()
    assert committed(bootstrap, group, topic) == [7]  # nothing by itself


def test_auto_commit_goes_on_while_nobody_iterates_and_stores_what_was_handed_out(
    bootstrap: str, new_topic: NewTopic, connect: Connect, group: str
) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, range(1000), partitions=2)
    connector = connect(autocommit_interval_ms=50)
    [stream] = connector.create_message_streams({topic: 1})[topic]
    handed_out = [next(stream) for _ in range(601)]
    expected = [sum(one.partition == partition for one in handed_out) for partition in (0, 1)]
    until(lambda: committed(bootstrap, group, topic, 2) == expected)


def test_shutdown_commits_and_the_next_connector_goes_on_there(
    bootstrap: str, new_topic: NewTopic, connect: Connect, group: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(50))
    connector = connect()
    [stream] = connector.create_message_streams({topic: 1})[topic]
    assert take(stream, 20) == list(range(20))
    connector.shutdown()
    assert committed(bootstrap, group, topic) == [20]
    [stream] = connect().create_message_streams({topic: 1})[topic]
    assert take(stream, 30) == list(range(20, 50))


def test_commit_offsets_gets_its_turn_while_an_iterator_runs_or_waits(
    bootstrap: str, new_topic: NewTopic, connect: Connect, group: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(20_000))
    connector = connect(autocommit_enable="false")
    [stream] = connector.create_message_streams({topic: 1})[topic]
    found: list[int] = []
    reading = threading.Thread(target=lambda: found.extend(int(one.offset) for one in stream))
    reading.start()
    until(lambda: len(found) > 0)
    for _ in range(20):
        connector.commit_offsets()
    until(lambda: len(found) == 20_000)  # now it waits for more
    connector.commit_offsets()
    assert committed(bootstrap, group, topic) == [20_000]
    connector.shutdown()
    reading.join(SECONDS)
    assert not reading.is_alive()


def test_what_comes_while_nobody_iterates_is_neither_lost_nor_committed(
    bootstrap: str, new_topic: NewTopic, connect: Connect, group: str
) -> None:
    """Polls in between pause every partition; one that comes in such a poll is not paused yet."""
    topic = new_topic(2)
    fill(bootstrap, topic, range(100), partitions=2)
    connector = connect(autocommit_interval_ms=1, consumer_timeout_ms=100)
    [stream] = connector.create_message_streams({topic: 1})[topic]
    polls: list[int] = []
    poll = stream._consumer.poll

    def counted_poll(timeout_ms: int) -> Any:
        table = poll(timeout_ms)
        polls.append(table.num_rows)
        return table

    stream._consumer.pause = lambda *_: None  # type: ignore[method-assign]
    stream._consumer.poll = counted_poll  # type: ignore[assignment, method-assign]
    until(lambda: sum(polls) >= 300)  # handed out, and given back, several times
    found = read_all([stream], 100)[0]
    assert sorted(int(one.message.payload) for one in found) == list(range(100))
    assert [one.offset for one in found if one.partition == 0] == list(range(50))


# --- filters -------------------------------------------------------------------------------------


def test_a_whitelist_reads_the_topics_there_are_and_those_that_come(
    bootstrap: str, admin: bradbury.Admin, connect: Connect
) -> None:
    name = f"white-{next(_numbers)}"
    for topic in (f"{name}-1", f"other-{name}"):
        admin.create_topic(topic)
        fill(bootstrap, topic, range(10))
    connector = connect(consumer_timeout_ms=100)
    [stream] = connector.create_message_streams_by_filter(Whitelist(f"{name}.*"))
    assert {one.topic for one in read_all([stream], 10)[0]} == {f"{name}-1"}
    admin.create_topic(f"{name}-2")
    fill(bootstrap, f"{name}-2", range(10))
    assert {one.topic for one in read_all([stream], 10)[0]} == {f"{name}-2"}


def test_a_filter_waits_for_its_first_topic(
    bootstrap: str, admin: bradbury.Admin, connect: Connect
) -> None:
    name = f"first-{next(_numbers)}"
    streams = connect(consumer_timeout_ms=100).create_message_streams_by_filter(Whitelist(name), 2)
    for stream in streams:
        with pytest.raises(ConsumerTimeoutException):
            next(stream)
    admin.create_topic(name, 2)
    until(lambda: [len(stream.assignment()) for stream in streams] == [1, 1])
    fill(bootstrap, name, range(20), partitions=2)
    assert [len(found) for found in read_all(streams, 20)] == [10, 10]


def test_a_blacklist_reads_everything_else_but_internal_topics() -> None:
    with bradbury.local(config={"auto.create.topics.enable": "false"}) as cluster:
        servers = cluster.bootstrap_servers
        with bradbury.Admin(servers) as admin:
            for topic in ("flights", "weather", "secret"):
                admin.create_topic(topic)
                fill(servers, topic, range(10))
        connector = ConsumerConnector.create(
            {"groupid": "g", "bootstrap.servers": servers, "consumer.timeout.ms": 500}
        )
        with connector:
            streams = connector.create_message_streams_by_filter(
                Blacklist("secret,test.*"), 1, StringDecoder()
            )
            assert {one.topic for one in read_all(streams, 20)[0]} == {"flights", "weather"}
            connector.commit_offsets()  # so that the internal topic has records
            with pytest.raises(ConsumerTimeoutException):
                next(streams[0])


# --- the end -------------------------------------------------------------------------------------


def test_shutdown_ends_iterators_that_wait(
    new_topic: NewTopic, connect: Connect, group: str
) -> None:
    topic = new_topic(2)
    connector = connect()
    streams = connector.create_message_streams({topic: 2})[topic]
    ends = [threading.Thread(target=lambda one=stream: list(one)) for stream in streams]
    for thread in ends:
        thread.start()
    until(lambda: all(stream.assignment() for stream in streams))
    connector.shutdown()
    connector.shutdown()
    for thread in ends:
        thread.join(60)
    assert not any(thread.is_alive() for thread in ends)
    with pytest.raises(StopIteration):
        next(streams[0])
    connector.commit_offsets()  # nothing is left to commit, and that is no error


def test_no_thread_is_left_behind(new_topic: NewTopic, connect: Connect) -> None:
    before = client_threads()
    connector = connect()
    connector.create_message_streams_by_filter(Whitelist(new_topic()), 2)
    assert len(client_threads() - before) >= 3
    connector.shutdown()
    until(lambda: not client_threads() - before)


def test_a_connector_that_is_dropped_with_its_streams_ends_without_a_commit(
    bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(10))
    before = client_threads()
    connector = ConsumerConnector.create({"groupid": group, "bootstrap.servers": bootstrap})
    streams = connector.create_message_streams({topic: 1})[topic]
    del connector  # its streams keep it
    gc.collect()
    take(streams[0], 3)
    threads = client_threads() - before
    assert len(threads) >= 2
    del streams
    until(lambda: have_ended_as_garbage(threads), every_s=1.0)
    assert committed(bootstrap, group, topic) == [-1001]


def test_shutdown_works_in_the_handler_of_a_signal(
    bootstrap: str, new_topic: NewTopic, connect: Connect, group: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, range(10))
    connector = connect()
    [stream] = connector.create_message_streams({topic: 1})[topic]
    take(stream, 10)
    before = signal.signal(signal.SIGUSR1, lambda *_: connector.shutdown())
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        assert list(stream) == []  # waits, until the handler runs in the middle of it
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert committed(bootstrap, group, topic) == [10]


# --- what is refused -----------------------------------------------------------------------------


def test_streams_are_made_once_and_at_least_one(new_topic: NewTopic, connect: Connect) -> None:
    topic = new_topic()
    connector = connect()
    with pytest.raises(ValueError, match="needs a topic"):
        connector.create_message_streams({})
    with pytest.raises(ValueError, match=f"{topic}: at least one stream, not 0"):
        connector.create_message_streams({topic: 0})
    with pytest.raises(ValueError, match="at least one stream, not -1"):
        connector.create_message_streams_by_filter(Whitelist("a"), -1)
    with pytest.raises(TypeError, match="not str"):
        connector.create_message_streams_by_filter("a", 1)  # type: ignore[call-overload]
    connector.create_message_streams({topic: 1})
    with pytest.raises(ValueError, match="created once"):
        connector.create_message_streams({topic: 1})
    with pytest.raises(ValueError, match="created once"):
        connector.create_message_streams_by_filter(Whitelist("a"))
    connector.shutdown()
    with pytest.raises(ValueError, match="shut down"):
        connector.create_message_streams({topic: 1})


@pytest.mark.slow
@pytest.mark.usefixtures("unknown_soon")
def test_a_topic_that_does_not_exist_is_named_and_nothing_stays(
    new_topic: NewTopic, connect: Connect
) -> None:
    topic = new_topic()
    before = client_threads()
    with pytest.raises(UnknownTopicOrPartition, match="no-such-topic"):
        connect().create_message_streams({topic: 1, "no-such-topic": 1})
    until(lambda: not client_threads() - before)


def test_no_broker_is_an_error_when_streams_are_made(group: str) -> None:
    for create in (
        lambda one: one.create_message_streams({"t": 1}),
        lambda one: one.create_message_streams_by_filter(Whitelist("t")),
    ):
        connector = ConsumerConnector.create({"groupid": group, "bootstrap.servers": "127.0.0.1:1"})
        with pytest.raises(ConnectionFailed):
            create(connector)
