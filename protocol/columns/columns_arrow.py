"""Columns of records as Arrow arrays and numpy buffers: shapes, types and conversions.

    offset     int64                     as numpy inside, so that a caller can add and compare
    timestamp  int64 ms since 1970       as numpy inside; timestamp[ms, UTC] in a table
    key, value binary                    Arrow's offsets are int32: below 2 GiB a column
    headers    list<struct<key: string, value: binary>>

Invariants:
    arrays made here own their memory: the buffer that records were parsed from may be reused.

`pa.array(list)`, `pa.scalar` and `to_numpy` are called only where unavoidable: the first call of
any of them imports pandas, which takes most of a second.

Not here: records as bytes (columns_plain, columns_compiled).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import MessageTooLarge
from ..records.records import Headers

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS_TYPE = pa.list_(HEADER_TYPE)
TIMESTAMP_TYPE = pa.timestamp("ms", "UTC")
MAX_COLUMN_BYTES = 2**31 - 1

# Columns of a decoder's input, the table of batches: one row a batch, int64.
START, END, COUNT, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, APPEND_TIME = range(7)
NOT_APPEND_TIME = -(2**63)
"""Value in the APPEND_TIME column if the records have their own timestamps."""

_NO_BYTES: Bytes = np.empty(0, np.uint8)
_ONE_OFFSET: Int32s = np.zeros(1, np.int32)


class ParsedRecords(NamedTuple):
    """Records of batches, as a decoder returns them. `headers` is None if no record has any."""

    offsets: Int64s
    timestamps: Int64s
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    rows_per_batch: Int64s


class HeaderColumns(NamedTuple):
    """Headers of all records, one row each; record i has rows [ends[i], ends[i + 1])."""

    ends: Int32s
    keys: pa.Array
    values: pa.Array


class RecordColumns(NamedTuple):
    """Input of an encoder: columns of one length, keys and values of type binary."""

    keys: pa.Array
    values: pa.Array
    timestamps: Int64s
    headers: HeaderColumns | None


class RecordRun(NamedTuple):
    """Rows that become one batch, encoded at [start, end) of a buffer."""

    start: int
    end: int
    record_count: int
    base_timestamp: int
    max_timestamp: int


class EncodedRuns(NamedTuple):
    """Output of an encoder: runs in one buffer, HEADER_SIZE free bytes in front of each."""

    buffer: bytearray
    runs: list[RecordRun]


class ColumnBuffers(NamedTuple):
    """Buffers of a binary column, for the kernels. `valid` is empty if no row is null."""

    ends: Int32s
    data: Bytes
    valid: Bytes
    bit_offset: int


def record_columns(
    keys: pa.Array | None,
    values: pa.Array | None,
    timestamps: Int64s | pa.Array | int,
    headers: pa.Array | None = None,
) -> RecordColumns:
    """Columns for an encoder, from a caller's columns.

    Args:
        keys, values: binary, string, their large, view, dictionary and fixed-size forms, Arrow's
            null type, chunked or not; None for null in every row (not for both).
        timestamps: ms since 1970, one a row or one for all; a timestamp column of any unit too.
        headers: list<struct<key: string, value: binary>>; None, or null in a row, for no headers.

    Raises:
        ValueError: lengths differ, a timestamp is null, or a header has no key.
        MessageTooLarge: a column has 2 GiB or more; pass it in slices.
    """
    given = keys if keys is not None else values
    if given is None:
        raise ValueError("records need keys or values")
    row_count = len(given)
    columns = RecordColumns(
        _binary(keys, row_count),
        _binary(values, row_count),
        _milliseconds(timestamps, row_count),
        _headers(headers),
    )
    for column in (columns.keys, columns.values, columns.timestamps, headers):
        if column is not None and len(column) != row_count:
            raise ValueError(f"columns of {row_count} and {len(column)} rows")
    return columns


def buffers_of(array: pa.Array) -> ColumnBuffers:
    """Buffers of a binary or string array, or of a slice of one. Not copied, unless misaligned."""
    valid, ends, data = array.buffers()
    first, last = array.offset, array.offset + len(array) + 1
    return ColumnBuffers(
        _ONE_OFFSET if not len(array) else _numbers(ends)[first:last],
        _NO_BYTES if data is None else np.frombuffer(data, np.uint8),
        _NO_BYTES if valid is None or not array.null_count else np.frombuffer(valid, np.uint8),
        first,
    )


def binary_array(ends: Int32s, data: Bytes, valid: Bytes, null_count: int) -> pa.Array:
    """A binary array over these buffers; `ends` has one more entry than there are rows."""
    bits = pa.py_buffer(valid) if null_count else None
    buffers = [bits, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers, null_count)


def binary_of(items: Sequence[bytes | None]) -> pa.Array:
    """Binary array of the items. Cost: 50 ns an item, 100 ns if one is None.

    Raises:
        TypeError: an item is neither bytes nor None.
        MessageTooLarge: they have 2 GiB or more together.
    """
    valid, null_count = _NO_BYTES, 0
    if None in items:
        present = np.fromiter((item is not None for item in items), np.bool_, len(items))
        valid = np.packbits(present, bitorder="little")
        null_count = len(items) - int(np.count_nonzero(present))
        items = [item or b"" for item in items]
    ends = np.zeros(len(items) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, items), np.int64, len(items)), out=ends[1:])  # type: ignore[arg-type]
    if ends[-1] > MAX_COLUMN_BYTES:
        raise MessageTooLarge(f"a column of {ends[-1]} bytes is 2 GiB or more")
    data = np.frombuffer(b"".join(items), np.uint8)  # type: ignore[arg-type]
    if len(data) != ends[-1]:
        raise TypeError("an item is not bytes: its length is not its size")  # a typed view
    return binary_array(ends.astype(np.int32), data, valid, null_count)


def headers_of(rows: Sequence[Headers | None]) -> pa.Array | None:
    """Lists of headers, one list for each row; None if no row has any.

    Raises:
        TypeError: a key is not text or a value neither bytes nor None.
    """
    headers = [header for row in rows if row for header in row]
    if not headers:
        return None
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.fromiter((len(row or ()) for row in rows), np.int32, len(rows)), out=ends[1:])
    keys = binary_of([str.encode(key) for key, _ in headers])
    return headers_array(ends, keys, binary_of([value for _, value in headers]))


def headers_array(ends: Int32s, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Lists of headers; `ends` has one more entry than there are records.

    Bytes of a key that are not UTF-8 become U+FFFD, as in Java's consumer: brokers store any bytes.
    """
    try:
        names = keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [key.decode(errors="replace") for key in keys.to_pylist()]
        names = pa.array(texts, pa.string())
    structs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    buffers = [None, pa.py_buffer(ends)]
    return pa.Array.from_buffers(HEADERS_TYPE, len(ends) - 1, buffers, 0, 0, [structs])


