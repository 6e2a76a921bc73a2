"""Records of `__transaction_state`: Kafka's own formats, so that Kafka's tools read our log.

    key     version i16 = 0, transactional_id string
    value   version i16, then the fields below         null: the id has expired (a tombstone)

    producer_id i64, producer_epoch i16, timeout i32, state i8, partitions [topic, [index i32]]?,
    last_update i64, start i64; version 1 is flexible and adds as tagged fields the previous and the
    next producer id and the client's transaction.version

Version 1 is written from transaction.version 1 on, version 0 below. The last producer epoch is in
neither, as in Kafka: a client's repeated InitProducerId is recognised until the coordinator moves.

Invariants: bytes that are no such record raise CorruptMessage, nothing else; a key of another
version decodes to None, for the reader to skip.
Source: apache/kafka transaction-coordinator/.../TransactionLog.java, TransactionLogKey.json,
TransactionLogValue.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Packer
from typing import ClassVar, NamedTuple

from ..protocol.buffer import Buffer
from ..protocol.codec import read_message, write_message
from ..protocol.errors import CorruptMessage, MalformedRequest
from ..protocol.records.record_batch import walk_batches
from ..protocol.records.records import iterate_records
from ..protocol.schema import Message, Struct, Versions, wire
from .transaction_metadata import (
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    TransactionMetadata,
)
from .transaction_state import TransactionState

NO_API = -1
KEY_VERSION = 0
HIGHEST_VALUE_VERSION = 1
_I16 = Packer(">h")


@dataclass(slots=True)
class TransactionLogKey(Message):
    API_KEY: ClassVar[int] = NO_API
    VERSIONS: ClassVar[Versions] = (0, 0)
    FLEXIBLE: ClassVar[int] = 99

    transactional_id: str = wire("string", (0, 0), default="")


@dataclass(slots=True)
class PartitionsSchema(Struct):
    topic: str = wire("string", (0, 1), default="")
    partition_ids: list[int] = wire("int32", (0, 1), array=True)  # noqa: RUF009 -- a dataclass field


@dataclass(slots=True)
class TransactionLogValue(Message):
    API_KEY: ClassVar[int] = NO_API
    VERSIONS: ClassVar[Versions] = (0, 1)
    FLEXIBLE: ClassVar[int] = 1

    producer_id: int = wire("int64", (0, 1), default=0)
    producer_epoch: int = wire("int16", (0, 1), default=0)
    transaction_timeout_ms: int = wire("int32", (0, 1), default=0)
    transaction_status: int = wire("int8", (0, 1), default=0)
    transaction_partitions: list[PartitionsSchema] | None = wire(  # noqa: RUF009 -- a field
        PartitionsSchema, (0, 1), array=True, nullable=(0, 1), default=None
    )
    transaction_last_update_timestamp_ms: int = wire("int64", (0, 1), default=0)
    transaction_start_timestamp_ms: int = wire("int64", (0, 1), default=0)
    previous_producer_id: int = wire("int64", (1, 1), tag=0, default=NO_PRODUCER_ID)
    next_producer_id: int = wire("int64", (1, 1), tag=1, default=NO_PRODUCER_ID)
    client_transaction_version: int = wire("int16", (1, 1), tag=2, default=0)


class TransactionRecord(NamedTuple):
    """New state of a transactional id; metadata None: it has expired."""

    transactional_id: str
    metadata: TransactionMetadata | None


def encode_transaction_record(
    record: TransactionRecord, *, transaction_version: int
) -> tuple[bytes, bytes | None]:
    """(key, value) of the log record. `transaction_version`: the cluster's feature level.

    Raises ValueError: a state that is never written.
    """
    transactional_id, metadata = record
    key = _encode(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
    if metadata is None:
        return key, None
    if metadata.state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        raise ValueError(f"{metadata.state.title} is never written")
    version = min(transaction_version, HIGHEST_VALUE_VERSION)
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=_by_topic(metadata),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        client_transaction_version=metadata.client_version,
    )
    return key, _encode(value, version)


def _encode(message: Message, version: int) -> bytes:
    return bytes(write_message(message, version, bytearray(_I16.pack(version))))


def _by_topic(metadata: TransactionMetadata) -> list[PartitionsSchema] | None:
    """Partitions by topic, sorted, so that equal transactions have equal bytes; null in EMPTY,
    as in Kafka.
    """
    if metadata.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return [
        PartitionsSchema(topic=topic, partition_ids=partitions)
        for topic, partitions in topics.items()
    ]


def decode_transaction_record(key: Buffer | None, value: Buffer | None) -> TransactionRecord | None:
    """Decode a record; None: its key has another, unknown version.

    Raises CorruptMessage.
    """
    if key is None or len(key) < _I16.size:
        raise CorruptMessage("a record of __transaction_state without a key")
    if _I16.unpack_from(key)[0] != KEY_VERSION:
        return None
    try:
        log_key = read_message(TransactionLogKey, KEY_VERSION, memoryview(key), _I16.size)
        if value is None:
            return TransactionRecord(log_key.transactional_id, None)
        if len(value) < _I16.size:
            raise CorruptMessage("a value of __transaction_state without a version")
        version = _I16.unpack_from(value)[0]
        if not 0 <= version <= HIGHEST_VALUE_VERSION:
            raise CorruptMessage(f"a value of __transaction_state of version {version}")
        read = read_message(TransactionLogValue, version, memoryview(value), _I16.size)
        return TransactionRecord(log_key.transactional_id, _metadata(read))
    except (MalformedRequest, ValueError) as error:
        raise CorruptMessage(f"a record of __transaction_state: {error}") from None


def _metadata(value: TransactionLogValue) -> TransactionMetadata:
    state = TransactionState(value.transaction_status)
    partitions = NO_PARTITIONS
    if state is not TransactionState.EMPTY and value.transaction_partitions:
        partitions = frozenset(
            (topic.topic, partition)
            for topic in value.transaction_partitions
            for partition in topic.partition_ids
        )
    return TransactionMetadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=partitions,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def transactions_in(data: Buffer, offset: int) -> tuple[list[TransactionRecord], int]:
    """(records in the whole record batches of `data` from `offset` on, offset after them).

    Raises:
        CorruptMessage: the log is damaged, or not one of transactions.
    """
    view = memoryview(data)
    records: list[TransactionRecord] = []
    for position, header in walk_batches(view, strict=True):
        if not header.is_control:
            for found in iterate_records(view[position : position + header.size]):
                if found.offset >= offset:
                    record = decode_transaction_record(found.key, found.value)
                    if record is not None:
                        records.append(record)
        offset = max(offset, header.next_offset)
    return records, offset
