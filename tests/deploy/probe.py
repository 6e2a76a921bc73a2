"""Clients of a cluster that is being troubled: what was acknowledged, and what is there.

with Writer(servers, "numbered") as writer:
    ...                                     # trouble
assert missing(writer.acknowledged, read_all(servers, "numbered")) == []
"""

import threading
import time
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

PAUSE_SECONDS = 0.01
FLUSH_SECONDS = 120
READ_SECONDS = 60

Place = tuple[int, int]
"""Partition and offset."""
Content = tuple[bytes | None, bytes | None]


class Writer:
    """Produces numbers, 100 a second, until it is closed; idempotent, acks=all."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.acknowledged: dict[Place, Content] = {}
        self.failed: list[str] = []
        self.longest_gap = 0.0
        """Seconds without any acknowledgement, the longest so far."""
        self.slowest = 0.0
        """Seconds from a record's being produced to its acknowledgement, the most so far."""
        self._heard = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def begin_gap(self) -> None:
        """Forget the gaps so far."""
        self.longest_gap = self.slowest = 0.0

    def _run(self) -> None:
        number = 0
        self._heard = time.monotonic()
        while not self._stop.wait(PAUSE_SECONDS):
            value = b"%d" % number
            self._producer.produce(self._topic, value, value, on_delivery=self._on_delivery)
            self._producer.poll(0)
            number += 1
        left = self._producer.flush(FLUSH_SECONDS)
        if left:
            self.failed.append(f"{left} without an answer after {FLUSH_SECONDS} s")

    def _on_delivery(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        now = time.monotonic()
        self.longest_gap = max(self.longest_gap, now - self._heard)
        self.slowest = max(self.slowest, message.latency() or 0.0)
        self._heard = now
        place = (message.partition(), message.offset())
        self.acknowledged[place] = (message.key(), message.value())


def read_all(servers: str, topic: str) -> dict[Place, Content]:
    """Everything that is committed now. Raises AssertionError where nothing more comes."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=READ_SECONDS).topics[topic].partitions
        ends = {}
        for number in partitions:
            _, ends[number] = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=READ_SECONDS
            )
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: dict[Place, Content] = {}
        wanted = sum(ends.values())
        while len(found) < wanted:
            messages = consumer.consume(min(10_000, wanted - len(found)), READ_SECONDS)
            assert messages, f"{len(found)} of {wanted} records of {topic} can be read"
            for message in messages:
                assert message.error() is None, message.error()
                place = (message.partition(), message.offset())
                found[place] = (message.key(), message.value())
        return found
    finally:
        consumer.close()


def missing(acknowledged: Mapping[Place, Content], found: Mapping[Place, Content]) -> list[Place]:
    """Where something was acknowledged that is not there as it was."""
    return [place for place, content in acknowledged.items() if found.get(place) != content]


def in_sync(servers: str, topic: str) -> list[int]:
    """How many replicas are in sync, of each partition; 0 where there is no leader."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    partitions = admin.list_topics(topic, timeout=READ_SECONDS).topics[topic].partitions
    return [0 if one.leader < 0 else len(one.isrs) for _, one in sorted(partitions.items())]
