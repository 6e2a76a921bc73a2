"""Compiled loops of the cleaner: hash keys, look them up, choose records, copy them.

Importing it compiles them, or loads them from the cache next to this file (or in NUMBA_CACHE_DIR).
They run without the GIL and check every bound: a length read from a log is never used as an index
unchecked.

The offset map is one array of three words an entry: two of hash, and the offset + 1, so that a
zeroed array is empty. A lookup costs about one cache miss; with three arrays it would cost three.
An entry's slot is the hash's first word modulo the number of slots, with linear probing; at most
nine in ten slots are used.

Nothing is shared with protocol/columns/columns_kernels, although both read records: numba's
cache does not notice when a function of another file changes, and that module needs Arrow.
Source of the hash: SipHash-2-4 with 128 bits, Aumasson and Bernstein.

Not here: arrays around these (cleaner_compiled). cleaner_plain is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types

# Columns of the table of batches: the fields of cleaner_rows.RecordRows.
START, END, COUNT, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, DROPS_TOMBSTONES = range(7)
# Columns of the table of what is kept: the fields of cleaner_rows.KeptRecords.
KEPT, KEPT_BYTES, TOMBSTONES, MAX_TIMESTAMP, KEYLESS = range(5)
# Fields of the state array, which is passed from call to call.
ENTRIES, LATEST_OFFSET, LIMIT = range(3)
# Return codes of the loops.
DONE, FULL, BAD_VARINT, BAD_LENGTH, BAD_OFFSET_DELTA, LEFT_OVER = range(6)

WORDS = 3

_array: Any = types.Array
_tuple: Any = types.Tuple
_u8 = _array(types.uint8, 1, "C", readonly=True)
_u64 = _array(types.uint64, 1, "C")
_u64_in = _array(types.uint64, 1, "C", readonly=True)
_i64 = _array(types.int64, 1, "C")
_table = _array(types.int64, 2, "C")
_u8_out = _array(types.uint8, 1, "C")
_position = _tuple((types.int64, types.int64))


def _compiled(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    def compile_now(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, nogil=True, cache=True)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return njit(signature, nogil=True)(function)  # no writable cache directory

    return compile_now


@_compiled(_position(_u8, types.int64, types.int64))
def _varint(source: Any, position: int, end: int) -> Any:
    """(zig-zag value of up to 64 bits, position after it), position -1 if it does not end."""
    if position < end:
        byte = np.int64(source[position])
        if byte < 0x80:  # the common case
            return (byte >> 1) ^ -(byte & 1), position + 1
    shift = 0
    value = np.uint64(0)
    while position < end and shift < 70:
        byte = np.int64(source[position])
        position += 1
        if shift == 63 and byte > 1:
            return 0, -1
        value |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += 7
    return 0, -1


@_compiled(types.int64(_u8, types.int64, types.int64, types.int64, _i64))
def _record(source: Any, position: int, end: int, previous_delta: int, record: Any) -> Any:
    """Read the record at `position` as far as its value's length.

    Fills `record`: end, position of the timestamp delta, the delta, position after it, offset
    delta, start of the key, its length (-1: none), length of the value (-1: none).
    """
    length, position = _varint(source, position, end)
    if position < 0:
        return BAD_VARINT
    if length < 1 or length > end - position:
        return BAD_LENGTH
    end = position + length
    record[0] = end
    record[1] = position + 1
    record[2], position = _varint(source, position + 1, end)
    if position < 0:
        return BAD_VARINT
    record[3] = position
    offset_delta, position = _varint(source, position, end)
    if position < 0:
        return BAD_VARINT
    if offset_delta <= previous_delta:
        return BAD_OFFSET_DELTA
    record[4] = offset_delta
    key_length, position = _varint(source, position, end)
    if position < 0:
        return BAD_VARINT
    if key_length > end - position:
        return BAD_LENGTH
    record[5], record[6] = position, key_length
    value_length, position = _varint(source, position + max(key_length, 0), end)
    if position < 0:
        return BAD_VARINT
    if max(value_length, 0) >= end - position:  # the number of headers comes after them
        return BAD_LENGTH
    record[7] = value_length
    return DONE


@_compiled(types.uint64(types.uint64, types.uint64))
def _rotate(value: Any, bits: Any) -> Any:
    return (value << bits) | (value >> (np.uint64(64) - bits))


@_compiled(
    _tuple((types.uint64, types.uint64, types.uint64, types.uint64))(
        types.uint64, types.uint64, types.uint64, types.uint64
    )
)
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = _rotate(v1, np.uint64(13)) ^ v0
    v0 = _rotate(v0, np.uint64(32))
    v2 += v3
    v3 = _rotate(v3, np.uint64(16)) ^ v2
    v0 += v3
    v3 = _rotate(v3, np.uint64(21)) ^ v0
    v2 += v1
    v1 = _rotate(v1, np.uint64(17)) ^ v2
    v2 = _rotate(v2, np.uint64(32))
    return v0, v1, v2, v3


@_compiled(
    _tuple((types.uint64, types.uint64))(_u8, types.int64, types.int64, types.uint64, types.uint64)
)
def siphash(source: Any, start: int, length: int, key0: Any, key1: Any) -> Any:
    """Two words of SipHash-2-4-128 of `length` bytes at `start`."""
    v0 = np.uint64(0x736F6D6570736575) ^ key0
    v1 = np.uint64(0x646F72616E646F6D) ^ key1 ^ np.uint64(0xEE)
    v2 = np.uint64(0x6C7967656E657261) ^ key0
    v3 = np.uint64(0x7465646279746573) ^ key1
    whole = length & ~7
    for position in range(start, start + whole, 8):
        word = np.uint64(0)
        for byte in range(8):
            word |= np.uint64(source[position + byte]) << np.uint64(8 * byte)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    word = np.uint64(length & 0xFF) << np.uint64(56)
    for byte in range(length & 7):
        word |= np.uint64(source[start + whole + byte]) << np.uint64(8 * byte)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@_compiled(types.int64(_u64, types.uint64, types.uint64))
def _place(table: Any, first: Any, second: Any) -> Any:
    """Index in `table` of this hash's entry, existing or free: the map is never full."""
    slots = len(table) // WORDS
    slot: Any = np.int64(first % np.uint64(slots))
    while True:
        place = slot * WORDS
        if table[place + 2] == 0 or (table[place] == first and table[place + 1] == second):
            return place
        slot += 1
        if slot == slots:
            slot = 0


