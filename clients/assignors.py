"""Who reads what in a group: the bytes members exchange, and the strategies that decide.

    subscription  version i16, [topic], user data nullable bytes,
                  v1+: owned [topic, [partition i32]]; v2+: generation i32; v3+: rack
    assignment    version i16, [topic, [partition i32]], user data nullable bytes

All lengths are int32 but a string's, which is int16. Later versions only append, so a reader takes
what it knows. The group's leader computes; the coordinator never opens these bytes.

Sources: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json, RangeAssignor.java.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, error as struct_error
from typing import Final

from ..protocol.errors import MalformedRequest
from ..protocol.record_batch import Buffer
from .topic_partition import TopicPartition

SUBSCRIPTION_VERSION: Final = 1
ASSIGNMENT_VERSION: Final = 1

_I16 = Struct(">h")
_I32 = Struct(">i")


@dataclass(frozen=True, slots=True)
class Member:
    """One member as the leader sees it. instance_id: of a static member (KIP-345)."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    instance_id: str | None = None


Assignment = dict[str, list[TopicPartition]]
Assignor = Callable[[Sequence[Member], Mapping[str, int]], Assignment]
"""assignor(members, partition counts by topic) -> partitions by member id."""


def assign_range(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Each topic in contiguous ranges: the first m of its n subscribers get one partition more.

    Subscribers are in order: static members by instance id, then the others by member id, so that
    a static member that restarts keeps its range.
    """
    assignment: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(
        members,
        key=lambda member: (member.instance_id is None, member.instance_id or member.member_id),
    )
    for topic in sorted({topic for member in members for topic in member.topics}):
        subscribers = [member for member in ordered if topic in member.topics]
        each, more = divmod(partition_counts.get(topic, 0), len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + each + (1 if index < more else 0)
            assignment[member.member_id] += [
                TopicPartition(topic, partition) for partition in range(start, end)
            ]
            start = end
    return assignment


ASSIGNORS: Final[dict[str, Assignor]] = {"range": assign_range}
"""By the protocol name under which members of all clients agree on one."""


def encode_subscription(topics: Iterable[str], owned: Iterable[TopicPartition] = ()) -> bytes:
    out = bytearray(_I16.pack(SUBSCRIPTION_VERSION))
    names = sorted(topics)
    out += _I32.pack(len(names))
    for name in names:
        _write_string(name, out)
    out += _I32.pack(-1)
    _write_partitions(owned, out)
    return bytes(out)


def decode_subscription(data: Buffer, member_id: str, instance_id: str | None = None) -> Member:
    """Raises MalformedRequest: not a subscription."""
    reader = _Reader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count(2)))
    reader.skip_bytes()
    owned = tuple(reader.partitions()) if version >= 1 else ()
    return Member(member_id, topics, owned, instance_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    out = bytearray(_I16.pack(ASSIGNMENT_VERSION))
    _write_partitions(partitions, out)
    out += _I32.pack(-1)
    return bytes(out)


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    """Empty bytes, which a member gets that the leader did not know, are no partitions.

    Raises:
        MalformedRequest: not an assignment.
    """
    if not len(data):
        return []
    reader = _Reader(data)
    reader.int16()
    return reader.partitions()


def _write_string(text: str, out: bytearray) -> None:
    encoded = text.encode()
    out += _I16.pack(len(encoded))
    out += encoded


def _write_partitions(partitions: Iterable[TopicPartition], out: bytearray) -> None:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    out += _I32.pack(len(by_topic))
    for topic in sorted(by_topic):
        _write_string(topic, out)
        out += _I32.pack(len(by_topic[topic]))
        for partition in sorted(by_topic[topic]):
            out += _I32.pack(partition)


class _Reader:
    """Reads bytes of another member, which may be anything."""

    def __init__(self, data: Buffer) -> None:
        self._data = bytes(data)
        self._position = 0

    def int16(self) -> int:
        return self._unpack(_I16)

    def int32(self) -> int:
        return self._unpack(_I32)

    def count(self, least_size: int) -> int:
        """An array length that the bytes left can hold."""
        count = self.int32()
        if count * least_size > len(self._data) - self._position:
            raise MalformedRequest("an array in a member's metadata is cut off")
        return max(0, count)

    def string(self) -> str:
        length = self.int16()
        if length < 0 or length > len(self._data) - self._position:
            raise MalformedRequest("a string in a member's metadata is cut off")
        self._position += length
        try:
            return self._data[self._position - length : self._position].decode()
        except UnicodeDecodeError:
            raise MalformedRequest("a topic name in a member's metadata is no UTF-8") from None

    def skip_bytes(self) -> None:
        length = self.int32()
        if length > len(self._data) - self._position:
            raise MalformedRequest("the user data in a member's metadata is cut off")
        self._position += max(0, length)

    def partitions(self) -> list[TopicPartition]:
        found = []
        for _ in range(self.count(6)):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count(4))]
        return found

    def _unpack(self, layout: Struct) -> int:
        try:
            value: int = layout.unpack_from(self._data, self._position)[0]
        except struct_error:
            raise MalformedRequest("a member's metadata is cut off") from None
        self._position += layout.size
        return value
