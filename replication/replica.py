"""Replica: a partition that this node holds, as its leader or as a follower.

Here acks=all is answered, and an append of a follower is made. The rules are
cluster/partition/leader_state and follower_state, the log (storage/log/partition_log) checks and
stores; this class joins them, in the order that keeps records safe.

Order of an append, nothing between: write to the file, log end offset, followers that wait for
records are woken, then for the leader's own copy
    - a topic without flush.messages: the record counts at once (it is in the page cache, which
      survives the death of this process but not of the machine), the high watermark moves, the
      producer is answered and consumers are woken;
    - flush.messages reached: nothing counts until an fsync of it has returned; one fsync serves
      every batch that came before it began (group commit). A failed fsync is never tried again: the
      pages may be gone. The directory goes offline and producers get KAFKA_STORAGE_ERROR, with the
      record in doubt, as after any crash.
With followers a record counts when all in sync have it too, each as far as the topic asks: what a
follower asks for next is what it has (see cluster/partition/leader_state).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ..cluster.metadata.metadata_image import PartitionImage
from ..cluster.partition.follower_state import next_high_watermark
from ..cluster.partition.leader_state import FollowerFetch, LeaderState
from ..protocol.buffer import Buffer
from ..protocol.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
)
from ..steps.replies import Refuse, Reply, ended
from ..storage.disk.storage_failure import StorageFailure
from ..storage.log.partition_log import AppendResult, PartitionLog
from ..storage.log_config import LogConfig
from ..storage.producers.verification_guard import VerificationGuard
from .effects import Effects, RunWork, WorkingStep
from .storage_work import LogFlush, begin_flush

EVERYTHING = 1 << 30
"""Bytes, where they are not counted: a fetch that was woken for too little waits again."""


class FetchWaiter(Protocol):
    """A fetch that waits. Told how much became readable, or that it should look again at once.

    It takes note, and calls nobody back.
    """

    def on_readable(self, size: int) -> None: ...
    def on_changed(self) -> None: ...


class ReplicaHost(Protocol):
    """The node, as far as its replicas know it."""

    @property
    def node_id(self) -> int: ...
    @property
    def effects(self) -> Effects: ...
    @property
    def changed(self) -> dict[Replica, None]:
        """Replicas with appends since the last look; they put themselves here."""
        ...

    def on_follower_caught_up(self, replica: Replica) -> None:
        """One of its followers, which is not in sync, may be so now."""
        ...

    def on_storage_failure(self) -> None:
        """A disk has failed."""
        ...


class Replica:
    """Lives as long as its process. `now_ms` is of a clock that never jumps, `wall_ms` is not."""

    def __init__(
        self,
        topic: str,
        partition: int,
        log: PartitionLog,
        host: ReplicaHost,
        *,
        may_use_reserve: bool = False,
    ) -> None:
        """`may_use_reserve`: appends are taken below the disk's floor of free space, too; see
        storage/disk/disk_guard.
        """
        self.topic = topic
        self.partition = partition
        self.log = log
        self.leader: LeaderState | None = None
        self.batches_in = self.bytes_in = self.records_in = 0
        self.bytes_copied = self.isr_shrinks = self.isr_expands = 0
        self._host = host
        self._may_use_reserve = may_use_reserve
        # Dicts for their order: what a set would give depends on where objects are in memory.
        self._waiters: dict[FetchWaiter, None] = {}
        self._follower_waiters: dict[FetchWaiter, None] = {}
        self._stable_waiters: dict[FetchWaiter, None] = {}
        # As it was when they were last woken, or the first of them came.
        self._stable_end, self._is_behind = 0, False
        self._uncommitted: deque[tuple[int, Any]] = deque()
        """(last offset, ticket) of those who wait for its commit, in log order."""
        self._deletions: list[tuple[int, Any]] = []
        """(offset, ticket) of those who wait until all in sync have dropped what is below it."""
        self._is_flushing = False
        self._flush_ended: FlushEnded | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    # --- leadership ------------------------------------------------------------------------------

    def become_leader(self, state: PartitionImage, now_ms: int) -> None:
        """Begin (or go on in) its leader epoch; an older one than ours is ignored.

        The log has the epoch on disk already: see partition_assignment.
        """
        leader = self.leader
        if leader is not None and state.partition_epoch < leader.partition_epoch:
            return
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            leader.on_replicas(state.replicas)
            self.on_isr(state.isr, state.partition_epoch)
            return
        self._abandon_waiting()
        self.leader = LeaderState(
            state.leader_epoch,
            state.partition_epoch,
            self.log.high_watermark,
            node_id=self._host.node_id,
            replicas=state.replicas,
            isr=state.isr,
            start_offset=self.log.log_end_offset,
            now_ms=now_ms,
        )
        self.leader.min_insync_replicas = self.log.config.min_insync_replicas
        self._advance()

    def reconfigure(self, config: LogConfig) -> None:
        self.log.local.reconfigure(config)
        if self.leader is not None:
            self.leader.min_insync_replicas = config.min_insync_replicas

    def on_isr(self, isr: Sequence[int], partition_epoch: int) -> None:
        """The controller has decided who is in sync."""
        leader = self.leader
        if leader is None:
            return
        before = leader.isr
        if leader.on_isr(isr, partition_epoch):
            self._commit()
        self.isr_shrinks += len(before - leader.isr)
        self.isr_expands += len(leader.isr - before)

    def on_isr_refused(self) -> None:
        """The controller has decided that it stays as it is."""
        if self.leader is not None and self.leader.on_refused():
            self._commit()

    def resign(self) -> None:
        self.leader = None
        self._abandon_waiting()

    def _abandon_waiting(self) -> None:
        self._host.effects.append(LeadershipEnded(self))
        self._fail_waiting(NotLeaderOrFollower(f"{self} has a new leader"))

    def fail_waiting(self, error: KafkaStorageError) -> None:
        """The directory is offline: nothing that waits here will be committed by us."""
        self._fail_waiting(error)

    def _fail_waiting(self, error: KafkaError) -> None:
        effects = self._host.effects
        for _, ticket in (*self._uncommitted, *self._deletions):
            effects.append(Refuse(ticket, error))
        self._uncommitted.clear()
        self._deletions.clear()
        for waiter in (*self._waiters, *self._stable_waiters, *self._follower_waiters):
            waiter.on_changed()

    # --- leading ---------------------------------------------------------------------------------

    def check_produce(self, *, acks_all: bool) -> None:
        """Whether a producer may append now. Raises NotLeaderOrFollower, NotEnoughReplicas."""
        leader = self.leader
        if leader is None:
            raise NotLeaderOrFollower(f"{self} is not led here")
        if acks_all and not leader.has_enough_insync:
            raise NotEnoughReplicas(
                f"{leader.isr_size} replicas are in sync, "
                f"min.insync.replicas is {leader.min_insync_replicas}"
            )

    def append(
        self,
        batch: bytearray | memoryview,
        *,
        opened: bool,
        now_ms: int,
        wall_ms: int,
        is_own: bool = False,
        guard: VerificationGuard | None = None,
        uses_reserve: bool = False,
    ) -> AppendResult:
        """Append one batch, as its leader. Raises KafkaError: nothing was appended.

        Whether acks=all may be answered now says `is_committed`; else see when_committed.
        `uses_reserve`: also on a disk that is nearly full. Other arguments: see
        PartitionLog.append_as_leader.
        """
        leader, host = self.leader, self._host
        if leader is None:
            raise NotLeaderOrFollower(f"{self} is not led here")
        health = self.log.local.health
        if health.headroom <= 0 and not (self._may_use_reserve or uses_reserve):
            raise KafkaStorageError(f"the disk of {self} is nearly full; reads go on")
        try:
            result = self.log.append_as_leader(
                batch,
                leader_epoch=leader.leader_epoch,
                now_ms=wall_ms,
                opened=opened,
                is_own=is_own,
                guard=guard,
            )
        except StorageFailure:
            host.on_storage_failure()
            raise
        except FencedLeaderEpoch as error:
            # The next epoch is on its way to the disk. Producers know this answer, and try again.
            raise NotLeaderOrFollower(str(error)) from None
        if not result.duplicate:
            self.batches_in += 1
            self.bytes_in += len(batch)
            self.records_in += result.last_offset - result.base_offset + 1
            health.headroom -= len(batch)
            host.changed[self] = None
            if leader.followers:
                leader.on_append(result.base_offset, now_ms)
                for waiter in list(self._follower_waiters):
                    waiter.on_readable(len(batch))
            self._advance(len(batch))
        return result

    def is_committed(self, offset: int) -> bool:
        """Whether acks=all may be answered for the record at `offset`."""
        return offset < self.log.high_watermark

    def when_committed(self, last_offset: int, ticket: Any) -> None:
        """The ticket is answered when the batch that ends there is committed, or cannot be any
        more. Called right after its append, if it is not committed yet.
        """
        self._uncommitted.append((last_offset, ticket))

    def on_follower_fetch(self, fetch: FollowerFetch, now_ms: int) -> tuple[int, int] | None:
        """See handlers.replica_port.LeaderReplica."""
        leader = self.leader
        assert leader is not None
        follower = leader.followers.get(fetch.node_id)
        known_end = -1 if follower is None else follower.log_end_offset
        heard = leader.on_follower_fetch(fetch, self.log, now_ms=now_ms)
        if heard.diverging is not None:
            return heard.diverging
        if fetch.offset < known_end:
            # It may have been late, as one of a connection that was given up. The session that the
            # follower goes on in is to say where it is, though nothing has changed for it.
            for waiter in list(self._follower_waiters):
                waiter.on_readable(0)
        if heard.has_moved:
            self._commit()
        if self._deletions:
            self._settle_deletions()
        if heard.may_join:
            self._host.on_follower_caught_up(self)
        return None

    def _advance(self, size: int = 0) -> None:
        """Count what may count; start an fsync for what may not yet."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        durable = log.log_end_offset
        if durable - log.flushing.recovery_point >= log.local.config.flush_messages:
            durable = log.flushing.recovery_point
            self._start_flush()
        if leader.on_local_append(durable):
            self._commit(size)

    def _commit(self, size: int = EVERYTHING) -> None:
        """The high watermark has moved."""
        leader = self.leader
        assert leader is not None
        self.log.high_watermark = leader.high_watermark
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] < leader.high_watermark:
            _, ticket = uncommitted.popleft()
            error = None
            if not leader.has_enough_insync:
                error = NotEnoughReplicasAfterAppend(
                    f"{self}: {leader.isr_size} replicas are in sync now"
                )
            self._host.effects.append(ended(ticket, error))
        for waiter in list(self._waiters):
            waiter.on_readable(size)
        if self._stable_waiters:
            self._wake_stable(size)
        for waiter in list(self._follower_waiters):
            waiter.on_readable(0)  # not woken for it, but told with the next answer

    def _wake_stable(self, size: int) -> None:
        """Readers of committed transactions have more where the last stable offset has moved; how
        much is not known where it is not the high watermark: what a marker ends may be large.
        """
        before, was_behind = self._stable_end, self._is_behind
        self._note_stable()
        if self._stable_end > before:
            for waiter in list(self._stable_waiters):
                waiter.on_readable(EVERYTHING if was_behind or self._is_behind else size)

    def _note_stable(self) -> None:
        self._stable_end = self.log.last_stable_offset
        self._is_behind = self._stable_end < self.log.high_watermark

    # --- deleting --------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """Returns the log start offset. Raises OffsetOutOfRange."""
        self.log.advance_log_start_offset(before_offset)
        for waiter in list(self._follower_waiters):
            waiter.on_readable(0)
        return self.log.log_start_offset

    def is_deleted(self, offset: int) -> bool:
        """Whether all replicas in sync have dropped what is below `offset`."""
        leader = self.leader
        return leader is None or leader.low_watermark(self.log.log_start_offset) >= offset

    def when_deleted(self, offset: int, ticket: Any) -> None:
        """The ticket is answered as soon as is_deleted(offset), or another node leads."""
        self._deletions.append((offset, ticket))

    def _settle_deletions(self) -> None:
        waiting, self._deletions = self._deletions, []
        for offset, ticket in waiting:
            if self.is_deleted(offset):
                self._host.effects.append(Reply(ticket))
            else:
                self._deletions.append((offset, ticket))

    # --- following -------------------------------------------------------------------------------

    def append_as_follower(self, records: Buffer, wall_ms: int) -> None:
        """What the leader has from our end on. Raises KafkaError; see PartitionLog."""
        before = self.log.log_end_offset
        self.log.append_as_follower(records, now_ms=wall_ms)
        if self.log.log_end_offset > before:
            self.log.health.headroom -= len(records)
            self.bytes_copied += len(records)
            self._host.changed[self] = None

    def update_watermarks(self, high_watermark: int, log_start_offset: int) -> bool:
        """What the leader has committed, and what it still keeps.

        Returns whether the leader is to be told that our log begins later now.
        """
        log = self.log
        reached = next_high_watermark(log, high_watermark)
        if reached > log.high_watermark:
            log.high_watermark = reached
            self._host.changed[self] = None
            for waiter in list(self._waiters):  # consumers in this rack
                waiter.on_readable(EVERYTHING)
            if self._stable_waiters:
                self._wake_stable(EVERYTHING)
        if log_start_offset <= log.log_start_offset:
            return False
        log.advance_log_start_offset(min(log_start_offset, log.high_watermark))
        return True

    # --- waiting fetches -------------------------------------------------------------------------

    def park(
        self, waiter: FetchWaiter, *, is_follower: bool = False, is_committed: bool = False
    ) -> None:
        """See handlers.replica_port.LeaderReplica."""
        if is_follower:
            self._follower_waiters[waiter] = None
        elif is_committed:
            if not self._stable_waiters:
                self._note_stable()
            self._stable_waiters[waiter] = None
        else:
            self._waiters[waiter] = None

    def unpark(self, waiter: FetchWaiter) -> None:
        self._waiters.pop(waiter, None)
        self._stable_waiters.pop(waiter, None)
        self._follower_waiters.pop(waiter, None)

    # --- the disk --------------------------------------------------------------------------------

    def _start_flush(self) -> None:
        """Unless one is on its way: what it does not cover is flushed after it."""
        if self._is_flushing:
            return
        flush = begin_flush(self.log)
        if flush is not None:
            self._is_flushing = True
            self._host.effects.append(RunWork(self, flush))

    def on_work_done(self, work: LogFlush, failure: Exception | None, now_ms: int) -> None:
        """An fsync has ended, of the log of its beginning: a move may have replaced that since."""
        self._is_flushing = False
        if failure is not None:
            self._host.on_storage_failure()  # which tells everyone who waits here
        else:
            work.complete()
            self._advance(EVERYTHING)
        if self._flush_ended is not None and not self._is_flushing:
            self._flush_ended.is_met(now_ms)

    def flush_ended(self) -> FlushEnded | None:
        """What to wait for until no fsync of this replica is on its way; None: nothing."""
        if self._is_flushing:
            self._flush_ended = FlushEnded()
            return self._flush_ended
        return None

    def on_storage_failure(self) -> None:
        """Its disk has failed somebody who has read its log."""
        self._host.on_storage_failure()

    def replace_log(self, log: PartitionLog) -> None:
        """Go on with `log`, which holds the same records in another directory.

        What waits for an fsync now waits for one of the new log.
        """
        log.local.producers.take_questions(self.log.local.producers)
        self.log = log
        self._host.changed[self] = None
        self._advance()


class FlushEnded:
    """The condition that a replica's fsync has ended, before its log is closed."""

    def __init__(self) -> None:
        self._step: WorkingStep | None = None

    def begin_waiting(self, step: WorkingStep) -> None:
        """See procedure.Condition."""
        self._step = step

    def is_met(self, now_ms: int) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.on_work_done(self, None, now_ms)


class LeadershipEnded(NamedTuple):
    """A replica does not lead any more, or in another epoch: what it was given is not appended."""

    replica: Replica
