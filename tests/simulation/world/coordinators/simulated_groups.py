"""The group coordinators of a simulated node: the shipped host and shards, and what clients ask of
them; the oracle is told of what is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.actors.coordinators.group_host import GroupHost
from bradbury.actors.coordinators.group_shard import GroupShard
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.groups.coordinator.coordinator import GroupCoordinator
from bradbury.groups.group_config import GroupCoordinatorConfig
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

from ..simulated_network import Answer
from ..simulated_replica import SimulatedReplica
from .simulated_coordinator import CoordinatorReplica, is_idle

if TYPE_CHECKING:
    from ..simulated_node import SimulatedNode

API_VERSION = 9
CONFIG = GroupCoordinatorConfig(
    group_min_session_timeout_ms=100,
    group_initial_rebalance_delay_ms=40,
    offsets_commit_timeout_ms=500,
    offsets_load_buffer_size=4_000,
    offsets_retention_check_interval_ms=300,
)


class SimulatedGroups:
    """The group coordinators of one node, from its start to its end. Implements Groups of
    handlers.ports.group_port.
    """

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._host = GroupHost(CONFIG, node.now_ms, node.new_id)
        self.shard = self._host.shard
        self._shards: dict[GroupShard, SimulatedShard] = {}

    def on_leader(self, partition: int, leader_epoch: int, replica: Any) -> None:
        """`replica`: the shipped HostedReplica."""
        node = self._node
        led = node.replica_of(replica.step)
        stored: Any = CoordinatorReplica(node, led, entries_in, self._on_append)
        with node.loop.running():
            self._host.on_leader(partition, leader_epoch, stored)
            self._know(partition, led)

    def on_resigned(self, partition: int) -> None:
        with self._node.loop.running():
            self._host.on_resigned(partition)

    def on_metadata(self, before: MetadataImage, after: MetadataImage) -> None:
        self._host.on_metadata(before, after)

    def close(self) -> None:
        self._host.close()

    def _know(self, partition: int, replica: SimulatedReplica) -> None:
        led = self._host._host.led
        shard = led[partition]
        if shard not in self._shards:
            self._shards = {each: self._shards[each] for each in led.values() if each != shard}
            self._shards[shard] = SimulatedShard(self._node, shard, replica)

    def _on_append(self, records: list[Any]) -> None:
        for record in records:
            if isinstance(record, GroupRecord) and record.value is None:
                self._node.cluster.group_oracle.on_group_deleted(record.key.group)

    @property
    def active(self) -> list[SimulatedShard]:
        led = self._host._host.led
        return [self._shards[led[each.partition]] for each in self._host._runtime.active]

    def shard_of(self, group_id: str) -> SimulatedShard:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        partition = partition_for_group(group_id, self._node.cluster.swarm.offsets_partitions)
        return self._shards[self._host._host.shard(partition)]


class SimulatedShard:
    """A shipped shard, for clients that are called back: with a response, or a KafkaError."""

    def __init__(self, node: SimulatedNode, port: GroupShard, replica: SimulatedReplica) -> None:
        self.node, self.port, self.replica = node, port, replica

    @property
    def leader_epoch(self) -> int:
        return self.port._context.leader_epoch

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.port.coordinator

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way to the log."""
        return is_idle(self.port._context)

    # --- requests --------------------------------------------------------------------------------

    def _ask(self, ask: Callable[[], Any], answer: Answer) -> None:
        self.node.loop.answer(ask, answer)

    def join(self, request: JoinGroupRequest, answer: Answer) -> None:
        self._ask(
            lambda: self.port.join(request, api_version=API_VERSION, client_id="m", client_host=""),
            answer,
        )

    def sync(self, request: SyncGroupRequest, answer: Answer) -> None:
        self._ask(lambda: self.port.sync(request), answer)

    def heartbeat(self, request: HeartbeatRequest, answer: Answer) -> None:
        self._ask(lambda: self.port.heartbeat(request), answer)

    def leave(self, request: LeaveGroupRequest, answer: Answer) -> None:
        self._ask(lambda: self.port.leave(request), answer)

    def commit_offsets(self, request: OffsetCommitRequest, answer: Answer) -> None:
        self._ask(
            lambda: self.port.commit_offsets(request, api_version=API_VERSION, is_known=_is_known),
            answer,
        )

    def delete_groups(self, group_ids: list[str], answer: Answer) -> None:
        self._ask(lambda: self.port.delete(group_ids), answer)

    def delete_offsets(self, request: OffsetDeleteRequest, answer: Answer) -> None:
        self._ask(lambda: self.port.delete_offsets(request, is_known=_is_known), answer)

    def commit_transaction_offsets(self, request: TxnOffsetCommitRequest, answer: Answer) -> None:
        self._ask(
            lambda: self.port.commit_transaction_offsets(request, is_known=_is_known, guard=None),
            answer,
        )

    def fetch_stable_offsets(self, asked: OffsetFetchRequestGroup, answer: Answer) -> None:
        self._ask(lambda: self.port.fetch_offsets(asked, require_stable=True), answer)

    # --- requests that the oracle follows --------------------------------------------------------

    def watched_sync(self, request: SyncGroupRequest, answer: Answer) -> None:
        def reported(response: Any) -> None:
            self.node.cluster.group_oracle.on_synced(self, request, response)
            answer(response)

        self.sync(request, reported)

    def watched_commit(self, request: OffsetCommitRequest, answer: Answer) -> None:
        def reported(response: Any) -> None:
            self.node.cluster.group_oracle.on_commit_answered(self, request, response)
            answer(response)

        self.commit_offsets(request, reported)

    def watched_fetch(self, asked: OffsetFetchRequestGroup, answer: Answer) -> None:
        oracle = self.node.cluster.group_oracle
        must_know = oracle.before_fetch(self, asked.group_id)

        def reported(response: Any) -> None:
            if not isinstance(response, KafkaError):
                oracle.on_fetched(self, response, must_know)
            answer(response)

        self._ask(lambda: self.port.fetch_offsets(asked, require_stable=False), reported)


def _is_known(topic: str, partition: int) -> bool:
    return True
