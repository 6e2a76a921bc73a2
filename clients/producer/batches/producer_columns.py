"""Data of `send_batch` as columns for the encoder, in pieces of bounded size.

As in columns_arrow, Python values are converted to Arrow only if necessary: that imports pandas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....protocol.columns.columns_arrow import binary_of, buffers_of, record_columns
from .accumulator import RECORD_OVERHEAD, Columns

_TABLE_BYTES: Final = 512 * 1024 * 1024


def columns_of(
    table: Any,
    *,
    key: str,
    value: str,
    partition: int | str | None,
    timestamp: str,
    headers: str,
    now_ms: int,
) -> Columns:
    """The columns of `table`: see Producer.send_batch.

    Raises:
        ValueError: a column is missing, or of a type that cannot be sent.
    """
    if value not in table.column_names:
        raise ValueError(f"there is no column {value!r} among {table.column_names}; use value=")
    if isinstance(partition, str) and partition not in table.column_names:
        raise ValueError(f"there is no column {partition!r} for the partition")
    count = table.num_rows

    def column(name: str) -> Any:
        return table.column(name) if name in table.column_names else None

    times, pairs = column(timestamp), column(headers)
    if times is not None and times.null_count:
        times = pc.fill_null(times, _moment(now_ms, times.type))
    rows = record_columns(
        column(key),
        column(value),
        now_ms if times is None else times,
        pairs,
    )
    keys = None if rows.keys.null_count == count else rows.keys
    if rows.headers is None:
        pairs = None
    elif isinstance(pairs, pa.ChunkedArray):
        pairs = pairs.combine_chunks()
    return Columns(keys, rows.values, rows.timestamps, pairs, _partitions(table, partition), 0)


def tables_of(data: Any, *, key: str, value: str) -> Iterator[Any]:
    """`data` as tables whose columns each fit in the 2 GiB that Arrow's binary type holds.

    Raises:
        ValueError: it is neither a table nor a list of values or pairs.
    """
    table = _table_of(data, key, value)
    rows = max(1, table.num_rows * _TABLE_BYTES // max(1, table.nbytes))
    for start in range(0, max(1, table.num_rows), rows):
        yield table.slice(start, rows)


def pieces_of(columns: Columns, max_bytes: int) -> Iterator[Columns]:
    """Slices of about `max_bytes`, in order; their `size` counts against `buffer_memory`."""
    count = len(columns.values)
    sizes: npt.NDArray[np.int64] = np.full(count, RECORD_OVERHEAD, np.int64)
    for array in (columns.keys, columns.values):
        if array is not None:
            sizes += np.diff(buffers_of(array).ends)
    if columns.headers is not None:
        sizes += max(1, columns.headers.nbytes // max(1, count))
    ends = np.cumsum(sizes)
    start = 0
    while start < count:
        done = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, done + max_bytes, side="right")))
        yield Columns(
            None if columns.keys is None else columns.keys.slice(start, end - start),
            columns.values.slice(start, end - start),
            columns.timestamps[start:end],
            None if columns.headers is None else columns.headers.slice(start, end - start),
            None if columns.partitions is None else columns.partitions[start:end],
            int(ends[end - 1]) - done,
        )
        start = end


def _table_of(data: Any, key: str, value: str) -> Any:
    if isinstance(data, pa.RecordBatch | pa.Table):
        return data
    if not isinstance(data, list | tuple):
        raise ValueError(  # noqa: TRY004 -- one kind of error for whatever is wrong with the data
            f"send_batch takes a pyarrow Table, RecordBatch or a list, not {type(data).__name__}"
        )
    try:
        if data and isinstance(data[0], tuple):
            keys, values = zip(*data, strict=True)
            return pa.table({key: _array_of(keys), value: _array_of(values)})
        return pa.table({value: _array_of(data)})
    except TypeError as error:
        raise ValueError(f"keys and values are all bytes or all str: {error}") from None


def _array_of(values: Sequence[Any]) -> pa.Array:
    """Make an array without pa.array, whose first call imports pandas."""
    try:
        return binary_of(values)
    except TypeError:  # probably there are str values
        return binary_of([one.encode() if isinstance(one, str) else one for one in values])


def _moment(now_ms: int, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.scalar(now_ms, pa.timestamp("ms", kind.tz)).cast(kind)
    return pa.scalar(now_ms, kind)


def _partitions(table: Any, partition: int | str | None) -> npt.NDArray[np.int32] | None:
    if partition is None:
        return None
    if isinstance(partition, int):
        return np.full(table.num_rows, partition, np.int32)
    column = pc.fill_null(table.column(partition).cast(pa.int32()), -1)
    numbers: npt.NDArray[np.int32] = np.asarray(column.to_numpy(), np.int32)
    return numbers
