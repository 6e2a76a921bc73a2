"""Columns -> records by numpy, one field of all records at a time: fast without the kernels.

Arrow joins the pieces of each record: the bytes before its key, the key, the length of its value,
the value, and its count of headers. Cost: 0.7 us a record, and 0.1 ms a batch.

Invariants:
    the result equals that of columns_plain; for records with headers, batches of few records and
    long keys to hash it is None, and columns_plain does the work.

Not here: decoding (columns_arrays_decode); which calls use this module (columns_plain).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..records.record_batch import HEADER_SIZE
from .columns_arrow import (
    Bytes,
    EncodedRuns,
    Int32s,
    Int64s,
    RecordColumns,
    RecordRun,
    binary_array,
    buffers_of,
    constant_text,
    number_array,
)

LEAST_RECORDS: Final = 32
"""Minimum records of a batch that is encoded here: each batch takes some fifteen numpy calls."""
LONGEST_KEY: Final = 1024
"""Longest key to hash here, in bytes: each four bytes take a pass over all keys."""

_SEED: Final = np.uint32(0x9747B28C)
_MULTIPLIER: Final = np.uint32(0x5BD1E995)

_Varints = tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]
"""Varints: (a row of bytes for each number, as wide as the longest; mask of the bytes that exist).
"""


def encode_rows(
    columns: RecordColumns, rows: Int64s, *, max_bytes: int, max_records: int
) -> EncodedRuns | None:
    """Encode rows like columns_plain.encode_rows; None: use that instead."""
    if not len(rows) or columns.headers is not None or max_records < LEAST_RECORDS:
        return None
    taken = number_array(rows, pa.int64())
    keys, values = columns.keys.take(taken), columns.values.take(taken)
    key_lengths, value_lengths = _lengths(keys), _lengths(values)
    sizes = 2 + _field_sizes(key_lengths) + _field_sizes(value_lengths)
    if int(sizes.sum()) * LEAST_RECORDS > max_bytes * len(rows):
        return None
    timestamps = columns.timestamps[rows]
    counts, bodies, deltas, offsets = _cut(sizes, timestamps, max_bytes, max_records)
    attributes: _Varints = (np.zeros((len(rows), 1), np.uint8), np.ones((len(rows), 1), np.bool_))
    heads = [_varints(bodies), attributes, *map(_varints, (deltas, offsets, key_lengths))]
    end = constant_text("\0", 1).cast(pa.binary())[0]
    nothing = constant_text("", 1).cast(pa.binary())[0]
    pieces = (_joined(heads), keys, _joined([_varints(value_lengths)]), values, end, nothing)
    try:
        records = pc.binary_join_element_wise(*pieces, null_handling="replace", null_replacement="")
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return None  # 2 GiB or more
    return _runs(records, timestamps, counts)


def _cut(
    sizes: Int64s, timestamps: Int64s, max_bytes: int, max_records: int
) -> tuple[list[int], Int64s, Int64s, Int64s]:
    """Cut rows into batches: (records of each batch, and of each record its size after its length,
    its two deltas).

    sizes: of all but the deltas.
    """
    at_least = np.cumsum(sizes + 3)  # each delta, and the length, is a byte or more
    counts: list[int] = []
    pieces: list[tuple[Int64s, Int64s, Int64s]] = []
    first = 0
    while first < len(sizes):
        before = int(at_least[first - 1]) if first else 0
        last = int(np.searchsorted(at_least, before + max_bytes, side="right"))
        last = max(first + 1, min(last, first + max_records))
        deltas = timestamps[first:last] - timestamps[first]
        offsets = np.arange(last - first, dtype=np.int64)
        bodies = sizes[first:last] + _varint_sizes(deltas) + _varint_sizes(offsets)
        ends = HEADER_SIZE + np.cumsum(bodies + _varint_sizes(bodies))
        count = max(1, int(np.searchsorted(ends, max_bytes, side="right")))
        counts.append(count)
        pieces.append((bodies[:count], deltas[:count], offsets[:count]))
        first += count
    bodies, deltas, offsets = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return counts, bodies, deltas, offsets


def _runs(records: pa.Array, timestamps: Int64s, counts: list[int]) -> EncodedRuns:
    ends, data, _, _ = buffers_of(records)
    first_byte = int(ends[0])
    buffer = bytearray(int(ends[-1]) - first_byte + HEADER_SIZE * len(counts))
    runs: list[RecordRun] = []
    first, start = 0, HEADER_SIZE
    for count in counts:
        content = data[ends[first] : ends[first + count]]
        end = start + len(content)
        buffer[start:end] = content.data
        times = timestamps[first : first + count]
        runs.append(RecordRun(start, end, count, int(times[0]), int(times.max())))
        first, start = first + count, end + HEADER_SIZE
    return EncodedRuns(buffer, runs)


def hash_keys(keys: pa.Array) -> Int32s | None:
    """Hash keys like columns_plain.hash_keys; None: use that instead."""
    lengths = _lengths(keys)
    if not len(lengths) or lengths.max() > LONGEST_KEY:
        return None
    ends, data, _, _ = buffers_of(keys)
    position = ends[:-1].astype(np.int64)
    value = _SEED ^ lengths.astype(np.uint32)
    rows = np.flatnonzero(lengths >= 4)
    while len(rows):
        word = _bytes_at(data, position[rows], 4) * _MULTIPLIER
        word = (word ^ (word >> np.uint32(24))) * _MULTIPLIER
        value[rows] = (value[rows] * _MULTIPLIER) ^ word
        position[rows] += 4
        rows = rows[ends[1:][rows] - position[rows] >= 4]
    rest = np.where(lengths < 0, 0, lengths & 3)
    for count in (1, 2, 3):
        rows = np.flatnonzero(rest == count)
        value[rows] = (value[rows] ^ _bytes_at(data, position[rows], count)) * _MULTIPLIER
    value = (value ^ (value >> np.uint32(13))) * _MULTIPLIER
    hashes = ((value ^ (value >> np.uint32(15))) & np.uint32(0x7FFFFFFF)).astype(np.int32)
    hashes[lengths < 0] = -1
    return hashes


def _bytes_at(data: Bytes, position: Int64s, count: int) -> npt.NDArray[np.uint32]:
    """Little-endian numbers of `count` bytes at each position."""
    number = np.zeros(len(position), np.uint32)
    for place in range(count):
        number |= data[position + place].astype(np.uint32) << np.uint32(8 * place)
    return number


def _lengths(column: pa.Array) -> Int64s:
    """Bytes of each row; -1 for null."""
    ends, _, valid, bit_offset = buffers_of(column)
    lengths = np.diff(ends).astype(np.int64)
    if len(valid):
        present = np.unpackbits(valid, bitorder="little")[bit_offset : bit_offset + len(lengths)]
        lengths[present == 0] = -1
    return lengths


def _field_sizes(lengths: Int64s) -> Int64s:
    return _varint_sizes(lengths) + np.maximum(lengths, 0)


def _zigzag(numbers: Int64s) -> npt.NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _varint_sizes(numbers: Int64s) -> Int64s:
    zigzag = _zigzag(numbers)
    sizes = np.ones(len(numbers), np.int64)
    most = int(zigzag.max()) if len(zigzag) else 0
    for bits in range(7, most.bit_length(), 7):
        sizes += zigzag >= np.uint64(1 << bits)
    return sizes


def _varints(numbers: Int64s) -> _Varints:
    zigzag, sizes = _zigzag(numbers), _varint_sizes(numbers)
    width = int(sizes.max())
    content = np.empty((len(numbers), width), np.uint8)
    for place in range(width):
        more = np.where(sizes > place + 1, np.uint64(0x80), np.uint64(0))
        content[:, place] = ((zigzag >> np.uint64(7 * place)) & np.uint64(0x7F)) | more
    return content, np.arange(width) < sizes[:, None]


def _joined(parts: list[_Varints]) -> pa.Array:
    """Concatenation of the parts of each row."""
    content = np.hstack([part for part, _ in parts])
    present = np.hstack([used for _, used in parts])
    ends = np.zeros(len(content) + 1, np.int32)
    np.cumsum(present.sum(axis=1), out=ends[1:])
    return binary_array(ends, content[present], np.empty(0, np.uint8), 0)
