"""The group coordinators of a simulated node, composed as actors/group_host and group_shard are.

A shard for each partition of __consumer_offsets that the node leads: it reads the log (a piece at a
time, and between two of them anything may happen), waits until that is committed, and then serves:
append, wait for the commit, apply, reply. The rules are groups/coordinator.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from bradbury.groups.coordinator import GroupCoordinator
from bradbury.groups.effects import Append, CancelTimer, Effect, Reply, StartTimer, TimerKey
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.groups.group_records import encode_group_record, entries_in
from bradbury.groups.join import Join
from bradbury.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
)
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.protocol.messages.join_group import JoinGroupRequest
from bradbury.protocol.messages.leave_group import LeaveGroupRequest
from bradbury.protocol.messages.offset_commit import OffsetCommitRequest
from bradbury.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from bradbury.protocol.messages.sync_group import SyncGroupRequest
from bradbury.protocol.partitioner import partition_for_group
from bradbury.protocol.records import encode_records

from .simulated_network import Answer
from .simulated_replica import SimulatedReplica, read_bytes

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode

API_VERSION = 9
LOAD_BYTES = 4_000
CONFIG = GroupCoordinatorConfig(
    group_min_session_timeout_ms=100,
    group_initial_rebalance_delay_ms=40,
    offsets_commit_timeout_ms=500,
)


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


@dataclass(slots=True, eq=False)
class _Uncommitted:
    append: Append
    is_late: bool = False
    is_committed: bool = False
    then: list[tuple[Callable[[], None], Answer]] = field(default_factory=list)
    """Who reads what is committed so far: how, and whom to tell that it cannot."""


class SimulatedGroups:
    """Of one life of one node."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._shards: dict[int, SimulatedShard] = {}

    def on_leader(self, partition: int, leader_epoch: int, replica: SimulatedReplica) -> None:
        known = self._shards.get(partition)
        if known is not None:
            if leader_epoch <= known.leader_epoch:
                return
            known.close()
        self._shards[partition] = SimulatedShard(self._node, partition, leader_epoch, replica)

    def on_resigned(self, partition: int) -> None:
        known = self._shards.pop(partition, None)
        if known is not None:
            known.close()

    @property
    def active(self) -> list[SimulatedShard]:
        return [each for each in self._shards.values() if each.state is ShardState.ACTIVE]

    def shard_of(self, group_id: str) -> SimulatedShard:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        partition = partition_for_group(group_id, self._node.cluster.swarm.offsets_partitions)
        shard = self._shards.get(partition)
        if shard is None:
            raise NotCoordinator("not led here")
        if shard.state is not ShardState.ACTIVE:
            raise CoordinatorLoadInProgress("it is being read")
        return shard


