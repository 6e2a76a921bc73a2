"""A member's work between its two threads: what was polled, is processed, waits to be taken.

What always holds:
    Nothing is finished before its function has returned and, where results are handed out, before
    the result was acknowledged by its taker. With at-most-once it is finished when it is
    committed, and then processed once at most: what a worker has when it dies is not given again.
    What is open is bounded: `has_room` says when to poll for more.
    A result that was handed out is handed out again, to a caller that does not know it, until it is
    acknowledged: an answer that was lost on its way loses nothing.

Everything is guarded by one condition, which is notified of every change.

Not here: polling and committing (member), who processes what (dispatcher).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from ..wire.record_metadata import TopicPartition
from .batch import Batch, BatchMaker, Span
from .dispatcher import Dispatcher
from .function import CallOutcome, WorkerDied
from .group_progress import Progress
from .local_pool import Pool
from .member_config import MemberConfig
from .uncommitted import BatchEvents, Uncommitted

logger = logging.getLogger(__name__)

RATE_SECONDS = 10.0
"""Over which records per second are counted."""


class Entry(NamedTuple):
    """A batch that is processed. result: a value, or a reference to one that a worker returned.

    table: the rows, if the batch failed. rows: how many they are.
    """

    number: int
    spans: tuple[Span, ...]
    rows: int
    outcome: CallOutcome
    result: Any
    table: pa.Table | None


class MemberReport(NamedTuple):
    """A member's report. life: the number of its process's start.

    version: to be said in the next call, which waits for something newer.
    committed: of the partitions it holds. open: batches that were polled and are not finished.
    ended: nothing more comes. failure: why it cannot go on.
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
    """Since this life of the member began."""

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


