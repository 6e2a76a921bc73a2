"""Transactions on one simulated node: its coordinators, their markers, and what its leaders ask.

As actors/coordinators/transaction_host, transaction_marker_sender and transaction_partitions, over
virtual time. What is decided is shipped code: transactions/ and coordinators/; what handlers do
beyond passing on is short, and is done here as they do it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.coordinators.coordinator_context import ContextState, CoordinatorContext
from bradbury.coordinators.coordinator_log import LedReplicaLog
from bradbury.coordinators.coordinator_runtime import CoordinatorRuntime
from bradbury.coordinators.rules_effects import TransactionMarker
from bradbury.handlers.records.write_txn_markers import NOT_READY
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import ConnectionFailed, KafkaError, error_for
from bradbury.protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from bradbury.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from bradbury.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from bradbury.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from bradbury.protocol.partitioner import partition_for_group
from bradbury.protocol.topic_partition import TopicPartition
from bradbury.replication.partition.marker_append import TransactionDecision
from bradbury.storage.producers.verification_guard import VerificationGuard
from bradbury.transactions.add_partitions_manager import (
    AddPartitionsManager,
    SendAddPartitionsToTxn,
)
from bradbury.transactions.transaction_config import TransactionConfig
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_coordinators import transaction_coordinators
from bradbury.transactions.transaction_effects import SendMarkers
from bradbury.transactions.transaction_markers import (
    MarkersWritten,
    SendWriteTxnMarkers,
    TransactionMarkerManager,
)
from bradbury.transactions.transaction_records import transactions_in
from bradbury.transactions.transaction_requests import TransactionRequests

from .simulated_coordinator import SimulatedCoordinator
from .simulated_network import Answer
from .simulated_replica import SimulatedReplica

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode

VERSION = 2
REQUEST_MS = 300
TIMEOUT_MS = 600
"""After which an open transaction is aborted."""
CONFIG = TransactionConfig(
    transaction_abort_timed_out_transaction_cleanup_interval_ms=100,
    transaction_state_log_load_buffer_size=4_000,
)


class SimulatedTransactions:
    """Of one life of a node. Implements PartitionLeaders and CoordinatorNodes of transactions/."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._image = MetadataImage()
        self._runtime = CoordinatorRuntime(
            transaction_coordinators(CONFIG, node.cluster.take_producer_id, VERSION)
        )
        self._shards: dict[int, SimulatedTransactionShard] = {}
        driver = node.driver
        self._markers = TransactionMarkerManager(self, driver.effects)
        self._questions = AddPartitionsManager(self, driver.effects)
        driver.on(MarkersWritten, self._on_markers_written)
        driver.on(SendWriteTxnMarkers, self._send_write_markers)
        driver.on(SendAddPartitionsToTxn, self._send_add_partitions)

    # --- coordinators ----------------------------------------------------------------------------

    def on_leader(self, partition: int, leader_epoch: int, replica: SimulatedReplica) -> None:
        now_ms = self._node.clock.now_ms
        context = self._runtime.on_leader(
            partition, leader_epoch, LedReplicaLog(replica), now_ms=now_ms, wall_ms=now_ms
        )
        if context is not None:
            self._drop(partition)
            self._shards[partition] = SimulatedTransactionShard(
                self._node, context, replica, self._send_markers
            )

    def on_resigned(self, partition: int) -> None:
        self._runtime.on_resigned(partition)
        self._drop(partition)
        self._markers.on_resigned(partition)
        self._step(self._markers)

    def _drop(self, partition: int) -> None:
        shard = self._shards.get(partition)
        if shard is not None and shard.context.state is ContextState.CLOSED:
            del self._shards[partition]
            shard.driver.carry_out()

    def shard_of(self, transactional_id: str) -> SimulatedTransactionShard:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        count = self._node.cluster.swarm.transaction_partitions
        partition = partition_for_group(transactional_id, count)
        return self._shards[self._runtime.context(partition).partition]

    @property
    def active(self) -> list[SimulatedTransactionShard]:
        return [self._shards[context.partition] for context in self._runtime.active]

    @property
    def is_idle(self) -> bool:
        return not len(self._markers) and all(shard.driver.is_idle for shard in self.active)

    # --- metadata --------------------------------------------------------------------------------

    def on_metadata(self, image: MetadataImage) -> None:
        """Before the node acts on it."""
        self._image = image
        self._markers.on_metadata()
        self._questions.on_metadata()
        self._step(self._markers)
        self._step(self._questions)

    def exists(self, partition: TopicPartition) -> bool:
        return self._image.partition(*partition) is not None

    def leader_of(self, partition: TopicPartition) -> int | None:
        found = self._image.partition(*partition)
        node = None if found is None else self._image.nodes.get(found.leader)
        return None if node is None or node.fenced else node.node_id

    def coordinator_of(self, transactional_id: str) -> int | None:
        count = self._node.cluster.swarm.transaction_partitions
        partition = partition_for_group(transactional_id, count)
        return self.leader_of((TRANSACTIONS_TOPIC, partition))

    # --- markers ---------------------------------------------------------------------------------

    def _send_markers(self, shard: SimulatedTransactionShard, markers: SendMarkers) -> None:
        self._markers.send(shard.context.partition, shard.context.leader_epoch, markers)
        self._step(self._markers)

    def _on_markers_written(self, written: MarkersWritten) -> None:
        def tell() -> None:
            shard = self._shards.get(written.key.partition)
            if shard is not None and shard.context.leader_epoch == written.key.coordinator_epoch:
                shard.on_markers_written(written.markers)

        self._node.process.after(0, tell)

    def _send_write_markers(self, effect: SendWriteTxnMarkers) -> None:
        node = self._node
        target = node.cluster.nodes[effect.node_id]

        def answered(result: Any) -> None:
            if isinstance(result, WriteTxnMarkersResponse):
                effect.step.on_answer(effect.node_id, result, node.clock.now_ms)
            else:
                effect.step.on_failed(effect.node_id, ConnectionFailed("lost"), node.clock.now_ms)
            self._step(effect.step)

        def write(answer: Answer) -> None:
            _WrittenMarkers(target, effect.request, answer).begin()

        node.cluster.network.call(
            node.process,
            target.process,
            node.cluster.faults.strayed(target.process, effect.request, write),
            answered,
            timeout_ms=REQUEST_MS,
            what="markers",
        )

    # --- what leaders ask coordinators -----------------------------------------------------------

    def produce(
        self,
        replica: SimulatedReplica,
        batch: bytes,
        producer: tuple[str, int, int],
        sequence: int,
        client_version: int,
        answer: Answer,
    ) -> None:
        """As handlers/records/produce for a batch of a transaction. `producer`: with its id's name."""
        guard = replica.hosted.begin_verification(
            producer[1], producer[2], sequence=sequence, supports_epoch_bump=client_version >= 2
        )
        if guard is None:
            _append(replica, batch, None, answer)
            return

        def verified(codes: dict[TopicPartition, ErrorCode]) -> None:
            code = codes[replica.partition_id]
            if code:
                answer(error_for(code))
            else:
                _append(replica, batch, guard, answer)

        self._questions.verify(
            verified,
            *producer,
            [replica.partition_id],
            adds=client_version >= 2,
            now_ms=self._node.clock.now_ms,
        )
        self._step(self._questions)

    def commit_offsets(
        self, request: TxnOffsetCommitRequest, client_version: int, answer: Answer
    ) -> None:
        """As handlers/groups/txn_offset_commit."""
        groups = self._node.groups

        def commit(guard: VerificationGuard | None) -> None:
            try:
                shard = groups.shard_of(request.group_id)
            except KafkaError as error:
                answer(error)
            else:
                shard.commit_transaction_offsets(request, guard, answer)

        try:
            replica = groups.shard_of(request.group_id).replica
        except KafkaError as error:
            answer(error)
            return
        guard = replica.hosted.begin_verification(
            request.producer_id, request.producer_epoch, supports_epoch_bump=client_version >= 2
        )
        if guard is None:
            commit(None)
            return

        def verified(codes: dict[TopicPartition, ErrorCode]) -> None:
            code = codes[replica.partition_id]
            if code:
                answer(error_for(code))
            else:
                commit(guard)

        self._questions.verify(
            verified,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [replica.partition_id],
            adds=client_version >= 2,
            now_ms=self._node.clock.now_ms,
        )
        self._step(self._questions)

    def _send_add_partitions(self, effect: SendAddPartitionsToTxn) -> None:
        node = self._node
        target = node.cluster.nodes[effect.node_id]

        def answered(result: Any) -> None:
            if isinstance(result, AddPartitionsToTxnResponse):
                effect.step.on_answer(effect.node_id, result, node.clock.now_ms)
            else:
                effect.step.on_failed(effect.node_id, ConnectionFailed("lost"))
            self._step(effect.step)

        node.cluster.network.call(
            node.process,
            target.process,
            lambda answer: _add_partitions(
                target, effect.request, node.cluster.faults.slowed(target.process, answer)
            ),
            answered,
            timeout_ms=REQUEST_MS,
            what="add partitions",
        )

    def _step(self, step: TransactionMarkerManager | AddPartitionsManager) -> None:
        self._node.driver.carry_out()
        self._node.driver.tick_when_due(step)


