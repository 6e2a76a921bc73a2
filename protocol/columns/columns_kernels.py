"""Compiled loops over records: parse, gather, plan, write, hash, group. Importing compiles them.

Each loop takes numpy arrays and nothing else, checks every bound itself and runs without the GIL,
so fetches of several partitions decode in parallel threads. Nothing is read outside [start, end) of
the batch: lengths from a peer are never used as an index unchecked.

The machine code is cached next to this file, or in the user's cache directory (or NUMBA_CACHE_DIR)
where the package cannot be written; where no directory can be, it is compiled in memory.

Not here: Arrow (columns_arrow), and the rules of a fetch (columns_decode). columns_plain does the
same in plain Python and is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..records.record_batch import HEADER_SIZE
from .columns_arrow import (
    APPEND_TIME,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    END,
    LAST_OFFSET_DELTA,
    NOT_APPEND_TIME,
    START,
)
from .varint_kernels import compiled, field, u8, varint, varlong

# Columns of the table of batches that `plan` makes, one row a batch, int64.
FIRST_ROW, ROWS, POSITION, SIZE, FIRST_TIMESTAMP, MAX_TIMESTAMP = range(6)
PLAN_FIELDS = 6
HEADER_BYTES = HEADER_SIZE

# Errors that `parse` returns. 0: none.
BAD_VARINT, BAD_LENGTH, BAD_OFFSET_DELTA, BAD_HEADERS, LEFT_OVER = 1, 2, 3, 4, 5

_raw_memcpy: Any = cgutils.raw_memcpy
_tuple: Any = types.Tuple
_i32 = types.Array(types.int32, 1, "C", readonly=True)
_i64 = types.Array(types.int64, 1, "C", readonly=True)
_table = types.Array(types.int64, 2, "C", readonly=True)
_u8_out = types.Array(types.uint8, 1, "C")
_i32_out = types.Array(types.int32, 1, "C")
_i64_out = types.Array(types.int64, 1, "C")
# (Arrow's offsets, data, validity bits or nothing if no row is null, bit of row 0)
_column = _tuple((_i32, u8, u8, types.int64))


def _memcpy(
    _typing: Any, target: Any, target_start: Any, source: Any, source_start: Any, size: Any
) -> Any:
    """Copy `size` bytes with the C library's memcpy."""
    signature = types.void(target, target_start, source, source_start, size)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = []
        for array, start in ((0, 1), (2, 3)):
            struct = context.make_array(signature.args[array])(context, builder, arguments[array])
            pointers.append(builder.gep(struct.data, [arguments[start]]))
        _raw_memcpy(builder, pointers[0], pointers[1], arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


_copy: Any = intrinsic(_memcpy)


@compiled(
    types.int64(
        u8, _table, types.int64, types.int64,
        _i64_out, _i64_out, _i32_out, _i32_out, _u8_out, _i32_out, _i32_out, _u8_out,
        _i32_out, _i32_out, _i64_out, _i64_out,
    )
)  # fmt: skip
def parse(
    source: Any, batches: Any, fetch_offset: int, end_offset: int,
    offsets: Any, timestamps: Any,
    key_starts: Any, key_ends: Any, key_valid: Any,
    value_starts: Any, value_ends: Any, value_valid: Any,
    header_starts: Any, header_ends: Any,
    rows_per_batch: Any, result: Any,
) -> Any:  # fmt: skip
    """Find every record of `batches` in `source` whose offset is in [fetch_offset, end_offset).

    Fills one row a record: offset, timestamp, where key, value and headers start in `source`, and
    Arrow's offsets (`…_ends`, one entry longer) and validity bits of keys and values.
    `result` gets rows, null keys, null values, headers. Returns 0, or one of the errors above.
    """
    row, null_keys, null_values, headers = 0, 0, 0, 0
    key_end, value_end = 0, 0
    key_ends[0] = 0
    value_ends[0] = 0
    header_ends[0] = 0
    for batch in range(len(batches)):
        first_row = row
        position, end = batches[batch, START], batches[batch, END]
        base_offset, last_delta = batches[batch, BASE_OFFSET], batches[batch, LAST_OFFSET_DELTA]
        base_timestamp, append_time = batches[batch, BASE_TIMESTAMP], batches[batch, APPEND_TIME]
        previous_delta = -1
        for _ in range(batches[batch, COUNT]):
            length, position = varint(source, position, end)
            if position < 0:
                return BAD_VARINT
            record_end = position + length
            if length < 1 or record_end > end:
                return BAD_LENGTH
            timestamp_delta, position = varlong(source, position + 1, record_end)
            if position < 0:
                return BAD_VARINT
            offset_delta, position = varint(source, position, record_end)
            if position < 0:
                return BAD_VARINT
            if offset_delta <= previous_delta or offset_delta > last_delta:
                return BAD_OFFSET_DELTA
            previous_delta = offset_delta
            key_length, key_start = field(source, position, record_end)
            if key_start < 0:
                return BAD_LENGTH
            position = key_start + max(key_length, 0)
            value_length, value_start = field(source, position, record_end)
            if value_start < 0:
                return BAD_LENGTH
            position = value_start + max(value_length, 0)
            header_count, position = varint(source, position, record_end)
            if position < 0:
                return BAD_VARINT
            if header_count < 0 or header_count * 2 > record_end - position:
                return BAD_HEADERS
            header_start = position
            for piece in range(2 * header_count):
                length, position = field(source, position, record_end)
                if position < 0 or (length < 0 and piece & 1 == 0):
                    return BAD_HEADERS
                position += max(length, 0)
            if position != record_end:
                return LEFT_OVER
            offset = base_offset + offset_delta
            if offset < fetch_offset or offset >= end_offset:
                continue
            offsets[row] = offset
            timestamps[row] = (
                base_timestamp + timestamp_delta if append_time == NOT_APPEND_TIME else append_time
            )
            key_starts[row] = key_start
            value_starts[row] = value_start
            header_starts[row] = header_start
            if key_length >= 0:
                key_end += key_length
                key_valid[row >> 3] |= np.uint8(1 << (row & 7))
            else:
                null_keys += 1
            if value_length >= 0:
                value_end += value_length
                value_valid[row >> 3] |= np.uint8(1 << (row & 7))
            else:
                null_values += 1
            headers += header_count
            row += 1
            key_ends[row] = key_end
            value_ends[row] = value_end
            header_ends[row] = headers
        if position != end:
            return LEFT_OVER
        rows_per_batch[batch] = row - first_row
    result[0], result[1], result[2], result[3] = row, null_keys, null_values, headers
    return 0


@compiled(types.void(u8, _i32, _i32, _u8_out))
def gather(source: Any, starts: Any, ends: Any, target: Any) -> None:
    """Copy row i from starts[i] of `source` to [ends[i], ends[i + 1]) of `target`."""
    for row in range(len(ends) - 1):
        size = ends[row + 1] - ends[row]
        if size:
            _copy(target, ends[row], source, starts[row], size)


@compiled(types.void(u8, _i32, _i32, types.int64, _i32_out, _i32_out, _i32_out, _i32_out, _u8_out))
def parse_headers(
    source: Any, header_starts: Any, header_ends: Any, source_end: int,
    key_starts: Any, key_ends: Any, value_starts: Any, value_ends: Any, value_valid: Any,
) -> None:  # fmt: skip
    """Parse headers that `parse` has validated, one row each."""
    key_end, value_end = 0, 0
    key_ends[0] = 0
    value_ends[0] = 0
    for record in range(len(header_starts)):
        position = np.int64(header_starts[record])
        for row in range(header_ends[record], header_ends[record + 1]):
            length, position = field(source, position, source_end)
            key_starts[row] = position
            key_end += length
            key_ends[row + 1] = key_end
            length, position = field(source, position + length, source_end)
            value_starts[row] = position
            if length >= 0:
                value_end += length
                position += length
                value_valid[row >> 3] |= np.uint8(1 << (row & 7))
            value_ends[row + 1] = value_end


@compiled(types.int64(types.int64))
def _varint_size(value: int) -> Any:
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while zigzag > 0x7F:
        zigzag >>= np.uint64(7)
        size += 1
    return size


@compiled(types.int64(_u8_out, types.int64, types.int64))
def _write_varint(target: Any, position: int, value: int) -> Any:
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    while zigzag > 0x7F:
        target[position] = np.uint8(zigzag & np.uint64(0x7F)) | np.uint8(0x80)
        zigzag >>= np.uint64(7)
        position += 1
    target[position] = np.uint8(zigzag)
    return position + 1


@compiled(types.int64(_column, types.int64))
def _length(column: Any, row: int) -> Any:
    """Length of a row; -1 for null."""
    ends, _, valid, bit_offset = column
    if len(valid):
        bit = row + bit_offset
        if not valid[bit >> 3] >> (bit & 7) & 1:
            return -1
    return np.int64(ends[row + 1]) - np.int64(ends[row])


@compiled(types.int64(_column, types.int64))
def _field_size(column: Any, row: int) -> Any:
    length = _length(column, row)
    return _varint_size(length) + max(length, 0)


@compiled(types.int64(_u8_out, types.int64, _column, types.int64))
def _write_field(target: Any, position: int, column: Any, row: int) -> Any:
    length = _length(column, row)
    position = _write_varint(target, position, length)
    if length > 0:
        _copy(target, position, column[1], np.int64(column[0][row]), length)
        position += length
    return position


@compiled(
    types.int64(
        _column, _column, _i32, _column, _column, _i64, _i64,
        types.int64, types.int64, _i64_out, types.Array(types.int64, 2, "C"),
    )
)  # fmt: skip
def plan(
    keys: Any, values: Any, header_ends: Any, header_keys: Any, header_values: Any,
    timestamps: Any, rows: Any, max_bytes: int, max_records: int,
    sizes: Any, batches: Any,
) -> Any:  # fmt: skip
    """Cut `rows` into batches of at most `max_bytes` and `max_records`, at least one record each.

    Fills `sizes` (bytes of each record after its length) and a row of `batches` for each batch.
    Returns how many there are.
    """
    batch = -1
    position, size, count, base_timestamp = 0, 0, 0, 0
    for index in range(len(rows)):
        row = rows[index]
        timestamp = timestamps[row]
        fixed = 1 + _field_size(keys, row) + _field_size(values, row)
        if len(header_ends):
            first, last = header_ends[row], header_ends[row + 1]
            fixed += _varint_size(last - first)
            for header in range(first, last):
                fixed += _field_size(header_keys, header) + _field_size(header_values, header)
        else:
            fixed += 1
        body = fixed + _varint_size(timestamp - base_timestamp) + _varint_size(count)
        whole = body + _varint_size(body)
        if batch < 0 or size + whole > max_bytes or count == max_records:
            body = fixed + 2  # a batch begins: both deltas are 0
            whole = body + _varint_size(body)
            batch += 1
            position += size
            size, count, base_timestamp = HEADER_BYTES, 0, timestamp
            batches[batch, FIRST_ROW] = index
            batches[batch, POSITION] = position
            batches[batch, FIRST_TIMESTAMP] = timestamp
            batches[batch, MAX_TIMESTAMP] = timestamp
        sizes[index] = body
        size += whole
        count += 1
        batches[batch, ROWS] = count
        batches[batch, SIZE] = size
        batches[batch, MAX_TIMESTAMP] = max(batches[batch, MAX_TIMESTAMP], timestamp)
    return batch + 1


@compiled(types.void(_column, _column, _i32, _column, _column, _i64, _i64, _i64, _table, _u8_out))
def write(
    keys: Any, values: Any, header_ends: Any, header_keys: Any, header_values: Any,
    timestamps: Any, rows: Any, sizes: Any, batches: Any, target: Any,
) -> None:  # fmt: skip
    """Write the records of the batches that `plan` has cut, leaving room for each batch header."""
    for batch in range(len(batches)):
        first, count = batches[batch, FIRST_ROW], batches[batch, ROWS]
        position = batches[batch, POSITION] + HEADER_BYTES
        base_timestamp = batches[batch, FIRST_TIMESTAMP]
        for delta in range(count):
            row = rows[first + delta]
            position = _write_varint(target, position, sizes[first + delta])
            target[position] = 0
            position = _write_varint(target, position + 1, timestamps[row] - base_timestamp)
            position = _write_varint(target, position, delta)
            position = _write_field(target, position, keys, row)
            position = _write_field(target, position, values, row)
            if len(header_ends):
                header, last = header_ends[row], header_ends[row + 1]
                position = _write_varint(target, position, last - header)
                for index in range(header, last):
                    position = _write_field(target, position, header_keys, index)
                    position = _write_field(target, position, header_values, index)
            else:
                target[position] = 0
                position += 1


@compiled(types.void(_column, _i32_out))
def murmur2(column: Any, hashes: Any) -> None:
    """Compute Kafka's toPositive(murmur2(key)) of each row, -1 for null (see partitioner)."""
    data = column[1]
    mask, multiplier = np.uint64(0xFFFFFFFF), np.uint64(0x5BD1E995)
    for row in range(len(hashes)):
        length = _length(column, row)
        if length < 0:
            hashes[row] = -1
            continue
        position = np.int64(column[0][row])
        value = np.uint64(0x9747B28C) ^ np.uint64(length)
        for _ in range(length >> 2):
            word = (
                np.uint64(data[position])
                | np.uint64(data[position + 1]) << np.uint64(8)
                | np.uint64(data[position + 2]) << np.uint64(16)
                | np.uint64(data[position + 3]) << np.uint64(24)
            )
            word = (word * multiplier) & mask
            word = ((word ^ (word >> np.uint64(24))) * multiplier) & mask
            value = ((value * multiplier) & mask) ^ word
            position += 4
        rest = length & 3
        if rest:
            if rest == 3:
                value ^= np.uint64(data[position + 2]) << np.uint64(16)
            if rest >= 2:
                value ^= np.uint64(data[position + 1]) << np.uint64(8)
            value = ((value ^ np.uint64(data[position])) * multiplier) & mask
        value = ((value ^ (value >> np.uint64(13))) * multiplier) & mask
        hashes[row] = np.int32((value ^ (value >> np.uint64(15))) & np.uint64(0x7FFFFFFF))


@compiled(types.boolean(_i32, _i64_out, _i64_out))
def group(partitions: Any, order: Any, ends: Any) -> bool:
    """Order rows by partition, stably: those of p are order[ends[p]:ends[p + 1]].

    `ends`: zeros, one more than there are partitions. Returns False if a partition is out of range.
    """
    count = len(ends) - 1
    for row in range(len(partitions)):
        if partitions[row] < 0 or partitions[row] >= count:
            return False
        ends[partitions[row] + 1] += 1
    for partition in range(count):
        ends[partition + 1] += ends[partition]
    following = ends[:-1].copy()
    for row in range(len(partitions)):
        partition = partitions[row]
        order[following[partition]] = row
        following[partition] += 1
    return True
