"""Measurements of a broker, each by the same client with the same settings.

Throughput is measured with librdkafka's batch calls (librdkafka.py), so that no Python runs
per record on the client's side. Latency is measured record by record through confluent-kafka, which
at 1,000 records a second costs next to nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from bradbury.cli.bench.bench_figures import percentiles
from bradbury.cli.bench.bench_runs import Pace

from .contestants import Contestant
from .librdkafka import CONSUMER, PRODUCER, Client

BIG_BATCHES = {
    "acks": "1",
    "linger.ms": "20",
    "batch.size": "1000000",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "1000000",
}
SMALL_BATCHES = {**BIG_BATCHES, "linger.ms": "0", "batch.size": "16384"}
"""Settings of a producer without linger, with the Java client's default batch size."""
READING = {
    "group.id": "versus",
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "500000",
    "fetch.message.max.bytes": "4000000",
    "check.crcs": "false",
}
LATENCY_RATE = 1_000
WARM_UP = LATENCY_RATE // 2
"""Number of first records, which are not counted."""
WAIT_SECONDS = 120
MOST_PARTITIONS_AT_ONCE = 5_000
"""Most partitions of one request: Kafka refuses a change of 10,000 metadata records."""


class Goal(NamedTuple):
    """Goal for the ratio Bradbury / Kafka."""

    sign: str
    ratio: float

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.sign == ">=" else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{self.sign} {self.ratio:g}"


class Throughput(NamedTuple):
    """Measured throughput. broker_cpu: seconds a GB. client_cpu: cores, 1.0 is a whole one."""

    records_per_second: float
    megabytes_per_second: float
    broker_cpu: float
    client_cpu: float


class Latency(NamedTuple):
    """Percentiles of latency, in milliseconds."""

    p50: float
    p99: float


def new_topic(
    broker: Contestant,
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    config: dict[str, str] | None = None,
) -> str:
    """Create a topic and wait for its metadata. Its deletion takes effect at once (see Turns)."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 4})
    first = min(partitions, MOST_PARTITIONS_AT_ONCE)
    topic = NewTopic(name, first, replicas, config={"file.delete.delay.ms": "0", **(config or {})})
    admin.create_topics([topic], operation_timeout=WAIT_SECONDS)[name].result(WAIT_SECONDS)
    for total in range(2 * first, partitions + 1, first):
        add_partitions(broker, name, total)
    return name


def add_partitions(broker: Contestant, name: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 4})
    more = NewPartitions(name, total)
    admin.create_partitions([more], operation_timeout=WAIT_SECONDS)[name].result(WAIT_SECONDS)


class Turns:
    """A new topic for each turn of a broker; its former one is deleted just before it writes.

    So the broker writes to pages that it has just freed. A virtual machine returns free pages to
    its host after a second or two, and getting one back costs up to ten times as much as writing to
    it: that would be most of what is measured, and more of it for the faster writer.
    """

    def __init__(self) -> None:
        self._former: dict[str, str] = {}

    def next(
        self,
        broker: Contestant,
        topic: str,
        replicas: int = 1,
        config: dict[str, str] | None = None,
    ) -> str:
        """Create the topic of a turn and wait for pending disk writes; returns its name."""
        new_topic(broker, topic, replicas=replicas, config=config)
        os.sync()
        if (former := self._former.get(broker.name)) is not None:
            delete_topic(broker, former)
        self._former[broker.name] = topic
        return topic


def delete_topic(broker: Contestant, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 4})
    admin.delete_topics([name])[name].result(WAIT_SECONDS)
    broker.wait_until_deleted(name)


def produce(
    broker: Contestant, topic: str, size: int, count: int, settings: dict[str, str]
) -> Throughput:
    """Produce `count` records of `size` bytes to partition 0, until all are acknowledged."""
    client = Client(PRODUCER, broker.bootstrap_servers, topic, settings)
    try:
        client.produce(1_000, size)  # connected, metadata known
        return _throughput(broker, size, count, lambda: client.produce(count, size))
    finally:
        client.close()


def produce_by_several(
    broker: Contestant, topic: str, size: int, count: int, settings: dict[str, str], clients: int
) -> Throughput:
    """Produce as `produce` does, by several clients at once, each to a partition of its own."""
    add_partitions(broker, topic, clients)
    each = [
        Client(PRODUCER, broker.bootstrap_servers, topic, settings, partition=number)
        for number in range(clients)
    ]
    try:
        for client in each:
            client.produce(1_000, size)
        with ThreadPoolExecutor(clients) as pool:

            def at_once() -> float:
                began = time.perf_counter()
                list(pool.map(lambda client: client.produce(count // clients, size), each))
                return time.perf_counter() - began

            return _throughput(broker, size, count, at_once)
    finally:
        for client in each:
            client.close()


def consume(
    broker: Contestant, topic: str, size: int, count: int, settings: dict[str, str] | None = None
) -> Throughput:
    """Consume the first `count` records of partition 0, from the first call to the last record."""
    client = Client(CONSUMER, broker.bootstrap_servers, topic, READING | (settings or {}))
    try:
        return _throughput(broker, size, count, lambda: client.consume(count))
    finally:
        client.close()


def _throughput(broker: Contestant, size: int, count: int, work: Callable[[], float]) -> Throughput:
    gigabytes = size * count / 1e9
    broker_before, own_before = broker.cpu_seconds(), time.process_time()
    seconds = work()
    own = time.process_time() - own_before
    spent = broker.cpu_seconds() - broker_before
    return Throughput(count / seconds, gigabytes * 1e3 / seconds, spent / gigabytes, own / seconds)


def produce_latency(broker: Contestant, topic: str, seconds: float) -> Latency:
    """Latency from send to acknowledgement, at LATENCY_RATE records a second with acks=1."""
    return _percentiles(_send_steadily(broker.bootstrap_servers, topic, seconds))


def round_trip(broker: Contestant, topic: str, seconds: float) -> Latency:
    """Latency from send until a consumer in another process receives the record."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    total = int(LATENCY_RATE * seconds) + WARM_UP
    receiver = context.Process(
        target=_receive, args=(broker.bootstrap_servers, topic, total, theirs)
    )
    receiver.start()
    try:
        theirs.close()  # so that recv fails, instead of waiting, if the process dies
        ours.recv()
        _send_steadily(broker.bootstrap_servers, topic, seconds)
        return _percentiles(ours.recv()[WARM_UP:])
    finally:
        receiver.join(WAIT_SECONDS)
        if receiver.is_alive():
            receiver.kill()


