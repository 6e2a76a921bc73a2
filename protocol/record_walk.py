"""Record by record through one batch: offset and timestamp only, keys and values skipped.

    length varint, attributes i8, timestamp_delta varlong, offset_delta varint, the rest

For the rare question that a header cannot answer (which record has this timestamp?). Plain Python,
about 1 us a record; whoever wants keys and values uses columns.
Source: apache/kafka clients/.../common/record/DefaultRecord.java.
"""

from __future__ import annotations

from collections.abc import Iterator

from .compression import decompress
from .errors import CorruptMessage, InvalidRecord
from .record_batch import HEADER_SIZE, Buffer, read_header
from .varint import decode_varint, decode_varlong


def walk_records(batch: Buffer, *, limit: int) -> Iterator[tuple[int, int]]:
    """(offset, timestamp in ms) of each record of one whole batch, in order.

    With LogAppendTime every record has the batch's max_timestamp. `limit` bounds the decompressed
    size, in bytes.

    Raises:
        CorruptMessage, InvalidRecord: the records are not what the header promises.
    """
    header = read_header(batch)
    records: Buffer = memoryview(batch)[HEADER_SIZE : header.size]
    if header.codec:
        records = decompress(header.codec, records, limit=limit)
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
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        else:
            timestamp = header.base_timestamp + timestamp_delta
        yield header.base_offset + offset_delta, timestamp
        position = end
