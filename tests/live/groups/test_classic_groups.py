"""Do the streams of 0.7 lose nothing when processes are killed, and share groups with others?"""

import itertools
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Protocol

import confluent_kafka
import kafka
import pytest

import bradbury
from bradbury.clients.classic import (
    ConsumerConnector,
    ConsumerTimeoutException,
    KafkaStream,
    Message,
    Producer,
    ProducerData,
)

PARTITIONS = 6
COUNT = 3000
SECONDS = 60.0
_numbers = itertools.count(1)
_lock = threading.Lock()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    config = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500}
    with bradbury.local(config=config) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    """A fresh topic of six partitions with the numbers up to 3,000."""
    name = f"classic-{next(_numbers)}"
    with bradbury.Admin(servers) as admin:
        admin.create_topic(name, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for number in range(COUNT):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(10) == 0
    return name


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.05)


def settings(servers: str, group: str, **more: object) -> dict[str, object]:
    return {
        "groupid": group,
        "bootstrap.servers": servers,
        "session.timeout.ms": 1000,
        "heartbeat.interval.ms": 100,
        "consumer.timeout.ms": 100,
    } | {name.replace("_", "."): value for name, value in more.items()}


def rest_of(servers: str, group: str, topic: str, enough: Callable[[list[int]], bool]) -> list[int]:
    """What a new connector with two streams is handed out, until there is `enough`."""
    found: list[int] = []
    with ConsumerConnector.create(settings(servers, group)) as connector:
        streams = connector.create_message_streams({topic: 2})[topic]
        deadline = time.monotonic() + SECONDS

        def read(stream: KafkaStream[object]) -> None:
            while not enough(found) and time.monotonic() < deadline:
                try:
                    found.append(int(next(stream).message.payload))  # type: ignore[attr-defined]
                except ConsumerTimeoutException:
                    pass

        threads = [threading.Thread(target=read, args=[stream]) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    return found


def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    path = str(Path(bradbury.__file__).resolve().parent / ".path")
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
    )


def committed(servers: str, group: str, topic: str) -> int:
    """How many messages, of all partitions."""
    with bradbury.Consumer(group=group, bootstrap=servers, enable_auto_commit=False) as consumer:
        found = consumer.committed(*((topic, partition) for partition in range(PARTITIONS)))
    return sum(offset or 0 for offset in found.values())


# --- killed --------------------------------------------------------------------------------------

HANDS_OUT_AND_STOPS = """
    import itertools, sys, threading
    from bradbury.clients.classic import ConsumerConnector, StringDecoder

    servers, group, topic, count = sys.argv[1:]
    connector = ConsumerConnector.create({
        "groupid": group, "bootstrap.servers": servers, "autocommit.interval.ms": 50,
        "session.timeout.ms": 1000, "heartbeat.interval.ms": 100,
    })
    [stream] = connector.create_message_streams({topic: 1}, StringDecoder())[topic]
    for message, *_ in itertools.islice(stream, int(count)):
        print(message, flush=True)
    threading.Event().wait()  # works on the last one forever; thousands lie in the stream
"""


@pytest.mark.slow
def test_auto_commit_never_covers_what_lies_in_a_stream(servers: str, topic: str) -> None:
    """Killed while it works on its 137th message: the next one gets the 138th, and all after it."""
    group = f"group-{topic}"
    process = start(HANDS_OUT_AND_STOPS, servers, group, topic, "137")
    try:
        assert process.stdout is not None
        before = [int(process.stdout.readline()) for _ in range(137)]
        until(lambda: committed(servers, group, topic) >= 137)
        threading.Event().wait(0.3)  # further commits would have come by now
        assert committed(servers, group, topic) == 137
    finally:
        process.kill()
        process.communicate()
    after = rest_of(servers, group, topic, lambda found: len(found) >= COUNT - 137)
    assert sorted(before + after) == list(range(COUNT))


COMMITS_WHAT_IS_DONE = """
    import sys
    from bradbury.clients.classic import ConsumerConnector, StringDecoder

    servers, group, topic = sys.argv[1:]
    connector = ConsumerConnector.create({
        "groupid": group, "bootstrap.servers": servers, "autocommit.enable": "false",
        "session.timeout.ms": 1000, "heartbeat.interval.ms": 100,
    })
    [stream] = connector.create_message_streams({topic: 1}, StringDecoder())[topic]
    for number, (message, *_) in enumerate(stream, 1):
        print(message, flush=True)
        if number % 20 == 0:
            connector.commit_offsets()
"""


