"""The driver of a simulated node's group coordinators: coordinators/coordinator_runtime and its contexts
over simulated replicas and virtual time, and the oracle told of what is answered.

As actors/coordinators/group_host and group_shard drive them. Tickets are the functions that take an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.coordinators.coordinator_context import ContextState, CoordinatorContext
from bradbury.coordinators.coordinator_effects import (
    AppendBatch,
    ReadLog,
    UnwatchHighWatermark,
    WatchHighWatermark,
)
from bradbury.coordinators.coordinator_log import LedReplicaLog
from bradbury.coordinators.coordinator_rules import CoordinatorKind
from bradbury.coordinators.coordinator_runtime import CoordinatorRuntime
from bradbury.groups.coordinator.coordinator import GroupCoordinator
from bradbury.groups.coordinator.coordinator_requests import CoordinatorRequests
from bradbury.groups.coordinator.group_coordinators import group_coordinators
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.groups.group_counters import GroupCounters, MemberMemory
from bradbury.groups.group_records import GroupRecord, entries_in
from bradbury.protocol.errors import KafkaError, KafkaStorageError
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.protocol.messages.join_group import JoinGroupRequest
from bradbury.protocol.messages.leave_group import LeaveGroupRequest
from bradbury.protocol.messages.offset_commit import OffsetCommitRequest
from bradbury.protocol.messages.offset_delete import OffsetDeleteRequest
from bradbury.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from bradbury.protocol.messages.sync_group import SyncGroupRequest
from bradbury.protocol.partitioner import partition_for_group
from bradbury.steps.replies import Refuse, Reply

from .simulated_network import Answer
from .simulated_replica import SimulatedReplica, read_bytes

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode

API_VERSION = 9
CONFIG = GroupCoordinatorConfig(
    group_min_session_timeout_ms=100,
    group_initial_rebalance_delay_ms=40,
    offsets_commit_timeout_ms=500,
    offsets_load_buffer_size=4_000,
    offsets_retention_check_interval_ms=300,
)


def _kind() -> CoordinatorKind[GroupCoordinator]:
    memory = MemberMemory(CONFIG.bradbury_group_members_max_bytes)
    return group_coordinators(CONFIG, memory, GroupCounters())


class SimulatedGroups:
    """The group coordinators of one node, from its start to its end."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._runtime = CoordinatorRuntime(_kind())
        self._shards: dict[int, SimulatedShard] = {}

    def on_leader(self, partition: int, leader_epoch: int, replica: SimulatedReplica) -> None:
        now_ms = self._node.clock.now_ms
        context = self._runtime.on_leader(
            partition, leader_epoch, LedReplicaLog(replica), now_ms=now_ms, wall_ms=now_ms
        )
        if context is not None:
            self._drop(partition)
            self._shards[partition] = SimulatedShard(self._node, context, replica)

    def on_resigned(self, partition: int) -> None:
        self._runtime.on_resigned(partition)
        self._drop(partition)

    def _drop(self, partition: int) -> None:
        shard = self._shards.get(partition)
        if shard is not None and shard.context.state is ContextState.CLOSED:
            del self._shards[partition]
            shard.carry_out()

    @property
    def active(self) -> list[SimulatedShard]:
        return [self._shards[context.partition] for context in self._runtime.active]

    def shard_of(self, group_id: str) -> SimulatedShard:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        partition = partition_for_group(group_id, self._node.cluster.swarm.offsets_partitions)
        return self._shards[self._runtime.context(partition).partition]


