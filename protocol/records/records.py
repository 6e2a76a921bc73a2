"""Single records inside a record batch, one at a time, in plain Python.

    length varint                        of all that follows
    attributes i8                        unused, 0
    timestamp_delta varlong              to the batch's base_timestamp
    offset_delta varint                  to the batch's base_offset
    key length varint (-1 null), key
    value length varint (-1 null), value
    header count varint, then for each:  key length varint, key (UTF-8), value length varint, value

A control batch holds one record: key is i16 version 0, i16 type (0 abort, 1 commit); value is
i16 version 0, i32 coordinator epoch.

Invariants:
    a record ends exactly where its length says, and the last one where the batch ends;
    bytes that break a rule raise CorruptMessage, nothing else.

For small uses (the broker's own topics, a timestamp look-up, `log dump`): 3 us to encode a record,
5 us to decode one. No numpy, no pyarrow. Clients use columns, which decodes whole fetches.
Source: apache/kafka clients/.../common/record/DefaultRecord.java, EndTransactionMarker.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple

from ..buffer import Buffer
from ..errors import CorruptMessage, InvalidRecord
from ..varint import decode_varint, decode_varlong, encode_varint
from .compression import compress, decompress
from .record_batch import (
    CONTROL_MASK,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    RecordBatchHeader,
    build_batch,
    check_batch,
    compute_crc,
    read_header,
)

Headers = Sequence[tuple[str, bytes | None]]

DECOMPRESS_LIMIT: Final = 256 * 1024 * 1024
"""Maximum bytes that one batch may decompress to, unless the caller passes another limit."""

LEAST_RECORD_BYTES: Final = 7
"""Fewest bytes of a record: length, attributes, two deltas, two lengths, header count, one byte
each.
"""

_PRODUCER: Final = Struct(">qhi")
_CONTROL_KEY: Final = Struct(">hh")
_CONTROL_VALUE: Final = Struct(">hi")


class Record(NamedTuple):
    """One record. `timestamp` in ms since 1970, -1 if the producer gave none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class ParsedRecord(NamedTuple):
    """A record as stored in its batch: with deltas in place of offset and timestamp."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class ControlType(IntEnum):
    """Type of a control record: the end of its producer's transaction."""

    ABORT = 0
    COMMIT = 1


def encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> bytes:
    """Encode one record with its length in front."""
    parts = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    for field in (key, value):
        if field is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(field)), field)
    parts.append(encode_varint(len(headers)))
    for header_key, header_value in headers:
        name = header_key.encode()
        parts += (encode_varint(len(name)), name)
        if header_value is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(header_value)), header_value)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


class EncodedRecords(NamedTuple):
    """A batch, and the size in bytes that it has, or would have, without compression."""

    batch: bytearray
    uncompressed_size: int


