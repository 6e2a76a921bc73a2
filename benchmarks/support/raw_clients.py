"""Hundreds of clients in one thread: sockets, an epoll, and the few fields of the wire they need.

A library's threads, buffers and timers for each client would cost more here than a broker
does. Layouts: Fetch v11 and Produce v7 of Kafka's message definitions.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bradbury.cli.bench.bench_figures import percentiles
from bradbury.cli.bench.bench_runs import Pace
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.records.records import encode_records

from .contestants import Contestant
from .measures import delete_topic, new_topic

MAX_WAIT_MS = 500
MAX_BYTES = 1_000_000
SIZE = 200
MARK = b"sent at "
"""Marks the time of sending that follows it in an uncompressed record."""
SETTLE_SECONDS = 2.0
LONGEST_ANSWER_S = 30.0

FETCH_VERSION, PRODUCE_VERSION = 11, 7
NOT_THERE_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Errors of a fetch from a leader that has not heard yet that it is one."""


class Delays(NamedTuple):
    """Measured delays. p50, p99: milliseconds. cpu: cores that the broker used meanwhile."""

    p50: float
    p99: float
    cpu: float


class Connection:
    """Socket that frames requests, and reads responses as they arrive."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._received = bytearray()

    def send(self, request: bytes) -> None:
        """Send a request; it is small and few are in flight, so the socket takes it as a whole."""
        if self.socket.send(struct.pack(">i", len(request)) + request) != len(request) + 4:
            raise ConnectionError("the socket's send buffer is full")

    def answers(self) -> Iterator[bytes]:
        """Complete responses received so far, without their frames."""
        with _nothing_there():
            more = self.socket.recv(1 << 18)
            if not more:
                raise ConnectionError("the broker has closed the connection")
            self._received += more
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            yield bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]


@contextmanager
def _nothing_there() -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        return


class FetchingConnection(Connection):
    """Fetch session (KIP-227) of a leader's partitions of a topic, from the beginning on."""

    def __init__(self, address: tuple[str, int], topic: str, partitions: list[int]) -> None:
        super().__init__(address)
        name = topic.encode()
        self._topic = struct.pack(">h", len(name)) + name
        self._next = dict.fromkeys(partitions, 0)
        self._session, self._epoch = 0, 0
        self._ask(partitions)

    def _ask(self, partitions: list[int]) -> None:
        """Send an incremental fetch of changed partitions; the first request names all of them.

        So does every request if the broker has no free session slot.
        """
        if self._session == 0:
            partitions, self._epoch = list(self._next), 0
        rows = b"".join(
            struct.pack(">iiqqi", each, -1, self._next[each], -1, MAX_BYTES) for each in partitions
        )
        topics = struct.pack(">i", 0)
        if partitions:
            topics = struct.pack(">i", 1) + self._topic + struct.pack(">i", len(partitions)) + rows
        self.send(
            struct.pack(">hhih", 1, FETCH_VERSION, 7, -1)
            + struct.pack(">iiiib", -1, MAX_WAIT_MS, 1, 50 * MAX_BYTES, 0)
            + struct.pack(">ii", self._session, self._epoch)
            + topics
            + struct.pack(">ih", 0, 0)  # nothing forgotten, no rack
        )
        self._epoch += 1

    def read(self) -> list[float]:
        """Send times of received records, by time.perf_counter; sends the next fetch."""
        sent: list[float] = []
        for answer in self.answers():
            _, _, error, self._session, topics = struct.unpack_from(">iihii", answer)
            if error:
                raise ConnectionError(f"a fetch was answered with error {error}")
            at, changed = 18, []
            for _ in range(topics):
                (length,) = struct.unpack_from(">h", answer, at)
                (partitions,) = struct.unpack_from(">i", answer, at + 2 + length)
                at += 6 + length
                for _ in range(partitions):
                    at, partition = self._read_partition(answer, at, sent)
                    changed.append(partition)
            self._ask(changed)
        return sent

    def _read_partition(self, answer: bytes, at: int, sent: list[float]) -> tuple[int, int]:
        partition, error, _, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
        if error not in (0, *NOT_THERE_YET):
            raise ConnectionError(f"partition {partition} was answered with error {error}")
        at += 34 + 16 * max(aborted, 0)
        _, size = struct.unpack_from(">ii", answer, at)
        at += 8
        end = at + max(size, 0)
        while at < end:
            base, length = struct.unpack_from(">qi", answer, at)
            (last,) = struct.unpack_from(">i", answer, at + 23)
            self._next[partition] = base + last + 1
            mark = answer.find(MARK, at)
            while 0 <= mark < at + 12 + length:
                sent.append(float(answer[mark + len(MARK) :][:20]))
                mark = answer.find(MARK, mark + 1)
            at += 12 + length
        return end, partition


class ProducingConnection(Connection):
    """Connection that repeats one produce request; responses arrive in order."""

    def __init__(self, address: tuple[str, int], topic: str, partition: int) -> None:
        super().__init__(address)
        name = topic.encode()
        batch = encode_records([(1_700_000_000_000, None, b"x" * SIZE, ())])
        self._request = (
            struct.pack(">hhih", 0, PRODUCE_VERSION, 7, -1)
            + struct.pack(">hhii", -1, 1, 30_000, 1)
            + (struct.pack(">h", len(name)) + name)
            + struct.pack(">iii", 1, partition, len(batch))
            + batch
        )
        self.under_way: deque[float] = deque()

    def produce(self) -> None:
        self.under_way.append(time.perf_counter())
        self.send(self._request)

    def read(self) -> list[float]:
        """Times until each received response, in seconds."""
        took = []
        for answer in self.answers():
            (length,) = struct.unpack_from(">h", answer, 8)
            _, error = struct.unpack_from(">ih", answer, 14 + length)
            if error:
                raise ConnectionError(f"a produce request was answered with error {error}")
            took.append(time.perf_counter() - self.under_way.popleft())
        return took


