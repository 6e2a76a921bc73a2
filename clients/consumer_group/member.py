"""One member of a group as a Ray actor: polls, has batches processed, commits finished ones.

Three kinds of threads:
    one owns the consumer: it polls all the time, with partitions paused while there is no room, so
        that neither session nor max_poll_interval_ms time out however long a function takes;
    a processing thread: it runs the function (local_pool), or handles the outcomes of worker actors
        (actor_pool);
    Ray's threads for calls of the handle: `take`, `acknowledge`, `poll`, `status`.

Invariants:
    A member is static (KIP-345): when Ray restarts the actor, the new process gets the same
    partitions under the same name, without a rebalance or a session timeout.
    In a rebalance partitions are revoked when their started batches are finished, after
    `revoke_timeout_ms` at the latest. Batches finished later are committed only if the
    partition was assigned to the member again; otherwise its new owner processes them again.
    `__init__` must not raise, because Ray never restarts an actor whose constructor has failed:
    `take` raises the error.
    With exactly_once offsets are only committed in a transaction with their output.

Not here: the consumer and its wake-ups (member_consumer), rebalances (member_rebalances),
assignment of batches to workers (work, dispatcher), creation of members (group).
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from functools import partial
from typing import Any, Final

import pyarrow as pa
import ray

from ...protocol.errors import ConnectionFailed, FencedInstanceId, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..consumer.consumer import Consumer
from ..consumer.poll_steps import EMPTY
from ..wire.cluster_client import is_retriable
from .commit_calls import CommitCalls
from .member_consumer import BACKOFF_S, MemberConsumer, undisturbed
from .member_rebalances import MemberRebalances
from .output_committer import OutputCommitter
from .processing.actor_pool import ActorPool
from .processing.batch import Batch
from .processing.local_pool import LocalPool, Pool
from .processing.member_config import MemberConfig
from .processing.processed_batches import MemberReport
from .processing.work import MemberWork
from .status import MemberStatus, PartitionStatus

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_S: Final = 60.0


class MemberProcess:
    """Code of the member actor. The handle's methods may be called from any thread."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config
        self._life = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._consumer = MemberConsumer(config, self._stopping)
        self._work = MemberWork(config, self._life, self._consumer.wake)
        self._rebalances = MemberRebalances(
            config, self._work, self._consumer, self._commit_finished
        )
        self._commits = CommitCalls(self._work.changed)
        self._awaits_results = False
        self._leave_deadline: float | None = None
        self._pool: Pool | None = None
        self._writer = OutputCommitter(config, self._work) if config.exactly_once else None
        self._thread = threading.Thread(target=self._run, name="bradbury-member", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        """Name shown in Ray's dashboard, `ray list actors` and each line of its log."""
        return f"{type(self).__name__}({self._config.group}, {self._config.instance_id})"

    # --- the handle's side -------------------------------------------------------------------

    @ray.method(max_task_retries=-1)
    def take(
        self, life: str, known: list[int], done: list[int], version: int, timeout_s: float
    ) -> MemberReport:
        """See ProcessedBatches.take. Ray retries it in the next process if this process ends.

        Args:
            life: id of the process that `known` and `done` refer to; other processes ignore them.
            known: numbers of results that the caller has.
            done: numbers of results that the caller has handled.
            version: version of the state that the caller knows.
            timeout_s: maximum seconds to wait for a newer state.
        """
        if life != self._life:
            return self._work.processed.take([], -1, 0)
        self._work.processed.acknowledge(done)
        return self._work.processed.take(known, version, timeout_s)

    @ray.method(concurrency_group="control")
    def acknowledge(self, life: str, numbers: list[int]) -> None:
        """Mark results as handled; those of an earlier process of this member are ignored."""
        if life == self._life:
            self._work.processed.acknowledge(numbers)

    def poll(self, timeout_ms: int = 1000) -> pa.Table:
        """Return the next batch, empty after `timeout_ms`; a later `commit` commits it."""
        entry = self._work.processed.take_one(timeout_ms / 1000)
        return EMPTY if entry is None else entry.result

    @ray.method(concurrency_group="control")
    def commit(self) -> None:
        """Mark all polled batches as done; return when they are committed.

        Raises:
            KafkaError, ConnectionFailed: not committed yet; the commit is retried.
        """
        self._work.processed.acknowledge(None)
        number = self._commits.ask()
        self._consumer.wake()
        if not self._commits.wait(number, lambda: self._work.processed.ended, COMMIT_TIMEOUT_S):
            raise ConnectionFailed(f"not committed within {COMMIT_TIMEOUT_S:.0f} s")

    @ray.method(concurrency_group="control")
    def status(self) -> MemberStatus:
        waiting, running, taken = self._work.counts()
        figures = self._work.processed.figures
        offsets = self._work.offsets()
        return MemberStatus(
            instance_id=self._config.instance_id,
            state="stopping" if self._stopping.is_set() else "running",
            pid=os.getpid(),
            node_id=ray.get_runtime_context().get_node_id(),
            workers=len(self._work.workers.names()) if self._config.workers else 0,
            waiting=waiting,
            running=running,
            to_be_taken=taken,
            records=figures.records,
            records_per_second=figures.per_second(time.monotonic()),
            failed=figures.failed,
            lost_workers=figures.lost_workers,
            resumed_after_s=self._rebalances.assigned_after_s,
            generation=self._rebalances.generation,
            partitions=tuple(
                PartitionStatus(key, position, committed)
                for key, (position, committed) in sorted(offsets.items())
            ),
        )

    @ray.method(concurrency_group="control")
    def resize(self, workers: int) -> None:
        """Change the number of workers, without a rebalance."""
        self._work.workers.resize(workers)

    @ray.method(concurrency_group="life", max_task_retries=-1)
    def alive(self) -> str:
        """Return the id of this process. Ray retries the call until a process answers."""
        return self._life

    @ray.method(concurrency_group="life", max_task_retries=0)
    def watch(self) -> None:
        """Wait until the member has stopped; fails if its process ends before."""
        self._thread.join()

    @ray.method(concurrency_group="life", max_task_retries=-1)
    def stop(self, timeout_s: float | None = None, settle: bool = False) -> bool:
        """Finish batches in progress, commit, leave the group; return False after `timeout_s`.

        With `settle` first wait until all results were handled. It can be called again with other
        arguments.
        """
        return self._stop(timeout_s, settle=settle)

    def __ray_shutdown__(self) -> None:
        """Commit finished batches when Ray shuts the actor down."""
        self._stop(10)

    def _stop(self, timeout_s: float | None, *, settle: bool = False) -> bool:
        self._awaits_results = settle
        self._stopping.set()
        self._consumer.wake()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread that owns the consumer ---------------------------------------------------

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            self._consume()
        except Exception as error:  # raised in calls of the handle
            logger.exception("member %s stops", self._config.instance_id)
            failure = error
        finally:
            self._work.processed.end(failure)
            if self._pool is not None:
                self._pool.close()

    def _consume(self) -> None:
        if self._writer is not None and not self._writer.open(self._stopping):
            return
        consumer = self._consumer.connect(self._rebalances)
        if consumer is None:
            return
        try:
            self._pool = self._make_pool()
            if self._pool is not None:
                self._work.workers.use(self._pool)
            while not self._stopping.is_set() and self._work.processed.failure is None:
                self._step(consumer)
            self._work.drain()
            while self._work.processed.failure is None and not self._may_leave():
                self._step(consumer)  # keep polling, so that the member stays in the group
            self._commit_finished()
        finally:
            self._consumer.close()
            if self._writer is not None:
                self._writer.close()

    def _may_leave(self) -> bool:
        """Whether all batches are finished and, unless that takes too long, committed."""
        work = self._work
        if not work.is_drained() or (self._awaits_results and work.processed.count()):
            return False
        self._commit_finished()  # it is refused during a rebalance, and succeeds afterwards
        if not work.to_commit():
            return True
        if self._leave_deadline is None:
            self._leave_deadline = time.monotonic() + COMMIT_TIMEOUT_S
        return time.monotonic() >= self._leave_deadline

    def _make_pool(self) -> Pool | None:
        config = self._config
        if config.function is None:
            return None
        if not config.workers:
            return LocalPool(config.function, self._work.workers)
        return ActorPool(
            config.function,
            self._work.workers,
            workers=config.workers,
            deliver=config.deliver or config.exactly_once,
            options=config.worker_options,
        )

    def _step(self, consumer: Consumer) -> None:
        """Commit, pause or resume partitions, poll, and dispatch batches."""
        self._consumer.begin_step()
        try:
            self._commit_finished()
            self._pause_or_resume(consumer)
            table = self._consumer.poll()
            if table.num_rows:
                self._accept(consumer, self._work.cut(table))
            else:
                self._note_positions(consumer)
        except (KafkaError, ConnectionFailed) as error:
            if isinstance(error, FencedInstanceId) or not is_retriable(error):
                raise
            logger.warning("member %s: %s; trying again", self._config.instance_id, error)
            self._stopping.wait(BACKOFF_S)

    def _pause_or_resume(self, consumer: Consumer) -> None:
        keys = consumer.assignment()
        if self._work.has_room():
            consumer.resume(*keys)
        else:
            consumer.pause(*keys)

    def _accept(self, consumer: Consumer, batches: list[Batch]) -> None:
        if self._stopping.is_set():
            return  # left to the partition's next owner
        if self._config.commits_first:
            self._commit_first(consumer, batches)
        else:
            self._work.give(batches)

    def _commit_first(self, consumer: Consumer, batches: list[Batch]) -> None:
        """Commit before processing (at most once): batches are never processed twice."""
        firsts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for batch in batches:
            for key, first, last, _ in batch.spans:
                firsts[key] = min(first, firsts.get(key, first))
                ends[key] = max(last + 1, ends.get(key, 0))
        try:
            self._consumer.commit(ends)
        except (KafkaError, ConnectionFailed) as error:
            logger.info(
                "member %s: %s not processed, as their commit failed: %s",
                self._config.instance_id,
                ", ".join(str(key) for key in ends),
                error,
            )
            self._work.reread(batches)
            assigned = set(consumer.assignment())
            for key, first in firsts.items():
                if key in assigned:
                    consumer.seek(key, first)
        else:
            self._work.give(batches, ends)

    def _commit_finished(self) -> None:
        """Commit offsets that have advanced. If the group refuses, batches are processed again."""
        consumer = self._consumer.current
        asked = self._commits.asked
        if consumer is None:
            return
        if self._writer is not None:
            self._writer.commit(consumer)
            return
        offsets = self._work.to_commit()
        error: Exception | None = None
        if offsets:
            try:
                self._consumer.commit(offsets)
            except (KafkaError, ConnectionFailed) as reason:
                logger.info("member %s: not committed: %s", self._config.instance_id, reason)
                error = reason
                if isinstance(reason, FencedInstanceId):
                    raise
            else:
                self._work.on_committed(offsets)
        self._commits.serve(asked, error)

    def _note_positions(self, consumer: Consumer) -> None:
        """Record positions, which are past transaction markers after the last record."""
        known = [key for key, (position, _) in self._work.offsets().items() if position >= 0]
        assigned = set(consumer.assignment())
        for key in known:
            if key in assigned:
                position = undisturbed(partial(consumer.position, key))
                self._work.on_positions({key: position})


_remote: Any = ray.remote  # its type stub lacks max_concurrency and concurrency_groups
MemberActor: Any = _remote(
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=0,
    max_concurrency=16,
    concurrency_groups={"control": 8, "life": 4},
)(MemberProcess)