def encode_records(
    records: Iterable[tuple[int, bytes | None, bytes | None, Headers]],
    *,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Encode one batch of (timestamp in ms, key, value, headers), in that order.

    Raises:
        ValueError: no records.
        UnsupportedCompressionType: `codec` is not 0-4.
    """
    payload = _payload(records)
    return build_batch(
        compress(codec, payload.records),
        record_count=payload.record_count,
        base_timestamp=payload.base_timestamp,
        max_timestamp=payload.max_timestamp,
        attributes=codec | (TRANSACTIONAL_MASK if transactional else 0),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def encode_measured(
    records: Iterable[tuple[int, bytes | None, bytes | None, Headers]], *, codec: int = 0
) -> EncodedRecords:
    """`encode_records`, and the size without compression."""
    payload = _payload(records)
    batch = build_batch(
        compress(codec, payload.records),
        record_count=payload.record_count,
        base_timestamp=payload.base_timestamp,
        max_timestamp=payload.max_timestamp,
        attributes=codec,
    )
    return EncodedRecords(batch, HEADER_SIZE + len(payload.records))


class _Payload(NamedTuple):
    """Encoded records of one batch, not compressed, and what its header says of them."""

    records: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int


def _payload(records: Iterable[tuple[int, bytes | None, bytes | None, Headers]]) -> _Payload:
    """Raises ValueError: no records."""
    encoded: list[bytes] = []
    base_timestamp, max_timestamp = NO_TIMESTAMP, NO_TIMESTAMP
    for offset_delta, (timestamp, key, value, headers) in enumerate(records):
        if not encoded:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        encoded.append(
            encode_record(wrap_int64(timestamp - base_timestamp), offset_delta, key, value, headers)
        )
    if not encoded:
        raise ValueError("a record batch needs a record")
    return _Payload(b"".join(encoded), len(encoded), base_timestamp, max_timestamp)


def encode_control_batch(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Encode the marker that ends a transaction in one partition."""
    record = encode_record(
        0, 0, _CONTROL_KEY.pack(0, control_type), _CONTROL_VALUE.pack(0, coordinator_epoch)
    )
    return build_batch(
        record,
        record_count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def stamp_producer(
    batch: bytearray | memoryview,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool = False,
) -> None:
    """Set producer id, epoch and sequence of an encoded batch, and the CRC over them."""
    attributes = int.from_bytes(batch[21:23], "big") & ~TRANSACTIONAL_MASK
    if transactional:
        attributes |= TRANSACTIONAL_MASK
    batch[21:23] = attributes.to_bytes(2, "big")
    _PRODUCER.pack_into(batch, 43, producer_id, producer_epoch, base_sequence)
    batch[17:21] = compute_crc(batch).to_bytes(4, "big")


def iterate_records(
    batch: Buffer, *, decompress_limit: int = DECOMPRESS_LIMIT, check_crc: bool = True
) -> Iterator[Record]:
    """Records of exactly one batch, which fills `batch`. Control records are included.

    Raises:
        CorruptMessage: wrong length or CRC, or records that do not match the header.
        InvalidRecord: magic is not 2, or they decompress to more than `decompress_limit` bytes.
    """
    header = check_batch(batch) if check_crc else _header_of(batch)
    records = records_of(batch, header, decompress_limit=decompress_limit)
    append_time = header.max_timestamp if header.is_log_append_time else None
    for parsed in parse_records(records, header.record_count, header.last_offset_delta):
        yield Record(
            header.base_offset + parsed.offset_delta,
            wrap_int64(header.base_timestamp + parsed.timestamp_delta)
            if append_time is None
            else append_time,
            parsed.key,
            parsed.value,
            parsed.headers,
        )


def records_of(batch: Buffer, header: RecordBatchHeader, *, decompress_limit: int) -> Buffer:
    """Bytes after the header of a batch, decompressed."""
    block = memoryview(batch)[HEADER_SIZE : header.size]
    if not header.codec:
        return block
    if not block and not header.record_count:
        return block  # compaction leaves an empty batch without a compressed block
    return decompress(header.codec, block, limit=decompress_limit)


def parse_records(
    records: Buffer, record_count: int, last_offset_delta: int, *, copy: bool = True
) -> Iterator[ParsedRecord]:
    """Parse the `record_count` records that fill `records`. Raises CorruptMessage.

    copy: False makes keys, values and headers' values memoryviews of `records`.
    """
    size = len(records)
    if not 0 <= record_count * LEAST_RECORD_BYTES <= size:
        raise CorruptMessage(f"{size} bytes cannot hold {record_count} records")
    # Copying the batch once is cheaper than two objects for each field of a record.
    records = bytes(records) if copy else memoryview(records)
    position, last_delta = 0, -1
    for _ in range(record_count):
        length, position = decode_varint(records, position)
        end = position + length
        if length < 0 or end > size:
            raise CorruptMessage(f"a record of {length} bytes passes the end of its batch")
        record, position = _parse_record(records, position, end)
        if not last_delta < record.offset_delta <= last_offset_delta:
            raise CorruptMessage(
                f"offset delta {record.offset_delta} is not in ({last_delta}, {last_offset_delta}]"
            )
        last_delta = record.offset_delta
        if position != end:
            raise CorruptMessage(f"a record ends {end - position} bytes before its length says")
        yield record
    if position != size:
        raise CorruptMessage(f"{size - position} bytes follow the last record of a batch")


def control_type(key: bytes | None) -> ControlType | None:
    """Type in the key of a control record; None for a type that is not about transactions.

    Raises:
        CorruptMessage: the key is too short.
    """
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptMessage("a control record has no type")
    kind = _CONTROL_KEY.unpack_from(key)[1]
    return ControlType(kind) if kind in (ControlType.ABORT, ControlType.COMMIT) else None


def _parse_record(records: Buffer, position: int, end: int) -> tuple[ParsedRecord, int]:
    timestamp_delta, position = decode_varlong(records, position + 1)
    offset_delta, position = decode_varint(records, position)
    key, position = _parse_bytes(records, position, end)
    value, position = _parse_bytes(records, position, end)
    header_count, position = decode_varint(records, position)
    if not 0 <= header_count * 2 <= end - position:
        raise CorruptMessage(f"a record cannot hold {header_count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, position = _parse_bytes(records, position, end)
        if name is None:
            raise CorruptMessage("a record header has no key")
        header_value, position = _parse_bytes(records, position, end)
        headers.append((str(name, "utf-8", "replace"), header_value))
    if position > end:
        raise CorruptMessage("a record is longer than its length says")
    return ParsedRecord(timestamp_delta, offset_delta, key, value, headers), position


def _parse_bytes(records: Buffer, position: int, end: int) -> tuple[Any, int]:
    """(slice of `records` or None, its end)."""
    length, position = decode_varint(records, position)
    if length < 0:
        if length != -1:
            raise CorruptMessage(f"a length of {length} in a record")
        return None, position
    after = position + length
    if after > end:
        raise CorruptMessage(f"a field of {length} bytes passes the end of its record")
    return records[position:after], after


def wrap_int64(value: int) -> int:
    """`value` wrapped to 64 bits, as Java's arithmetic on timestamps does."""
    return (value + 2**63) % 2**64 - 2**63


def _header_of(batch: Buffer) -> RecordBatchHeader:
    if len(batch) < HEADER.size:
        raise CorruptMessage(f"{len(batch)} bytes are not a record batch")
    header = read_header(batch)
    if header.magic != MAGIC:
        raise InvalidRecord(f"record batch of magic {header.magic}; only magic 2 is accepted")
    if header.size != len(batch):
        raise CorruptMessage(f"a batch of {header.size} bytes was sent in {len(batch)}")
    return header