class MemberWork:
    """`on_change` is called when there may be something to commit, or room to poll."""

    def __init__(self, config: MemberConfig, life: str, on_change: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self.life = life
        self.figures = Figures()
        self.failure: Exception | None = None
        self.ended = False
        self._config = config
        self._on_change = on_change
        self._progress = Progress()
        self._maker = BatchMaker(config.order, config.lanes, apart=config.exactly_once)
        self._dispatcher = Dispatcher(
            lanes=config.lanes,
            max_in_flight=config.max_in_flight,
            # Merged batches could be of two partitions, of which one may go to another member.
            batch_records=0 if config.exactly_once else config.batch_records,
            merge=self._maker.merge,
        )
        self.uncommitted = Uncommitted(
            self.changed,
            self._progress,
            BatchEvents(
                finished=lambda batch: self._finish(batch.spans, batch.rows),
                failed=self._on_failed,
                again=self._again,
            ),
        )
        self._pool: Pool | None = None
        self._workers = max(1, config.workers)
        self._results: deque[Entry] = deque()
        self._handed: dict[int, Entry] = {}
        self._version = 0
        self._draining = False

    def use(self, pool: Pool) -> None:
        with self.changed:
            self._pool = pool
            self.resize(self._workers)

    # --- from the thread that polls ----------------------------------------------------------

    def has_room(self) -> bool:
        """Whether another poll's worth of rows may be open."""
        with self.changed:
            if self._draining:
                return False
            slots = self._config.max_in_flight * self._workers
            batches = slots if self._config.order is None else max(slots, 2 * self._config.lanes)
            done = [*self._results]
            if self._config.function is not None:
                done += self._handed.values()  # else the caller of poll has them
            open_rows = [entry.rows for entry in done]
            open_rows += [batch.rows for batch in self.uncommitted.batches()]
            rows = self._dispatcher.rows() + sum(open_rows)
            count = self._dispatcher.waiting() + self._dispatcher.in_flight() + len(open_rows)
            return rows < slots * self._config.batch_records and count < batches

    def cut(self, table: pa.Table) -> list[Batch]:
        """The batches of a poll, unfinished from now on."""
        batches = self._maker.cut(table)
        with self.changed:
            for batch in batches:
                self._progress.on_read(batch.spans)
        return batches

    def give(
        self,
        batches: Iterable[Batch],
        committed: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Hand a batch to the workers; or, where there is no function, to the caller of poll.

        Args:
            batches: of one poll.
            committed: with at-most-once, their offsets, which are stored by now.
        """
        with self.changed:
            if committed is not None:
                self._progress.on_committed(committed)
            for batch in batches:
                if committed is not None:
                    self._progress.on_finished(batch.spans)
                if self._config.function is None:
                    self._put(batch, CallOutcome(), batch.table)
                else:
                    self._dispatcher.add(batch)
            self._start()

    def reread(self, batches: Iterable[Batch]) -> None:
        """Not to be processed now: their offsets could not be committed."""
        with self.changed:
            for batch in batches:
                self._progress.rewind(batch.spans)

    def on_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        with self.changed:
            self._progress.on_position(positions)

    def to_commit(self) -> dict[TopicPartition, int]:
        with self.changed:
            return self._progress.to_commit()

    def on_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self.changed:
            self._progress.on_committed(offsets)
            self._version += 1
            self.changed.notify_all()

    def settle(self, keys: Collection[TopicPartition], timeout_s: float) -> bool:
        """Start nothing more of these partitions, and wait until what was started is finished."""
        with self.changed:
            if self._config.commits_first:
                return True  # the commits are this group's, whichever member has the partition
            self._dispatcher.hold(keys)
            if self._draining:
                return not self._dispatcher.in_flight(keys)
            return self.changed.wait_for(lambda: not self._is_busy(keys), timeout_s)

    def drain(self) -> None:
        """Start nothing more. What is committed already is finished all the same."""
        with self.changed:
            self._draining = True
            if not self._config.commits_first:
                self._dispatcher.discard(lambda _: True)

    def is_drained(self) -> bool:
        """Whether every function has returned."""
        with self.changed:
            return not self._dispatcher.in_flight() and not self._dispatcher.waiting()

    def suspend(self, keys: Iterable[TopicPartition]) -> None:
        """They are revoked. What is in flight goes on, and nothing of it is committed for now."""
        with self.changed:
            keys = list(keys)
            self._dispatcher.hold(keys)
            self._progress.suspend(keys)

    def on_assigned(
        self, committed: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """Partitions are given, with what the group has stored of them; returns where to seek."""
        with self.changed:
            seeks = {}
            for key, offset in committed.items():
                position = self._progress.on_assigned(key, offset)
                if position is not None:
                    seeks[key] = position
            self._version += 1
            return seeks

    def resume(self) -> None:
        """After a rebalance: go on with what came back, drop what waits of the others."""
        with self.changed:
            self._progress.drop_suspended()
            self._dispatcher.release()
            if not self._config.commits_first:
                self._dispatcher.discard(lambda batch: not self._progress.is_current(batch.spans))
                self._results = deque(
                    entry for entry in self._results if self._progress.is_current(entry.spans)
                )
                self.uncommitted.drop_lost()
            self._start()
            self._notify()

    def end(self, failure: Exception | None = None) -> None:
        """The member has ended."""
        with self.changed:
            self.failure = self.failure or failure
            self.ended = True
            self.changed.notify_all()

    # --- from the holder of the handle -------------------------------------------------------

    def take(
        self, known: Collection[int], version: int, timeout_s: float, *, limit: int = 1_000
    ) -> MemberReport:
        """What is processed and not in `known`, or another state than `version`, waited for."""

        def has_news() -> bool:
            return (
                bool(self._results)
                or any(number not in known for number in self._handed)
                or self._version != version
                or self.ended
                or self.failure is not None
            )

        with self.changed:
            self.changed.wait_for(has_news, timeout_s)
            entries = [entry for number, entry in self._handed.items() if number not in known]
            while self._results and len(entries) < limit:
                entry = self._results.popleft()
                self._handed[entry.number] = entry
                entries.append(entry)
            return MemberReport(
                self.life,
                entries[:limit],
                self._progress.committed(),
                self._open_count(),
                self._version,
                self.ended,
                self.failure,
            )

    def take_one(self, timeout_s: float) -> Entry | None:
        """The next result, or None after `timeout_s`. Raises why the member cannot go on."""
        with self.changed:
            self.changed.wait_for(
                lambda: self._results or self.ended or self.failure is not None, timeout_s
            )
            if self.failure is not None:
                raise self.failure
            if not self._results:
                return None
            entry = self._results.popleft()
            self._handed[entry.number] = entry._replace(result=None)
            self._notify()
            return entry

    def acknowledge(self, numbers: Collection[int] | None) -> None:
        """What was done with these results, or with all that were handed out, is done."""
        with self.changed:
            for number in list(self._handed) if numbers is None else numbers:
                entry = self._handed.pop(number, None)
                if entry is not None:
                    self._finish(entry.spans, entry.rows)
            self._notify()

    def resize(self, workers: int) -> None:
        """More workers, or those that are too many as soon as they have nothing left."""
        with self.changed:
            if not self._config.workers:
                return  # a member that processes by itself is its only worker
            self._workers = workers
            if self._pool is None:
                return
            for worker in self._dispatcher.retiring:
                if len(self._dispatcher.workers) < workers:
                    self._dispatcher.add_worker(worker)  # it has not gone yet: it stays
            self._pool.resize(workers + len(self._dispatcher.retiring))
            for worker in self._dispatcher.workers[workers:]:
                if self._dispatcher.retire_worker(worker):
                    self._dismiss(worker)
            self._start()
            self._notify()

    def counts(self) -> tuple[int, int, int]:
        """Batches that wait, that are with workers, and that wait to be taken or acknowledged."""
        with self.changed:
            dispatcher = self._dispatcher
            done = len(self._results) + len(self._handed)
            return dispatcher.waiting(), dispatcher.in_flight(), done

    def workers(self) -> list[str]:
        with self.changed:
            return list(self._dispatcher.workers)

    def offsets(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """Position and committed offset of each partition held."""
        with self.changed:
            return self._progress.offsets()

    # --- from the pool: PoolEvents -----------------------------------------------------------

    def on_worker_up(self, worker: str) -> None:
        with self.changed:
            self._dispatcher.add_worker(worker)
            if len(self._dispatcher.workers) > self._workers:  # fewer are wanted by now
                self._dispatcher.retire_worker(worker)
                self._dismiss(worker)
            self._start()

    def on_worker_down(self, worker: str, reason: Exception) -> None:
        with self.changed:
            lost = self._dispatcher.remove_worker(worker)
            self.figures.lost_workers += 1
            logger.warning("worker %s died with %d batches: %s", worker, len(lost), reason)
            most = 1 if self._config.commits_first else self._config.max_attempts
            given_up = [batch for batch in lost if self._config.commits_first]
            given_up = given_up or [batch for batch in lost if batch.attempts >= most]
            self._dispatcher.discard(lambda batch: batch in given_up)
            for batch in given_up:
                died = WorkerDied(f"{batch.attempts} workers died of it; the last: {reason}")
                self._on_failed(batch, CallOutcome(died))
            self._start()
            self._notify()

    def on_outcome(self, worker: str, batch: Batch, outcome: CallOutcome, result: Any) -> None:
        with self.changed:
            if not self._dispatcher.on_finished(worker, batch):
                return
            if worker not in self._dispatcher.workers and self._dispatcher.is_idle(worker):
                self._dismiss(worker)
            self._on_outcome(batch, outcome, result)
            self._start()
            self._notify()

    def on_failure(self, error: Exception) -> None:
        with self.changed:
            self.failure = self.failure or error
            self._notify()

    # --- inside, with the condition held -----------------------------------------------------

    def _on_outcome(self, batch: Batch, outcome: CallOutcome, result: Any) -> None:
        if not self._config.commits_first and not self._progress.is_current(batch.spans):
            return  # its partitions are another's, who does it again
        if outcome.error is None and self._config.exactly_once:
            self.uncommitted.put(batch, result)
        elif outcome.error is None and self._config.deliver:
            self._put(batch, outcome, result)
        elif outcome.error is None:
            self._finish(batch.spans, batch.rows)
        else:
            batch.attempts += 1
            may_retry = self._config.retry_exceptions and not self._config.commits_first
            if may_retry and batch.attempts < self._config.max_attempts:
                self._dispatcher.add(batch, first=True)
            else:
                self._on_failed(batch, outcome)

    def _on_failed(self, batch: Batch, outcome: CallOutcome) -> None:
        self.figures.failed += 1
        self._put(batch, outcome, None, batch.table)

    def _put(
        self, batch: Batch, outcome: CallOutcome, result: Any, table: pa.Table | None = None
    ) -> None:
        self._results.append(Entry(batch.number, batch.spans, batch.rows, outcome, result, table))
        self.changed.notify_all()

    def _finish(self, spans: tuple[Span, ...], rows: int) -> None:
        self._progress.on_finished(spans)
        self._version += 1
        self.figures.on_done(rows, time.monotonic())

    def _again(self, batch: Batch) -> None:
        self._dispatcher.add(batch, first=True)
        self._start()

    def _start(self) -> None:
        if self._pool is not None:
            for worker, batch in self._dispatcher.starts():
                self._pool.start(worker, batch)

    def _dismiss(self, worker: str) -> None:
        self._dispatcher.remove_worker(worker)
        if self._pool is not None:
            self._pool.retire(worker)

    def _is_busy(self, keys: Collection[TopicPartition]) -> bool:
        if self._dispatcher.in_flight(keys):
            return True
        done = (*self._results, *self._handed.values())
        return any(span.topic_partition in keys for entry in done for span in entry.spans)

    def _open_count(self) -> int:
        dispatcher = self._dispatcher
        done = len(self._results) + len(self._handed) + len(self.uncommitted.batches())
        return dispatcher.waiting() + dispatcher.in_flight() + done

    def _notify(self) -> None:
        self.changed.notify_all()
        self._on_change()
