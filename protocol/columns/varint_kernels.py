"""Compiled reading of varints in records, and of the fields after their lengths.

Used by record_check_kernel, with which brokers check batches, and by columns_kernels, the other
loops, for clients. A separate module, because a broker needs neither those nor Arrow. See
columns_kernels for where machine code is cached. numba's cache does not detect that a function of
another file has changed: after changing one here, delete `__pycache__/*.nbi` beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types

u8: Any = types.Array(types.uint8, 1, "C", readonly=True)
_tuple: Any = types.Tuple
_position: Any = _tuple((types.int64, types.int64))


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    def compile_now(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, nogil=True, cache=True)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return njit(signature, nogil=True)(function)  # no directory can be written

    return compile_now


@compiled(_position(u8, types.int64, types.int64))
def varlong(source: Any, position: int, end: int) -> Any:
    """(zig-zag value, position after it), position -1 if it is too long or passes `end`."""
    shift = 0
    value = np.uint64(0)
    while position < end and shift < 70:
        byte = source[position]
        position += 1
        if shift == 63 and byte > 1:
            return 0, -1
        value |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += 7
    return 0, -1


@compiled(_position(u8, types.int64, types.int64))
def varint(source: Any, position: int, end: int) -> Any:
    """(32-bit zig-zag value, position after it), position -1 if too long or beyond `end`."""
    if position < end:
        byte = np.int64(source[position])
        if byte < 0x80:  # the common case
            return (byte >> 1) ^ -(byte & 1), position + 1
    shift = 0
    value = np.int64(0)
    while position < end and shift < 35:
        byte = np.int64(source[position])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                return 0, -1
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    return 0, -1


@compiled(_position(u8, types.int64, types.int64))
def field(source: Any, position: int, end: int) -> Any:
    """(length or -1 for null, where the bytes start); the start is -1 if they pass `end`."""
    length, position = varint(source, position, end)
    if position < 0 or length < -1 or length > end - position:
        return 0, -1
    return length, position