class SimulatedShard:
    """Answers responses, or a KafkaError."""

    def __init__(
        self, node: SimulatedNode, partition: int, leader_epoch: int, replica: SimulatedReplica
    ) -> None:
        self.node, self.partition, self.leader_epoch = node, partition, leader_epoch
        self.replica = replica
        self.state = ShardState.LOADING
        self._request_ids = itertools.count(1)
        self._begin()

    def _begin(self) -> None:
        self.state = ShardState.LOADING
        self.coordinator = GroupCoordinator(CONFIG)
        self._timers: dict[TimerKey, object] = {}
        self._waiting: dict[int, Answer] = {}
        self._uncommitted: deque[_Uncommitted] = deque()
        self._load(self.replica.log.log_start_offset, self.coordinator)

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way to the log."""
        return self.state is ShardState.ACTIVE and not self._uncommitted

    def close(self) -> None:
        self.state = ShardState.CLOSED
        self._abandon()

    def _abandon(self) -> None:
        self._timers.clear()
        waiting, self._waiting = list(self._waiting.values()), {}
        for uncommitted in self._uncommitted:
            waiting += [answer for _, answer in uncommitted.then]
        self._uncommitted.clear()
        for answer in waiting:
            answer(NotCoordinator("the group's coordinator has moved"))

    # --- loading ---------------------------------------------------------------------------------

    def _load(self, offset: int, coordinator: GroupCoordinator) -> None:
        """Everything in the log, also what is not committed yet: this leader's log decides."""
        if self.state is not ShardState.LOADING or coordinator is not self.coordinator:
            return
        log = self.replica.log
        end = self.load_end()
        if offset < end:
            entries, offset = entries_in(read_bytes(log, offset, end, LOAD_BYTES), offset)
            for entry in entries:
                coordinator.apply(entry)
            self.node.process.after(1, lambda: self._load(offset, coordinator))
        else:
            self._wait_for(offset, coordinator)

    def load_end(self) -> int:
        return self.replica.log.log_end_offset

    def _wait_for(self, offset: int, coordinator: GroupCoordinator) -> None:
        """Until what was read is committed, because from now on it is shown."""

        def wake() -> None:
            if self.state is not ShardState.LOADING or coordinator is not self.coordinator:
                self.replica.on_commit.pop(wake, None)
            elif self.replica.log.high_watermark >= offset:
                self.replica.on_commit.pop(wake, None)
                self.node.process.after(0, lambda: self._activate(coordinator))

        self.replica.on_commit[wake] = None
        wake()

    def _activate(self, coordinator: GroupCoordinator) -> None:
        if self.state is not ShardState.LOADING or coordinator is not self.coordinator:
            return
        self.state = ShardState.ACTIVE
        self.node.cluster.oracle.note(
            self.replica.partition_id,
            f"node {self.node.node_id} coordinates {len(coordinator.groups)} groups "
            f"in epoch {self.leader_epoch}",
        )
        self._perform(coordinator.on_loaded(now_ms=self._now_ms))

    @property
    def _now_ms(self) -> int:
        return self.node.clock.now_ms

    # --- requests --------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, answer: Answer) -> None:
        def ask(request_id: int) -> list[Effect]:
            join = Join.of(
                request_id,
                request,
                api_version=API_VERSION,
                client_id="m",
                client_host="",
                unique=f"{self.node.cluster.random.getrandbits(64):016x}",
            )
            return self.coordinator.on_join(request.group_id, join, now_ms=self._now_ms)

        self._ask(ask, answer)

    def sync(self, request: SyncGroupRequest, answer: Answer) -> None:
        def told(response: Any) -> None:
            self.node.cluster.group_oracle.on_synced(self, request, response)
            answer(response)

        self._ask(lambda request_id: self.coordinator.on_sync(request_id, request), told)

    def heartbeat(self, request: HeartbeatRequest, answer: Answer) -> None:
        self._ask(lambda request_id: self.coordinator.on_heartbeat(request_id, request), answer)

    def leave(self, request: LeaveGroupRequest, answer: Answer) -> None:
        self._ask(
            lambda request_id: self.coordinator.on_leave(request_id, request, now_ms=self._now_ms),
            answer,
        )

    def commit_offsets(self, request: OffsetCommitRequest, answer: Answer) -> None:
        def told(response: Any) -> None:
            self.node.cluster.group_oracle.on_commit_answered(self, request, response)
            answer(response)

        self._ask(
            lambda request_id: self.coordinator.on_offset_commit(
                request_id,
                request,
                api_version=API_VERSION,
                is_known=lambda topic, partition: True,
                now_ms=self._now_ms,
            ),
            told,
        )

    def fetch_offsets(self, asked: OffsetFetchRequestGroup, answer: Answer) -> None:
        coordinator, oracle = self.coordinator, self.node.cluster.group_oracle
        must_know = oracle.before_fetch(self, asked.group_id)

        def read() -> None:
            found = coordinator.fetch_offsets(asked, require_stable=False)
            oracle.on_fetched(self, found, must_know)
            answer(found)

        if coordinator.is_committing(asked.group_id):
            self._uncommitted[-1].then.append((read, answer))
        else:
            read()

    def _ask(self, event: Callable[[int], list[Effect]], answer: Answer) -> None:
        request_id = next(self._request_ids)
        self._waiting[request_id] = answer
        self._perform(event(request_id))

    # --- effects ---------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(request_id, response):
                    answer = self._waiting.pop(request_id, None)
                    if answer is not None:
                        answer(response)
                case StartTimer(key, after_ms):
                    self._start_timer(key, after_ms)
                case CancelTimer(key):
                    self._timers.pop(key, None)
                case Append():
                    self._append(effect)

    def _start_timer(self, key: TimerKey, after_ms: int) -> None:
        mark = self._timers[key] = object()

        def due() -> None:
            if self._timers.get(key) is mark:
                del self._timers[key]
                self._perform(self.coordinator.on_timer(key, now_ms=self._now_ms))

        self.node.process.after(after_ms, due)

    def _append(self, append: Append) -> None:
        records = [(self._now_ms, *encode_group_record(record), ()) for record in append.records]
        uncommitted = _Uncommitted(append)
        is_appended = [False]

        def answered(result: KafkaError | int) -> None:
            if not is_appended[0]:  # committed at once
                uncommitted.is_committed = True
                return
            self.node.process.after(0, lambda: self._on_outcome(uncommitted, result))

        try:
            self.replica.append(bytearray(encode_records(records)), answer=answered)
        except KafkaError as error:
            failed = self.coordinator.on_failed(append, error.code, now_ms=self._now_ms)
            self._perform(failed)
            return
        is_appended[0] = True
        if uncommitted.is_committed and not self._uncommitted:
            self._perform(self.coordinator.on_committed(append, now_ms=self._now_ms))
            return
        self._uncommitted.append(uncommitted)
        self.node.process.after(
            CONFIG.offsets_commit_timeout_ms, lambda: self._on_late(uncommitted)
        )

    def _on_outcome(self, uncommitted: _Uncommitted, result: KafkaError | int) -> None:
        if uncommitted not in self._uncommitted:
            return
        if isinstance(result, KafkaError):
            self._on_doubt()
            return
        uncommitted.is_committed = True
        self._commit_all()

    def _commit_all(self) -> None:
        """In log order."""
        while self._uncommitted and self._uncommitted[0].is_committed:
            first = self._uncommitted.popleft()
            self._perform(self.coordinator.on_committed(first.append, now_ms=self._now_ms))
            for read, _ in first.then:
                read()

    def _on_doubt(self) -> None:
        """Whether a record is in the log is not known, so the log is read again."""
        self._abandon()
        self._begin()

    def _on_late(self, uncommitted: _Uncommitted) -> None:
        if uncommitted not in self._uncommitted or uncommitted.is_late:
            return
        uncommitted.is_late = True
        effects, uncommitted.append = self.coordinator.on_late(
            uncommitted.append, now_ms=self._now_ms
        )
        self._perform(effects)
        waiting, uncommitted.then = uncommitted.then, []
        for _, answer in waiting:
            answer(CoordinatorNotAvailable("commits take longer than they may"))