@_compiled(types.int64(_u8, _table, types.int64, _u64_in, _u64, _i64))
def index(source: Any, batches: Any, start_offset: int, seed: Any, table: Any, state: Any) -> Any:
    """Note the offset of every record with a key, from `start_offset` on. DONE, FULL or BAD_…"""
    record = np.empty(8, np.int64)
    for batch in range(len(batches)):
        position, end = batches[batch, START], batches[batch, END]
        base_offset, last_delta = batches[batch, BASE_OFFSET], batches[batch, LAST_OFFSET_DELTA]
        previous = -1
        for _ in range(batches[batch, COUNT]):
            wrong = _record(source, position, end, previous, record)
            if wrong:
                return wrong
            position, previous = record[0], record[4]
            if previous > last_delta:
                return BAD_OFFSET_DELTA
            offset = base_offset + previous
            if record[6] < 0 or offset < start_offset:
                continue
            first, second = siphash(source, record[5], record[6], seed[0], seed[1])
            place = _place(table, first, second)
            if table[place + 2] == 0:
                if state[ENTRIES] >= state[LIMIT]:
                    return FULL
                state[ENTRIES] += 1
                table[place], table[place + 1] = first, second
            table[place + 2] = np.uint64(offset + 1)
            state[LATEST_OFFSET] = offset
        if position != end:
            return LEFT_OVER
        if base_offset + last_delta >= start_offset:
            state[LATEST_OFFSET] = base_offset + last_delta
    return DONE


