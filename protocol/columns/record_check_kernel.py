"""The compiled loop of record_check. Importing it loads numba and what it compiles to.

Nothing is ever read outside the records at hand: what comes from a peer is never trusted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from ..buffer import Buffer
from .columns_kernels import _compiled, _field, _u8, _varint, _varlong

SOUND, MALFORMED, LOOK_AGAIN = 0, 1, -1
"""LOOK_AGAIN: a header's key is not plain ASCII."""


@_compiled(types.int64(_u8, types.int64))
def _check(source: Any, count: int) -> Any:
    position, end = 0, len(source)
    look_again = 0
    for number in range(count):
        length, position = _varint(source, position, end)
        if position < 0 or length < 1 or length > end - position:
            return 1
        record_end = position + length
        _, position = _varlong(source, position + 1, record_end)
        if position < 0:
            return 1
        offset_delta, position = _varint(source, position, record_end)
        if position < 0 or offset_delta != number:
            return 1
        for _field_number in range(2):
            length, position = _field(source, position, record_end)
            if position < 0:
                return 1
            position += max(length, 0)
        header_count, position = _varint(source, position, record_end)
        if position < 0 or header_count < 0 or header_count * 2 > record_end - position:
            return 1
        for field in range(2 * header_count):
            length, position = _field(source, position, record_end)
            if position < 0:
                return 1
            if field & 1 == 0:
                if length < 0:
                    return 1
                for index in range(position, position + length):
                    if source[index] >= 0x80:
                        look_again = 1
            position += max(length, 0)
        if position != record_end:
            return 1
    if position != end:
        return 1
    return -look_again


def check(records: Buffer, count: int) -> int:
    """SOUND, MALFORMED or LOOK_AGAIN."""
    return int(_check(np.frombuffer(records, np.uint8), count))
