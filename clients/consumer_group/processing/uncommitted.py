"""Batches whose function has returned, and whose output is not written yet.

Invariants:
    Batches are of one partition each. An offset is written with the output of all records before
    it, and of none after it: a batch waits for those before it, and for those whose rows are
    between its own (records are spread over batches by key).
    A batch whose partition is revoked is not written, and dropped when the partition has another
    owner, which processes it again.

Used with the condition of the member's work.

Not here: the transaction (group_output), the time of writing (member).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....protocol.topic_partition import TopicPartition
from .batch import Batch, Span
from .function import CallOutcome
from .group_progress import Progress


@dataclass(slots=True, eq=False)
class FinishedBatch:
    """Batch with its result: the function's return value, or a reference to it."""

    batch: Batch
    result: Any

    @property
    def span(self) -> Span:
        (span,) = self.batch.spans
        return span


class Writable(NamedTuple):
    """Content of one transaction: batches, and the offsets that they complete."""

    batches: list[FinishedBatch]
    offsets: dict[TopicPartition, int]


@dataclass(slots=True)
class BatchEvents:
    """Callbacks for batches, called with the condition held. again: process the batch again."""

    finished: Callable[[Batch], None]
    failed: Callable[[Batch, CallOutcome], None]
    again: Callable[[Batch], None]


@dataclass(slots=True)
class Uncommitted:
    """Finished batches of a member. changed: the condition of the member's work."""

    changed: threading.Condition
    progress: Progress
    events: BatchEvents
    _batches: list[FinishedBatch] = field(default_factory=list)

    def put(self, batch: Batch, result: Any) -> None:
        """Add a batch whose function has returned. With the condition held."""
        self._batches.append(FinishedBatch(batch, result))

    def batches(self) -> list[Batch]:
        """Batches that are not written yet. With the condition held."""
        return [one.batch for one in self._batches]

    def drop_lost(self) -> None:
        """Drop batches of lost partitions after a rebalance. With the condition held."""
        self._batches = [one for one in self._batches if self.progress.is_current(one.batch.spans)]

    def writable(self, *, few: bool = False) -> Writable:
        """Batches and offsets that may be written now.

        Args:
            few: the smallest possible part, to find a batch that cannot be written.
        """
        with self.changed:
            chosen = self._chosen()
            if few and chosen:
                chosen = _inseparable(chosen)
            return Writable(chosen, self.progress.commit_points(one.span for one in chosen))

    def on_written(self, written: Writable) -> None:
        """Finish the batches of a committed transaction."""
        with self.changed:
            for one in written.batches:
                if one in self._batches:  # else its partition was lost meanwhile
                    self._batches.remove(one)
                    self.events.finished(one.batch)

    def on_lost_result(self, one: FinishedBatch) -> None:
        """Process a batch again, as its result was lost with the worker's process."""
        with self.changed:
            self._batches.remove(one)
            self.events.again(one.batch)

    def on_refused(self, one: FinishedBatch, outcome: CallOutcome) -> None:
        """Fail a batch whose output cannot be written."""
        with self.changed:
            self._batches.remove(one)
            self.events.failed(one.batch, outcome)

    def _chosen(self) -> list[FinishedBatch]:
        chosen = [one for one in self._batches if self.progress.is_held(one.span.topic_partition)]
        while True:
            points = self.progress.commit_points((one.span for one in chosen), all_of=True)
            kept = [one for one in chosen if one.span.last < points[one.span.topic_partition]]
            if len(kept) == len(chosen):
                return chosen
            chosen = kept


def _inseparable(batches: Iterable[FinishedBatch]) -> list[FinishedBatch]:
    """The first batch of a partition, with those that overlap it."""
    ordered = sorted(batches, key=lambda one: (one.span.topic_partition, one.span.first))
    first = ordered[0]
    found = [first]
    last = first.span.last
    for one in ordered[1:]:
        if one.span.topic_partition != first.span.topic_partition or one.span.first > last:
            break
        found.append(one)
        last = max(last, one.span.last)
    return found
