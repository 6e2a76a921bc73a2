"""A member's work between its two threads: what was polled, is processed, waits to be taken.

What always holds:
    Nothing is finished before its function has returned and, where results are handed out, before
    the result was acknowledged by its taker. With at-most-once it is finished when it is
    committed, and then processed once at most: what a worker has when it dies is not given again.
    What is open is bounded: `has_room` says when to poll for more.

Everything is guarded by one condition, which is notified of every change.

Not here: polling and committing (member), who processes what (dispatcher), the workers
(member_workers), results (processed_batches).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

import pyarrow as pa

from ...wire.record_metadata import TopicPartition
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

    `on_change` is called when there may be something to commit, or room to poll.
    """

    def __init__(self, config: MemberConfig, life: str, on_change: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self._config = config
        self._progress = Progress()
        self._maker = BatchMaker(config.order, config.lanes, apart=config.exactly_once)
        self._dispatcher = Dispatcher(
            lanes=config.lanes,
            max_in_flight=config.max_in_flight,
            # Merged batches could be of two partitions, of which one may go to another member.
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
            # Without a function the caller of poll has those that were handed out.
            open_rows = self.processed.rows(with_handed=self._config.function is not None)
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
                    self.processed.put(batch, CallOutcome(), batch.table)
                else:
                    self._dispatcher.add(batch)
            self.workers.start()

    def reread(self, batches: Iterable[Batch]) -> None:
        """Not to be processed now: their offsets could not be committed."""
        with self.changed:
            for batch in batches:
                self._progress.rewind(batch.spans)

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

    def counts(self) -> tuple[int, int, int]:
        """Batches that wait, that are with workers, and that wait to be taken or acknowledged."""
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
        """Start nothing more of these partitions, and wait until what was started is finished."""
        with self.changed:
            if self._config.commits_first:
                return True  # the commits are this group's, whichever member has the partition
            self._dispatcher.hold(keys)
            if self._draining:
                return not self._dispatcher.in_flight(keys)
            return self.changed.wait_for(lambda: not self._is_busy(keys), timeout_s)

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
            self.processed.on_positions_changed()
            return seeks

    def resume(self) -> None:
        """After a rebalance: go on with what came back, drop what waits of the others."""
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