def leaders(broker: Contestant, topic: str) -> dict[int, tuple[str, int]]:
    """Address of the leader of each partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 4})
    metadata = admin.list_topics(topic, timeout=30)
    found = {}
    for number, partition in metadata.topics[topic].partitions.items():
        node = metadata.brokers[partition.leader]
        found[number] = (node.host, node.port)
    return found


def measure_consumers(broker: Contestant, topic: str, count: int, seconds: float) -> Delays:
    """Delays of `count` consumers that all read 8 partitions; 10,000 records/s delivered in all.

    So 10,000 / count records are sent a second, and each wakes up every consumer.
    """
    new_topic(broker, topic, 8)
    places: dict[tuple[str, int], list[int]] = {}
    for partition, address in leaders(broker, topic).items():
        places.setdefault(address, []).append(partition)
    stop = threading.Event()
    producing = threading.Thread(target=_send_times, args=(broker, topic, 10_000 / count, stop))
    with _watched(
        FetchingConnection(address, topic, partitions)
        for _ in range(count)
        for address, partitions in places.items()
    ) as selector:
        producing.start()
        try:
            deadline = time.perf_counter() + LONGEST_ANSWER_S
            while not _consume(selector, SETTLE_SECONDS):  # a cold Kafka takes its time
                if time.perf_counter() > deadline:
                    raise TimeoutError("no record was read")
            cpu = broker.cpu_seconds()
            ages = _consume(selector, seconds)
            cpu = broker.cpu_seconds() - cpu
        finally:
            stop.set()
            producing.join()
    delete_topic(broker, topic)
    return _delays(ages, cpu / seconds)


def measure_idle_polls(broker: Contestant, topic: str, count: int, seconds: float) -> float:
    """Broker cores used by `count` connections that repeat a fetch without new records."""
    new_topic(broker, topic)
    address = leaders(broker, topic)[0]
    with _watched(FetchingConnection(address, topic, [0]) for _ in range(count)) as selector:
        _consume(selector, SETTLE_SECONDS)
        cpu = broker.cpu_seconds()
        _consume(selector, seconds)
        cpu = broker.cpu_seconds() - cpu
    delete_topic(broker, topic)
    return cpu / seconds


def _send_times(broker: Contestant, topic: str, rate: float, stop: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": 1, "linger.ms": 0})
    pace = Pace(rate)
    number = 0
    while not stop.is_set():
        pace.wait_for(number)
        value = MARK + b"%020.9f" % time.perf_counter()
        producer.produce(topic, value.ljust(SIZE), partition=number % 8)
        producer.poll(0)
        number += 1
    producer.flush(30)


def _consume(selector: selectors.BaseSelector, seconds: float) -> list[float]:
    ages: list[float] = []
    ends = time.perf_counter() + seconds
    while (left := ends - time.perf_counter()) > 0:
        for key, _ in selector.select(left):
            sent = key.data.read()
            now = time.perf_counter()
            ages += [now - each for each in sent]
    return ages


def measure_connections(
    broker: Contestant, topic: str, count: int, per_second: float, seconds: float
) -> Delays:
    """Delays of `count` connections with `per_second` produce requests of one record each."""
    new_topic(broker, topic, 4)
    places = leaders(broker, topic)
    with _watched(
        ProducingConnection(places[number % 4], topic, number % 4) for number in range(count)
    ) as selector:
        connections = [key.data for key in selector.get_map().values()]
        _produce(selector, connections, per_second, SETTLE_SECONDS)
        cpu = broker.cpu_seconds()
        took = _produce(selector, connections, per_second, seconds)
        cpu = broker.cpu_seconds() - cpu
    delete_topic(broker, topic)
    return _delays(took, cpu / seconds)


def _produce(
    selector: selectors.BaseSelector,
    connections: list[ProducingConnection],
    per_second: float,
    seconds: float,
) -> list[float]:
    """Send requests when they are due, independent of earlier ones, and wait for all."""
    took: list[float] = []
    began, number = time.perf_counter(), 0
    rate = per_second * len(connections)
    total = int(rate * seconds)
    while len(took) < total:
        now = time.perf_counter() - began
        if now > seconds + LONGEST_ANSWER_S:
            raise TimeoutError(f"{len(took)} of {total} requests were answered")
        while number < total and number / rate <= now:
            connections[number % len(connections)].produce()
            number += 1
        due = number / rate - now if number < total else LONGEST_ANSWER_S
        for key, _ in selector.select(max(due, 0)):
            took += key.data.read()
    return took


AnyConnection = TypeVar("AnyConnection", bound=Connection)


@contextmanager
def _watched(connections: Iterator[AnyConnection]) -> Iterator[selectors.BaseSelector]:
    """Selector of all connections, each the data of its socket; it is closed at the end."""
    with selectors.DefaultSelector() as selector:
        opened: list[AnyConnection] = []
        try:
            for each in connections:
                opened.append(each)
                selector.register(each.socket, selectors.EVENT_READ, each)
            yield selector
        finally:
            for each in opened:
                each.socket.close()


def _delays(seconds: list[float], cpu: float) -> Delays:
    found = percentiles(np.array(seconds) * 1000)
    return Delays(found["p50"], found["p99"], cpu)
