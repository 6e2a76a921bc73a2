"""Records <-> Arrow columns without the kernels: the counterpart of columns_compiled.

It is used until the kernels are loaded, while a process handles few records. One record at a time,
in plain Python, it is the tests' oracle of the kernels, and of columns_arrays_decode and
columns_arrays_encode, which it calls for more than a few records.
Cost: 0.5-1 us a record; 3 us to encode one and 5-8 us to decode one where there are few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .. import kernel_loading
from ..partitioner import murmur2, to_positive
from ..records.record_batch import HEADER_SIZE
from ..records.records import Headers, encode_record, parse_records, wrap_int64
from . import columns_arrays_decode, columns_arrays_encode
from .columns_arrow import (
    APPEND_TIME,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    END,
    LAST_OFFSET_DELTA,
    NOT_APPEND_TIME,
    START,
    Bytes,
    EncodedRuns,
    HeaderColumns,
    Int32s,
    Int64s,
    ParsedRecords,
    RecordColumns,
    RecordRun,
    binary_of,
    headers_of,
    number_array,
)
from .value_views import view_array


def decode_records(
    source: Bytes,
    batches: Int64s,
    *,
    fetch_offset: int,
    end_offset: int,
    value_views: bool = False,
) -> ParsedRecords:
    """Decode records; see columns_compiled.decode_records."""
    if int(batches[:, COUNT].sum()) >= kernel_loading.ARRAYS_PAY:
        parsed = columns_arrays_decode.decode_records(
            source,
            batches,
            fetch_offset=fetch_offset,
            end_offset=end_offset,
            value_views=value_views,
        )
        if parsed is not None:
            return parsed
    return _decode_each(source, batches, fetch_offset, end_offset, value_views)


def _decode_each(
    source: Bytes, batches: Int64s, fetch_offset: int, end_offset: int, value_views: bool
) -> ParsedRecords:
    view = source.data
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    rows_per_batch: list[int] = []
    for batch in batches.tolist():
        first_row = len(offsets)
        records = view[batch[START] : batch[END]]
        append_time = batch[APPEND_TIME]
        for record in parse_records(
            records, batch[COUNT], batch[LAST_OFFSET_DELTA], copy=not value_views
        ):
            offset = batch[BASE_OFFSET] + record.offset_delta
            if not fetch_offset <= offset < end_offset:
                continue
            offsets.append(offset)
            timestamps.append(
                wrap_int64(batch[BASE_TIMESTAMP] + record.timestamp_delta)
                if append_time == NOT_APPEND_TIME
                else append_time
            )
            keys.append(record.key)
            values.append(record.value)
            headers.append(record.headers)
        rows_per_batch.append(len(offsets) - first_row)
    return ParsedRecords(
        np.array(offsets, np.int64),
        np.array(timestamps, np.int64),
        binary_of(keys),
        _views_of(values, source) if value_views else binary_of(values),
        headers_of(headers),
        np.array(rows_per_batch, np.int64),
    )


def _views_of(values: Sequence[bytes | None], source: Bytes) -> pa.Array:
    """Array of values. values: memoryviews of parts of `source`."""
    first = _address(source)
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    sizes = np.fromiter((len(value or b"") for value in values), np.int32, len(values))
    starts = np.fromiter(
        (_address(np.frombuffer(value, np.uint8)) - first if value else 0 for value in values),
        np.int32,
        len(values),
    )
    null_count = len(values) - int(np.count_nonzero(present))
    return view_array(source, starts, sizes, np.packbits(present, bitorder="little"), null_count)


def _address(array: Bytes) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def encode_rows(
    columns: RecordColumns, rows: Int64s, *, max_bytes: int, max_records: int
) -> EncodedRuns:
    """Encode rows; see columns_compiled.encode_rows."""
    if len(rows) >= 2 * kernel_loading.ARRAYS_PAY:  # encoding takes twice the steps of decoding
        encoded = columns_arrays_encode.encode_rows(
            columns, rows, max_bytes=max_bytes, max_records=max_records
        )
        if encoded is not None:
            return encoded
    taken = number_array(rows, pa.int64())
    keys, values = columns.keys.take(taken).to_pylist(), columns.values.take(taken).to_pylist()
    timestamps = columns.timestamps[rows].tolist()
    headers = _header_pairs(columns.headers, rows)
    buffer = bytearray()
    runs: list[RecordRun] = []
    start, count, base, latest = 0, 0, 0, 0
    for timestamp, *rest in zip(timestamps, keys, values, headers, strict=True):
        record = encode_record(wrap_int64(timestamp - base), count, *rest)
        if not count or len(buffer) - start + len(record) > max_bytes or count == max_records:
            if count:
                runs.append(RecordRun(start + HEADER_SIZE, len(buffer), count, base, latest))
            start, count, base, latest = len(buffer), 0, timestamp, timestamp
            buffer += bytes(HEADER_SIZE)
            record = encode_record(0, 0, *rest)
        buffer += record
        count += 1
        latest = max(latest, timestamp)
    if count:
        runs.append(RecordRun(start + HEADER_SIZE, len(buffer), count, base, latest))
    return EncodedRuns(buffer, runs)


def hash_keys(keys: pa.Array) -> Int32s:
    """Hash keys; see columns_compiled.hash_keys."""
    if len(keys) >= kernel_loading.ARRAYS_PAY:
        found = columns_arrays_encode.hash_keys(keys)
        if found is not None:
            return found
    hashes = [-1 if key is None else to_positive(murmur2(key)) for key in keys.to_pylist()]
    return np.array(hashes, np.int32)


def group_rows(partitions: Int32s, partition_count: int) -> tuple[Int64s, Int64s]:
    """Group rows; see columns_compiled.group_rows."""
    if len(partitions) and not 0 <= partitions.min() <= partitions.max() < partition_count:
        raise ValueError(f"a partition is not in [0, {partition_count})")
    order = np.argsort(partitions, kind="stable").astype(np.int64)
    counts = np.bincount(partitions, minlength=partition_count)
    return order, np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def _header_pairs(headers: HeaderColumns | None, rows: Int64s) -> list[Headers]:
    if headers is None:
        return [()] * len(rows)
    pairs = list(zip(headers.keys.to_pylist(), headers.values.to_pylist(), strict=True))
    return [pairs[headers.ends[row] : headers.ends[row + 1]] for row in rows]
