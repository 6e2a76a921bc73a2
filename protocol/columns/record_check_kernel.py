"""The compiled loop of record_check. Importing it loads numba, and compiles or loads the loop.

Nothing is read outside the records: lengths from a peer are checked before use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from ..buffer import Buffer
from .varint_kernels import compiled, field, u8, varint, varlong


@compiled(types.boolean(u8, types.int64))
def _check(source: Any, count: int) -> Any:
    position, end = 0, len(source)
    for number in range(count):
        length, position = varint(source, position, end)
        if position < 0 or length < 1 or length > end - position:
            return False
        record_end = position + length
        _, position = varlong(source, position + 1, record_end)
        if position < 0:
            return False
        offset_delta, position = varint(source, position, record_end)
        if position < 0 or offset_delta != number:
            return False
        for _field_number in range(2):
            length, position = field(source, position, record_end)
            if position < 0:
                return False
            position += max(length, 0)
        header_count, position = varint(source, position, record_end)
        if position < 0 or header_count < 0 or header_count * 2 > record_end - position:
            return False
        for piece in range(2 * header_count):
            length, position = field(source, position, record_end)
            if position < 0:
                return False
            if piece & 1 == 0 and length < 0:  # a header has a key
                return False
            position += max(length, 0)
        if position != record_end:
            return False
    return position == end


def check(records: Buffer, count: int) -> bool:
    """Whether `count` valid records fill `records`."""
    return bool(_check(np.frombuffer(records, np.uint8), count))
