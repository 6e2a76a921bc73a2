"""The driver of a simulated node's group coordinators: coordinators/coordinator_runtime and its contexts
over simulated replicas and virtual time, and the oracle told of what is answered.

As actors/coordinators/group_host and group_shard drive them. Tickets are the functions that take an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bradbury.coordinators.coordinator_context import ContextState, CoordinatorContext
from bradbury.coordinators.coordinator_log import LedReplicaLog
from bradbury.coordinators.coordinator_rules import CoordinatorKind
from bradbury.coordinators.coordinator_runtime import CoordinatorRuntime
from bradbury.coordinators.rules_effects import TransactionMarker
from bradbury.groups.coordinator.coordinator import GroupCoordinator
from bradbury.groups.coordinator.coordinator_requests import CoordinatorRequests
from bradbury.groups.coordinator.group_coordinators import group_coordinators
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.groups.group_counters import GroupCounters, MemberMemory
from bradbury.groups.group_records import GroupRecord, entries_in
from bradbury.protocol.errors import KafkaError
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.protocol.messages.join_group import JoinGroupRequest
from bradbury.protocol.messages.leave_group import LeaveGroupRequest
from bradbury.protocol.messages.offset_commit import OffsetCommitRequest
from bradbury.protocol.messages.offset_delete import OffsetDeleteRequest
from bradbury.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from bradbury.protocol.messages.sync_group import SyncGroupRequest
from bradbury.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from bradbury.protocol.partitioner import partition_for_group
from bradbury.storage.producers.verification_guard import VerificationGuard

from .simulated_coordinator import SimulatedCoordinator
from .simulated_network import Answer
from .simulated_replica import SimulatedReplica

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

    def complete_transaction(
        self, partition: int, marker: TransactionMarker, answer: Answer
    ) -> None:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        shard = self._shards[self._runtime.context(partition).partition]
        shard.complete_transaction(marker, answer)

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
        self,
        node: SimulatedNode,
        context: CoordinatorContext[GroupCoordinator],
        replica: SimulatedReplica,
    ) -> None:
        self.node, self.context, self.replica = node, context, replica
        self.partition = context.partition
        self.requests = CoordinatorRequests(context)
        self.driver = SimulatedCoordinator(
            node,
            context,
            replica,
            entries_in,
            on_append=self._on_append,
            on_active=self._on_active,
        )
        self._input = self.driver.input
        self.carry_out = self.driver.carry_out
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
        return self.driver.is_idle

    def _on_append(self, records: tuple[Any, ...]) -> None:
        for record in records:
            if isinstance(record, GroupRecord) and record.value is None:
                self.node.cluster.group_oracle.on_group_deleted(record.key.group)

    def _on_active(self) -> None:
        self.node.cluster.oracle.note(
            self.replica.partition_id,
            f"node {self.node.node_id} coordinates {len(self.coordinator.groups)} groups "
            f"in epoch {self.leader_epoch}",
        )

    # --- requests --------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, answer: Answer) -> None:
        self._input(
            self.requests.join,
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

        self._input(self.requests.sync, reported, request)

    def heartbeat(self, request: HeartbeatRequest, answer: Answer) -> None:
        self._input(self.requests.heartbeat, answer, request)

    def leave(self, request: LeaveGroupRequest, answer: Answer) -> None:
        self._input(self.requests.leave, answer, request)

    def commit_offsets(self, request: OffsetCommitRequest, answer: Answer) -> None:
        def reported(response: Any) -> None:
            self.node.cluster.group_oracle.on_commit_answered(self, request, response)
            answer(response)

        self._input(
            self.requests.commit_offsets,
            reported,
            request,
            api_version=API_VERSION,
            is_known=lambda topic, partition: True,
        )

    def delete_groups(self, group_ids: list[str], answer: Answer) -> None:
        self._input(self.requests.delete_groups, answer, group_ids)

    def delete_offsets(self, request: OffsetDeleteRequest, answer: Answer) -> None:
        self._input(
            self.requests.delete_offsets,
            answer,
            request,
            is_known=lambda topic, partition: True,
        )

    def commit_transaction_offsets(
        self, request: TxnOffsetCommitRequest, guard: VerificationGuard | None, answer: Answer
    ) -> None:
        self._input(
            self.requests.commit_transaction_offsets,
            answer,
            request,
            is_known=lambda topic, partition: True,
            guard=guard,
        )

    def complete_transaction(self, marker: TransactionMarker, answer: Answer) -> None:
        self._input(self.requests.complete_transaction, answer, marker)

    def fetch_stable_offsets(self, asked: OffsetFetchRequestGroup, answer: Answer) -> None:
        self.requests.fetch_offsets(answer, asked, require_stable=True)
        self.carry_out()

    def fetch_offsets(self, asked: OffsetFetchRequestGroup, answer: Answer) -> None:
        oracle = self.node.cluster.group_oracle
        must_know = oracle.before_fetch(self, asked.group_id)

        def reported(response: Any) -> None:
            if not isinstance(response, KafkaError):
                oracle.on_fetched(self, response, must_know)
            answer(response)

        self.requests.fetch_offsets(reported, asked, require_stable=False)
        self.carry_out()
