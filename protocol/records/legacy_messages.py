"""Message sets of magic 0 and 1, the formats before Kafka 0.11, to and from record batches.

A set is entries to the end of its bytes, without a count; the last one may be cut off.

    offset i64, size i32 (of the rest), crc u32, magic i8, attributes i8,
    timestamp i64 (magic 1 only), key length i32 (-1 null), key, value length i32 (-1 null), value

    crc         CRC-32 (zlib's) over everything after it, up to the end of the entry
    attributes  bits 0-2 codec (0 none, 1 gzip, 2 snappy, 3 lz4), bit 3 timestamp type (magic 1)

A compressed set is one entry, the wrapper, whose value is the compressed inner set:

    magic 0     inner offsets are absolute; lz4 frames have the old checksum (lz4_header)
    magic 1     inner offsets are 0, 1, ...; the wrapper has the absolute offset of the last one,
                and the largest timestamp (or with LogAppendTime the one of them all)

Invariants:
    invalid bytes, which may come from a peer, raise a KafkaError, nothing else, and at most `limit`
    bytes are decompressed;
    down-converted messages keep the log's offsets, so a new consumer can use an old one's commits.

Plain Python, 5-10 us a record: run in threads, for clients that are ten years old.
Source: apache/kafka 3.9 clients/.../common/record/LegacyRecord.java,
AbstractLegacyRecordBatch.java, RecordsUtil.java, storage/.../log/LogValidator.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ..buffer import Buffer
from ..errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from .compression import CompressionType, compress, decompress
from .lz4_header import with_old_checksum, with_right_checksum
from .record_batch import (
    CODEC_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    build_batch,
    check_batch,
    walk_batches,
)
from .records import encode_record, iterate_records, wrap_int64

MAGIC_POSITION: Final = 16
"""Position of the magic byte in all formats, including the record batch."""

_ENTRY: Final = Struct(">qiIbb")
_I64: Final = Struct(">q")
_I32: Final = Struct(">i")
_CRC_START: Final = 16
_LEAST_SIZE: Final = {0: 14, 1: 22}
_HEAD_SIZE: Final = {0: 18, 1: 26}


class LegacyMessage(NamedTuple):
    """One entry. `timestamp` in ms, -1 in magic 0; `size` in bytes with offset and size fields."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    size: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic > 0 and bool(self.attributes & TIMESTAMP_TYPE_MASK)


class ConvertedSet(NamedTuple):
    """A message set as one uncompressed batch of magic 2, and the codec the set had."""

    batch: bytearray
    codec: int


# --- reading -------------------------------------------------------------------------------------


def read_entries(data: Buffer, *, may_be_cut: bool = True) -> Iterator[LegacyMessage]:
    """Outer entries of a set, CRCs checked. Compressed messages are not decompressed.

    Args:
        data: the set.
        may_be_cut: whether an incomplete entry at the end is omitted.

    Raises:
        CorruptMessage: a size or CRC is wrong, or (not `may_be_cut`) an entry is cut off.
        InvalidRecord: magic is neither 0 nor 1.
    """
    data = bytes(data)
    position, end = 0, len(data)
    while position < end:
        if end - position < _ENTRY.size:
            if may_be_cut:
                return
            raise CorruptMessage("a message is cut off")
        offset, size, crc, magic, attributes = _ENTRY.unpack_from(data, position)
        if magic not in _LEAST_SIZE:
            raise InvalidRecord(f"a message of magic {magic} in a set of magic 0 or 1")
        if size < _LEAST_SIZE[magic]:
            raise CorruptMessage(f"a message of {size} bytes")
        after = position + LOG_OVERHEAD + size
        if after > end:
            if may_be_cut:
                return
            raise CorruptMessage("a message is cut off")
        if crc32(memoryview(data)[position + _CRC_START : after]) != crc:
            raise CorruptMessage("the CRC of a message is wrong")
        timestamp = _I64.unpack_from(data, position + _ENTRY.size)[0] if magic else NO_TIMESTAMP
        key, at = _read_field(data, position + _HEAD_SIZE[magic], after)
        value, at = _read_field(data, at, after)
        if at != after:
            raise CorruptMessage(f"{after - at} bytes follow the value of a message")
        yield LegacyMessage(offset, magic, attributes, timestamp, key, value, LOG_OVERHEAD + size)
        position = after


def _read_field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position + _I32.size > end:
        raise CorruptMessage("a message ends within a length")
    (length,) = _I32.unpack_from(data, position)
    position += _I32.size
    if length < 0:
        if length != -1:
            raise CorruptMessage(f"a length of {length} in a message")
        return None, position
    if length > end - position:
        raise CorruptMessage(f"a field of {length} bytes passes the end of its message")
    return data[position : position + length], position + length


def open_wrapper(wrapper: LegacyMessage, *, limit: int) -> Iterator[LegacyMessage]:
    """Inner messages of a compressed one, unchanged (offsets may be relative).

    Raises:
        CorruptMessage, InvalidRecord: not such a set, or more than `limit` bytes.
        UnsupportedCompressionType: not a codec of this format.
    """
    if wrapper.codec > CompressionType.LZ4:
        raise UnsupportedCompressionType(f"a message set cannot have codec {wrapper.codec}")
    if wrapper.value is None:
        raise InvalidRecord("a compressed message has no value")
    block: Buffer = wrapper.value
    if wrapper.codec == CompressionType.LZ4 and wrapper.magic == 0:
        block = with_right_checksum(block)
    inner = decompress(wrapper.codec, block, limit=limit)
    for message in read_entries(inner, may_be_cut=False):
        if message.codec:
            raise InvalidRecord("a compressed message within a compressed message")
        if message.magic != wrapper.magic:
            raise InvalidRecord(
                f"a message of magic {message.magic} within one of magic {wrapper.magic}"
            )
        yield message


