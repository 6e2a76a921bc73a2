"""`__consumer_offsets` as another client reads it, decoded without any code of the broker.

The layouts are those of Kafka 4.1 (OffsetCommitKey/Value, GroupMetadataKey/Value), of which a broker
writes value versions 1 and 3; assignments are decoded by kio's ConsumerProtocolAssignment.
"""

import time
from importlib import import_module
from struct import Struct
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kio.serial import entity_reader

from .history import Commit, Generation

TOPIC = "__consumer_offsets"
_I16, _I32, _I64 = Struct(">h"), Struct(">i"), Struct(">q")
READ_SECONDS = 60


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: Struct) -> int:
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return value

    def bytes(self, layout: Struct) -> bytes | None:
        length = self.take(layout)
        if length < 0:
            return None
        self._position += length
        assert self._position <= len(self._data), "cut off"
        return self._data[self._position - length : self._position]

    def string(self) -> str | None:
        text = self.bytes(_I16)
        return None if text is None else text.decode()


def read_log(servers: str, groups: set[str], topic: str) -> list[Commit | Generation]:
    """The commits of `topic` and the generations of `groups`, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader-of-offsets",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        count = len(consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions)
        ends = {}
        for number in range(count):
            first, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30)
            if first < end:
                ends[number] = end
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in ends])
        found: list[Commit | Generation] = []
        deadline = time.monotonic() + READ_SECONDS
        while ends:
            assert time.monotonic() < deadline, f"{TOPIC} was not read to its end: {ends}"
            for message in consumer.consume(10_000, 0.5):
                if message.error():
                    continue  # librdkafka tries again by itself
                one = decode(message.key(), message.value(), topic)
                if one is not None and one.group in groups:
                    found.append(one)
                if message.offset() + 1 >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
        return found
    finally:
        consumer.close()


def decode(key: bytes, value: bytes | None, topic: str) -> Commit | Generation | None:
    """None: of another topic, a tombstone, or nothing that concerns classic groups."""
    reader = _Reader(key)
    kind = reader.take(_I16)
    if value is None:
        return None
    if kind in (0, 1):
        group, of_topic, partition = reader.string(), reader.string(), reader.take(_I32)
        content = _Reader(value)
        version = content.take(_I16)
        assert version in (1, 3), f"an offset of version {version}"
        return Commit(group or "", partition, content.take(_I64)) if of_topic == topic else None
    if kind == 2:
        return _generation(reader.string() or "", _Reader(value), topic)
    return None


def _generation(group: str, reader: _Reader, topic: str) -> Generation:
    version = reader.take(_I16)
    assert version == 3, f"a group of version {version}"
    reader.string()  # protocol type
    generation = reader.take(_I32)
    reader.string()  # protocol
    reader.string()  # leader
    reader.take(_I64)  # time
    owners: dict[str, frozenset[int]] = {}
    instances = {}
    for _ in range(reader.take(_I32)):
        member_id, instance_id = reader.string() or "", reader.string()
        reader.string()  # client id
        reader.string()  # host
        reader.take(_I32)  # rebalance timeout
        reader.take(_I32)  # session timeout
        reader.bytes(_I32)  # subscription
        assignment = reader.bytes(_I32) or b""
        if instance_id is not None:
            instances[member_id] = instance_id
        name = instance_id or member_id
        owners[name] = owners.get(name, frozenset()) | decode_assignment(assignment, topic)
    return Generation(group, generation, owners, instances)


def decode_assignment(assignment: bytes, topic: str) -> frozenset[int]:
    """The partitions of `topic` in it."""
    if not assignment:
        return frozenset()
    (version,) = _I16.unpack_from(assignment)
    module = import_module(f"kio.schema.consumer_protocol_assignment.v{min(version, 3)}.data")
    entity: Any
    entity, _ = entity_reader(module.ConsumerProtocolAssignment)(assignment, _I16.size)
    return frozenset(
        partition
        for one in entity.assigned_partitions
        if one.topic == topic
        for partition in one.partitions
    )
