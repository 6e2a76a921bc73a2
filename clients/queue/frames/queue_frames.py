"""Frames between a queue's actor and the processes that use it.

    length u32 | kind u8 | number u32 | body        big-endian; length is of what follows it

A number names a request, and its answer. `pieces` are (offset, first, last) of int64: items first
to last - 1 of the record at that offset. In ITEMS a piece also has its delivery count, whether it
is pickled, and the length of its record's value; the values follow.

Not here: who sends what when (queue_server, queue_connection).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

HEADER: Final = struct.Struct(">IBI")
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
TOKEN_BYTES: Final = 32
IDENTITY_BYTES: Final = 16

Piece = tuple[int, int, int]
"""Piece of a record: offset, first item, the item after the last."""


class FrameKind(IntEnum):
    # from a process
    HELLO = 1
    TAKE = 2
    SETTLE = 3
    RELEASE = 4
    RETURN = 5
    EXTEND = 6
    PUT = 7
    SIZE = 8
    REPLAY = 9
    CANCEL = 10
    # from the actor
    ITEMS = 32
    EMPTY = 33
    FULL = 34
    DONE = 35
    REPORT = 36
    RECALL = 37
    CONFIRM = 38
    ERROR = 39


class FrameError(Exception):
    """Received bytes are not a frame of this protocol."""


@dataclass(frozen=True, slots=True)
class ItemPiece:
    """Items of one record on their way to a process."""

    offset: int
    first: int
    last: int
    delivery_count: int
    is_pickled: bool
    value: bytes | memoryview


TAKE_BODY: Final = struct.Struct(">IIqBB")
"""Layout of TAKE: minimum, maximum, timeout in ms (-1: forever), exact, to be acknowledged."""
PUT_BODY: Final = struct.Struct(">qIQQ")
"""Layout of PUT: timeout in ms, number of items, the process's number of this put, and that of its
first one without an answer; the pickled list follows.
"""
PUT_BY: Final = struct.Struct(f">{IDENTITY_BYTES}sQ")
"""Layout of the header PUT_HEADER of a record: the process, and its number of the put."""
PUT_HEADER: Final = "put"
RELEASE_BODY: Final = struct.Struct(">q")
"""Layout of RELEASE: delay in ms; pieces follow."""
VALUE: Final = struct.Struct(">q")
_ITEM: Final = struct.Struct(">qqqiBI")
_COUNT: Final = struct.Struct(">I")


def frame(kind: FrameKind, number: int = 0, *body: bytes | memoryview) -> bytes:
    length = HEADER.size - 4 + sum(map(len, body))
    return b"".join((HEADER.pack(length, kind, number), *body))


def pack_pieces(pieces: Iterable[Piece]) -> bytes:
    numbers = array("q", [number for piece in pieces for number in piece])
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def unpack_pieces(body: bytes | memoryview) -> list[Piece]:
    """Raises FrameError."""
    if len(body) % 24:
        raise FrameError(f"{len(body)} bytes are not a list of pieces")
    numbers = array("q")
    numbers.frombytes(body)
    if sys.byteorder == "little":
        numbers.byteswap()
    values = iter(numbers)
    return list(zip(values, values, values, strict=True))


def pack_items(pieces: Sequence[ItemPiece]) -> list[bytes | memoryview]:
    """Parts of the body of ITEMS."""
    heads = [
        _ITEM.pack(
            one.offset, one.first, one.last, one.delivery_count, one.is_pickled, len(one.value)
        )
        for one in pieces
    ]
    return [_COUNT.pack(len(pieces)), *heads, *(one.value for one in pieces)]


def unpack_items(body: memoryview) -> list[ItemPiece]:
    """Raises FrameError."""
    try:
        (count,) = _COUNT.unpack_from(body)
        heads = list(_ITEM.iter_unpack(body[4 : 4 + count * _ITEM.size]))
    except struct.error as error:
        raise FrameError(f"not a list of items: {error}") from None
    at = 4 + count * _ITEM.size
    pieces = []
    for offset, first, last, delivery_count, pickled, size in heads:
        pieces.append(
            ItemPiece(offset, first, last, delivery_count, bool(pickled), body[at : at + size])
        )
        at += size
    if len(heads) != count or at != len(body):
        raise FrameError(f"{len(body)} bytes of items, expected {at}")
    return pieces
