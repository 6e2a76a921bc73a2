"""One member of a group as a Ray actor: it polls, has batches processed, commits what is finished.

Three kinds of threads:
    one owns the consumer: it polls without end, with the partitions paused while there is no room,
        so that neither the session nor max_poll_interval_ms ends however long a function takes;
    those that process: one in this process, or Ray's, which report on workers (local_pool,
        actor_pool);
    Ray's that carry calls of the handle: `take`, `acknowledge`, `poll`, `status`.

What always holds:
    A member is a static one (KIP-345): when Ray restarts the actor, the new life takes the same
    partitions under the same name, without a rebalance and without waiting for a session to end.
    In a rebalance the member gives partitions up when what was started of them is finished, but
    after `revoke_timeout_ms` at the latest. What is finished later is committed only if the
    partition came straight back; otherwise it is done again by its new owner.
    `__init__` cannot fail, or Ray would never restart the actor: `take` raises what is wrong.
    With exactly_once nothing is committed but in a transaction with the output it belongs to.

Not here: which worker gets what (work, dispatcher), who creates members (group).
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
import ray

from ...protocol.errors import ConnectionFailed, FencedInstanceId, KafkaError, RequestTimedOut
from ..consumer.consumer import SCHEMA, Consumer, Wakeup
from ..group.rebalance_listener import RebalanceListener
from ..wire.cluster_client import is_retriable
from ..wire.record_metadata import TopicPartition
from .output_committer import OutputCommitter
from .processing.actor_pool import ActorPool
from .processing.batch import Batch
from .processing.local_pool import LocalPool, Pool
from .processing.member_config import MemberConfig
from .processing.processed_batches import MemberReport
from .processing.work import MemberWork
from .status import MemberStatus, PartitionStatus

T = TypeVar("T")

logger = logging.getLogger(__name__)

POLL_MS: Final = 1_000
BACKOFF_S: Final = 0.2
COMMIT_TIMEOUT_S: Final = 60.0


class MemberProcess:
    """What runs in the actor. The handle's methods may be called from any thread."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config
        self._started_at = time.monotonic()
        self._life = uuid.uuid4().hex
        self._work = MemberWork(config, self._life, self._wake)
        self._stopping = threading.Event()
        self._settles = False
        self._leaves_by: float | None = None
        self._consumer: Consumer | None = None
        self._may_wake = False
        self._changed = False
        self._wake_lock = threading.Lock()
        self._commits_asked = 0
        self._commits_served = 0
        self._commit_error: Exception | None = None
        self._pool: Pool | None = None
        self._writer = OutputCommitter(config, self._work) if config.exactly_once else None
        self._assigned_after_s: float | None = None
        self._generation = -1
        self._thread = threading.Thread(target=self._run, name="bradbury-member", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        """In Ray's dashboard, `ray list actors` and before each line of its log."""
        return f"{type(self).__name__}({self._config.group}, {self._config.instance_id})"

    # --- the handle's side -------------------------------------------------------------------

    @ray.method(max_task_retries=-1)
    def take(
        self, life: str, known: list[int], done: list[int], version: int, timeout_s: float
    ) -> MemberReport:
        """See Work.take. Asked again of the next life when this one ends.

        Args:
            life: of which the others speak; a new one has nothing of that.
            known: results that the caller has.
            done: results that the caller has handled.
            version: of what it knows.
            timeout_s: how long to wait for something else.
        """
        if life != self._life:
            return self._work.processed.take([], -1, 0)
        self._work.processed.acknowledge(done)
        return self._work.processed.take(known, version, timeout_s)

    @ray.method(concurrency_group="control")
    def acknowledge(self, life: str, numbers: list[int]) -> None:
        """These results were handled. Those of an earlier process of this member are unknown."""
        if life == self._life:
            self._work.processed.acknowledge(numbers)

    def poll(self, timeout_ms: int = 1000) -> pa.Table:
        """The next batch, empty after `timeout_ms`; it is committed by a later `commit`."""
        entry = self._work.processed.take_one(timeout_ms / 1000)
        return SCHEMA.empty_table() if entry is None else entry.result

    @ray.method(concurrency_group="control")
    def commit(self) -> None:
        """Everything polled so far is done; returns when that is stored.

        Raises:
            KafkaError, ConnectionFailed: it is not stored; it will be tried again.
        """
        self._work.processed.acknowledge(None)
        with self._work.changed:
            self._commits_asked += 1
            wanted = self._commits_asked
        self._wake()
        with self._work.changed:
            done = self._work.changed.wait_for(
                lambda: self._commits_served >= wanted or self._work.processed.ended,
                COMMIT_TIMEOUT_S,
            )
        if not done:
            raise ConnectionFailed(f"not committed within {COMMIT_TIMEOUT_S:.0f} s")
        if self._commit_error is not None:
            raise self._commit_error

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
            resumed_after_s=self._assigned_after_s,
            generation=self._generation,
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
        """The number of this process's start. Ray retries the call until a process answers."""
        return self._life

    @ray.method(concurrency_group="life", max_task_retries=0)
    def watch(self) -> None:
        """Returns when the member has stopped; fails when its process ends before."""
        self._thread.join()

    @ray.method(concurrency_group="life", max_task_retries=-1)
    def stop(self, timeout_s: float | None = None, settle: bool = False) -> bool:
        """Finish what runs, commit, leave the group; False if that took too long.

        With `settle` first wait until all results were handled. Called again, that counts.
        """
        return self._stop(timeout_s, settle=settle)

    def __ray_shutdown__(self) -> None:
        """Ray ends the actor in order: what is finished is committed."""
        self._stop(10)

    def _stop(self, timeout_s: float | None, *, settle: bool = False) -> bool:
        self._settles = settle
        self._stopping.set()
        self._wake()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread that owns the consumer ---------------------------------------------------

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            self._consume()
        except Exception as error:  # raised to the holder of the handle
            logger.exception("member %s stops", self._config.instance_id)
            failure = error
        finally:
            self._work.processed.end(failure)
            if self._pool is not None:
                self._pool.close()

    def _consume(self) -> None:
        if self._writer is not None and not self._writer.open(self._stopping):
            return
        consumer = self._connect()
        if consumer is None:
            return
        try:
            self._consumer = consumer
            self._pool = self._make_pool()
            if self._pool is not None:
                self._work.workers.use(self._pool)
            while not self._stopping.is_set() and self._work.processed.failure is None:
                self._step(consumer)
            self._work.drain()
            while self._work.processed.failure is None and not self._may_leave():
                self._step(consumer)  # polls on, so that the group waits for it
            self.commit_finished()
        finally:
            # A static member that only goes quiet would keep its partitions for its session. One
            # that was fenced fails again: its name belongs to another.
            _undisturbed(lambda: consumer.close(leave=True))
            self._consumer = None
            if self._writer is not None:
                self._writer.close()

    def _may_leave(self) -> bool:
        """Whether all is finished and, unless that takes too long, committed."""
        work = self._work
        if not work.is_drained() or (self._settles and work.processed.count()):
            return False
        self.commit_finished()  # in a rebalance it is refused, and comes through after it
        if not work.to_commit():
            return True
        if self._leaves_by is None:
            self._leaves_by = time.monotonic() + COMMIT_TIMEOUT_S
        return time.monotonic() >= self._leaves_by

    def _connect(self) -> Consumer | None:
        """The consumer, tried until a broker answers; None if the member is stopped before."""
        while not self._stopping.is_set():
            consumer: Consumer | None = None
            try:
                consumer = Consumer(
                    group=self._config.group,
                    group_instance_id=self._config.instance_id,
                    enable_auto_commit=False,
                    **self._config.consumer_options,
                )
                consumer.subscribe(self._config.topics, listener=_Rebalances(self))
                return consumer
            except (ConnectionFailed, RequestTimedOut) as error:
                logger.warning("member %s: %s; trying again", self._config.instance_id, error)
                if consumer is not None:
                    consumer.close()
                self._stopping.wait(BACKOFF_S)
        return None

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
        """Commit, pause or go on, poll, give out."""
        self._changed = False  # before it is looked at
        try:
            self.commit_finished()
            self._pause_or_resume(consumer)
            table = self._poll(consumer)
            if table.num_rows:
                self._accept(consumer, self._work.cut(table))
            else:
                self._note_positions(consumer)
        except (KafkaError, ConnectionFailed) as error:
            if isinstance(error, FencedInstanceId) or not is_retriable(error):
                raise
            logger.warning("member %s: %s; trying again", self._config.instance_id, error)
            self._stopping.wait(BACKOFF_S)

    def _poll(self, consumer: Consumer) -> pa.Table:
        with self._wake_lock:
            self._may_wake = not self._changed
        wait_ms = POLL_MS if self._may_wake else 0
        try:
            return consumer.poll(wait_ms, max_records=self._config.batch_records)
        except Wakeup:
            return SCHEMA.empty_table()
        finally:
            self._may_wake = False

    def _pause_or_resume(self, consumer: Consumer) -> None:
        keys = consumer.assignment()
        if self._work.has_room():
            consumer.resume(*keys)
        else:
            consumer.pause(*keys)

    def _accept(self, consumer: Consumer, batches: list[Batch]) -> None:
        if self._stopping.is_set():
            return  # read, and left to the partition's next owner
        if self._config.commits_first:
            self._commit_first(consumer, batches)
        else:
            self._work.give(batches)

    def _commit_first(self, consumer: Consumer, batches: list[Batch]) -> None:
        """Commit before processing (at most once): what is processed never comes again."""
        firsts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for batch in batches:
            for key, first, last, _ in batch.spans:
                firsts[key] = min(first, firsts.get(key, first))
                ends[key] = max(last + 1, ends.get(key, 0))
        try:
            _undisturbed(lambda: consumer.commit(ends))
        except (KafkaError, ConnectionFailed) as error:
            logger.info("not processed, as the commit failed: %s", error)
            self._work.reread(batches)
            assigned = set(consumer.assignment())
            for key, first in firsts.items():
                if key in assigned:
                    consumer.seek(key, first)
        else:
            self._work.give(batches, ends)

    def commit_finished(self) -> None:
        """Store the commit points that have moved. What the group refuses is done again."""
        consumer = self._consumer
        asked = self._commits_asked
        if consumer is None:
            return
        if self._writer is not None:
            self._writer.commit(consumer)
            return
        offsets = self._work.to_commit()
        error: Exception | None = None
        if offsets:
            try:
                _undisturbed(lambda: consumer.commit(offsets))
            except (KafkaError, ConnectionFailed) as reason:
                logger.info("member %s: not committed: %s", self._config.instance_id, reason)
                error = reason
                if isinstance(reason, FencedInstanceId):
                    raise
            else:
                self._work.on_committed(offsets)
        with self._work.changed:
            self._commit_error = error
            self._commits_served = asked
            self._work.changed.notify_all()

    def _note_positions(self, consumer: Consumer) -> None:
        """The position of the reading: past the markers of transactions, which are not records."""
        known = [key for key, (position, _) in self._work.offsets().items() if position >= 0]
        assigned = set(consumer.assignment())
        for key in known:
            if key in assigned:
                position = _undisturbed(partial(consumer.position, key))
                self._work.on_positions({key: position})

    def _wake(self) -> None:
        """There is something to commit, room, or the end: end a poll that waits. Any thread."""
        with self._wake_lock:
            self._changed = True
            if self._may_wake and self._consumer is not None:
                self._may_wake = False
                self._consumer.wakeup()

    # --- rebalances: on the consumer's thread, inside poll -------------------------------------

    def on_assigned(self, keys: Collection[TopicPartition]) -> None:
        consumer = self._consumer
        if consumer is None:
            return
        self._calm()
        committed = self._committed(consumer, keys) if keys else {}
        for key, position in self._work.on_assigned(committed).items():
            consumer.seek(key, position)
        if not self._work.has_room():
            consumer.pause(*keys)
        self._generation = consumer.group_metadata().generation
        if self._assigned_after_s is None:
            self._assigned_after_s = time.monotonic() - self._started_at
        self._work.resume()

    def _committed(
        self, consumer: Consumer, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """What the group has stored, however long that takes: nothing is read before."""
        while True:
            try:
                return _undisturbed(lambda: consumer.committed(*keys))
            except (KafkaError, ConnectionFailed) as error:
                if not is_retriable(error) or self._stopping.wait(BACKOFF_S):
                    raise
                logger.warning("member %s: %s; trying again", self._config.instance_id, error)

    def on_revoked(self, keys: Collection[TopicPartition]) -> None:
        self._calm()
        if not self._work.settle(keys, self._config.revoke_timeout_ms / 1000):
            logger.warning(
                "member %s: %s revoked while a batch of it is being processed",
                self._config.instance_id,
                ", ".join(map(str, keys)),
            )
        self.commit_finished()
        self._work.suspend(keys)

    def on_lost(self, keys: Collection[TopicPartition]) -> None:
        self._work.suspend(keys)

    def _calm(self) -> None:
        """No wake-ups from here on: what is asked now has to have its answer."""
        with self._wake_lock:
            self._may_wake = False


def _undisturbed(call: Callable[[], T]) -> T:
    """A wakeup that was in progress already ends the first try."""
    while True:
        try:
            return call()
        except Wakeup:
            continue


class _Rebalances(RebalanceListener):
    def __init__(self, member: MemberProcess) -> None:
        self._member = member

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.on_assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.on_revoked(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.on_lost(partitions)


_remote: Any = ray.remote  # its type knows neither of these two
MemberActor: Any = _remote(
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=0,
    max_concurrency=16,
    concurrency_groups={"control": 8, "life": 4},
)(MemberProcess)
