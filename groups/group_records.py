"""Records of `__consumer_offsets`: Kafka's own formats, so that Kafka's tools read our log.

    key     type i16, then the fields of the key       type 0 and 1: an offset, 2: a group
    value   version i16, then the fields of the value  null: deleted (a tombstone)

    offset key     group string, topic string, partition i32
    offset value   offset i64, leader_epoch i32 (v3+), metadata string, commit_timestamp i64,
                   expire_timestamp i64 (v1 only)
    group key      group string
    group value    protocol_type string, generation i32, protocol string?, leader string?,
                   current_state_timestamp i64 (v2+), [member_id string, group_instance_id string?
                   (v3+), client_id string, client_host string, rebalance_timeout i32 (v1+),
                   session_timeout i32, subscription bytes, assignment bytes]

Strings have an i16 length, bytes and arrays an i32 one; from v4 on values are flexible (compact
lengths, tags). We write v3, and v1 for an offset with its own expiry, as Kafka 4.1 does: all
brokers since 2.3 read that. We read v0-v4.

Invariants: bytes that are not a valid record raise CorruptMessage and nothing else; a record
of a newer type (KIP-848, KIP-932) is decoded as None, for the reader to skip.
Source: apache/kafka group-coordinator/src/main/resources/common/message/*.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Packer
from typing import ClassVar, NamedTuple

from ..protocol.buffer import Buffer
from ..protocol.codec import read_message, write_message
from ..protocol.errors import CorruptMessage, MalformedRequest
from ..protocol.records.record_batch import walk_batches
from ..protocol.records.records import ControlType, control_type, iterate_records
from ..protocol.schema import Message, Struct, Versions, wire

NO_TIMESTAMP = -1
NO_API = -1
_I16 = Packer(">h")


@dataclass(slots=True)
class OffsetCommitKey(Message):
    API_KEY: ClassVar[int] = NO_API
    VERSIONS: ClassVar[Versions] = (0, 1)
    FLEXIBLE: ClassVar[int] = 99

    group: str = wire("string", (0, 1), default="")
    topic: str = wire("string", (0, 1), default="")
    partition: int = wire("int32", (0, 1), default=0)


@dataclass(slots=True)
class OffsetCommitValue(Message):
    """Value of an offset commit. expire_timestamp is -1 unless the client set its own retention
    (v2-4 commits).
    """

    API_KEY: ClassVar[int] = NO_API
    VERSIONS: ClassVar[Versions] = (0, 4)
    FLEXIBLE: ClassVar[int] = 4

    offset: int = wire("int64", (0, 4), default=0)
    leader_epoch: int = wire("int32", (3, 4), default=-1)
    metadata: str = wire("string", (0, 4), default="")
    commit_timestamp: int = wire("int64", (0, 4), default=0)
    expire_timestamp: int = wire("int64", (1, 1), default=NO_TIMESTAMP)


@dataclass(slots=True)
class GroupMetadataKey(Message):
    API_KEY: ClassVar[int] = NO_API
    VERSIONS: ClassVar[Versions] = (2, 2)
    FLEXIBLE: ClassVar[int] = 99

    group: str = wire("string", (2, 2), default="")


@dataclass(slots=True)
class MemberMetadata(Struct):
    member_id: str = wire("string", (0, 4), default="")
    group_instance_id: str | None = wire("string", (3, 4), nullable=(3, 4), default=None)
    client_id: str = wire("string", (0, 4), default="")
    client_host: str = wire("string", (0, 4), default="")
    rebalance_timeout: int = wire("int32", (1, 4), default=-1)
    session_timeout: int = wire("int32", (0, 4), default=0)
    subscription: Buffer = wire("bytes", (0, 4), default=b"")  # noqa: RUF009 -- a dataclass field
    assignment: Buffer = wire("bytes", (0, 4), default=b"")  # noqa: RUF009 -- a dataclass field


@dataclass(slots=True)
class GroupMetadataValue(Message):
    API_KEY: ClassVar[int] = NO_API
    VERSIONS: ClassVar[Versions] = (0, 4)
    FLEXIBLE: ClassVar[int] = 4

    protocol_type: str = wire("string", (0, 4), default="")
    generation: int = wire("int32", (0, 4), default=0)
    protocol: str | None = wire("string", (0, 4), nullable=(0, 4), default=None)
    leader: str | None = wire("string", (0, 4), nullable=(0, 4), default=None)
    current_state_timestamp: int = wire("int64", (2, 4), default=NO_TIMESTAMP)
    members: list[MemberMetadata] = wire(MemberMetadata, (0, 4), array=True)  # noqa: RUF009 -- a dataclass field


class OffsetRecord(NamedTuple):
    """Committed offset of a group in a partition; value None: a tombstone."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupRecord(NamedTuple):
    """A generation of a group (its members and their assignments); value None: a tombstone."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


CoordinatorRecord = OffsetRecord | GroupRecord


class TransactionalOffset(NamedTuple):
    """Offset committed in a producer's transaction; takes effect when the transaction commits."""

    producer_id: int
    key: OffsetCommitKey
    value: OffsetCommitValue


