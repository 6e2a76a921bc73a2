"""Records <-> Arrow columns with the compiled loops. The counterpart of columns_plain.

Importing it compiles or loads the kernels (columns_kernels); columns.warm_up does that.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ..errors import CorruptMessage
from . import columns_kernels as kernels
from .columns_arrow import (
    COUNT,
    Bytes,
    ColumnBuffers,
    EncodedRuns,
    Int32s,
    Int64s,
    ParsedRecords,
    RecordColumns,
    RecordRun,
    binary_array,
    buffers_of,
    headers_array,
)
from .value_views import view_array

_FOUND_WRONG: Final = {
    kernels.BAD_VARINT: "a varint does not end",
    kernels.BAD_LENGTH: "a length passes the end of its record or batch",
    kernels.BAD_OFFSET_DELTA: "an offset delta does not increase or passes the batch's last",
    kernels.BAD_HEADERS: "the headers do not fit in their record",
    kernels.LEFT_OVER: "bytes are left over after a record or a batch",
}
_NO_ENDS: Int32s = np.empty(0, np.int32)
_NO_COLUMN = ColumnBuffers(np.zeros(1, np.int32), np.empty(0, np.uint8), np.empty(0, np.uint8), 0)


def decode_records(
    source: Bytes,
    batches: Int64s,
    *,
    fetch_offset: int,
    end_offset: int,
    value_views: bool = False,
) -> ParsedRecords:
    """Records of `batches`, found in `source`, with offsets in [fetch_offset, end_offset).

    value_views: the values are a binary_view array, whose memory is `source`.

    Raises:
        CorruptMessage: the records are not what the table of batches says.
    """
    count = int(batches[:, COUNT].sum())
    offsets, timestamps = np.empty(count, np.int64), np.empty(count, np.int64)
    key_starts, value_starts = np.empty(count, np.int32), np.empty(count, np.int32)
    header_starts = np.empty(count, np.int32)
    key_ends, value_ends = np.empty(count + 1, np.int32), np.empty(count + 1, np.int32)
    header_ends = np.empty(count + 1, np.int32)
    key_valid, value_valid = _no_bits(count), _no_bits(count)
    rows_per_batch = np.zeros(len(batches), np.int64)
    result = np.zeros(4, np.int64)
    wrong = kernels.parse(
        source,
        batches,
        fetch_offset,
        end_offset,
        offsets,
        timestamps,
        key_starts,
        key_ends,
        key_valid,
        value_starts,
        value_ends,
        value_valid,
        header_starts,
        header_ends,
        rows_per_batch,
        result,
    )
    if wrong:
        raise CorruptMessage(f"the records of a batch are malformed: {_FOUND_WRONG[wrong]}")
    rows, null_keys, null_values, header_count = (int(number) for number in result)
    values: pa.Array
    if value_views:
        sizes = np.diff(value_ends[: rows + 1])
        values = view_array(source, value_starts, sizes, value_valid, null_values)
    else:
        values = _gathered(source, value_starts, value_ends[: rows + 1], value_valid, null_values)
    headers = None
    if header_count:
        headers = _decode_headers(
            source, header_starts[:rows], header_ends[: rows + 1], header_count
        )
    return ParsedRecords(
        offsets[:rows],
        timestamps[:rows],
        _gathered(source, key_starts, key_ends[: rows + 1], key_valid, null_keys),
        values,
        headers,
        rows_per_batch,
    )


def encode_rows(
    columns: RecordColumns, rows: Int64s, *, max_bytes: int, max_records: int
) -> EncodedRuns:
    """Encode `rows` of `columns`, in that order, in runs of at most `max_bytes` with header."""
    keys, values = buffers_of(columns.keys), buffers_of(columns.values)
    header_ends, header_keys, header_values = _NO_ENDS, _NO_COLUMN, _NO_COLUMN
    if columns.headers is not None:
        header_ends = columns.headers.ends
        header_keys = buffers_of(columns.headers.keys)
        header_values = buffers_of(columns.headers.values)
    inputs = (
        tuple(keys),
        tuple(values),
        header_ends,
        tuple(header_keys),
        tuple(header_values),
        columns.timestamps,
        rows,
    )
    sizes = np.empty(len(rows), np.int64)
    plan = np.empty((len(rows), kernels.PLAN_FIELDS), np.int64)
    count = kernels.plan(*inputs, max_bytes, max_records, sizes, plan)
    plan = plan[:count]
    buffer = bytearray(int(plan[-1, kernels.POSITION] + plan[-1, kernels.SIZE]) if count else 0)
    kernels.write(*inputs, sizes, plan, np.frombuffer(buffer, np.uint8))
    runs = [
        RecordRun(position + kernels.HEADER_BYTES, position + size, records, base, latest)
        for _, records, position, size, base, latest in plan.tolist()
    ]
    return EncodedRuns(buffer, runs)


def hash_keys(keys: pa.Array) -> Int32s:
    """Kafka's positive murmur2 of each key; -1 for null."""
    hashes = np.empty(len(keys), np.int32)
    kernels.murmur2(tuple(buffers_of(keys)), hashes)
    return hashes


def group_rows(partitions: Int32s, partition_count: int) -> tuple[Int64s, Int64s]:
    """(rows in order of partition, stably; the start of each partition's rows, and the end).

    Raises:
        ValueError: a partition is not in [0, partition_count).
    """
    order = np.empty(len(partitions), np.int64)
    ends = np.zeros(partition_count + 1, np.int64)
    if not kernels.group(partitions, order, ends):
        raise ValueError(f"a partition is not in [0, {partition_count})")
    return order, ends


def _no_bits(count: int) -> Bytes:
    return np.zeros((count + 7) // 8, np.uint8)


def _gathered(
    source: Bytes, starts: Int32s, ends: Int32s, valid: Bytes, null_count: int
) -> pa.Array:
    data = np.empty(int(ends[-1]), np.uint8)
    kernels.gather(source, starts, ends, data)
    return binary_array(ends, data, valid, null_count)


def _decode_headers(
    source: Bytes, header_starts: Int32s, header_ends: Int32s, count: int
) -> pa.Array:
    key_starts, value_starts = np.empty(count, np.int32), np.empty(count, np.int32)
    key_ends, value_ends = np.empty(count + 1, np.int32), np.empty(count + 1, np.int32)
    valid = _no_bits(count)
    kernels.parse_headers(
        source,
        header_starts,
        header_ends,
        len(source),
        key_starts,
        key_ends,
        value_starts,
        value_ends,
        valid,
    )
    keys = _gathered(source, key_starts, key_ends, valid, 0)
    null_values = count - int(np.unpackbits(valid, count=count, bitorder="little").sum())
    values = _gathered(source, value_starts, value_ends, valid, null_values)
    return headers_array(header_ends, keys, values)
