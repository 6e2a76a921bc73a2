"""Items that this process has consumed: reported, and kept until the actor has committed them.

Invariants:
    Reports have ascending numbers. The actor confirms a number, and so all reports up to it.
    Unconfirmed reports are kept here, to be sent to the next actor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ..frames.queue_frames import Piece


class ConsumedReports:
    """Guarded by the connection's lock."""

    def __init__(self) -> None:
        self._number = 0
        self._unreported: list[list[int]] = []
        self._unconfirmed: deque[tuple[int, list[Piece]]] = deque()

    def add(self, offset: int, first: int, last: int) -> None:
        """Add items of a record, from `first` to before `last`, as consumed."""
        if self._unreported:
            former = self._unreported[-1]
            if former[0] == offset and former[2] == first:
                former[2] = last
                return
        self._unreported.append([offset, first, last])

    def add_all(self, pieces: Iterable[Piece]) -> None:
        self._unreported.extend(list(piece) for piece in pieces)

    def next(self) -> tuple[int, list[Piece]] | None:
        """The next report: its number and items; None if there is nothing to report."""
        if not self._unreported:
            return None
        pieces = [(offset, first, last) for offset, first, last in self._unreported]
        self._unreported.clear()
        self._number += 1
        self._unconfirmed.append((self._number, pieces))
        return self._number, pieces

    def unconfirmed(self) -> tuple[int | None, list[Piece]]:
        """The number that confirms all unconfirmed reports, or None, and their items."""
        pieces = [piece for _, report in self._unconfirmed for piece in report]
        return self._unconfirmed[-1][0] if self._unconfirmed else None, pieces

    def on_confirmed(self, number: int) -> None:
        """Drop the reports up to `number`, which are committed."""
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._unconfirmed.popleft()