class SimulatedTransactionShard:
    """Answers what the port of handlers answers, or a KafkaError."""

    def __init__(
        self,
        node: SimulatedNode,
        context: CoordinatorContext[TransactionCoordinator],
        replica: SimulatedReplica,
        send_markers: Callable[[SimulatedTransactionShard, SendMarkers], None],
    ) -> None:
        self.context = context
        self.requests = TransactionRequests(context)
        self.driver = SimulatedCoordinator(
            node,
            context,
            replica,
            transactions_in,
            on_effect=lambda effect: send_markers(self, effect),
            on_append=lambda records: node.cluster.faults.on_decision(node, records),
        )
        self.driver.carry_out()

    def on_markers_written(self, markers: SendMarkers) -> None:
        self.driver.input(self.requests.on_markers_written, markers)


def _append(replica: SimulatedReplica, batch: bytes, guard: Any, answer: Answer) -> None:
    try:
        replica.step.check_produce(acks_all=True)
        replica.append(bytearray(batch), answer=answer, guard=guard)
    except KafkaError as error:
        answer(error)


class _WrittenMarkers:
    """A WriteTxnMarkers request at the node that it went to."""

    def __init__(
        self, node: SimulatedNode, request: WriteTxnMarkersRequest, answer: Answer
    ) -> None:
        self._node, self._request, self._answer = node, request, answer
        self._codes: dict[tuple[int, TopicPartition], ErrorCode] = {}
        self._count = sum(
            len(topic.partition_indexes) for marker in request.markers for topic in marker.topics
        )

    def begin(self) -> None:
        for marker in self._request.markers:
            decision = TransactionDecision(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    self._write((topic.name, index), decision)

    def _write(self, partition: TopicPartition, decision: TransactionDecision) -> None:
        def written(result: KafkaError | int | None) -> None:
            code = result.code if isinstance(result, KafkaError) else ErrorCode.NONE
            if code in NOT_READY:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._codes[decision.producer_id, partition] = code
            if len(self._codes) == self._count:
                self._answer(self._response())

        try:
            if partition[0] == OFFSETS_TOPIC:
                marker = TransactionMarker(
                    decision.producer_id,
                    decision.producer_epoch,
                    decision.coordinator_epoch,
                    decision.is_commit,
                    decision.transaction_version,
                )
                self._node.groups.complete_transaction(partition[1], marker, written)
                return
            self._node.leader_of(*partition)
            self._node.replicas[partition].append_marker(decision, answer=written)
        except KafkaError as error:
            written(error)

    def _response(self) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self._codes[marker.producer_id, (topic.name, index)],
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in self._request.markers
            ]
        )


