"""What operators are told, looked at from time to time without asking anybody: no message is sent,
so no seed takes another way because of it.

    G8  what is said of a group is what it is, and of a stable one no partition has two owners
    G10 who is refused gets Kafka's code, and changes nothing
    G9  the lag of a position is what its leader has above it, as old as the first unread record
    T7  replaying the log of transactions gives the transactions that their coordinator has
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from bradbury.groups.classic.group_state import GroupState
from bradbury.groups.coordinator import coordinator as group_coordinator
from bradbury.groups.offsets.lag_query import LATEST, GroupPosition, LagQuery
from bradbury.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from bradbury.protocol.records.record_batch import walk_batches
from bradbury.protocol.records.records import iterate_records
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_metadata import NO_EPOCH, TransactionMetadata
from bradbury.transactions.transaction_records import transactions_in

from ..world.coordinators.simulated_groups import SimulatedShard
from ..world.coordinators.simulated_transactions import CONFIG, VERSION, SimulatedTransactionShard
from ..world.simulated_replica import read_bytes
from .simulated_log_checks import Violation
from .simulated_refusals import check_refusals

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster
    from ..world.simulated_node import SimulatedNode


class Views:
    """Raises Violation."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def check_all(self) -> None:
        for node in self._cluster.nodes.values():
            if not node.process.is_up:
                continue
            for groups in node.groups.active:
                self._check_groups(groups)
                if groups.is_idle:
                    check_refusals(groups)
            for transactions in node.transactions.active:
                if transactions.is_idle:
                    self._check_transactions(node, transactions)
        self._check_lag()

    # --- groups ----------------------------------------------------------------------------------

    def _check_groups(self, shard: SimulatedShard) -> None:
        groups = shard.coordinator.groups
        told = group_coordinator.list_groups(groups)
        if sorted(each.group_id for each in told) != sorted(groups):
            raise Violation("G8", f"of {sorted(groups)} {told} are listed", None)
        for each in told:
            described = group_coordinator.describe_group(groups, each.group_id)
            group = groups[each.group_id].metadata
            if described is None or {described.group_state, each.group_state} != {
                group.state.value
            }:
                raise Violation("G8", f"{each.group_id} is {group.state}: {described}", None)
            members = [member.member_id for member in group.members]
            if [member.member_id for member in described.members] != members:
                raise Violation("G8", f"{each.group_id} has {members}: {described}", None)
            owned = list(chain.from_iterable(m.member_assignment for m in described.members))
            if len(owned) != len(set(owned)):
                raise Violation("G8", f"two own a partition of {described}", None)
            if owned and group.state is not GroupState.STABLE:
                raise Violation("G8", f"partitions of no generation: {described}", None)

    # --- transactions ----------------------------------------------------------------------------

    def _check_transactions(self, node: SimulatedNode, shard: SimulatedTransactionShard) -> None:
        replayed = TransactionCoordinator(CONFIG, lambda: None, VERSION)
        log = shard.replica.log
        offset = log.log_start_offset
        while offset < log.high_watermark:
            records, offset = transactions_in(read_bytes(log, offset, log.high_watermark), offset)
            for record in records:
                replayed.apply(record)
        now, then = _stored(shard.coordinator), _stored(replayed)
        for transactional_id in now.keys() | then.keys():
            has, says = now.get(transactional_id), then.get(transactional_id)
            if has != says:
                raise Violation(
                    "T7",
                    f"node {node.node_id} has {has} of {transactional_id}, its log says {says}",
                    shard.replica.partition_id,
                )

    # --- lag -------------------------------------------------------------------------------------

    def _check_lag(self) -> None:
        """Of where the readers are, as if they had committed it."""
        positions = [
            GroupPosition(f"reader-{number}", *reader.partition_id, reader.position)
            for number, reader in enumerate(self._cluster.readers)
        ]
        look = LagQuery(positions, self._leader_id)
        for _, request in look.ends():
            look.on_ends(self._offsets(request))
        for _, request in look.starts():
            look.on_starts(self._offsets(request))
        for _, fetch in look.times():
            look.on_times(fetch, self._records(fetch))
        now_ms = self._cluster.clock.now_ms
        found = {one.group: one for one in look.lags(now_ms)}
        for position in positions:
            leader = self._leader((position.topic, position.partition))
            told = found.get(position.group)
            if leader is None or told is None:
                if (leader is None) != (told is None):
                    raise Violation("G9", f"{told} of {position}, led by {leader}", None)
                continue
            end = leader[1].high_watermark
            if told.records != max(0, end - position.offset):
                raise Violation("G9", f"{told} of {position}, which ends at {end}", None)
            written_ms = _first_written(leader[1], position) if told.records else now_ms
            age = None if written_ms is None else (now_ms - written_ms) / 1000
            if told.seconds != age:
                raise Violation("G9", f"{told} of {position} is {age} s old", None)

    def _leader(self, partition_id: TopicPartitionPair) -> tuple[int, PartitionLog] | None:
        state = self._cluster.oracle.image.partition(*partition_id)
        node = None if state is None else self._cluster.nodes.get(state.leader)
        if node is None or not node.process.is_up:
            return None
        replica = node.replicas.get(partition_id)
        return None if replica is None else (node.node_id, replica.log)

    def _leader_id(self, partition_id: TopicPartitionPair) -> int | None:
        leader = self._leader(partition_id)
        return None if leader is None else leader[0]

    def _log(self, partition_id: TopicPartitionPair) -> PartitionLog:
        leader = self._leader(partition_id)
        assert leader is not None, "only leaders are asked"
        return leader[1]

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        def answer(topic: str, index: int, timestamp: int) -> ListOffsetsPartitionResponse:
            log = self._log((topic, index))
            offset = log.high_watermark if timestamp == LATEST else log.log_start_offset
            return ListOffsetsPartitionResponse(partition_index=index, offset=offset)

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        answer(topic.name, one.partition_index, one.timestamp)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _records(self, request: FetchRequest) -> FetchResponse:
        def answer(topic: str, index: int, offset: int, size: int) -> PartitionData:
            log = self._log((topic, index))
            records = read_bytes(log, offset, log.high_watermark, size)
            return PartitionData(partition_index=index, records=records)

        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        answer(
                            topic.topic, one.partition, one.fetch_offset, one.partition_max_bytes
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def _stored(coordinator: TransactionCoordinator) -> dict[str, TransactionMetadata]:
    """What records say of each id; the last epoch of a producer is in none, as with Kafka."""
    return {
        transactional_id: replace(metadata, last_producer_epoch=NO_EPOCH)
        for transactional_id, metadata in coordinator
    }


def _first_written(log: PartitionLog, position: GroupPosition) -> int | None:
    """When the first record at or above the position was written; None where it is not found."""
    start = max(position.offset, log.log_start_offset)
    data = memoryview(read_bytes(log, start, log.high_watermark))
    for at, header in walk_batches(data, strict=True):
        if not header.is_control:
            for record in iterate_records(data[at : at + header.size]):
                if record.offset >= start:
                    return record.timestamp
    return None
