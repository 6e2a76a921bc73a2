"""Consumed items after the first unconsumed one: ranges of records, and parts of records.

Ranges are merged, so memory grows with the number of gaps, not with that of items: a process may
work on one item for hours while others consume millions.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from .queue_position import Interval


class ConsumedItems:
    """Consumed items. Intervals exclude their end."""

    def __init__(
        self,
        records: Iterable[Interval] = (),
        parts: Mapping[int, Sequence[Interval]] | None = None,
    ) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, last in sorted(records):
            self._starts.append(first)
            self._ends.append(last)
        self._parts = {offset: list(intervals) for offset, intervals in (parts or {}).items()}

    def left(self, offset: int, total: int) -> list[Interval]:
        """Intervals of items that are not consumed, of a record of `total` items."""
        if self._has(offset):
            return []
        left, at = [], 0
        for first, last in self._parts.get(offset, ()):
            if first > at:
                left.append((at, first))
            at = max(at, last)
        if at < total:
            left.append((at, total))
        return left

    def add(self, offset: int, first: int, last: int, total: int) -> None:
        if self._has(offset):
            return
        merged = _merged([*self._parts.pop(offset, ()), (first, last)])
        if merged == [(0, total)]:
            self._add_record(offset)
        else:
            self._parts[offset] = merged

    def forget_before(self, offset: int) -> None:
        """Forget records before `offset`, which are all consumed."""
        gone = bisect_right(self._ends, offset)
        del self._starts[:gone], self._ends[:gone]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset
        for each in [each for each in self._parts if each < offset]:
            del self._parts[each]

    @property
    def records(self) -> list[Interval]:
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def parts(self) -> dict[int, list[Interval]]:
        return dict(self._parts)

    def _has(self, offset: int) -> bool:
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset < self._ends[place]

    def _add_record(self, offset: int) -> None:
        place = bisect_right(self._starts, offset)
        before = place > 0 and self._ends[place - 1] == offset
        after = place < len(self._starts) and self._starts[place] == offset + 1
        if before and after:
            self._ends[place - 1] = self._ends.pop(place)
            del self._starts[place]
        elif before:
            self._ends[place - 1] = offset + 1
        elif after:
            self._starts[place] = offset
        else:
            self._starts.insert(place, offset)
            self._ends.insert(place, offset + 1)


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
