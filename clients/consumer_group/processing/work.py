"""A member's batches between its threads: polled, being processed, waiting to be taken.

Invariants:
    A batch is not finished before its function has returned and, if results are returned, before
    the caller has acknowledged the result. With at-most-once it is finished when it is committed,
    and processed at most once: batches of a worker that dies are not retried.
    The number of open rows is bounded: `has_room` decides when to poll.

Everything is guarded by one condition, which is notified of every change.

Not here: polling and committing (member), assignment to workers (dispatcher), the workers
(member_workers), results (processed_batches).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

import pyarrow as pa

from ....protocol.topic_partition import TopicPartition
from .batch import Batch, BatchMaker
from .dispatcher import Dispatcher
from .function import CallOutcome
from .group_progress import Progress
from .member_config import MemberConfig
from .member_workers import MemberWorkers
from .processed_batches import ProcessedBatches
from .uncommitted import BatchEvents, Uncommitted


class MemberWork:
    """Batches from poll to commit, as the polling thread sees them.

    on_change: called when there may be offsets to commit, or room to poll.
    """

    def __init__(self, config: MemberConfig, life: str, on_change: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self._config = config
        self._progress = Progress()
        self._maker = BatchMaker(config.order, config.lanes, apart=config.exactly_once)
        self._dispatcher = Dispatcher(
            lanes=config.lanes,
            max_in_flight=config.max_in_flight,
            # Merged batches could have two partitions, one of which may move to another member.
            batch_records=0 if config.exactly_once else config.batch_records,
            merge=self._maker.merge,
        )
        self.processed = ProcessedBatches(
            life,
            self.changed,
            self._progress,
            commits_first=config.commits_first,
            open_elsewhere=self._unprocessed_count,
            on_change=on_change,
        )
        self.uncommitted = Uncommitted(
            self.changed,
            self._progress,
            BatchEvents(
                finished=lambda batch: self.processed.finish(batch.spans, batch.rows),
                failed=self.processed.put_failed,
                again=self._start_again,
            ),
        )
        self.workers = MemberWorkers(
            config,
            self.changed,
            self._dispatcher,
            progress=self._progress,
            uncommitted=self.uncommitted,
            processed=self.processed,
        )
        self._draining = False

    def has_room(self) -> bool:
        """Whether another poll's worth of rows may be open."""
        with self.changed:
            if self._draining:
                return False
            slots = self._config.max_in_flight * self.workers.wanted
            batches = slots if self._config.order is None else max(slots, 2 * self._config.lanes)
            # Without a function, batches that poll has returned are not counted: its caller has
            # them.
            open_rows = self.processed.rows(with_handed=self._config.function is not None)
            open_rows += [batch.rows for batch in self.uncommitted.batches()]
            rows = self._dispatcher.rows() + sum(open_rows)
            count = self._dispatcher.waiting() + self._dispatcher.in_flight() + len(open_rows)
            return rows < slots * self._config.batch_records and count < batches

    def cut(self, table: pa.Table) -> list[Batch]:
        """Split a poll into batches, which are unfinished from now on."""
        batches = self._maker.cut(table)
        with self.changed:
            for batch in batches:
                if self._progress.on_read(batch.spans):
                    self.uncommitted.drop_lost()
        return batches

    def give(
        self,
        batches: Iterable[Batch],
        committed: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Queue batches for the workers or, without a function, for callers of poll.

        Args:
            batches: those of one poll.
            committed: with at-most-once, their offsets, which are committed already.
        """
        with self.changed:
            if committed is not None:
                self._progress.on_committed(committed)
            for batch in batches:
                if committed is not None:
                    self._progress.on_finished(batch.spans)
                if self._config.function is None:
                    self.processed.put(batch, CallOutcome(), batch.table)
                else:
                    self._dispatcher.add(batch)
            self.workers.start()

    def reread(self, batches: Iterable[Batch]) -> None:
        """Drop batches whose offsets could not be committed; they are read again."""
        with self.changed:
            for batch in batches:
                self._progress.rewind(batch.spans)

    def drain(self) -> None:
        """Start no more batches, except those that are committed already."""
        with self.changed:
            self._draining = True
            if not self._config.commits_first:
                self._dispatcher.discard(lambda _: True)

    def is_drained(self) -> bool:
        """Whether every function call has returned."""
        with self.changed:
            return not self._dispatcher.in_flight() and not self._dispatcher.waiting()

    def counts(self) -> tuple[int, int, int]:
        """Numbers of batches that wait, are with workers, and wait to be taken or acknowledged."""
        with self.changed:
            dispatcher = self._dispatcher
            return dispatcher.waiting(), dispatcher.in_flight(), self.processed.count()

    def _unprocessed_count(self) -> int:
        dispatcher = self._dispatcher
        return dispatcher.waiting() + dispatcher.in_flight() + len(self.uncommitted.batches())

    def _start_again(self, batch: Batch) -> None:
        self.workers.start_again(batch)

    # --- offsets -----------------------------------------------------------------------------

    def on_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        with self.changed:
            self._progress.on_position(positions)

    def to_commit(self) -> dict[TopicPartition, int]:
        with self.changed:
            return self._progress.to_commit()

    def on_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self.changed:
            self._progress.on_committed(offsets)
            self.processed.on_positions_changed()

    def offsets(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """Position and committed offset of each partition held."""
        with self.changed:
            return self._progress.offsets()

    # --- rebalances --------------------------------------------------------------------------

    def settle(self, keys: Collection[TopicPartition], timeout_s: float) -> bool:
        """Start no more batches of these partitions, and wait until started ones are finished."""
        with self.changed:
            if self._config.commits_first:
                return True  # committed already, so that another member does not repeat them
            self._dispatcher.hold(keys)
            if self._draining:
                return not self._dispatcher.in_flight(keys)
            return self.changed.wait_for(lambda: not self._is_busy(keys), timeout_s)

    def suspend(self, keys: Iterable[TopicPartition]) -> None:
        """Suspend revoked partitions: batches in flight continue, but are not committed."""
        with self.changed:
            keys = list(keys)
            self._dispatcher.hold(keys)
            self._progress.suspend(keys)

    def on_assigned(
        self, committed: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """Add assigned partitions, with their committed offsets; return offsets to seek to."""
        with self.changed:
            seeks = {}
            for key, offset in committed.items():
                position = self._progress.on_assigned(key, offset)
                if position is not None:
                    seeks[key] = position
            self.processed.on_positions_changed()
            return seeks

    def resume(self) -> None:
        """After a rebalance continue with partitions assigned again; drop batches of the others."""
        with self.changed:
            self._progress.drop_suspended()
            self._dispatcher.release()
            if not self._config.commits_first:
                self._dispatcher.discard(lambda batch: not self._progress.is_current(batch.spans))
                self.processed.discard_lost()
                self.uncommitted.drop_lost()
            self.workers.start()
            self.processed.notify()

    def _is_busy(self, keys: Collection[TopicPartition]) -> bool:
        return bool(self._dispatcher.in_flight(keys)) or self.processed.holds(keys)