def empty_headers(row_count: int) -> pa.Array:
    """Array with an empty list for each row."""
    ends: Int32s = np.zeros(row_count + 1, np.int32)
    return headers_array(ends, pa.nulls(0, pa.binary()), pa.nulls(0, pa.binary()))


def number_array(numbers: Int64s | Int32s, of_type: pa.DataType) -> pa.Array:
    """Array of the numbers, of a type of their width, without nulls. Nothing is copied."""
    return pa.Array.from_buffers(of_type, len(numbers), [None, pa.py_buffer(numbers)], 0)


def constant_text(text: str, row_count: int) -> pa.Array:
    """String array with `text` in each row. Cost: a memcpy of len(text) bytes a row."""
    data = text.encode()
    ends = np.arange(0, (row_count + 1) * len(data) or 1, len(data) or 1, dtype=np.int32)
    if not data:
        ends = np.zeros(row_count + 1, np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * row_count)]
    return pa.Array.from_buffers(pa.string(), row_count, buffers, 0)


def _one_chunk(array: Any) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        if array.nbytes > MAX_COLUMN_BYTES:
            raise MessageTooLarge(f"a column of {array.nbytes} bytes is 2 GiB or more")
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # as older releases of pyarrow return
            array = array.chunk(0) if array.num_chunks else pa.nulls(0, array.type)
    return array


def _binary(array: Any, row_count: int) -> pa.Array:
    if array is None:
        return pa.nulls(row_count, pa.binary())
    array = _one_chunk(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_binary(array.type):
        return array
    try:
        return array.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise MessageTooLarge(f"a column is 2 GiB or more: {error}") from None
    except pa.ArrowNotImplementedError:
        raise ValueError(f"keys and values are binary or string, not {array.type}") from None


def _milliseconds(timestamps: Any, row_count: int) -> Int64s:
    if isinstance(timestamps, int | np.integer):
        return np.full(row_count, timestamps, np.int64)
    if isinstance(timestamps, pa.Array | pa.ChunkedArray):
        array = _one_chunk(timestamps)
        if array.null_count:
            raise ValueError("a timestamp is null")
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
        array = array.cast(pa.int64())
        _, buffer = array.buffers()
        timestamps = np.frombuffer(buffer, np.int64)[array.offset : array.offset + len(array)]
    numbers = np.asarray(timestamps)
    if numbers.dtype.kind == "M":
        numbers = numbers.astype("datetime64[ms]")
    elif numbers.dtype.kind not in "iu" and len(numbers):
        raise ValueError(f"timestamps are whole milliseconds, not {numbers.dtype}")
    milliseconds: Int64s = np.ascontiguousarray(numbers.astype(np.int64, copy=False))
    return milliseconds if milliseconds.flags.aligned else milliseconds.copy()


def _numbers(buffer: pa.Buffer) -> Int32s:
    """Aligned numbers in memory, as the kernels need: memory from the wire may begin at any
    address.
    """
    numbers: Int32s = np.frombuffer(buffer, np.int32)
    return numbers if numbers.flags.aligned else numbers.copy()


def _headers(headers: Any) -> HeaderColumns | None:
    if headers is None:
        return None
    array = _one_chunk(headers)
    if array.null_count == len(array):
        return None
    if array.type != HEADERS_TYPE:
        try:
            array = array.cast(HEADERS_TYPE)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise ValueError(
                f"headers are map<string, binary> or {HEADERS_TYPE}, not {array.type}"
            ) from None
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    ends = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    keys, values = array.flatten().flatten()
    if keys.null_count:
        raise ValueError("a record header has no key")
    return HeaderColumns(ends, keys, values) if len(keys) else None