def convert_up(data: Buffer, *, limit: int, max_message_bytes: int) -> ConvertedSet:
    """Convert a producer's message set to one batch of magic 2, offsets from 0 on, not yet
    compressed.

    Args:
        data: the set; a cut entry at its end is omitted, as in Kafka.
        limit: most bytes that may be decompressed.
        max_message_bytes: of one outer message.

    Raises:
        CorruptMessage, InvalidRecord: see read_entries; or a compressed message among others.
        InvalidTimestamp: the producer set the timestamp type.
        MessageTooLarge, UnsupportedCompressionType.
    """
    codec, magic = 0, -1
    encoded = bytearray()
    count, base_timestamp, max_timestamp = 0, NO_TIMESTAMP, NO_TIMESTAMP
    for number, entry in enumerate(read_entries(data)):
        if entry.size > max_message_bytes:
            raise MessageTooLarge(
                f"a message of {entry.size} bytes; max.message.bytes is {max_message_bytes}"
            )
        if number and (codec or entry.codec):
            raise InvalidRecord("a compressed message must be alone in its set")
        if number and entry.magic != magic:
            raise InvalidRecord("messages of two formats in one set")
        codec, magic = entry.codec, entry.magic
        for message in open_wrapper(entry, limit=limit) if codec else (entry,):
            if message.is_log_append_time or entry.is_log_append_time:
                raise InvalidTimestamp("a producer may not set the type to LogAppendTime")
            timestamp = message.timestamp
            if not count:
                base_timestamp = max_timestamp = timestamp
            elif timestamp > max_timestamp:
                max_timestamp = timestamp
            delta = wrap_int64(timestamp - base_timestamp)
            encoded += encode_record(delta, count, message.key, message.value)
            count += 1
    if not count:
        raise InvalidRecord("a message set without a whole message")
    batch = build_batch(
        encoded, record_count=count, base_timestamp=base_timestamp, max_timestamp=max_timestamp
    )
    return ConvertedSet(batch, codec)


# --- writing -------------------------------------------------------------------------------------


def encode_message(
    offset: int,
    magic: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    attributes: int = 0,
) -> bytes:
    """Encode one entry, with its CRC. Magic 0 has no timestamp."""
    parts = [bytes((magic, attributes))]
    if magic:
        parts.append(_I64.pack(timestamp))
    for field in (key, value):
        if field is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts += (_I32.pack(len(field)), field)
    body = b"".join(parts)
    head = _I64.pack(offset) + _I32.pack(len(body) + 4) + crc32(body).to_bytes(4, "big")
    return head + body


def convert_down(data: Buffer, magic: int, *, fetch_offset: int, limit: int) -> bytes:
    """Convert record batches to a message set for a consumer that reads from `fetch_offset` on.

    Batches keep their codec, records their offsets. Control batches, headers, producer ids and
    (in magic 0) timestamps are lost. The set may end before `data` does: at a batch that cannot be
    converted, or after `limit` bytes; the rest is left for the next fetch.

    Args:
        data: whole batches of magic 2.
        magic: 0 or 1.
        fetch_offset: records below it are omitted.
        limit: maximum decompressed size of a batch; after `limit` bytes of output it stops.

    Raises:
        UnsupportedCompressionType: the first batch is compressed with zstd.
        CorruptMessage, InvalidRecord: the first batch is invalid.
    """
    out = bytearray()
    view = memoryview(data)
    for position, header in walk_batches(view):
        if len(out) >= limit:
            break
        batch = view[position : position + header.size]
        try:
            out += _convert_batch(batch, magic, fetch_offset, limit)
        except KafkaError:
            if not out:
                raise
            break
    return bytes(out)


def _convert_batch(batch: Buffer, magic: int, fetch_offset: int, limit: int) -> bytes:
    header = check_batch(batch)
    if header.is_control:
        return b""
    if header.codec > CompressionType.LZ4:
        raise UnsupportedCompressionType("zstd needs Fetch version 10 or newer")
    kind = TIMESTAMP_TYPE_MASK if magic and header.is_log_append_time else 0
    records = [
        record
        for record in iterate_records(batch, decompress_limit=limit, check_crc=False)
        if record.offset >= fetch_offset
    ]
    if not records:
        return b""
    base = records[0].offset if magic and header.codec else 0
    inner = b"".join(
        encode_message(each.offset - base, magic, each.timestamp, each.key, each.value, kind)
        for each in records
    )
    if not header.codec:
        return inner
    block: Buffer = compress(header.codec, inner)
    if magic == 0 and header.codec == CompressionType.LZ4:
        block = with_old_checksum(block)
    newest = max(record.timestamp for record in records)
    attributes = header.codec | kind
    return encode_message(records[-1].offset, magic, newest, None, bytes(block), attributes)
