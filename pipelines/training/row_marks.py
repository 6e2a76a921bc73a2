"""Positions of the rows of a chunk, from which reading resumes with each row.

A chunk is made of pieces, each with its position. Rows are taken from the front.

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
    """Position at which a shard resumes.

    block, offset: number of the shard's block, and the offset in it; when following, the number of
        the partition and its offset.
    window, index: number of the shuffle window that begins there, and rows of it handed out.
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
    """Positions of the rows that are read but not handed out."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()

    def add(self, block: int, offsets: np.ndarray[Any, Any]) -> None:
        """Add rows of one block, in the order of its offsets."""
        self._pieces.append(_Piece(len(offsets), ShardPosition(block=block), offsets))

    def add_window(self, position: ShardPosition, rows: int) -> None:
        """Add rows of a window. position: of the window, with the `index` of the first row."""
        self._pieces.append(_Piece(rows, position, None))

    def take(self, rows: int) -> Sequence[tuple[int, int]]:
        """Take rows that are handed out; returns (block, last offset) of each block among them."""
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
        """Position of the first row that is not handed out; None: there is none."""
        if not self._pieces:
            return None
        piece = self._pieces[0]
        if piece.offsets is None:
            return replace(piece.position, index=piece.position.index + piece.taken)
        return replace(piece.position, offset=int(piece.offsets[piece.taken]))
