"""Prefetched items of a queue, and how many to prefetch.

Invariants:
    They are handed out in their order, and decoded on demand.
    All items of a pop can be decoded, or none is consumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ..frames.item_codec import decode_items
from ..frames.queue_frames import ItemPiece, Piece

MAX_AHEAD: Final = 1_024
"""Maximum items requested at once, by a process that takes one after the other quickly."""
QUICK_S: Final = 0.005


@dataclass(slots=True)
class _Ahead:
    """Prefetched items of one record, decoded on demand."""

    piece: ItemPiece
    next: int
    until: float
    items: list[Any] | None = None

    @property
    def left(self) -> int:
        return self.piece.last - self.next

    @property
    def pieces(self) -> list[Piece]:
        return [(self.piece.offset, self.next, self.piece.last)]


class PrefetchedItems:
    """Guarded by the connection's lock.

    on_consumed: called with the offset, and the first and the end of the items that are popped.
    """

    def __init__(self, on_consumed: Callable[[int, int, int], None]) -> None:
        self._on_consumed = on_consumed
        self._ahead: deque[_Ahead] = deque()
        self._most = 1
        self._last_take = 0.0

    @property
    def count(self) -> int:
        return sum(held.left for held in self._ahead)

    def add(self, pieces: Iterable[ItemPiece], until: float) -> None:
        """Add items, which may be handed out until `until`, time.monotonic()."""
        self._ahead.extend(_Ahead(piece, piece.first, until) for piece in pieces)

    def is_expired(self, now: float) -> bool:
        """Whether the first has expired, as other processes may have got it."""
        return bool(self._ahead) and self._ahead[0].until < now

    def pop(self, count: int, give_back: Callable[[list[Piece]], None]) -> list[Any]:
        """Return the next `count` items, which must be prefetched. Raises errors of unpickling.

        Args:
            give_back: called with items that cannot be decoded, which are removed.
        """
        self._decode(count, give_back)
        popped: list[Any] = []
        while len(popped) < count:
            held = self._ahead[0]
            assert held.items is not None
            first, last = held.next, min(held.piece.last, held.next + count - len(popped))
            popped += held.items[first:last]
            self._on_consumed(held.piece.offset, first, last)
            held.next = last
            if not held.left:
                self._ahead.popleft()
        return popped

    def take_back(self) -> list[Piece]:
        """Remove and return all, for the queue; the next request is for one item."""
        pieces = [piece for held in self._ahead for piece in held.pieces]
        self._ahead.clear()
        self._most = 1
        return pieces

    def clear(self) -> None:
        """Drop all, as the queue delivers them to others."""
        self._ahead.clear()

    def next_size(self, now: float, *, is_bounded: bool) -> int:
        """Number of items to request: doubled each time while they are taken quickly.

        Args:
            is_bounded: the queue has a maxsize, so that prefetched items would block puts.
        """
        if is_bounded or now - self._last_take >= QUICK_S * self._most:
            self._most = 1
        else:
            self._most = min(self._most * 2, MAX_AHEAD)
        self._last_take = now
        return self._most

    def _decode(self, count: int, give_back: Callable[[list[Piece]], None]) -> None:
        """Decode the next `count` items. A record that cannot be decoded goes back to the queue."""
        for held in list(self._ahead):
            if held.items is None:
                try:
                    held.items = decode_items(held.piece.is_pickled, held.piece.value)
                except Exception:
                    self._ahead.remove(held)
                    give_back(held.pieces)
                    raise
            count -= held.left
            if count <= 0:
                return
