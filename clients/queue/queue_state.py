"""State of each item of a queue: ready, with a process, delayed, dead, or consumed.

Invariants:
    An item has one state. It is consumed only when the process that has it reports so, or when it
    was written to the dead letters.
    Ready items are taken in the order of the log; returned items come before later ones.
    The position is not after any item that is not consumed (see queue_position).

Items are kept as entries: consecutive items of one record. Values of a backlog that is too large
for memory are not kept: `backlog_start` is the offset to read them again from.

Pure: times are seconds, given by the caller. Not here: requests that wait for items (queue_takes).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from .consumed_items import ConsumedItems
from .frames.queue_frames import Piece
from .queue_position import Interval, QueuePosition

MAX_READY_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of values in memory; beyond it only the number of items is kept."""

MAX_BATCH_BYTES: Final = 1024 * 1024 * 1024
"""Maximum bytes of values in memory while a process takes many items at once."""


@dataclass(slots=True)
class QueueEntry:
    """Items `first` to `last` - 1 of a record that has `total`."""

    offset: int
    first: int
    last: int
    total: int
    is_pickled: bool
    value: bytes
    delivery_count: int = 0
    deadline: float = 0.0
    is_handed_out: bool = False  # to the application, which is to acknowledge it

    @property
    def count(self) -> int:
        return self.last - self.first

    def part(self, first: int, last: int) -> QueueEntry:
        return replace(self, first=first, last=last)


@dataclass(slots=True)
class _Run:
    """Records of a backlog, one after the other, with equally many items each."""

    first_offset: int
    last_offset: int
    records: int
    items_each: int


