"""Iteration over the records of one batch, for timestamps and checks that its header cannot give.

    length varint, attributes i8, timestamp_delta varlong, offset_delta varint,
    key length varint (-1 null), key, value length varint, value,
    header count varint, then for each: key length varint, key, value length varint, value

walk_records returns offsets and timestamps, and skips the rest; scan_records checks a producer's
records (every length, and that offset deltas count up from 0). Plain Python, 1 and 2-4 us a record;
for keys and values use columns.
Source: apache/kafka clients/.../common/record/DefaultRecord.java.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..buffer import Buffer
from ..errors import CorruptMessage, InvalidRecord
from ..varint import decode_uvarint, decode_varint, decode_varlong
from .record_batch import read_header
from .records import records_of


def walk_records(batch: Buffer, *, limit: int) -> Iterator[tuple[int, int]]:
    """(offset, timestamp in ms) of each record of one whole batch, in order.

    With LogAppendTime every record has the batch's max_timestamp. `limit` bounds the decompressed
    size, in bytes.

    Raises:
        CorruptMessage, InvalidRecord: the records do not match the header.
    """
    header = read_header(batch)
    records = records_of(batch, header, decompress_limit=limit)
    position = 0
    for _ in range(header.record_count):
        length, position = decode_varint(records, position)
        end = position + length
        if length < 0 or end > len(records):
            raise InvalidRecord(f"a record of {length} bytes does not fit in its batch")
        timestamp_delta, after = decode_varlong(records, position + 1)
        offset_delta, after = decode_varint(records, after)
        if after > end:
            raise CorruptMessage("a record's fields run past its length")
        if not 0 <= offset_delta <= header.last_offset_delta:
            raise CorruptMessage(f"an offset delta of {offset_delta} is not within its batch")
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        else:
            timestamp = header.base_timestamp + timestamp_delta
        yield header.base_offset + offset_delta, timestamp
        position = end


def scan_records(records: Buffer, count: int) -> Iterator[tuple[int, bool]]:
    """(timestamp delta, has a key) of each of the `count` records that fill `records`.

    Every length is checked, and that the offset deltas are 0, 1, ..., as a producer sends them.

    Raises:
        InvalidRecord: a record breaks a rule.
        CorruptMessage: a varint does not end.
    """
    records = bytes(records)
    position, size = 0, len(records)
    # Varints of one byte, and lengths of two, are read here: a call for each of the six takes twice
    # as long.
    try:
        for number in range(count):
            length = records[position]
            position += 1
            if length > 127:
                length, position = _longer(records, position)
            length = length >> 1 ^ -(length & 1)
            end = position + length
            if length < 0 or end > size:
                raise InvalidRecord(
                    f"record {number} of {length} bytes passes the end of its batch"
                )
            if records[position + 1] < 128:
                delta = records[position + 1]
                timestamp_delta = delta >> 1 ^ -(delta & 1)
                position += 2
            else:
                timestamp_delta, position = decode_varlong(records, position + 1)
            offset_delta = records[position]
            position += 1
            if offset_delta > 127:
                offset_delta, position = _longer(records, position)
            if offset_delta != number << 1:
                offset_delta = offset_delta >> 1 ^ -(offset_delta & 1)
                raise InvalidRecord(f"record {number} has an offset delta of {offset_delta}")
            key_length = records[position]
            position += 1
            if key_length > 127:
                key_length, position = _longer(records, position)
            has_key = key_length != 1  # -1
            if has_key:
                if key_length & 1:
                    raise InvalidRecord(f"the key or value of record {number} does not fit in it")
                position += key_length >> 1
            value_length = records[position]
            position += 1
            if value_length > 127:
                value_length, position = _longer(records, position)
            if value_length & 1:
                if value_length > 1:
                    raise InvalidRecord(f"the key or value of record {number} does not fit in it")
            else:
                position += value_length >> 1
            if position >= end:
                raise InvalidRecord(f"the key or value of record {number} does not fit in it")
            header_count = records[position]
            position += 1
            if header_count:
                header_count, position = decode_varint(records, position - 1)
                position = _skip_headers(records, position, end, header_count, number)
            if position != end:
                raise InvalidRecord(f"record {number} does not end where its length says")
            yield timestamp_delta, has_key
    except IndexError:
        raise CorruptMessage("a record runs past the end of its batch") from None
    if position != size:
        raise InvalidRecord(f"{size - position} bytes follow the last record of a batch")


def _longer(records: bytes, position: int) -> tuple[int, int]:
    """(value before zig-zag, position after it) of a varint of several bytes, of which the first is
    at `position` - 1.
    """
    second = records[position]
    if second < 128:
        return records[position - 1] & 0x7F | second << 7, position + 1
    return decode_uvarint(records, position - 1)


def _skip_headers(records: bytes, position: int, end: int, count: int, number: int) -> int:
    if not 0 <= count * 2 <= end - position:
        raise InvalidRecord(f"record {number} cannot hold {count} headers")
    for _ in range(count):
        key_length, position = decode_varint(records, position)
        if key_length < 0:
            raise InvalidRecord(f"a header of record {number} has no key")
        value_length, position = decode_varint(records, position + key_length)
        position += max(value_length, 0)
        if value_length < -1 or position > end:
            raise InvalidRecord(f"a header of record {number} does not fit in it")
    return position
