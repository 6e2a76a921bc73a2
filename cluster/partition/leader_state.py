"""Rules of a leader of one partition: the high watermark and the ISR.

The high watermark is the least log end offset of the in-sync replicas. A follower's fetch offset is
its acknowledgement: it has everything before it. A change of the ISR is proposed to the controller;
until its answer the high watermark requires every replica of the old and of the proposed ISR (the
maximal ISR), so whichever of the two holds, all its replicas have the committed records.

Invariants: the high watermark never decreases within one epoch; it does not advance while the
ISR is smaller than min.insync.replicas (KIP-966), so replicas that left have everything below it.
All of it is soft state: a new leader epoch begins a new LeaderState.
Source: apache/kafka core/.../cluster/Partition.scala. Not here: logs, waiting, the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...protocol.errors import NotLeaderOrFollower, OffsetOutOfRange, UnknownLeaderEpoch
from .follower_state import UNKNOWN, ReplicaLog

UNKNOWN_OFFSET: Final = -1


class FollowerFetch(NamedTuple):
    """State of a follower as its fetch reports it: it has all records below `offset`."""

    node_id: int
    broker_epoch: int
    offset: int
    last_fetched_epoch: int
    """Leader epoch of its last record; -1: it has none."""
    log_start_offset: int = UNKNOWN_OFFSET


class FollowerFetchResult(NamedTuple):
    """Result of a follower's fetch for its leader.

    diverging: (epoch, end offset) where its log diverges from ours; then the fetch is not recorded.
    has_moved: the high watermark moved.
    may_join: the follower is out of sync and may join the ISR.
    """

    diverging: tuple[int, int] | None = None
    has_moved: bool = False
    may_join: bool = False


@dataclass(slots=True)
class Follower:
    """State of a follower as its leader knows it; unknown when an epoch begins."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    last_caught_up_ms: int = 0
    """Time when it last had all records that the leader had at that moment, or at its previous
    fetch. While it is caught up this time counts as now: the follower of an idle partition is not
    lagging.
    """
    _leader_end_at_fetch: int = 0
    _fetched_ms: int = 0

    def on_fetch(self, offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif offset >= self._leader_end_at_fetch and self.log_end_offset != UNKNOWN_OFFSET:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._fetched_ms)
        self._leader_end_at_fetch, self._fetched_ms = leader_end, now_ms
        self.log_end_offset, self.broker_epoch = offset, broker_epoch