class QueueState:
    """State of one queue, held by its actor.

    ready_bytes: bytes of the values in memory. wanted: items that a process takes at once, which
    are loaded whatever their size, up to MAX_BATCH_BYTES.
    """

    def __init__(
        self,
        position: QueuePosition,
        *,
        lease_s: float,
        max_deliveries: int,
        max_ready_bytes: int = MAX_READY_BYTES,
    ) -> None:
        self._lease_s = lease_s
        self._max_deliveries = max_deliveries
        self._max_ready_bytes = max_ready_bytes
        self._next_offset = position.offset
        self._fresh: deque[QueueEntry] = deque()
        self._again: list[tuple[int, int, QueueEntry]] = []  # heap: returned
        self._later: list[tuple[float, int, int, QueueEntry]] = []  # heap: delayed
        self._leased: dict[bytes, dict[int, list[QueueEntry]]] = {}
        self._dead: list[QueueEntry] = []
        self._backlog: deque[_Run] = deque()
        self._consumed = ConsumedItems(position.records, position.parts)
        self._delivered = {
            (offset, index): count
            for offset, first, last, count in position.deliveries
            for index in range(first, last)
        }
        self.ready_bytes = 0
        self._ready_items = 0
        self._backlog_items = 0
        self.wanted = 0
        self._prefetched: dict[bytes, int] = {}

    # --- from the log ------------------------------------------------------------------------

    def add(self, offset: int, total: int, is_pickled: bool, value: bytes) -> None:
        """Add the next record of the log. A record that was added before is ignored."""
        if offset < self._next_offset:
            return
        self._next_offset = offset + 1
        if self._backlog or self.ready_bytes > self._max_ready_bytes:
            left = self._consumed.left(offset, total)
            self._add_to_backlog(offset, sum(last - first for first, last in left))
            return
        for entry in self._unconsumed(QueueEntry(offset, 0, total, total, is_pickled, value)):
            self._fresh.append(entry)
            self._count_ready(entry, 1)

    def refill(self, offset: int, total: int, is_pickled: bool, value: bytes) -> None:
        """Add the first record of the backlog again, with its value. Others are ignored."""
        while self._backlog and self._backlog[0].last_offset < offset:
            self._drop_run()  # deleted from the log in the meantime
        if not self._backlog or offset < self._backlog[0].first_offset:
            return
        if not self._consumed.left(offset, total):
            return  # it was not counted
        run = self._backlog[0]
        run.first_offset = offset + 1
        run.records -= 1
        self._backlog_items -= run.items_each
        if run.first_offset > run.last_offset or run.records <= 0:
            self._drop_run()
        for entry in self._unconsumed(QueueEntry(offset, 0, total, total, is_pickled, value)):
            self._fresh.append(entry)
            self._count_ready(entry, 1)

    def _add_to_backlog(self, offset: int, items: int) -> None:
        if not items:
            return
        self._backlog_items += items
        run = self._backlog[-1] if self._backlog else None
        if run is not None and run.items_each == items:
            run.last_offset = offset
            run.records += 1
        else:
            self._backlog.append(_Run(offset, offset, 1, items))

    def _drop_run(self) -> None:
        run = self._backlog.popleft()
        self._backlog_items -= run.records * run.items_each

    def _unconsumed(self, entry: QueueEntry) -> Iterator[QueueEntry]:
        """Parts of an entry that are not consumed, with the delivery counts that are known."""
        for first, last in self._consumed.left(entry.offset, entry.total):
            yield from self._counted(entry.part(first, last))

    def _counted(self, entry: QueueEntry) -> Iterator[QueueEntry]:
        if not self._delivered:
            yield entry
            return
        first = entry.first
        count = self._delivered.pop((entry.offset, first), 0)
        for index in range(first + 1, entry.last):
            other = self._delivered.pop((entry.offset, index), 0)
            if other != count:
                yield replace(entry, first=first, last=index, delivery_count=count)
                first, count = index, other
        yield replace(entry, first=first, delivery_count=count)

    # --- with processes ----------------------------------------------------------------------

    def take(
        self,
        owner: bytes,
        least: int,
        most: int,
        now: float,
        *,
        exact: bool = False,
        hand_out: bool = False,
    ) -> list[QueueEntry]:
        """Items for `owner`; none if there are fewer than `least` in memory.

        Not `exact`: the last record is not split, so there may be more than `most`. Without
        `hand_out` the owner has prefetched them, and they may be recalled.
        """
        if self._ready_items < max(least, 1):
            return []
        taken: list[QueueEntry] = []
        count = 0
        while count < most and (entry := self._pop_ready()) is not None:
            if exact and count + entry.count > most:
                middle = entry.first + most - count
                self._put_back(entry.part(middle, entry.last))
                entry = entry.part(entry.first, middle)
            entry.delivery_count += 1
            entry.deadline = now + self._lease_s
            entry.is_handed_out = hand_out
            taken.append(entry)
            count += entry.count
        for entry in taken:
            self._lease(owner, entry)
        return taken

    def settle(self, owner: bytes, pieces: Iterable[Piece]) -> None:
        """Mark items as consumed; those that `owner` does not have are ignored."""
        for piece in pieces:
            for entry in self._cut(owner, piece):
                self._consume(entry)

    def release(
        self,
        owner: bytes,
        pieces: Iterable[Piece],
        now: float,
        *,
        delay_s: float = 0.0,
        unused: bool = False,
    ) -> None:
        """Queue items for another delivery, or as dead letters.

        unused: `owner` has not delivered them to its application, so the delivery does not count.
        """
        for piece in pieces:
            for entry in self._cut(owner, piece):
                if unused:
                    entry.delivery_count -= 1
                    self._put_back(entry)
                else:
                    self._give_back(entry, now + delay_s if delay_s > 0 else None)

    def extend(self, owner: bytes, pieces: Iterable[Piece], now: float) -> None:
        """Restart the leases of items."""
        for piece in pieces:
            for entry in self._cut(owner, piece):
                entry.deadline = now + self._lease_s
                self._lease(owner, entry)

    def resume(
        self, owner: bytes, consumed: Iterable[Piece], kept: Iterable[Piece], now: float
    ) -> None:
        """Handle a process that has connected again, or is gone: then both lists are empty.

        It has consumed, or still processes (`kept`), these items, perhaps from a former actor. Its
        other items were lost on the way, and are delivered again.
        """
        consumed, kept = list(consumed), list(kept)
        self._claim(owner, [*consumed, *kept], now)
        self.settle(owner, consumed)
        entries = [entry for piece in kept for entry in self._cut(owner, piece)]
        self._prefetched.pop(owner, None)
        for lost in self._leased.pop(owner, {}).values():
            for entry in lost:
                self._give_back(entry, None)
        for entry in entries:
            self._lease(owner, entry)

    def _claim(self, owner: bytes, pieces: Iterable[Piece], now: float) -> None:
        """Lease items that are ready to `owner`, which has them from a former actor."""
        wanted: dict[int, list[Interval]] = {}
        for offset, first, last in pieces:
            wanted.setdefault(offset, []).append((first, last))
        if not wanted:
            return
        passed: list[QueueEntry] = []
        last_offset = max(wanted)
        while (entry := self._pop_ready()) is not None:
            if entry.offset > last_offset:
                passed.append(entry)
                break
            for first, last in wanted.get(entry.offset, ()):
                first, last = max(first, entry.first), min(last, entry.last)
                if first >= last:
                    continue
                if first > entry.first:
                    passed.append(entry.part(entry.first, first))
                mine = replace(
                    entry.part(first, last),
                    delivery_count=max(1, entry.delivery_count),
                    deadline=now + self._lease_s,
                    is_handed_out=True,
                )
                self._lease(owner, mine)
                entry = entry.part(last, entry.last)
            if entry.count:
                passed.append(entry)
        for entry in passed:
            self._put_back(entry)

    def expire(self, now: float) -> bool:
        """Make items ready whose lease or delay has ended; return whether there were any."""
        late = [
            (owner, (entry.offset, entry.first, entry.last))
            for owner, leases in self._leased.items()
            for entries in leases.values()
            for entry in entries
            if entry.deadline <= now
        ]
        for owner, piece in late:
            for entry in self._cut(owner, piece):
                self._give_back(entry, None)
        any_came = bool(late)
        while self._later and self._later[0][0] <= now:
            self._put_back(heapq.heappop(self._later)[3])
            any_came = True
        return any_came

    def take_dead(self) -> list[QueueEntry]:
        """Take dead items, as consumed: the caller commits that together with the dead letters."""
        dead, self._dead = self._dead, []
        for entry in dead:
            self._consume(entry)
        return dead

    # --- counts and position -----------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Items in memory that can be taken."""
        return self._ready_items

    @property
    def size(self) -> int:
        """Items that no process has, including those of the backlog, and delayed ones."""
        later = sum(entry.count for *_, entry in self._later)
        return self._ready_items + self._backlog_items + later

    def prefetched(self, owner: bytes | None = None) -> int:
        """Items that `owner`, or all, have prefetched and not handed out, by their last reports."""
        if owner is None:
            return sum(self._prefetched.values())
        return self._prefetched.get(owner, 0)

    @property
    def next_offset(self) -> int:
        """Next offset of the log to add."""
        return self._next_offset

    @property
    def backlog_start(self) -> int | None:
        """Offset to read values of the backlog from; None: no backlog, or no room for it."""
        is_enough = self._ready_items >= self.wanted or self.ready_bytes > MAX_BATCH_BYTES
        if not self._backlog or (is_enough and self.ready_bytes > self._max_ready_bytes // 2):
            return None
        return self._backlog[0].first_offset

    def position(self, epoch: int) -> QueuePosition:
        """Current position. Consumed items before its offset are forgotten."""
        entries = list(self._entries())
        start = min((entry.offset for entry in entries), default=self._next_offset)
        if self._fresh:
            start = min(start, self._fresh[0].offset)
        if self._backlog:
            start = min(start, self._backlog[0].first_offset)
        self._consumed.forget_before(start)
        return QueuePosition(
            epoch=epoch,
            offset=start,
            records=self._consumed.records,
            parts=self._consumed.parts,
            deliveries=[
                (entry.offset, entry.first, entry.last, entry.delivery_count)
                for entry in entries
                if entry.delivery_count
            ],
        )

    def _entries(self) -> Iterator[QueueEntry]:
        """Entries except the fresh ones and the backlog."""
        for leases in self._leased.values():
            for entries in leases.values():
                yield from entries
        yield from (entry for *_, entry in self._again)
        yield from (entry for *_, entry in self._later)
        yield from self._dead

    # --- entries -----------------------------------------------------------------------------

    def _pop_ready(self) -> QueueEntry | None:
        if self._again and (not self._fresh or self._again[0][0] <= self._fresh[0].offset):
            entry = heapq.heappop(self._again)[2]
        elif self._fresh:
            entry = self._fresh.popleft()
        else:
            return None
        self._count_ready(entry, -1)
        return entry

    def _lease(self, owner: bytes, entry: QueueEntry) -> None:
        self._leased.setdefault(owner, {}).setdefault(entry.offset, []).append(entry)
        more = 0 if entry.is_handed_out else entry.count
        self._prefetched[owner] = self._prefetched.get(owner, 0) + more

    def _put_back(self, entry: QueueEntry) -> None:
        heapq.heappush(self._again, (entry.offset, entry.first, entry))
        self._count_ready(entry, 1)

    def _give_back(self, entry: QueueEntry, at: float | None) -> None:
        if entry.delivery_count >= self._max_deliveries:
            self._dead.append(entry)
        elif at is not None:
            heapq.heappush(self._later, (at, entry.offset, entry.first, entry))
        else:
            self._put_back(entry)

    def _count_ready(self, entry: QueueEntry, sign: int) -> None:
        self._ready_items += sign * entry.count
        self.ready_bytes += sign * len(entry.value) * entry.count // max(1, entry.total)

    def _cut(self, owner: bytes, piece: Piece) -> list[QueueEntry]:
        """Remove the piece from what `owner` has, and return the entries."""
        offset, first, last = piece
        leases = self._leased.get(owner, {})
        entries = leases.get(offset)
        if entries is None:
            return []
        cut: list[QueueEntry] = []
        rest: list[QueueEntry] = []
        for entry in entries:
            start, end = max(first, entry.first), min(last, entry.last)
            if start >= end:
                rest.append(entry)
                continue
            cut.append(entry.part(start, end))
            if entry.first < start:
                rest.append(entry.part(entry.first, start))
            if end < entry.last:
                rest.append(entry.part(end, entry.last))
        if rest:
            leases[offset] = rest
        else:
            del leases[offset]
        self._prefetched[owner] -= sum(entry.count for entry in cut if not entry.is_handed_out)
        return cut

    def _consume(self, entry: QueueEntry) -> None:
        self._consumed.add(entry.offset, entry.first, entry.last, entry.total)
