"""The bytes that members of a group exchange through the coordinator, which does not decode them.

    subscription  version i16, [topic], user data nullable bytes,
                  v1+: owned [topic, [partition i32]]; v2+: generation i32; v3+: rack nullable
    assignment    version i16, [topic, [partition i32]], user data nullable bytes
    sticky data   [topic, [partition i32]], v1+: generation i32       (no version on the wire)
    cooperative   generation i32                                      (its sticky data)

All lengths are int32 but a string's, which is int16. Later versions only append fields, so a reader
decodes those it knows, and older members can read ours.

Sources: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json, StickyAssignor.java,
CooperativeStickyAssignor.java.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct, error as struct_error
from typing import Final

from ...protocol.buffer import Buffer
from ...protocol.errors import MalformedRequest
from ...protocol.topic_partition import TopicPartition

SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3
NO_GENERATION: Final = -1

_I16 = Struct(">h")
_I32 = Struct(">i")


@dataclass(frozen=True, slots=True)
class Member:
    """One member as the leader sees it.

    owned: partitions that it reads and has not revoked (KIP-429). generation: that in which they
    were assigned, -1 if not reported. instance_id: of a static member (KIP-345). rack_id: its rack.
    user_data: data from its assignor to the leader's assignor.
    """

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    instance_id: str | None = None
    generation: int = NO_GENERATION
    rack_id: str | None = None
    user_data: bytes | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by instance id, so that a restarted member keeps its place."""
        return (self.instance_id is None, self.instance_id or self.member_id)


def encode_subscription(
    topics: Iterable[str],
    owned: Iterable[TopicPartition] = (),
    *,
    user_data: bytes | None = None,
    generation: int = NO_GENERATION,
    rack_id: str | None = None,
) -> bytes:
    out = bytearray(_I16.pack(SUBSCRIPTION_VERSION))
    names = sorted(topics)
    out += _I32.pack(len(names))
    for name in names:
        _write_string(name, out)
    _write_bytes(user_data, out)
    _write_partitions(owned, out)
    out += _I32.pack(generation)
    if rack_id is None:
        out += _I16.pack(-1)
    else:
        _write_string(rack_id, out)
    return bytes(out)


def decode_subscription(data: Buffer, member_id: str, instance_id: str | None = None) -> Member:
    """Decode a subscription. Raises MalformedRequest: it is not one.

    Fields that a version adds may be missing: kafka-go calls its subscription version 1, and ends
    it after the user data.
    """
    reader = _Reader(data)
    version = reader.int16()
    if version < 0:
        raise MalformedRequest(f"a member's metadata has version {version}")
    topics = tuple(reader.string() for _ in range(reader.count(2)))
    user_data = reader.nullable_bytes()
    return Member(
        member_id,
        topics,
        owned=tuple(reader.partitions()) if version >= 1 and reader.left else (),
        instance_id=instance_id,
        generation=reader.int32() if version >= 2 and reader.left else NO_GENERATION,
        rack_id=reader.nullable_string() if version >= 3 and reader.left else None,
        user_data=user_data,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None
) -> bytes:
    out = bytearray(_I16.pack(ASSIGNMENT_VERSION))
    _write_partitions(partitions, out)
    _write_bytes(user_data, out)
    return bytes(out)


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    """Decode an assignment; empty bytes (a member unknown to the leader) are no partitions.

    Raises:
        MalformedRequest: not an assignment.
    """
    if not len(data):
        return []
    reader = _Reader(data)
    reader.int16()
    return reader.partitions()


def encode_sticky_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """User data of Java's StickyAssignor: the member's previous assignment."""
    out = bytearray()
    _write_partitions(partitions, out)
    out += _I32.pack(generation)
    return bytes(out)


def decode_sticky_data(data: Buffer | None) -> tuple[list[TopicPartition], int]:
    """Decode partitions and generation; ([], NO_GENERATION) if `data` is missing or invalid: such a
    member has no previous assignment.
    """
    for start in (0, _I16.size):  # kafka-python 3 puts a version in front
        try:
            reader = _Reader(bytes(data or b"")[start:])
            partitions = reader.partitions()
            return partitions, reader.int32() if reader.left else NO_GENERATION
        except MalformedRequest:
            continue
    return [], NO_GENERATION


def encode_cooperative_data(generation: int) -> bytes:
    return _I32.pack(generation)


def decode_cooperative_data(data: Buffer | None) -> int:
    return _I32.unpack(bytes(data))[0] if data and len(data) == _I32.size else NO_GENERATION


def _write_string(text: str, out: bytearray) -> None:
    encoded = text.encode()
    out += _I16.pack(len(encoded))
    out += encoded


def _write_bytes(data: bytes | None, out: bytearray) -> None:
    out += _I32.pack(-1 if data is None else len(data))
    out += data or b""


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
    """Reads bytes of another member, which may be invalid."""

    def __init__(self, data: Buffer) -> None:
        self._data = bytes(data)
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def int16(self) -> int:
        return self._unpack(_I16)

    def int32(self) -> int:
        return self._unpack(_I32)

    def count(self, least_size: int) -> int:
        """Read an array length, and check that the bytes left can hold the array."""
        count = self.int32()
        if count * least_size > self.left:
            raise MalformedRequest("an array in a member's metadata is cut off")
        return max(0, count)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedRequest("a topic name in a member's metadata is null")
        return text

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        if length < 0 or length > self.left:
            raise MalformedRequest("a string in a member's metadata is cut off")
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise MalformedRequest("a string in a member's metadata is not UTF-8") from None

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        if length > self.left:
            raise MalformedRequest("the user data in a member's metadata is cut off")
        return None if length < 0 else self._take(length)

    def partitions(self) -> list[TopicPartition]:
        found = []
        for _ in range(self.count(6)):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count(4))]
        return found

    def _take(self, length: int) -> bytes:
        self._position += length
        return self._data[self._position - length : self._position]

    def _unpack(self, layout: Struct) -> int:
        try:
            value: int = layout.unpack_from(self._data, self._position)[0]
        except struct_error:
            raise MalformedRequest("a member's metadata is cut off") from None
        self._position += layout.size
        return value
