"""Processed batches of a member, until their results are acknowledged or committed.

Until a result is acknowledged, it is returned again to a caller that does not have it, so a lost
response loses no result.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ....protocol.topic_partition import TopicPartition
from .batch import Batch, Span
from .function import CallOutcome
from .group_progress import Progress

RATE_SECONDS = 10.0
"""Seconds over which records per second are counted."""


class Entry(NamedTuple):
    """Processed batch. result: a value, or a reference to one that a worker returned.

    table: the rows, if the batch failed. rows: their number.
    """

    number: int
    spans: tuple[Span, ...]
    rows: int
    outcome: CallOutcome
    result: Any
    table: pa.Table | None


class MemberReport(NamedTuple):
    """Report of a member. life: id of its process.

    version: version of the state, for the next call, which waits for a newer one.
    committed: offsets of the partitions it holds. open: number of polled, unfinished batches.
    ended: whether it has ended. failure: error why it cannot continue.
    """

    life: str
    entries: list[Entry]
    committed: dict[TopicPartition, int]
    open: int
    version: int
    ended: bool
    failure: Exception | None


@dataclass(slots=True)
class Figures:
    """Counters of this process of the member."""

    records: int = 0
    batches: int = 0
    failed: int = 0
    lost_workers: int = 0
    recent: deque[tuple[float, int]] = field(default_factory=deque)

    def on_done(self, rows: int, now: float) -> None:
        self.records += rows
        self.batches += 1
        self.recent.append((now, rows))
        self._forget(now)

    def per_second(self, now: float) -> float:
        self._forget(now)
        return sum(rows for _, rows in self.recent) / RATE_SECONDS

    def _forget(self, now: float) -> None:
        while self.recent and self.recent[0][0] < now - RATE_SECONDS:
            self.recent.popleft()


def _without_lost(entry: Entry, spans: tuple[Span, ...]) -> Entry:
    """Keep only `spans` in an entry; another member reads the other ones again."""
    table: pa.Table = entry.result
    kept = pa.concat_tables(
        table.filter((pc.field("topic") == key.topic) & (pc.field("partition") == key.partition))
        for key in dict.fromkeys(span.topic_partition for span in spans)
    )
    return entry._replace(spans=spans, rows=kept.num_rows, result=kept)


class ProcessedBatches:
    """Results in order of completion, and the state of the member.

    changed: the condition of the member's work, which guards this object.
    open_elsewhere: returns the number of batches that are polled and not processed yet.
    commits_first: whether batches here are committed already (at most once).
    on_change: called when there may be offsets to commit, or room to poll.
    """

    def __init__(
        self,
        life: str,
        changed: threading.Condition,
        progress: Progress,
        *,
        commits_first: bool,
        open_elsewhere: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self.figures = Figures()
        self.failure: Exception | None = None
        self.ended = False
        self._life = life
        self._changed = changed
        self._progress = progress
        self._commits_first = commits_first
        self._open_elsewhere = open_elsewhere
        self._on_change = on_change
        self._results: deque[Entry] = deque()
        self._handed: dict[int, Entry] = {}
        self._version = 0

    # --- from the holder of the handle -------------------------------------------------------

    def take(
        self, known: Collection[int], version: int, timeout_s: float, *, limit: int = 1_000
    ) -> MemberReport:
        """Wait for results that are not in `known`, or for a newer state than `version`."""

        def has_news() -> bool:
            return (
                bool(self._results)
                or any(number not in known for number in self._handed)
                or self._version != version
                or self.ended
                or self.failure is not None
            )

        with self._changed:
            self._changed.wait_for(has_news, timeout_s)
            entries = [entry for number, entry in self._handed.items() if number not in known]
            while self._results and len(entries) < limit:
                entry = self._results.popleft()
                self._handed[entry.number] = entry
                entries.append(entry)
            return MemberReport(
                self._life,
                entries[:limit],
                self._progress.committed(),
                self.count() + self._open_elsewhere(),
                self._version,
                self.ended,
                self.failure,
            )

    def take_one(self, timeout_s: float) -> Entry | None:
        """Return the next polled table, with the rows of partitions that the member still has; None
        after `timeout_s`. Tables of suspended partitions wait for the end of the rebalance.

        Raises the error why the member cannot continue.
        """

        def place() -> int | None:
            progress = self._progress
            for number, each in enumerate(self._results):
                current = progress.current(each.spans)
                if self._commits_first or all(progress.is_held(one[0]) for one in current):
                    return number
            return None

        with self._changed:
            self._changed.wait_for(
                lambda: place() is not None or self.ended or self.failure is not None, timeout_s
            )
            if self.failure is not None:
                raise self.failure
            found = place()
            if found is None:
                return None
            entry = self._results[found]
            del self._results[found]
            spans = entry.spans if self._commits_first else self._progress.current(entry.spans)
            if len(spans) < len(entry.spans):
                entry = _without_lost(entry, spans)
            self._handed[entry.number] = entry._replace(result=None)
            self.notify()
            return entry

    def acknowledge(self, numbers: Collection[int] | None) -> None:
        """Mark these results, or all returned ones, as handled."""
        with self._changed:
            for number in list(self._handed) if numbers is None else numbers:
                entry = self._handed.pop(number, None)
                if entry is not None:
                    self.finish(entry.spans, entry.rows)
            self.notify()

    def end(self, failure: Exception | None = None) -> None:
        """Mark the member as ended."""
        with self._changed:
            self.failure = self.failure or failure
            self.ended = True
            self._changed.notify_all()

    # --- from the rest of the work, which holds the condition --------------------------------

    def put(
        self, batch: Batch, outcome: CallOutcome, result: Any, table: pa.Table | None = None
    ) -> None:
        self._results.append(Entry(batch.number, batch.spans, batch.rows, outcome, result, table))
        self._changed.notify_all()

    def put_failed(self, batch: Batch, outcome: CallOutcome) -> None:
        self.figures.failed += 1
        self.put(batch, outcome, None, batch.table)

    def finish(self, spans: tuple[Span, ...], rows: int) -> None:
        """Mark records as finished: they may be committed."""
        self._progress.on_finished(spans)
        self._version += 1
        self.figures.on_done(rows, time.monotonic())

    def on_positions_changed(self) -> None:
        """Wake callers that wait for committed offsets or the assignment."""
        self._version += 1
        self._changed.notify_all()

    def discard_lost(self) -> None:
        """Drop results of partitions that another member has now."""
        self._results = deque(
            entry for entry in self._results if self._progress.is_current(entry.spans)
        )

    def count(self) -> int:
        """Number of results that wait to be taken or acknowledged."""
        return len(self._results) + len(self._handed)

    def rows(self, *, with_handed: bool) -> list[int]:
        """Row counts of results to be taken; with `with_handed` also of unacknowledged ones."""
        entries = [*self._results, *(self._handed.values() if with_handed else ())]
        return [entry.rows for entry in entries]

    def holds(self, keys: Collection[TopicPartition]) -> bool:
        """Whether any result has records of these partitions."""
        entries = (*self._results, *self._handed.values())
        return any(span.topic_partition in keys for entry in entries for span in entry.spans)

    def notify(self) -> None:
        self._changed.notify_all()
        self._on_change()
