"""Entries of logs from before Kafka 0.11, each as a batch: a header, and its records.

An uncompressed message is a batch of one record. A compressed one (a wrapper; legacy_messages has
the layout) is a batch of its inner messages: in magic 1 their offsets count from 0, or after
compaction from a higher number, and the wrapper has the absolute offset of the last; with
LogAppendTime the wrapper's timestamp is that of all. The header is that of a record batch; fields
that these formats do not have (leader epoch, producer, sequence, in magic 0 timestamps) are -1.

For tools that read files, not for requests: producers' sets get new offsets (legacy_messages).
Source: apache/kafka 3.9 clients/.../common/record/AbstractLegacyRecordBatch.java.
"""

from __future__ import annotations

from typing import NamedTuple

from ..buffer import Buffer
from ..errors import CorruptMessage, InvalidRecord
from .legacy_messages import MAGIC_POSITION, LegacyMessage, open_wrapper, read_entries
from .record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
    RecordBatchHeader,
)
from .records import DECOMPRESS_LIMIT, Record

LEAST_SIZES = {0: 26, 1: 34}
"""Sizes of an entry with null for key and value, by magic."""
_CRC = slice(12, 16)


class OldBatch(NamedTuple):
    header: RecordBatchHeader
    records: list[Record]


def is_old(batch: Buffer) -> bool:
    """Whether the magic of an entry of at least 17 bytes is 0 or 1."""
    return batch[MAGIC_POSITION] < MAGIC


def least_size(magic: int) -> int:
    """Size in bytes of the smallest batch of a format."""
    return LEAST_SIZES.get(magic, HEADER_SIZE)


def believed_header(entry: Buffer) -> RecordBatchHeader:
    """Header of an entry from its first 26 bytes, unchecked, as if the entry were one record."""
    magic, offset = entry[MAGIC_POSITION], int.from_bytes(entry[:8], "big", signed=True)
    timestamp = int.from_bytes(entry[18:26], "big", signed=True) if magic else -1
    return _header(entry, offset, offset, 1, timestamp, timestamp)


def read_old_batch(entry: Buffer, *, limit: int = DECOMPRESS_LIMIT) -> OldBatch:
    """Read exactly one whole entry of magic 0 or 1, checked and decompressed.

    Raises:
        CorruptMessage, InvalidRecord: see legacy_messages.read_entries and open_wrapper; a wrapper
            without messages, or whose offset is below those of its messages.
        UnsupportedCompressionType: not a codec of this format.
    """
    (message,) = read_entries(entry, may_be_cut=False)
    records = _records_of(message, limit) if message.codec else [_record(message, 0, None)]
    timestamps = records[0].timestamp, message.timestamp
    last_offset = max(message.offset, records[-1].offset)
    header = _header(entry, records[0].offset, last_offset, len(records), *timestamps)
    return OldBatch(header, records)


def _records_of(wrapper: LegacyMessage, limit: int) -> list[Record]:
    inner = list(open_wrapper(wrapper, limit=limit))
    if not inner:
        raise InvalidRecord("a compressed message without messages in it")
    last = inner[-1].offset
    # Some versions of librdkafka write 0 into the wrapper.
    if last > wrapper.offset and wrapper.offset:
        raise CorruptMessage(
            f"a compressed message of offset {wrapper.offset} ends with a message of offset {last}"
        )
    is_relative = wrapper.magic > 0 and bool(wrapper.offset)
    append_time = wrapper.timestamp if wrapper.is_log_append_time else None
    base = wrapper.offset - last if is_relative else 0
    return [_record(message, base, append_time) for message in inner]


def _record(message: LegacyMessage, base: int, append_time: int | None) -> Record:
    timestamp = message.timestamp if append_time is None else append_time
    return Record(base + message.offset, timestamp, message.key, message.value, ())


def _header(
    entry: Buffer,
    base_offset: int,
    last_offset: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
) -> RecordBatchHeader:
    magic = entry[MAGIC_POSITION]
    known = CODEC_MASK | (TIMESTAMP_TYPE_MASK if magic else 0)
    return RecordBatchHeader(
        base_offset=base_offset,
        batch_length=int.from_bytes(entry[8:12], "big", signed=True),
        leader_epoch=-1,
        magic=magic,
        crc=int.from_bytes(entry[_CRC], "big"),
        attributes=entry[MAGIC_POSITION + 1] & known,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=record_count,
    )