class TransactionEnd(NamedTuple):
    """A control record that ends the producer's open transaction."""

    producer_id: int
    is_commit: bool


LogEntry = CoordinatorRecord | TransactionalOffset | TransactionEnd
"""Entry that a reader of the log finds."""

OFFSET_KEY_TYPE = 1
GROUP_KEY_TYPE = 2
VALUE_VERSION = 3
EXPIRING_OFFSET_VERSION = 1


def encode_group_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """(key, value) of the log record."""
    if isinstance(record, OffsetRecord):
        key_type, version = OFFSET_KEY_TYPE, VALUE_VERSION
        if record.value is not None and record.value.expire_timestamp != NO_TIMESTAMP:
            version = EXPIRING_OFFSET_VERSION
    else:
        key_type, version = GROUP_KEY_TYPE, VALUE_VERSION
    key = bytes(write_message(record.key, key_type, bytearray(_I16.pack(key_type))))
    if record.value is None:
        return key, None
    return key, bytes(write_message(record.value, version, bytearray(_I16.pack(version))))


def decode_group_record(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
    """Decode one log record; None for a type that this version does not know.

    Raises:
        CorruptMessage: cut off, no key, or a value version we cannot read.
    """
    try:
        if key is None:
            raise CorruptMessage("a group record has no key")
        key_type = _version(key)
        if key_type in (0, OFFSET_KEY_TYPE):
            return OffsetRecord(
                read_message(OffsetCommitKey, key_type, key, _I16.size),
                None
                if value is None
                else read_message(OffsetCommitValue, _value_version(value), value, _I16.size),
            )
        if key_type != GROUP_KEY_TYPE:
            return None
        if value is None:
            metadata = None
        else:
            metadata = read_message(GroupMetadataValue, _value_version(value), value, _I16.size)
            for member in metadata.members:
                member.subscription = bytes(member.subscription)
                member.assignment = bytes(member.assignment)
        return GroupRecord(read_message(GroupMetadataKey, key_type, key, _I16.size), metadata)
    except MalformedRequest as error:
        raise CorruptMessage(f"group record: {error}") from None


def entries_in(data: Buffer, offset: int) -> tuple[list[LogEntry], int]:
    """(entries in the whole record batches of `data` from `offset` on, offset after them).

    Raises:
        CorruptMessage: the log is damaged, or not one of groups.
    """
    view = memoryview(data)
    entries: list[LogEntry] = []
    for position, header in walk_batches(view, strict=True):
        for found in iterate_records(view[position : position + header.size]):
            if found.offset < offset:
                continue
            if header.is_control:
                kind = control_type(found.key)
                if kind is not None:
                    is_commit = kind is ControlType.COMMIT
                    entries.append(TransactionEnd(header.producer_id, is_commit))
                continue
            match decode_group_record(found.key, found.value):
                case OffsetRecord(key, value) if header.is_transactional and value is not None:
                    entries.append(TransactionalOffset(header.producer_id, key, value))
                case OffsetRecord() | GroupRecord() as record:
                    entries.append(record)
        offset = max(offset, header.next_offset)
    return entries, offset


def _version(buffer: Buffer) -> int:
    if len(buffer) < _I16.size:
        raise CorruptMessage("a group record is shorter than its version")
    version: int = _I16.unpack_from(buffer)[0]
    return version


def _value_version(value: Buffer) -> int:
    version = _version(value)
    if not 0 <= version <= GroupMetadataValue.VERSIONS[1]:
        raise CorruptMessage(f"group record value of version {version}; 0-4 can be read")
    return version
