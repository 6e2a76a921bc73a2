"""Conversion of tables to arrays and rows for training loops.

Numbers become NumPy arrays, without a copy where possible; text and bytes become object arrays; a
struct becomes a dict of its fields; a column of lists of equally many numbers becomes a matrix.
Views of bytes become an array of uint8 each, on the same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.columns.value_views import take_views, views_of


def arrays_of(table: pa.Table) -> dict[str, Any]:
    """Arrays of a table, by column name."""
    return {name: _array(table.column(name)) for name in table.column_names}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts of Python objects; views of bytes as in `arrays_of`."""
    views = {
        name: _array(table.column(name))
        for name, of_type in zip(table.column_names, table.schema.types, strict=True)
        if pa.types.is_binary_view(of_type)
    }
    if not views:
        return table.to_pylist()  # type: ignore[no-any-return]
    rows = table.drop_columns(list(views)).to_pylist() or [{} for _ in range(len(table))]
    return [
        {name: views[name][number] if name in views else row[name] for name in table.column_names}
        for number, row in enumerate(rows)
    ]


def take_rows(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Table of these rows, given by number, in this order."""
    order = pa.array(rows)
    return pa.table(
        {
            name: take_views(_one_chunk(table.column(name)), rows)
            if pa.types.is_binary_view(of_type)
            else table.column(name).take(order)
            for name, of_type in zip(table.column_names, table.schema.types, strict=True)
        }
    )


def _one_chunk(column: pa.ChunkedArray) -> Any:
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    return array


def _array(column: pa.ChunkedArray) -> Any:
    array = _one_chunk(column)
    of_type = array.type
    if pa.types.is_binary_view(of_type):
        return views_of(array)
    if pa.types.is_struct(of_type):
        return {
            of_type.field(place).name: _array(pa.chunked_array([field]))
            for place, field in enumerate(array.flatten())
        }
    if _is_list(of_type) and not array.null_count and len(array):
        lengths = pc.list_value_length(array)
        shortest, longest = pc.min_max(lengths).as_py().values()
        if shortest == longest and longest:
            numbers = array.flatten().to_numpy(zero_copy_only=False)
            return numbers.reshape(len(array), longest)
    found: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    return found if found.flags.writeable or found.dtype == object else found.copy()


def _is_list(of_type: pa.DataType) -> bool:
    """Whether a type is a list of numbers."""
    types = pa.types
    if not (types.is_list(of_type) or types.is_large_list(of_type)):
        return bool(types.is_fixed_size_list(of_type) and _is_number(of_type.value_type))
    return _is_number(of_type.value_type)


def _is_number(of_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of_type) or pa.types.is_floating(of_type))
