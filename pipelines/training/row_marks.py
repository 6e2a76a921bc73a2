"""Where the rows of a chunk come from: row -> the position from which reading goes on with it.

A chunk is made of pieces, each with what is needed to read it again. Rows are taken off the front.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ShardPosition:
    """From where a shard goes on.

    block, offset: of the shard's blocks, the offset in it; in a stream the partition, and its
        offset.
    window, index: which window of the shuffle begins there, and how many of its rows are done.
    """

    block: int = 0
    offset: int = -1  # -1: where the block starts
    window: int = 0
    index: int = 0


@dataclass(slots=True)
class _Piece:
    rows: int
    position: ShardPosition
    offsets: np.ndarray[Any, Any] | None  # None: in the order of a window
    taken: int = 0


class RowMarks:
    """Of the rows that are read and not handed out."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()

    def add(self, block: int, offsets: np.ndarray[Any, Any]) -> None:
        """Rows of one block, in the order of its offsets."""
        self._pieces.append(_Piece(len(offsets), ShardPosition(block=block), offsets))

    def add_window(self, position: ShardPosition, rows: int) -> None:
        """Rows of a window; `position` is that of its first row, whose `index` they begin at."""
        self._pieces.append(_Piece(rows, position, None))

    def take(self, rows: int) -> Sequence[tuple[int, int]]:
        """So many rows are handed out: (block, last offset) of each block they are of."""
        ends = []
        while rows:
            piece = self._pieces[0]
            count = min(rows, piece.rows - piece.taken)
            piece.taken += count
            rows -= count
            if piece.offsets is not None:
                ends.append((piece.position.block, int(piece.offsets[piece.taken - 1])))
            if piece.taken == piece.rows:
                self._pieces.popleft()
        return ends

    def first(self) -> ShardPosition | None:
        """Of the first row that is not handed out; None: there is none."""
        if not self._pieces:
            return None
        piece = self._pieces[0]
        if piece.offsets is None:
            return replace(piece.position, index=piece.position.index + piece.taken)
        return replace(piece.position, offset=int(piece.offsets[piece.taken]))