def _add_partitions(
    node: SimulatedNode, request: AddPartitionsToTxnRequest, answer: Answer
) -> None:
    """As handlers/transactions/add_partitions_to_txn, of brokers."""
    results: dict[str, AddPartitionsToTxnResult] = {}

    def add(asked: AddPartitionsToTxnTransaction, codes: dict[TopicPartition, ErrorCode]) -> None:
        results[asked.transactional_id] = AddPartitionsToTxnResult(
            transactional_id=asked.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=codes[topic.name, index]
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in asked.topics
            ],
        )
        if len(results) == len(request.transactions):
            answer(AddPartitionsToTxnResponse(results_by_transaction=list(results.values())))

    for asked in request.transactions:
        _add_one(node, asked, add)


def _add_one(
    node: SimulatedNode,
    asked: AddPartitionsToTxnTransaction,
    add: Callable[[AddPartitionsToTxnTransaction, dict[TopicPartition, ErrorCode]], None],
) -> None:
    partitions = frozenset(
        (topic.name, index) for topic in asked.topics for index in topic.partitions
    )
    producer = (asked.transactional_id, asked.producer_id, asked.producer_epoch)

    def done(result: Any) -> None:
        code = result.code if isinstance(result, KafkaError) else result
        add(asked, dict.fromkeys(partitions, code))

    try:
        shard = node.transactions.shard_of(asked.transactional_id)
    except KafkaError as error:
        done(error)
        return
    if asked.verify_only:
        add(asked, shard.context.coordinator.verify_partitions(*producer, partitions))
    else:
        shard.driver.input(
            shard.requests.add_partitions, done, *producer, partitions, client_version=2
        )
