"""Transactional producers, as Kafka's clients are.

A producer begins with its id, writes some batches to some partitions, and commits or aborts, again
and again; it may die in the middle, stand still and go on as a zombie, or have a twin that begins
with the same id. It follows transaction.version 1 (partitions are added by it) or 2 (by the leaders,
and each end gives it another epoch).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bradbury.cluster.metadata.metadata_image import NO_LEADER
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import KafkaError, TransactionAbortable
from bradbury.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from bradbury.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from bradbury.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from bradbury.protocol.partitioner import partition_for_group
from bradbury.protocol.records.records import (
    encode_records,
)
from bradbury.protocol.schema import Message
from bradbury.protocol.topic_name import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from bradbury.protocol.topic_partition import TopicPartitionPair

from ..world.coordinators.simulated_transactions import TIMEOUT_MS
from ..world.simulated_network import LOST, Answer, Process, is_error
from ..world.simulated_requests import LAST_WITH_NAMES, WITHOUT_BUMPS, handle, produce
from .simulated_transaction_oracle import Transaction, offset_in

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster

REQUEST_MS = 250
BACKOFF_MS = 20
DELIVERY_MS = (80, 80, 1_500)
PRODUCE_MS = (50, 250)
"""One of them is a producer's: how long it waits for an answer, and how long it tries."""
MOST_BATCHES = 4
INIT_PRODUCER_ID_VERSION = 5
CLIENTS_ADD_PARTITIONS_VERSION = 3
NOT_ATTEMPTED = (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Of a partition that was not added for another one's sake."""

_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""What goes away: the request is sent again."""


class TransactionalProducer:
    """One process with a transactional id; another may have the same one."""

    def __init__(
        self, cluster: SimulatedCluster, machine: int, transactional_id: str, version: int
    ) -> None:
        self.cluster = cluster
        self.process = Process(cluster.clock, machine, f"x{machine}")
        self.transactional_id = transactional_id
        self.version = version
        self.is_stopped = False
        self.is_at_rest = False
        self.made = 0
        self.start()

    @property
    def group_id(self) -> str:
        """Whose offset its transactions commit."""
        return f"group of {self.transactional_id}"

    @property
    def input_topic(self) -> str:
        """The topic of its input, whose offsets it commits."""
        return self.cluster.partitions[0][0]

    @property
    def offsets_partition(self) -> TopicPartitionPair:
        count = self.cluster.swarm.offsets_partitions
        return OFFSETS_TOPIC, partition_for_group(self.group_id, count)

    @property
    def offset_at_rest(self) -> int | None:
        """-1: there is none; None: it is pending, or lost with its partition.

        Raises NotCoordinator, CoordinatorLoadInProgress.
        """
        cluster = self.cluster
        if not cluster.swarm.offsets_in_transactions:
            return -1
        state = cluster.oracle.image.partition(*self.offsets_partition)
        if state is None or cluster.transaction_oracle.is_damaged(self.offsets_partition):
            return None
        shard = cluster.nodes[state.leader].groups.shard_of(self.group_id)
        found = shard.coordinator.offsets.fetch(self.asked, require_stable=True)
        return offset_in(found)

    @property
    def asked(self) -> OffsetFetchRequestGroup:
        return OffsetFetchRequestGroup(
            self.group_id,
            topics=[OffsetFetchRequestTopics(name=self.input_topic, partition_indexes=[0])],
        )

    def start(self) -> None:
        if not self.process.is_up:
            self.process.begin_life()
            self._run = _ProducerLife(self)

    def kill(self) -> None:
        self.process.end_life()


class _ProducerLife:
    """From its InitProducerId on. A fatal error makes it begin again with the id."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self._cluster = producer.cluster
        self._process = producer.process
        self._random = producer.cluster.random
        self._id, self._epoch = -1, -1
        self._sequences: dict[TopicPartitionPair, int] = {}
        self._transaction: Transaction | None = None
        # Up to version 1 a request that comes twice, or late, can end the next transaction, as all
        # of them have one epoch: what KIP-890 was made for. Connections make that rare in life.
        self._is_ordered = producer.version < 2
        self._produce_ms = self._random.choice(PRODUCE_MS)
        self._delivery_ms = self._random.choice(DELIVERY_MS)
        self._initialize()

    # --- to the coordinator ----------------------------------------------------------------------

    def _ask(
        self,
        what: str,
        request: Message,
        version: int,
        done: Callable[[Any], None],
    ) -> None:
        """Ask the coordinator, wherever it is, until it says something that counts."""
        node = self._find(
            (
                TRANSACTIONS_TOPIC,
                partition_for_group(
                    self._producer.transactional_id,
                    self._cluster.swarm.transaction_partitions,
                ),
            )
        )

        def again() -> None:
            self._process.after(BACKOFF_MS, lambda: self._ask(what, request, version, done))

        def answered(result: Any) -> None:
            code = _code_of(result)
            if code is None or code in _AGAIN:
                again()
            else:
                done(result)

        if node is None:
            again()
            return

        self._cluster.network.call(
            self._process,
            node.process,
            partial(handle, node, request, version),
            answered,
            timeout_ms=REQUEST_MS,
            what=what,
            is_connection=self._is_ordered,
        )

    def _find(self, partition_id: TopicPartitionPair) -> Any:
        up = [node for node in self._cluster.nodes.values() if node.process.is_up]
        if not up:
            return None
        image = self._random.choice(up).image.partition(*partition_id)
        if image is None or image.leader == NO_LEADER:
            return None
        return self._cluster.nodes.get(image.leader)

    def _initialize(self) -> None:
        """Take over the id. Whatever was open is aborted, by the coordinator."""
        self._transaction = None

        request = InitProducerIdRequest(self._producer.transactional_id, TIMEOUT_MS)

        def done(response: InitProducerIdResponse) -> None:
            if response.error_code:
                self._later(self._initialize)
                return
            self._become(response)
            self._rest()

        self._ask("initialize", request, INIT_PRODUCER_ID_VERSION, done)

    def _become(self, producer: InitProducerIdResponse | EndTxnResponse) -> None:
        if (producer.producer_id, producer.producer_epoch) != (self._id, self._epoch):
            self._id, self._epoch = producer.producer_id, producer.producer_epoch
            self._sequences.clear()

    def _rest(self) -> None:
        self._transaction = None
        if self._producer.is_stopped:
            self._producer.is_at_rest = True
            return
        self._later(self._begin)

    def _later(self, event: Callable[[], None]) -> None:
        pace = self._cluster.swarm.pace_ms
        self._process.after(1 + int(self._random.random() * pace), event)

    # --- a transaction ---------------------------------------------------------------------------

    def _begin(self) -> None:
        producer, cluster = self._producer, self._cluster
        name = f"{producer.transactional_id}:{self._process.name}:{producer.made}"
        producer.made += 1
        self._transaction = transaction = cluster.transaction_oracle.begin(name)
        if cluster.swarm.offsets_in_transactions and self._random.random() < 0.7:
            cluster.transaction_oracle.take_offset(transaction)
        partitions = [
            each for each in cluster.transactional_partitions if self._random.random() < 0.7
        ] or cluster.transactional_partitions[:1]
        batches = []
        number = 0
        for _ in range(self._random.randrange(1, MOST_BATCHES + 1)):
            partition_id = self._random.choice(partitions)
            values = [f"{name}/{number + each}".encode() for each in range(2)]
            number += 2
            batches.append((partition_id, values))
        if transaction.offset is None:
            self._add_then_send(transaction, batches)
        else:
            self._read_offset(lambda: self._add_then_send(transaction, batches))

    def _read_offset(self, done: Callable[[], None]) -> None:
        """As a consumer does before it goes on: it waits until nothing is pending."""
        producer, oracle = self._producer, self._cluster.transaction_oracle
        node = self._find(producer.offsets_partition)

        def answered(result: Any) -> None:
            if isinstance(result, OffsetFetchResponseGroup) and offset_in(result) is not None:
                done()
            else:
                self._process.after(BACKOFF_MS, lambda: self._read_offset(done))

        if node is None:
            answered(LOST)
            return

        def handle(answer: Answer) -> None:
            try:
                shard = node.groups.shard_of(producer.group_id)
            except KafkaError as error:
                answer(error)
                return
            least = -1
            if self._cluster.group_oracle.is_newest(shard):
                least = oracle.least_offset(producer.transactional_id)

            def found(result: Any) -> None:
                if isinstance(result, OffsetFetchResponseGroup):
                    offset = offset_in(result)
                    if offset is not None and not oracle.is_damaged(producer.offsets_partition):
                        oracle.on_offset_read(producer.transactional_id, offset, least)
                answer(result)

            shard.fetch_stable_offsets(producer.asked, found)

        self._cluster.network.call(
            self._process, node.process, handle, answered, timeout_ms=REQUEST_MS, what="offset"
        )

    def _commit_offset(self, transaction: Transaction, until_ms: int) -> None:
        producer = self._producer
        assert transaction.offset is not None
        request = TxnOffsetCommitRequest(
            producer.transactional_id,
            producer.group_id,
            self._id,
            self._epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    producer.input_topic, [TxnOffsetCommitRequestPartition(0, transaction.offset)]
                )
            ],
        )
        node = self._find(producer.offsets_partition)

        def answered(result: Any) -> None:
            code = _code_of(result)
            if code is ErrorCode.NONE:
                self._end(transaction, is_commit=self._random.random() < 0.8)
            elif code is ErrorCode.TRANSACTION_ABORTABLE:
                self._end(transaction, is_commit=False)
            elif code is not None and code not in _AGAIN:
                self._initialize()
            elif self._cluster.clock.now_ms >= until_ms:
                self._initialize()  # nobody knows whether it is there: the transaction is over
            else:
                self._process.after(BACKOFF_MS, lambda: self._commit_offset(transaction, until_ms))

        if node is None:
            answered(LOST)
            return
        self._cluster.network.call(
            self._process,
            node.process,
            partial(handle, node, request, 5 if producer.version >= 2 else 4),
            answered,
            timeout_ms=REQUEST_MS,
            what="commit offset",
        )

    def _add_then_send(
        self, transaction: Transaction, batches: list[tuple[TopicPartitionPair, list[bytes]]]
    ) -> None:
        if self._producer.version >= 2:
            self._send(transaction, batches)
            return
        partitions = frozenset(partition_id for partition_id, _ in batches)
        if transaction.offset is not None:
            partitions |= {self._producer.offsets_partition}

        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._producer.transactional_id,
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()
            ],
        )

        def done(response: AddPartitionsToTxnResponse) -> None:
            if _code_of(response):
                self._initialize()
            else:
                self._send(transaction, batches)

        self._ask("add", request, CLIENTS_ADD_PARTITIONS_VERSION, done)

    def _send(
        self, transaction: Transaction, batches: list[tuple[TopicPartitionPair, list[bytes]]]
    ) -> None:
        """One batch after another: each is written once, or the transaction is aborted."""
        if not batches and transaction.offset is not None:
            self._commit_offset(transaction, self._cluster.clock.now_ms + self._delivery_ms)
            return
        if not batches:
            self._end(transaction, is_commit=self._random.random() < 0.8)
            return
        (partition_id, values), *rest = batches
        sequence = self._sequences.get(partition_id, 0)
        now_ms = self._cluster.clock.now_ms
        data = encode_records(
            [(now_ms, None, value, ()) for value in values],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        transaction.values.setdefault(partition_id, []).extend(values)
        until_ms = now_ms + self._delivery_ms

        def done(result: Any) -> None:
            if not is_error(result):
                self._sequences[partition_id] = sequence + len(values)
                self._send(transaction, rest)
            elif result.code is ErrorCode.TRANSACTION_ABORTABLE:
                self._sequences.pop(partition_id, None)
                self._end(transaction, is_commit=False)
            else:
                self._initialize()

        self._produce(partition_id, bytes(data), sequence, done, until_ms)

    def _produce(
        self,
        partition_id: TopicPartitionPair,
        data: bytes,
        sequence: int,
        done: Callable[[Any], None],
        until_ms: int,
    ) -> None:
        node = self._find(partition_id)

        def again() -> None:
            if self._cluster.clock.now_ms >= until_ms:
                done(TransactionAbortable("it may be there, and may yet come"))
            else:
                self._process.after(
                    BACKOFF_MS,
                    lambda: self._produce(partition_id, data, sequence, done, until_ms),
                )

        def answered(result: Any) -> None:
            code = _code_of(result)
            if code is None or code in _AGAIN:
                again()
            else:
                done(result)

        if node is None:
            again()
            return

        def send(answer: Answer) -> None:
            produce(
                node,
                partition_id,
                data,
                answer,
                transactional_id=self._producer.transactional_id,
                version=LAST_WITH_NAMES if self._producer.version >= 2 else WITHOUT_BUMPS,
            )

        self._cluster.network.call(
            self._process,
            node.process,
            send,
            answered,
            timeout_ms=self._produce_ms,
            what="produce",
        )

    def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        transaction.is_commit_asked = is_commit
        request = EndTxnRequest(self._producer.transactional_id, self._id, self._epoch, is_commit)

        def done(response: EndTxnResponse) -> None:
            if response.error_code:
                self._initialize()  # fenced, or its transaction was aborted for its age
                return
            if is_commit:
                self._cluster.transaction_oracle.on_committed(transaction)
            if self._producer.version >= 2:
                self._become(response)
            elif not is_commit:
                self._initialize()  # what was sent and not written has left a gap, for all it knows
                return
            self._rest()

        self._ask("end", request, 5 if self._producer.version >= 2 else 4, done)


def _code_of(result: Any) -> ErrorCode | None:
    """None: nobody knows, the answer is lost."""
    if result is LOST:
        return None
    if isinstance(result, KafkaError):
        return result.code
    match result:
        case InitProducerIdResponse() | EndTxnResponse():
            return ErrorCode(result.error_code)
        case TxnOffsetCommitResponse():
            return ErrorCode(result.topics[0].partitions[0].error_code)
        case AddPartitionsToTxnResponse():
            codes = [
                ErrorCode(each.partition_error_code)
                for topic in result.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ]
            return next((code for code in codes if code not in NOT_ATTEMPTED), ErrorCode.NONE)
    return ErrorCode.NONE