@pytest.mark.long  # the other way to commit is tried in each run
@pytest.mark.slow
def test_with_commits_after_the_work_nothing_is_lost_and_little_comes_again(
    servers: str, topic: str
) -> None:
    group = f"group-{topic}"
    before: list[int] = []
    for _ in range(3):
        process = start(COMMITS_WHAT_IS_DONE, servers, group, topic)
        try:
            assert process.stdout is not None
            before += [int(process.stdout.readline()) for _ in range(333)]
        finally:
            process.kill()
            rest, _ = process.communicate()
        before += [int(line) for line in rest.splitlines()]
    after = rest_of(servers, group, topic, lambda found: len({*before, *found}) == COUNT)
    counts = Counter(before + after)
    assert set(counts) == set(range(COUNT))
    assert sum(counts.values()) - COUNT <= 3 * 20


# --- coming and going ----------------------------------------------------------------------------


class Streams:
    """A connector, and a thread for each of its streams that counts what comes."""

    def __init__(self, servers: str, topic: str, number: int, seen: Counter[int]) -> None:
        self._connector = ConsumerConnector.create(
            settings(servers, f"group-{topic}", consumer_timeout_ms=-1, session_timeout_ms=30_000)
        )
        streams = self._connector.create_message_streams({topic: number})[topic]
        self._threads = [
            threading.Thread(target=self._count, args=[stream, seen]) for stream in streams
        ]
        for thread in self._threads:
            thread.start()

    def _count(self, stream: KafkaStream[Message], seen: Counter[int]) -> None:
        for message, *_ in stream:
            with _lock:
                seen[int(message.payload or b"")] += 1

    def end(self) -> None:
        self._connector.shutdown()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_whatever_comes_and_goes_each_message_is_handed_out_once(
    servers: str, topic: str, seed: int
) -> None:
    """Nobody is killed, so the commits before each rebalance leave nothing to come again."""
    random = Random(seed)
    seen: Counter[int] = Counter()
    running = [Streams(servers, topic, 2, seen)]
    count = COUNT
    settings_of_producer = {
        "broker.list": servers,
        "producer.type": "async",
        "queue.time": 5,
        "queue.enqueueTimeout.ms": -1,
    }
    try:
        with Producer[str, bytes](settings_of_producer) as producer:
            for _ in range(12):
                if len(running) > 1 and random.random() < 0.5:
                    running.pop(random.randrange(len(running))).end()
                else:
                    running.append(Streams(servers, topic, random.randint(1, 3), seen))
                for _ in range(random.randint(0, 1000)):
                    producer.send(ProducerData(topic, str(count), b"%d" % count))
                    count += 1
                threading.Event().wait(random.random() / 2)
        until(lambda: len(seen) == count)
    finally:
        for streams in running:
            streams.end()
    assert set(seen) == set(range(count))
    assert set(seen.values()) == {1}


# --- in one group with others --------------------------------------------------------------------


class Other(Protocol):
    """A member that is another client's."""

    def poll(self) -> list[int]: ...
    def assignment(self) -> set[int]: ...
    def close(self) -> None: ...


class KafkaPython:
    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=3000,
            heartbeat_interval_ms=100,
        )

    def poll(self) -> list[int]:
        found = self._consumer.poll(timeout_ms=3000, max_records=10)
        return [int(record.value) for records in found.values() for record in records]

    def assignment(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class Librdkafka:
    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 100,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[int]:
        records = self._consumer.consume(10, 0.1)
        return [int(record.value() or b"") for record in records if record.error() is None]

    def assignment(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("client", [KafkaPython, Librdkafka])
def test_a_connector_shares_a_group_with_other_clients(
    servers: str, topic: str, client: Callable[[str, str, str], Other]
) -> None:
    group = f"group-{topic}"
    found: list[int] = []
    stop = threading.Event()
    connector = ConsumerConnector.create(settings(servers, group))
    with connector:
        streams = connector.create_message_streams({topic: 2})[topic]

        def read(stream: KafkaStream[object], pause: float) -> None:
            while not stop.is_set():
                try:
                    found.append(int(next(stream).message.payload))  # type: ignore[attr-defined]
                except (ConsumerTimeoutException, StopIteration):
                    pass
                stop.wait(pause)

        def owned() -> list[set[int]]:
            return [{partition for _, partition in stream.assignment()} for stream in streams]

        until(lambda: [len(one) for one in owned()] == [3, 3])
        other = client(servers, group, topic)
        threads = [threading.Thread(target=read, args=[stream, 0.001]) for stream in streams]
        for thread in threads:
            thread.start()
        try:
            until(lambda: bool(found.extend(other.poll())) or len(other.assignment()) == 2)
            until(
                lambda: (
                    bool(found.extend(other.poll()))
                    or sorted(map(len, [*owned(), other.assignment()])) == [2, 2, 2]
                )
            )
            everybody = [*owned(), other.assignment()]
            assert set.union(*everybody) == set(range(PARTITIONS))
            from_other = other.poll() or other.poll()
            found += from_other
            assert from_other
            other.close()
            until(lambda: [len(one) for one in owned()] == [3, 3])
            until(lambda: set(found) == set(range(COUNT)))
        finally:
            stop.set()
            for thread in threads:
                thread.join(SECONDS)
            other.close()
