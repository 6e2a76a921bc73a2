"""Values as views of the received bytes: Arrow's binary_view, for large ones.

Invariants:
    an array made here references the buffer that its records were parsed from.

Not here: their use (decode_batches with `value_views`); columns that are copied (columns_arrow).
Source of the layout: Arrow's columnar format, "Variable-size Binary View Layout".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .columns_arrow import Bytes, Int32s, Int64s

# Arrow's view of one value: a short value itself; of a longer one the prefix and the position.
INLINE_BYTES = 12
VIEW = np.dtype(
    [("size", np.int32), ("prefix", np.uint8, 4), ("buffer", np.int32), ("offset", np.int32)]
)


def view_array(
    source: Bytes, starts: Int32s, sizes: Int32s, valid: Bytes, null_count: int
) -> pa.Array:
    """binary_view array of parts of `source`, which it references. Values over 12 bytes: no copy.

    sizes: 0 where a row is null.
    """
    views = np.zeros(len(sizes), VIEW)
    views["size"] = sizes
    far = np.flatnonzero(sizes > INLINE_BYTES)
    places = starts[far].astype(np.int64)
    views["offset"][far] = places
    views["prefix"][far] = source[places[:, None] + np.arange(4)]
    near = np.flatnonzero((sizes > 0) & (sizes <= INLINE_BYTES))
    if len(near):
        columns = np.arange(INLINE_BYTES)
        of_row = columns < sizes[near][:, None]
        places = np.minimum(starts[near].astype(np.int64)[:, None] + columns, len(source) - 1)
        content = views.view(np.uint8).reshape(len(sizes), VIEW.itemsize)
        content[near, 4:] = np.where(of_row, source[places], 0)
    bits = pa.py_buffer(valid) if null_count else None
    buffers = [bits, pa.py_buffer(views), pa.py_buffer(source)]
    return pa.Array.from_buffers(pa.binary_view(), len(sizes), buffers, null_count)


def views_of(array: pa.Array) -> Any:
    """Values of a binary_view array: an object array of read-only arrays of uint8, or None.

    Nothing is copied, and each value references its memory. Cost: 1 us a value.
    """
    _, content, *buffers = array.buffers()
    memory = [np.frombuffer(buffer, np.uint8) for buffer in (content, *buffers)]
    for one in memory:
        one.flags.writeable = False
    views = _views(array)
    is_inline = views["size"] <= INLINE_BYTES
    inline_starts = (array.offset + np.arange(len(array))) * VIEW.itemsize + 4
    places = zip(
        np.where(is_inline, 0, views["buffer"] + 1).tolist(),
        np.where(is_inline, inline_starts, views["offset"]).tolist(),
        views["size"].tolist(),
        _present(array).tolist(),
        strict=True,
    )
    found = np.empty(len(array), np.object_)
    for row, (buffer, start, size, is_present) in enumerate(places):
        if is_present:
            found[row] = memory[buffer][start : start + size]
    return found


def take_views(array: pa.Array, rows: Int64s) -> pa.Array:
    """Rows of a binary_view array: `array.take`, missing in Arrow for views. No value is copied."""
    present = _present(array)[rows]
    buffers = [pa.py_buffer(_views(array)[rows]), *array.buffers()[2:]]
    null_count = len(rows) - int(np.count_nonzero(present))
    bits = pa.py_buffer(np.packbits(present, bitorder="little")) if null_count else None
    return pa.Array.from_buffers(pa.binary_view(), len(rows), [bits, *buffers], null_count)


def _views(array: pa.Array) -> npt.NDArray[np.void]:
    return np.frombuffer(array.buffers()[1], VIEW)[array.offset : array.offset + len(array)]


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Mask of the rows that are not null."""
    valid = array.buffers()[0]
    if valid is None:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)
