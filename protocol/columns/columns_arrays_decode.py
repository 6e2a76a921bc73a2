"""Records -> columns by numpy, one field of all records at a time: fast without the kernels.

A loop in Python finds where each record begins, which follows from the length of the one before;
then each field is read for all records at once. Loading numba takes as long as decoding 2 million
records here. Cost: 0.5 us a record without headers, and 0.2 ms a call.

Invariants:
    the result equals that of columns_plain; for malformed bytes, or merely unusual ones (a record
    of 128 MiB, more than MOST_HEADERS headers), it is None: columns_plain then raises the error, or
    decodes them.

Not here: encoding; which calls use this module (columns_plain).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
    Int64s,
    ParsedRecords,
    headers_array,
)
from .value_views import view_array

MOST_HEADERS: Final = 16
"""Maximum headers of a record that are decoded here: each takes a pass over all records."""
_MOST_VARINT_BYTES: Final = 4
_MOST_VARLONG_BYTES: Final = 8

_Field = tuple[Int64s, Int64s]
"""Field of a column: (start of each row's bytes, its length; -1 for null)."""


class _Unusual(Exception):
    """The records need columns_plain."""


def decode_records(
    source: Bytes, batches: Int64s, *, fetch_offset: int, end_offset: int, value_views: bool
) -> ParsedRecords | None:
    """Decode records like columns_plain.decode_records; None: use that instead."""
    try:
        starts = _record_starts(source.tobytes(), batches)
        return _decode(source, batches, starts, fetch_offset, end_offset, value_views)
    except (_Unusual, IndexError):
        return None


def _record_starts(content: bytes, batches: Int64s) -> list[int]:
    """Start of every record, batch by batch. The last record must end where its batch ends."""
    starts: list[int] = []
    note = starts.append
    for batch in batches.tolist():
        position = batch[START]
        for _ in range(batch[COUNT]):
            note(position)
            length = content[position]
            position += 1
            shift = 7
            while length >> shift:  # while the high bit of the last byte is set
                if shift == 7 * _MOST_VARINT_BYTES:
                    raise _Unusual
                length += (content[position] - 1) << shift
                position += 1
                shift += 7
            position += length >> 1
        if position != batch[END]:
            raise _Unusual
    return starts


def _decode(
    source: Bytes,
    batches: Int64s,
    starts: list[int],
    fetch_offset: int,
    end_offset: int,
    value_views: bool,
) -> ParsedRecords:
    batch_of_row = np.repeat(np.arange(len(batches)), batches[:, COUNT])
    lengths, position = _varints(source, np.array(starts, np.int64), _MOST_VARINT_BYTES)
    ends = position + lengths
    _require(lengths > 0)
    timestamps, position = _varints(source, position + 1, _MOST_VARLONG_BYTES)
    deltas, position = _varints(source, position, _MOST_VARINT_BYTES)
    keys, position = _fields(source, position, ends)
    values, position = _fields(source, position, ends)
    header_counts, position = _varints(source, position, _MOST_VARINT_BYTES)
    headers = None
    if header_counts.any():
        headers, position = _header_fields(source, header_counts, position, ends)
    _require(position == ends)
    _require((deltas >= 0) & (deltas <= batches[batch_of_row, LAST_OFFSET_DELTA]))
    _require((np.diff(deltas) > 0) | (np.diff(batch_of_row) > 0))

    offsets = batches[batch_of_row, BASE_OFFSET] + deltas
    append_times = batches[batch_of_row, APPEND_TIME]
    timestamps += batches[batch_of_row, BASE_TIMESTAMP]
    timestamps = np.where(append_times == NOT_APPEND_TIME, timestamps, append_times)
    wanted = (offsets >= fetch_offset) & (offsets < end_offset)
    if not wanted.all():
        offsets, timestamps = offsets[wanted], timestamps[wanted]
        keys, values = _rows(keys, wanted), _rows(values, wanted)
        batch_of_row = batch_of_row[wanted]
        if headers is not None:
            headers = _headers_of_rows(headers, wanted)
    return ParsedRecords(
        offsets,
        timestamps,
        _column(source, keys),
        _views(source, values) if value_views else _column(source, values),
        None if headers is None or not headers[0].any() else _header_column(source, *headers),
        np.bincount(batch_of_row, minlength=len(batches)).astype(np.int64),
    )


def _require(holds: npt.NDArray[np.bool_]) -> None:
    if not holds.all():
        raise _Unusual


def _varints(source: Bytes, position: Int64s, most_bytes: int) -> tuple[Int64s, Int64s]:
    """(zig-zag varint at each position, position after it)."""
    first = source[position]
    value = (first & 0x7F).astype(np.int64)
    position = position + 1
    rows = np.flatnonzero(first >= 0x80)
    shift = 7
    while len(rows):
        if shift == 7 * most_bytes:
            raise _Unusual
        byte = source[position[rows]]
        value[rows] |= (byte & 0x7F).astype(np.int64) << shift
        position[rows] += 1
        rows = rows[byte >= 0x80]
        shift += 7
    return (value >> 1) ^ -(value & 1), position


def _fields(source: Bytes, position: Int64s, ends: Int64s) -> tuple[_Field, Int64s]:
    """(bytes or null at each position, position after them), as a field."""
    lengths, starts = _varints(source, position, _MOST_VARINT_BYTES)
    position = starts + np.maximum(lengths, 0)
    _require((lengths >= -1) & (position <= ends))
    return (starts, lengths), position


def _header_fields(
    source: Bytes, counts: Int64s, position: Int64s, ends: Int64s
) -> tuple[tuple[Int64s, _Field, _Field], Int64s]:
    """((headers of each row, their keys, their values), position after them)."""
    _require((counts >= 0) & (counts <= MOST_HEADERS))
    places = np.cumsum(counts) - counts
    total = int(counts.sum())
    pieces = np.empty((4, total), np.int64)
    position = position.copy()
    for number in range(int(counts.max())):
        rows = np.flatnonzero(counts > number)
        key, after_key = _fields(source, position[rows], ends[rows])
        _require(key[1] >= 0)
        value, position[rows] = _fields(source, after_key, ends[rows])
        pieces[:, places[rows] + number] = (*key, *value)
    return (counts, (pieces[0], pieces[1]), (pieces[2], pieces[3])), position


def _headers_of_rows(
    headers: tuple[Int64s, _Field, _Field], wanted: npt.NDArray[np.bool_]
) -> tuple[Int64s, _Field, _Field]:
    counts, keys, values = headers
    kept = np.repeat(wanted, counts)
    return counts[wanted], _rows(keys, kept), _rows(values, kept)


def _header_column(source: Bytes, counts: Int64s, keys: _Field, values: _Field) -> pa.Array:
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return headers_array(ends, _column(source, keys), _column(source, values))


def _rows(field: _Field, wanted: npt.NDArray[np.bool_]) -> _Field:
    return field[0][wanted], field[1][wanted]


def _column(source: Bytes, field: _Field) -> pa.Array:
    """Column of a field. Arrow copies the bytes, four times as fast as joining slices."""
    return _views(source, field).cast(pa.binary())


def _views(source: Bytes, field: _Field) -> pa.Array:
    starts, lengths = field
    valid, null_count = _validity(lengths)
    sizes = np.maximum(lengths, 0).astype(np.int32)
    return view_array(source, starts.astype(np.int32), sizes, valid, null_count)


def _validity(lengths: Int64s) -> tuple[Bytes, int]:
    """(Arrow's bitmap of the rows that are not null, number of null rows)."""
    present = lengths >= 0
    return np.packbits(present, bitorder="little"), len(present) - int(np.count_nonzero(present))
