"""Replica: a partition that this node holds, as its leader or as a follower.

Here acks=all is answered, and a follower appends. The rules are in cluster/partition/leader_state
and follower_state, the log (storage/log/partition_log) checks and stores; this class calls them, in
the order that keeps records safe.

Order of an append, nothing between: write to the file, log end offset, followers that wait for
records are woken, then for the leader's own copy
    - a topic without flush.messages: the record counts at once (it is in the page cache, which
      survives the death of this process but not of the machine), the high watermark moves, the
      producer is answered and consumers are woken;
    - flush.messages reached: nothing counts until an fsync of it has returned; one fsync serves
      every batch that came before it began (group commit). A failed fsync is never tried again: the
      pages may be lost. The directory goes offline and producers get KAFKA_STORAGE_ERROR, with the
      record in doubt, as after any crash.
With followers a record counts when all in-sync replicas have it too, as durably as the topic
requires: the offset that a follower fetches next is its end (see cluster/partition/leader_state).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...cluster.metadata.metadata_image import PartitionImage
from ...cluster.partition.follower_state import next_high_watermark
from ...cluster.partition.leader_state import FollowerFetch, LeaderState
from ...protocol.buffer import Buffer
from ...protocol.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
)
from ...storage.disk.storage_failure import StorageFailure
from ...storage.log.partition_log import AppendResult, PartitionLog
from ...storage.log_config import LogConfig
from ...storage.producers.verification_guard import VerificationGuard
from ..effects import Effects
from .conversion_queue import ConversionMemory, ConversionQueue
from .delayed_delete_records import DelayedDeleteRecords
from .delayed_fetches import EVERYTHING, DelayedFetches
from .delayed_produces import DelayedProduces
from .replica_flush import ReplicaFlush


class ReplicaHost(Protocol):
    """Node as its replicas need it."""

    @property
    def node_id(self) -> int: ...
    @property
    def effects(self) -> Effects: ...
    @property
    def conversion_memory(self) -> ConversionMemory: ...
    @property
    def changed(self) -> dict[Replica, None]:
        """Replicas with appends since the last check; they add themselves."""
        ...

    def on_follower_caught_up(self, replica: Replica) -> None:
        """Called when a follower that is out of sync may be in sync now."""
        ...

    def on_storage_failure(self) -> None:
        """Called when a disk has failed."""
        ...


class Replica:
    """A replica. But for the log its state is in memory only. `now_ms` is of a clock that never
    jumps, `wall_ms` is not.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        log: PartitionLog,
        host: ReplicaHost,
        *,
        may_use_reserve: bool = False,
    ) -> None:
        """`may_use_reserve`: appends are accepted below the minimum of free disk space, too; see
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
        self.conversions = ConversionQueue(self, host.effects, host.conversion_memory)
        self.produces = DelayedProduces(host.effects)
        self.fetches = DelayedFetches(self)
        self.deletes = DelayedDeleteRecords(self, host.effects)
        self.flush = ReplicaFlush(self, host.effects)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    # --- leadership ------------------------------------------------------------------------------

    def become_leader(self, state: PartitionImage, now_ms: int) -> None:
        """Begin the leader epoch of `state`, or continue in it; an older state is ignored.

        The log has the epoch on disk already: see replication/manager/replica_manager.
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
        """Adopt the ISR that the controller decided."""
        leader = self.leader
        if leader is None:
            return
        before = leader.isr
        if leader.on_isr(isr, partition_epoch):
            self._commit()
        self.isr_shrinks += len(before - leader.isr)
        self.isr_expands += len(leader.isr - before)

    def on_isr_refused(self) -> None:
        """Keep the ISR: the controller refused the proposal."""
        if self.leader is not None and self.leader.on_refused():
            self._commit()

    def resign(self) -> None:
        self.leader = None
        self._abandon_waiting()

    def _abandon_waiting(self) -> None:
        error = NotLeaderOrFollower(f"{self} has a new leader")
        self.conversions.abandon(error)
        self._fail_waiting(error)

    def fail_waiting(self, error: KafkaStorageError) -> None:
        """Refuse waiting requests as the directory is offline: we will not commit them."""
        self._fail_waiting(error)

    def _fail_waiting(self, error: KafkaError) -> None:
        self.produces.fail(error)
        self.deletes.fail(error)
        self.fetches.on_changed()

    # --- leading ---------------------------------------------------------------------------------

    def check_produce(self, *, acks_all: bool) -> None:
        """Check that a producer may append now. Raises NotLeaderOrFollower, NotEnoughReplicas."""
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
        """Append one batch as the leader. Raises KafkaError: nothing was appended.

        When acks=all may be answered: see `when_committed`.
        `uses_reserve`: also on a disk that is nearly full. Other arguments: see
        PartitionLog.append_as_leader.
        """
        leader, host = self.leader, self._host
        if leader is None:
            raise NotLeaderOrFollower(f"{self} is not led here")
        health = self.log.local.health
        if health.headroom <= 0 and not (self._may_use_reserve or uses_reserve):
            raise KafkaStorageError(f"the disk of {self} is nearly full; only reads are served")
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
            # The next epoch is being written to the disk. Producers retry after this error.
            raise NotLeaderOrFollower(str(error)) from None
        base_offset, last_offset, _, _, duplicate = result
        if not duplicate:
            size = len(batch)
            self.batches_in += 1
            self.bytes_in += size
            self.records_in += last_offset - base_offset + 1
            health.headroom -= size
            host.changed[self] = None
            if leader.followers:
                leader.on_append(base_offset, now_ms)
                self.fetches.wake_followers(size)
            self._advance(size)
            if health.failure is not None:
                health.check()
        return result

    def _is_committed(self, offset: int) -> bool:
        """Whether acks=all may be answered for the record at `offset`."""
        return offset < self.log.high_watermark

    def when_committed(self, last_offset: int, new_ticket: Callable[[], Any]) -> Any:
        """Ticket that is answered when acks=all may be, for the batch with this last offset; None:
        it may be now.

        Called right after the append, before its effects are carried out: the next input may commit
        the batch, or end the leadership.
        """
        if self._is_committed(last_offset):
            return None
        ticket = new_ticket()
        self.produces.add(last_offset, ticket)
        return ticket

    def on_follower_fetch(self, fetch: FollowerFetch, now_ms: int) -> tuple[int, int] | None:
        """See handlers.ports.replica_port.LeaderReplica."""
        leader = self.leader
        assert leader is not None
        follower = leader.followers.get(fetch.node_id)
        known_end = -1 if follower is None else follower.log_end_offset
        progress = leader.on_follower_fetch(fetch, self.log, now_ms=now_ms)
        if progress.diverging is not None:
            return progress.diverging
        if fetch.offset < known_end:
            # It may be a late fetch of an abandoned connection. Waking the fetch that waits in the
            # follower's session makes the follower fetch again, from its true end.
            self.fetches.wake_followers(0)
        if progress.has_moved:
            self._commit()
        self.deletes.on_follower_fetch()
        if progress.may_join:
            self._host.on_follower_caught_up(self)
        return None

    def _advance(self, size: int = 0) -> None:
        """Note the local log end; start an fsync if records must be durable first."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        durable = log.segments.active.next_offset
        if durable - log.flushing.recovery_point >= log.local.config.flush_messages:
            durable = log.flushing.recovery_point
            self.flush.maybe_start()
        if leader.on_local_append(durable):
            self._commit(size)

    def _commit(self, size: int = EVERYTHING) -> None:
        """Apply the leader's new high watermark, and wake the requests that wait for it."""
        leader = self.leader
        assert leader is not None
        self.log.high_watermark = leader.high_watermark
        if self.produces.uncommitted:
            self.produces.on_high_watermark(leader)
        self.fetches.on_high_watermark(size)

    # --- following -------------------------------------------------------------------------------

    def append_as_follower(self, records: Buffer, wall_ms: int) -> None:
        """Append records that the leader sent from our log end on. Raises KafkaError; see
        PartitionLog.
        """
        before = self.log.log_end_offset
        self.log.append_as_follower(records, now_ms=wall_ms)
        if self.log.log_end_offset > before:
            self.log.health.headroom -= len(records)
            self.bytes_copied += len(records)
            self._host.changed[self] = None

    def update_watermarks(self, high_watermark: int, log_start_offset: int) -> bool:
        """Apply the leader's high watermark and log start offset.

        Consumers are woken only after both are applied: below the leader's log start our records
        were not compared with its own, and others may have been committed there.

        Returns whether our log start has advanced, which the leader has to learn.
        """
        log = self.log
        reached = next_high_watermark(log, high_watermark)
        has_moved, begins_later = reached > log.high_watermark, False
        if has_moved:
            log.high_watermark = reached
            self._host.changed[self] = None
        if log_start_offset > log.log_start_offset:
            log.advance_log_start_offset(min(log_start_offset, log.high_watermark))
            begins_later = True
        if has_moved:
            self.fetches.wake_consumers(EVERYTHING)  # consumers in this rack
        return begins_later

    # --- the disk --------------------------------------------------------------------------------

    def on_flushed(self) -> None:
        """Called when an fsync has returned."""
        self._advance(EVERYTHING)

    def on_storage_failure(self) -> None:
        """Called when its disk failed or refused a flush, or a reader of its log met a disk
        failure.
        """
        if self.log.health.failure is None:
            self._host.changed[self] = None  # refused, it is tried again
        self._host.on_storage_failure()

    def replace_log(self, log: PartitionLog) -> None:
        """Continue with `log`, which holds the same records in another directory.

        Producers that wait for an fsync now wait for one of the new log.
        """
        log.local.producers.take_questions(self.log.local.producers)
        self.log = log
        self._host.changed[self] = None
        self._advance()