@_compiled(types.int64(_u8, _table, _u64_in, _u64, _i64, _u8_out, _table))
def choose(
    source: Any, batches: Any, seed: Any, table: Any, state: Any, keep: Any, kept: Any
) -> Any:
    """Mark the records that are not superseded in `keep`, one byte a record.

    Their counts and sizes are added up in `kept`, one row a batch. DONE or BAD_….
    """
    record = np.empty(8, np.int64)
    latest = state[LATEST_OFFSET]
    row = 0
    for batch in range(len(batches)):
        position, end = batches[batch, START], batches[batch, END]
        base_offset, last_delta = batches[batch, BASE_OFFSET], batches[batch, LAST_OFFSET_DELTA]
        previous = -1
        kept[batch, MAX_TIMESTAMP] = -1
        for _ in range(batches[batch, COUNT]):
            start = position
            wrong = _record(source, position, end, previous, record)
            if wrong:
                return wrong
            position, previous = record[0], record[4]
            if previous > last_delta:
                return BAD_OFFSET_DELTA
            offset = base_offset + previous
            chosen = offset > latest
            if not chosen:
                if record[6] < 0:
                    kept[batch, KEYLESS] += 1
                elif record[7] >= 0 or batches[batch, DROPS_TOMBSTONES] == 0:
                    first, second = siphash(source, record[5], record[6], seed[0], seed[1])
                    place = _place(table, first, second)
                    chosen = offset >= np.int64(table[place + 2]) - 1
            if chosen:
                keep[row] = 1
                kept[batch, KEPT] += 1
                kept[batch, KEPT_BYTES] += position - start
                kept[batch, TOMBSTONES] += record[7] < 0
                timestamp = batches[batch, BASE_TIMESTAMP] + record[2]
                kept[batch, MAX_TIMESTAMP] = max(kept[batch, MAX_TIMESTAMP], timestamp)
            row += 1
        if position != end:
            return LEFT_OVER
    return DONE


@_compiled(types.int64(_u8_out, types.int64, types.int64))
def _write_varint(target: Any, position: int, value: int) -> Any:
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    while zigzag > 0x7F:
        target[position] = np.uint8(zigzag & np.uint64(0x7F)) | np.uint8(0x80)
        zigzag >>= np.uint64(7)
        position += 1
    target[position] = np.uint8(zigzag)
    return position + 1


@_compiled(types.int64(types.int64))
def _varint_size(value: int) -> Any:
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while zigzag > 0x7F:
        zigzag >>= np.uint64(7)
        size += 1
    return size


@_compiled(types.void(_u8, _table, _i64, _u8_out, _table, _i64, _u8_out))
def rewrite(
    source: Any, batches: Any, first_rows: Any, keep: Any, rewrites: Any, ends: Any, target: Any
) -> None:
    """Copy the kept records of the batches in `rewrites` (batch, position, shift) to `target`.

    `choose` has validated them.
    """
    record = np.empty(8, np.int64)
    for number in range(len(rewrites)):
        batch, written, shift = rewrites[number, 0], rewrites[number, 1], rewrites[number, 2]
        position, end = batches[batch, START], batches[batch, END]
        row = first_rows[batch]
        run = -1  # start of the kept records that are not copied yet
        previous = -1
        for _ in range(batches[batch, COUNT]):
            start = position
            _record(source, position, end, previous, record)
            position, previous = record[0], record[4]
            if shift == 0:
                if keep[row] and run < 0:
                    run = start
                elif not keep[row] and run >= 0:
                    target[written : written + start - run] = source[run:start]
                    written += start - run
                    run = -1
            elif keep[row]:
                rest = position - record[3]
                delta = record[2] + shift
                written = _write_varint(target, written, 1 + _varint_size(delta) + rest)
                target[written] = source[record[1] - 1]
                written = _write_varint(target, written + 1, delta)
                target[written : written + rest] = source[record[3] : position]
                written += rest
            row += 1
        if run >= 0:
            target[written : written + position - run] = source[run:position]
            written += position - run
        ends[number] = written