class LeaderState:
    """State of a leader during one leader epoch."""

    def __init__(
        self,
        leader_epoch: int,
        partition_epoch: int,
        high_watermark: int,
        *,
        node_id: int = -1,
        replicas: Sequence[int] = (),
        isr: Sequence[int] = (),
        start_offset: int = 0,
        now_ms: int = 0,
    ) -> None:
        """Begin a leader epoch. With a single replica the later arguments are optional.

        Args:
            leader_epoch, partition_epoch: as the controller decided them.
            high_watermark: that of the local log; it may be behind the former leader's.
            node_id: of the leader.
            replicas: all of them, the leader included.
            isr: those in sync.
            start_offset: the log end offset when the epoch began.
            now_ms: followers in sync count as caught up at this time.
        """
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.high_watermark = high_watermark
        self.start_offset = start_offset
        self.min_insync_replicas = 1
        self._node_id = node_id
        self._log_end_offset = start_offset
        self._isr = frozenset(isr) or frozenset((node_id,))
        self._proposed: frozenset[int] | None = None
        self._replica_count = max(1, len(replicas))
        self.followers = {node: Follower() for node in replicas if node != node_id}
        for node in self._isr.intersection(self.followers):
            self.followers[node].last_caught_up_ms = now_ms

    @property
    def isr(self) -> frozenset[int]:
        """In-sync replicas as the controller has them."""
        return self._isr

    @property
    def isr_size(self) -> int:
        """Number of in-sync replicas, the leader included: compared with min.insync.replicas."""
        return len(self._isr)

    @property
    def has_enough_insync(self) -> bool:
        """Whether min.insync.replicas are in sync, or all replicas if there are fewer."""
        return len(self._isr) >= min(self.min_insync_replicas, self._replica_count)

    @property
    def is_waiting(self) -> bool:
        """Whether a proposal is unanswered; the next one is sent after its answer."""
        return self._proposed is not None

    def on_replicas(self, replicas: Sequence[int]) -> None:
        """Called when a reassignment adds or removes replicas, in the same leader epoch."""
        wanted = [node for node in replicas if node != self._node_id]
        if self.followers.keys() != set(wanted):
            self.followers = {node: self.followers.get(node) or Follower() for node in wanted}
        self._replica_count = max(1, len(replicas))

    # --- offsets ---------------------------------------------------------------------------------

    def on_append(self, before: int, now_ms: int) -> None:
        """Called when the log has grown beyond `before`: followers that were caught up begin to
        lag.
        """
        for follower in self.followers.values():
            if follower.log_end_offset >= before:
                follower.last_caught_up_ms = now_ms

    def on_local_append(self, log_end_offset: int) -> bool:
        """Called when the leader's log (durable as far as the topic requires) ends at
        `log_end_offset`.

        Returns whether the high watermark moved.
        """
        self._log_end_offset = log_end_offset
        if self.followers:
            return self._advance()
        if log_end_offset <= self.high_watermark:
            return False
        self.high_watermark = log_end_offset
        return True

    def on_follower_fetch(
        self, fetch: FollowerFetch, log: ReplicaLog, *, now_ms: int
    ) -> FollowerFetchResult:
        """Handle a fetch of a follower. Its offset counts only if its log is a prefix of ours.

        Args:
            fetch: the follower's state as it reports it.
            log: the leader's own.
            now_ms: on a monotonic clock.

        Raises:
            UnknownLeaderEpoch: the node is not a replica, as far as is known here.
            OffsetOutOfRange: its offset is outside of our log, or its epoch is before all of ours.
            NotLeaderOrFollower: it was sent before the follower's latest registration.
        """
        follower = self.followers.get(fetch.node_id)
        if follower is None:
            # It has applied a reassignment that we have not applied yet.
            raise UnknownLeaderEpoch(f"node {fetch.node_id} is not a known replica")
        if -1 < fetch.broker_epoch < follower.broker_epoch:
            # If accepted, the old epoch would keep the follower out of the ISR until there are new
            # records: incremental fetches do not include an idle partition again.
            raise NotLeaderOrFollower(
                f"node {fetch.node_id}: broker epoch {fetch.broker_epoch} is stale, "
                f"current is {follower.broker_epoch}"
            )
        if fetch.last_fetched_epoch >= 0:
            epoch, end_of_epoch = log.end_offset_for_epoch(fetch.last_fetched_epoch)
            if epoch == UNKNOWN:
                raise OffsetOutOfRange(
                    f"no leader epoch up to {fetch.last_fetched_epoch} is in the log"
                )
            if epoch < fetch.last_fetched_epoch or end_of_epoch < fetch.offset:
                return FollowerFetchResult(diverging=(epoch, end_of_epoch))
        end = log.log_end_offset
        if not log.log_start_offset <= fetch.offset <= end:
            raise OffsetOutOfRange(
                f"offset {fetch.offset} is outside [{log.log_start_offset}, {end}]"
            )
        has_moved = self.on_fetch(
            fetch.node_id,
            fetch.offset,
            broker_epoch=fetch.broker_epoch,
            leader_end=end,
            now_ms=now_ms,
        )
        follower.log_start_offset = fetch.log_start_offset
        return FollowerFetchResult(has_moved=has_moved, may_join=self._is_candidate(fetch.node_id))

    def on_fetch(
        self, node_id: int, offset: int, *, broker_epoch: int, leader_end: int, now_ms: int
    ) -> bool:
        """Note the fetch of a follower whose log is a prefix of ours, from `offset` on.

        Args:
            node_id: one of the followers; KeyError for other nodes.
            offset: everything before it is on the follower, as durable as the topic requires.
            broker_epoch: of the follower's registration.
            leader_end: the leader's log end offset now, durable or not.
            now_ms: on a monotonic clock.

        Returns whether the high watermark moved.
        """
        self.followers[node_id].on_fetch(offset, broker_epoch, leader_end, now_ms)
        return node_id in self._maximal_isr and self._advance()

    def low_watermark(self, log_start_offset: int) -> int:
        """Low watermark: records below it are deleted on all in-sync replicas; our log starts at
        log_start_offset.
        """
        return min(
            (
                self.followers[node].log_start_offset
                for node in self._maximal_isr
                if node != self._node_id
            ),
            default=log_start_offset,
        )

    def in_sync_with(self, offset: int) -> list[int]:
        """Followers in sync that have the records from `offset` on; the most advanced first."""
        found = [
            (-follower.log_end_offset, node)
            for node, follower in self.followers.items()
            if node in self._isr
            and 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
        ]
        return [node for _, node in sorted(found)]

    def _is_candidate(self, node_id: int) -> bool:
        """Whether an out-of-sync follower is eligible to join the ISR."""
        return (
            node_id not in self._isr
            and self._proposed is None
            and self.followers[node_id].log_end_offset
            >= max(self.high_watermark, self.start_offset)
        )

    @property
    def _maximal_isr(self) -> frozenset[int]:
        return self._isr if self._proposed is None else self._isr | self._proposed

    def _advance(self) -> bool:
        if not self.has_enough_insync:
            return False
        end = self._log_end_offset
        for node in self._maximal_isr:
            if node != self._node_id:
                end = min(end, self.followers[node].log_end_offset)
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    # --- the ISR ---------------------------------------------------------------------------------

    def next_to_leave_ms(self, lag_time_max_ms: int) -> int | None:
        """Time when the first lagging in-sync follower exceeds the lag time; None: none lags."""
        caught_up = [
            follower.last_caught_up_ms
            for node, follower in self.followers.items()
            if node in self._isr and follower.log_end_offset < self._log_end_offset
        ]
        return min(caught_up) + lag_time_max_ms + 1 if caught_up else None

    def propose(
        self, *, now_ms: int, lag_time_max_ms: int, is_eligible: Callable[[int, int], bool]
    ) -> tuple[tuple[int, int], ...] | None:
        """ISR to propose to the controller, as (node, broker epoch); None if no change is needed.

        A follower joins when it has everything that is committed and everything of former epochs;
        it leaves when it has not caught up for lag_time_max_ms. From now on the maximal ISR
        includes the proposal.

        Args:
            now_ms: on the clock of on_fetch.
            lag_time_max_ms: replica.lag.time.max.ms.
            is_eligible: whether a node is in service with that broker epoch.
        """
        if self._proposed is not None:
            return None
        wanted = {self._node_id}
        for node, follower in self.followers.items():
            if node in self._isr:
                stays = (
                    follower.log_end_offset >= self._log_end_offset
                    or now_ms - follower.last_caught_up_ms <= lag_time_max_ms
                )
            else:
                least = max(self.high_watermark, self.start_offset)
                stays = follower.log_end_offset >= least and is_eligible(
                    node, follower.broker_epoch
                )
            if stays:
                wanted.add(node)
        if wanted == self._isr:
            return None
        self._proposed = frozenset(wanted)
        return tuple(
            (node, -1 if node == self._node_id else self.followers[node].broker_epoch)
            for node in sorted(wanted)
        )

    def on_refused(self) -> bool:
        """Called when the controller refuses the proposed ISR. Returns whether the high watermark
        moved.

        Only for an explicit refusal: after a lost answer the maximal ISR keeps the proposal.
        """
        self._proposed = None
        return self._advance()

    def on_isr(self, isr: Sequence[int], partition_epoch: int) -> bool:
        """Adopt the controller's ISR of `partition_epoch`, from its answer or from the metadata.

        An ISR that is not newer than the known one is ignored. Returns whether the high watermark
        moved.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._isr = frozenset(isr)
        self._proposed = None
        return self._advance()
