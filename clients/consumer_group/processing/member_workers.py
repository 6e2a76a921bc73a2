"""Workers of a member: their number, their batches, and the outcomes (PoolEvents)."""

from __future__ import annotations

import logging
import threading
from typing import Any

from .batch import Batch
from .dispatcher import Dispatcher
from .function import CallOutcome, WorkerDied
from .group_progress import Progress
from .local_pool import Pool
from .member_config import MemberConfig
from .processed_batches import ProcessedBatches
from .uncommitted import Uncommitted

logger = logging.getLogger(__name__)


class MemberWorkers:
    """Workers of one member. changed: condition of the member's work, which guards this."""

    def __init__(
        self,
        config: MemberConfig,
        changed: threading.Condition,
        dispatcher: Dispatcher,
        *,
        progress: Progress,
        uncommitted: Uncommitted,
        processed: ProcessedBatches,
    ) -> None:
        self.wanted = max(1, config.workers)
        self._config = config
        self._changed = changed
        self._dispatcher = dispatcher
        self._progress = progress
        self._uncommitted = uncommitted
        self._processed = processed
        self._pool: Pool | None = None

    def use(self, pool: Pool) -> None:
        with self._changed:
            self._pool = pool
            self.resize(self.wanted)

    def resize(self, workers: int) -> None:
        """Add workers, or retire surplus ones as soon as they have no batches left."""
        with self._changed:
            if not self._config.workers:
                return  # a member that processes by itself is its only worker
            self.wanted = workers
            if self._pool is None:
                return
            for worker in self._dispatcher.retiring:
                if len(self._dispatcher.workers) < workers:
                    self._dispatcher.add_worker(worker)  # it has not ended yet: keep it
            self._pool.resize(workers + len(self._dispatcher.retiring))
            for worker in self._dispatcher.workers[workers:]:
                if self._dispatcher.retire_worker(worker):
                    self._dismiss(worker)
            self.start()
            self._processed.notify()

    def names(self) -> list[str]:
        with self._changed:
            return list(self._dispatcher.workers)

    # --- from the pool: PoolEvents -----------------------------------------------------------

    def on_worker_up(self, worker: str) -> None:
        with self._changed:
            self._dispatcher.add_worker(worker)
            if len(self._dispatcher.workers) > self.wanted:  # fewer are wanted by now
                self._dispatcher.retire_worker(worker)
                self._dismiss(worker)
            self.start()

    def on_worker_down(self, worker: str, reason: Exception) -> None:
        with self._changed:
            lost = self._dispatcher.remove_worker(worker)
            self._processed.figures.lost_workers += 1
            logger.warning("worker %s died with %d batches: %s", worker, len(lost), reason)
            most = 1 if self._config.commits_first else self._config.max_attempts
            given_up = [batch for batch in lost if self._config.commits_first]
            given_up = given_up or [batch for batch in lost if batch.attempts >= most]
            self._dispatcher.discard(lambda batch: batch in given_up)
            for batch in given_up:
                died = WorkerDied(f"{batch.attempts} workers died of it; the last: {reason}")
                self._processed.put_failed(batch, CallOutcome(died))
            self.start()
            self._processed.notify()

    def on_outcome(self, worker: str, batch: Batch, outcome: CallOutcome, result: Any) -> None:
        with self._changed:
            if not self._dispatcher.on_finished(worker, batch):
                return
            if worker not in self._dispatcher.workers and self._dispatcher.is_idle(worker):
                self._dismiss(worker)
            self._on_outcome(batch, outcome, result)
            self.start()
            self._processed.notify()

    def on_failure(self, error: Exception) -> None:
        with self._changed:
            self._processed.failure = self._processed.failure or error
            self._processed.notify()

    # --- with the condition held -------------------------------------------------------------

    def start(self) -> None:
        """Start all batches that can be started now."""
        if self._pool is not None:
            for worker, batch in self._dispatcher.starts():
                self._pool.start(worker, batch)

    def start_again(self, batch: Batch) -> None:
        self._dispatcher.add(batch, first=True)
        self.start()

    def _on_outcome(self, batch: Batch, outcome: CallOutcome, result: Any) -> None:
        if not self._config.commits_first and not self._progress.is_current(batch.spans):
            return  # its partitions belong to another member, which processes it again
        if outcome.error is None and self._config.exactly_once:
            self._uncommitted.put(batch, result)
        elif outcome.error is None and self._config.deliver:
            self._processed.put(batch, outcome, result)
        elif outcome.error is None:
            self._processed.finish(batch.spans, batch.rows)
        else:
            batch.attempts += 1
            may_retry = self._config.retry_exceptions and not self._config.commits_first
            if may_retry and batch.attempts < self._config.max_attempts:
                self._dispatcher.add(batch, first=True)
            else:
                self._processed.put_failed(batch, outcome)

    def _dismiss(self, worker: str) -> None:
        self._dispatcher.remove_worker(worker)
        if self._pool is not None:
            self._pool.retire(worker)
