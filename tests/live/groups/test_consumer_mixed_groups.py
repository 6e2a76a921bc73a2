"""Do bradbury.Consumer and the clients that people use share one group, with every strategy?

Members of four Python clients and Java's console consumer come, read and go while records are
produced. Whoever leads, each partition has one owner when the group has settled, and every record is
handed out to somebody.
"""

import asyncio
import itertools
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

import bradbury
from bradbury.tests.compatibility.support.kafka_jars import java_command, kafka_classpath

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
]  # long: clients that come and go; test_classic_groups and test_consumer_groups have each kind

PARTITIONS = 8
SECONDS = 60.0
_numbers = itertools.count(1)

KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
AIOKAFKA = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}
JAVA = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class Reader(ABC):
    """One member: a thread that polls until it is told to stop, then commits and leaves.

    seen: the numbers of all records it was handed, in order.
    """

    def __init__(self, servers: str, topic: str, group: str, strategy: str) -> None:
        self.servers, self.topic, self.group, self.strategy = servers, topic, group, strategy
        self.seen: list[int] = []
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    @abstractmethod
    def read(self) -> None: ...

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _guarded(self) -> None:
        try:
            self.read()
        except BaseException as error:
            self.failure = error


class Ours(Reader):
    def read(self) -> None:
        with bradbury.Consumer(
            self.topic,
            bootstrap=self.servers,
            group=self.group,
            partition_assignment_strategy=self.strategy,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=6_000,
        ) as consumer:
            while not self.stopping:
                self.seen += map(int, consumer.poll(100)["value"].to_pylist())


class KafkaPython(Reader):
    def read(self) -> None:
        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.servers,
            group_id=self.group,
            partition_assignment_strategy=[KAFKA_PYTHON[self.strategy]],
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=6_000,
        )
        while not self.stopping:
            # It loses a SyncGroup answer that comes after its poll has timed out.
            for records in consumer.poll(3_000, max_records=50).values():
                self.seen += [int(record.value) for record in records]
        consumer.close()


class Confluent(Reader):
    def read(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group,
                "partition.assignment.strategy": self.strategy,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 6_000,
            }
        )
        consumer.subscribe([self.topic])
        while not self.stopping:
            self.seen += [int(one.value()) for one in consumer.consume(50, 0.1) if not one.error()]
        consumer.close()


class AioKafka(Reader):
    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.servers,
            group_id=self.group,
            partition_assignment_strategy=[AIOKAFKA[self.strategy]],
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=6_000,
            metadata_max_age_ms=1_000,
        )
        await consumer.start()
        while not self.stopping:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                self.seen += [int(record.value) for record in records]
        await consumer.stop()


class JavaConsole(Reader):
    """Apache Kafka's own console consumer, in a process of its own."""

    def read(self) -> None:
        properties = {
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer."
            + JAVA[self.strategy],
            "heartbeat.interval.ms": "200",
            "session.timeout.ms": "6000",
            "group.protocol": "classic",
        }
        arguments = ["--bootstrap-server", self.servers, "--topic", self.topic, "--from-beginning"]
        arguments += ["--group", self.group]
        for name, value in properties.items():
            arguments += ["--consumer-property", f"{name}={value}"]
        process = subprocess.Popen(
            java_command("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        ender = threading.Thread(target=lambda: (self._stop.wait(), process.terminate()))
        ender.start()
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip().isdigit():
                    self.seen.append(int(line))
        assert self.stopping, f"the console consumer ended by itself with {process.returncode}"
        ender.join()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 5}
    with bradbury.local(nodes=2, config=config) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"mixed-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    return name


def wait_until(happened: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"it did not happen in time: {what()}"
        threading.Event().wait(0.05)


def owners(servers: str, group: str) -> list[list[int]]:
    """The partitions of each member, as the coordinator knows them; nothing unless it is stable."""
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_consumer_groups([group])[group].result(60)
    if described.state != confluent_kafka.ConsumerGroupState.STABLE:
        return []
    return [[one.partition for one in m.assignment.topic_partitions] for m in described.members]


def is_shared(servers: str, group: str, members: int) -> bool:
    """Whether each partition has one owner, and each member its share."""
    found = owners(servers, group)
    return (
        len(found) == members
        and sorted(itertools.chain.from_iterable(found)) == list(range(PARTITIONS))
        and max(map(len, found)) - min(map(len, found)) <= 1
    )


class Source:
    """Numbers every record, and spreads them over the partitions."""

    def __init__(self, servers: str, topic: str) -> None:
        self.count = 0
        self._topic = topic
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers})

    def produce(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            self._producer.produce(self._topic, value=b"%d" % number, partition=number % PARTITIONS)
        self.count += count
        assert self._producer.flush(20) == 0


CLIENTS: dict[str, list[type[Reader]]] = {
    "range": [Ours, KafkaPython, Confluent, AioKafka, JavaConsole],
    "roundrobin": [Confluent, Ours, AioKafka, JavaConsole, KafkaPython],
    "sticky": [AioKafka, Ours, KafkaPython, JavaConsole],
    "cooperative-sticky": [Ours, Confluent, JavaConsole, KafkaPython],
}


IN_EVERY_RUN = {("cooperative-sticky", True), ("range", False)}
"""Clients of every kind, both ways to share, led by us and by another; the other ways are long."""


@pytest.mark.parametrize(
    ("strategy", "ours_leads"),
    [
        pytest.param(*way, marks=() if way in IN_EVERY_RUN else pytest.mark.long)
        for way in itertools.product(CLIENTS, (True, False))
    ],
)
def test_members_of_every_kind_come_and_go_and_every_record_is_read(
    servers: str, topic: str, strategy: str, ours_leads: bool
) -> None:
    group, source = f"mixed-{strategy}-{time.time_ns()}", Source(servers, topic)
    kinds = [kind for kind in CLIENTS[strategy] if kind is not Ours]
    if kafka_classpath() is None:
        kinds.remove(JavaConsole)
    kinds = [Ours, *kinds, Ours] if ours_leads else [*kinds, Ours, Ours]
    members = [kind(servers, topic, group, strategy) for kind in kinds]
    with ExitStack() as stack:
        for number, member in enumerate(members, 1):
            stack.enter_context(member)
            source.produce(200)
            wait_until(
                lambda number=number: is_shared(servers, group, number),
                lambda: (owners(servers, group), [member.failure for member in members]),
            )
        source.produce(400)
        wait_until(
            lambda: len({n for member in members for n in member.seen}) == source.count,
            lambda: {type(member).__name__: len(member.seen) for member in members},
        )
        assert all(member.seen for member in members)
        left = members[:-1]
        for gone in range(len(left)):
            members[gone].stop()
            source.produce(100)
            wait_until(
                lambda gone=gone: is_shared(servers, group, len(members) - gone - 1),
                lambda: (owners(servers, group), [member.failure for member in members]),
            )
        wait_until(
            lambda: len({n for member in members for n in member.seen}) == source.count,
            lambda: {type(member).__name__: len(member.seen) for member in members},
        )
    for member in members:
        by_partition: Any = [
            [number for number in member.seen if number % PARTITIONS == partition]
            for partition in range(PARTITIONS)
        ]
        if isinstance(member, Ours):  # what was committed does not come again to the same reader
            assert all(numbers == sorted(set(numbers)) for numbers in by_partition)