def _receive(address: str, topic: str, total: int, answers: Connection) -> None:
    """Send None once the consumer is ready, then the age of each record, by the same clock."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "versus", "fetch.wait.max.ms": 500}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(0.5)
    answers.send(None)
    times: list[float] = []
    deadline = time.perf_counter() + WAIT_SECONDS
    while len(times) < total and time.perf_counter() < deadline:
        # One by one: consume() would wait until it has the requested number.
        record = consumer.poll(1.0)
        if record is not None and record.error() is None:
            times.append(time.perf_counter() - float(record.value()))
    consumer.close()
    if len(times) < total:
        raise RuntimeError(f"{len(times)} of {total} records were received")
    answers.send(times)


def _send_steadily(address: str, topic: str, seconds: float) -> list[float]:
    """Latencies of records in seconds, after WARM_UP records that are not counted.

    Records are sent when they are due, independent of earlier ones; a delay (0.1 ms, the sleep of
    this process) is the client's. A thread waits for responses, so that none of them waits for the
    next record to be due.
    """
    times: list[float] = []
    producer = Producer({"bootstrap.servers": address, "acks": 1, "linger.ms": 0})
    ended = threading.Event()

    def wait_for_answers() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    def on_delivery(error: KafkaError | None, record: Message) -> None:
        if error is None:
            times.append(time.perf_counter() - float(record.value()))

    waiting = threading.Thread(target=wait_for_answers)
    waiting.start()
    try:
        pace = Pace(LATENCY_RATE)
        for number in range(int(LATENCY_RATE * seconds) + WARM_UP):
            pace.wait_for(number)
            now = b"%.9f" % time.perf_counter()
            producer.produce(topic, now, partition=0, on_delivery=on_delivery)
    finally:
        ended.set()
        waiting.join()
    producer.flush(WAIT_SECONDS)
    return times[WARM_UP:]


def _percentiles(times: list[float]) -> Latency:
    found = percentiles(np.array(times) * 1000)
    return Latency(found["p50"], found["p99"])


# --- several clients, several nodes --------------------------------------------------------------


def _produce_alone(address: str, topic: str, partition: int, count: int, barrier: object) -> None:
    client = Client(PRODUCER, address, topic, BIG_BATCHES, partition=partition)
    client.produce(1_000, 100)
    barrier.wait()  # type: ignore[attr-defined]
    client.produce(count, 100)
    client.close()
    barrier.wait()  # type: ignore[attr-defined]


def produce_in_parallel(address: str, topic: str, clients: int, count: int) -> float:
    """Records a second of `clients` processes, each with its own partition."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(clients + 1, timeout=WAIT_SECONDS)
    processes = [
        context.Process(target=_produce_alone, args=(address, topic, number, count, barrier))
        for number in range(clients)
    ]
    for process in processes:
        process.start()
    try:
        barrier.wait()
        began = time.perf_counter()
        barrier.wait()
        return clients * count / (time.perf_counter() - began)
    finally:
        for process in processes:
            process.join(WAIT_SECONDS)