class SimulatedShard:
    """Answers responses, or a KafkaError."""

    def __init__(
        self, node: SimulatedNode, context: CoordinatorContext, replica: SimulatedReplica
    ) -> None:
        self.node, self.context, self.replica = node, context, replica
        self.partition = context.partition
        self._requests = CoordinatorRequests(context)
        self._tick_at: int | None = None
        self._was_active = False
        self.carry_out()

    @property
    def leader_epoch(self) -> int:
        return self.context.leader_epoch

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.context.coordinator

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way to the log."""
        return self.context.state is ContextState.ACTIVE and not self.context._pending

    # --- requests --------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, answer: Answer) -> None:
        self._input(
            self._requests.join,
            answer,
            request,
            api_version=API_VERSION,
            client_id="m",
            client_host="",
            unique=f"{self.node.cluster.random.getrandbits(64):016x}",
        )

    def sync(self, request: SyncGroupRequest, answer: Answer) -> None:
        def reported(response: Any) -> None:
            self.node.cluster.group_oracle.on_synced(self, request, response)
            answer(response)

        self._input(self._requests.sync, reported, request)

    def heartbeat(self, request: HeartbeatRequest, answer: Answer) -> None:
        self._input(self._requests.heartbeat, answer, request)

    def leave(self, request: LeaveGroupRequest, answer: Answer) -> None:
        self._input(self._requests.leave, answer, request)

    def commit_offsets(self, request: OffsetCommitRequest, answer: Answer) -> None:
        def reported(response: Any) -> None:
            self.node.cluster.group_oracle.on_commit_answered(self, request, response)
            answer(response)

        self._input(
            self._requests.commit_offsets,
            reported,
            request,
            api_version=API_VERSION,
            is_known=lambda topic, partition: True,
        )

    def delete_groups(self, group_ids: list[str], answer: Answer) -> None:
        self._input(self._requests.delete_groups, answer, group_ids)

    def delete_offsets(self, request: OffsetDeleteRequest, answer: Answer) -> None:
        self._input(
            self._requests.delete_offsets,
            answer,
            request,
            is_known=lambda topic, partition: True,
        )

    def fetch_offsets(self, asked: OffsetFetchRequestGroup, answer: Answer) -> None:
        oracle = self.node.cluster.group_oracle
        must_know = oracle.before_fetch(self, asked.group_id)

        def reported(response: Any) -> None:
            if not isinstance(response, KafkaError):
                oracle.on_fetched(self, response, must_know)
            answer(response)

        self._requests.fetch_offsets(reported, asked, require_stable=False)
        self.carry_out()

    # --- inputs and effects ----------------------------------------------------------------------

    def _input(self, method: Callable[..., None], *values: object, **rest: Any) -> None:
        now_ms = self.node.clock.now_ms
        method(*values, **rest, now_ms=now_ms, wall_ms=now_ms)
        self.carry_out()

    def carry_out(self) -> None:
        effects, now_ms = self.context.effects, self.node.clock.now_ms
        while effects:
            taken = effects[:]
            effects.clear()
            for outcome in [outcome for effect in taken if (outcome := self._begin(effect))]:
                outcome(now_ms=now_ms, wall_ms=now_ms)
        self._note_activity()
        self._set_timer()

    def _begin(self, effect: object) -> Callable[..., None] | None:
        """Returns the input that it leads to at once."""
        match effect:
            case Reply(answer, result) | Refuse(answer, result):
                answer(result)
            case AppendBatch():
                return self._append(effect)
            case ReadLog():
                self.node.process.after(1, lambda: self._read(effect))
            case WatchHighWatermark():
                self.replica.on_commit[self._on_high_watermark] = None
            case UnwatchHighWatermark():
                self.replica.on_commit.pop(self._on_high_watermark, None)
        return None

    def _append(self, effect: AppendBatch) -> Callable[..., None] | None:
        pending, context = effect.pending, self.context
        for record in pending.append.records:
            if isinstance(record, GroupRecord) and record.value is None:
                self.node.cluster.group_oracle.on_group_deleted(record.key.group)
        at_once: list[KafkaError | int] = []
        is_appended = False

        def answered(result: KafkaError | int) -> None:
            if is_appended:
                self.node.process.after(0, lambda: self._input(outcome_of(result)))
            else:
                at_once.append(result)

        if self._errs():
            return lambda **now: context.on_append_refused(
                pending, KafkaStorageError("full"), **now
            )
        is_doubtful = self._errs()

        def outcome_of(result: KafkaError | int) -> Callable[..., None]:
            def outcome(*, now_ms: int, wall_ms: int) -> None:
                if is_doubtful:
                    error = OSError("an fsync failed")
                    context.on_commit_failed(pending, error, now_ms=now_ms, wall_ms=wall_ms)
                elif isinstance(result, KafkaError):
                    context.on_commit_failed(pending, result, now_ms=now_ms, wall_ms=wall_ms)
                else:
                    context.on_committed(pending, now_ms=now_ms, wall_ms=wall_ms)

            return outcome

        try:
            self.replica.append(bytearray(effect.batch), answer=answered)
        except KafkaError as error:
            refused = error
            return lambda **now: context.on_append_refused(pending, refused, **now)
        is_appended = True
        return outcome_of(at_once[0]) if at_once else None

    def _errs(self) -> bool:
        cluster = self.node.cluster
        chance = 0.0 if cluster.is_calm else cluster.swarm.log_errors
        return chance > 0 and cluster.random.random() < chance

    def _read(self, read: ReadLog) -> None:
        if self._errs():
            self._input(self.context.on_log_read_failed, read, OSError("unreadable"))
            return
        data = read_bytes(self.replica.log, read.offset, read.up_to, read.max_bytes)
        entries, next_offset = entries_in(data, read.offset)
        self._input(self.context.on_log_read, read, entries, next_offset)

    def _on_high_watermark(self) -> None:
        """The replica is in the middle of something."""
        self.node.process.after(0, lambda: self._input(self.context.on_high_watermark))

    def _set_timer(self) -> None:
        deadline_ms = self.context.next_deadline_ms
        if deadline_ms is None or (self._tick_at is not None and self._tick_at <= deadline_ms):
            return
        self._tick_at = at_ms = deadline_ms
        self.node.process.after(max(0, at_ms - self.node.clock.now_ms), lambda: self._tick(at_ms))

    def _tick(self, at_ms: int) -> None:
        if at_ms == self._tick_at:
            self._tick_at = None
            self._input(self.context.on_tick)

    def _note_activity(self) -> None:
        is_active = self.context.state is ContextState.ACTIVE
        if is_active and not self._was_active:
            self.node.cluster.oracle.note(
                self.replica.partition_id,
                f"node {self.node.node_id} coordinates {len(self.coordinator.groups)} groups "
                f"in epoch {self.leader_epoch}",
            )
        self._was_active = is_active
