"""Transactional producers and readers of committed records, as Kafka's clients are.

A producer begins with its id, writes some batches to some partitions, and commits or aborts, again
and again; it may die in the middle, stand still and go on as a zombie, or have a twin that begins
with the same id. It follows transaction.version 1 (partitions are added by it) or 2 (by the leaders,
and each end gives it another epoch).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.cluster.metadata.metadata_image import NO_LEADER
from bradbury.cluster.topic_name import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import KafkaError
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from bradbury.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from bradbury.protocol.partitioner import partition_for_group
from bradbury.protocol.records.record_batch import walk_batches
from bradbury.protocol.records.records import (
    ControlType,
    control_type,
    encode_records,
    iterate_records,
)
from bradbury.protocol.topic_partition import TopicPartition
from bradbury.transactions.transaction_effects import InitializedProducer

from ..world.simulated_fetcher import answer_fetch
from ..world.simulated_network import LOST, Answer, Process
from ..world.simulated_node import is_error
from ..world.simulated_transactions import TIMEOUT_MS
from .simulated_transaction_oracle import Transaction, group_of

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster

REQUEST_MS = 250
BACKOFF_MS = 20
DELIVERY_MS = 1_500
READ_BYTES = 4_000
MOST_BATCHES = 4
READ_TOPIC = "read"
"""What the groups of transactions read, as they say; nothing is ever written to it."""

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
        self._sequences: dict[TopicPartition, int] = {}
        self._transaction: Transaction | None = None
        self._initialize()

    # --- to the coordinator ----------------------------------------------------------------------

    def _ask(
        self,
        what: str,
        request: Callable[[Any, Answer], None],
        done: Callable[[Any], None],
        *,
        until_ms: int | None = None,
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
            self._process.after(
                BACKOFF_MS, lambda: self._ask(what, request, done, until_ms=until_ms)
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

        def handle(answer: Answer) -> None:
            try:
                shard = node.transactions.shard_of(self._producer.transactional_id)
            except KafkaError as error:
                answer(error)
            else:
                request(shard, answer)

        self._cluster.network.call(
            self._process, node.process, handle, answered, timeout_ms=REQUEST_MS, what=what
        )

    def _find(self, partition_id: TopicPartition) -> Any:
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

        def request(shard: Any, answer: Answer) -> None:
            shard.driver.input(
                shard.requests.init_producer_id,
                answer,
                self._producer.transactional_id,
                TIMEOUT_MS,
                expected=None,
            )

        def done(result: InitializedProducer) -> None:
            if result.error:
                self._later(self._initialize)
                return
            self._become(result)
            self._rest()

        self._ask("initialize", request, done)

    def _become(self, producer: InitializedProducer) -> None:
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
        transaction.has_offsets = cluster.swarm.transactional_groups and self._random.random() < 0.6
        self._add_then_send(transaction, batches)

    def _add_then_send(
        self, transaction: Transaction, batches: list[tuple[TopicPartition, list[bytes]]]
    ) -> None:
        if self._producer.version >= 2:
            self._send(transaction, batches)
            return
        partitions = frozenset(partition_id for partition_id, _ in batches)
        if transaction.has_offsets:
            partitions |= {self._offsets_partition()}

        def request(shard: Any, answer: Answer) -> None:
            shard.driver.input(
                shard.requests.add_partitions,
                answer,
                self._producer.transactional_id,
                self._id,
                self._epoch,
                partitions,
                client_version=1,
            )

        def done(code: ErrorCode) -> None:
            if code:
                self._initialize()
            else:
                self._send(transaction, batches)

        self._ask("add", request, done)

    def _send(
        self, transaction: Transaction, batches: list[tuple[TopicPartition, list[bytes]]]
    ) -> None:
        """One batch after another: each is written once, or the transaction is aborted."""
        if not batches:
            if transaction.has_offsets:
                self._commit_offsets(transaction)
            else:
                self._end_somehow(transaction)
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
        until_ms = now_ms + DELIVERY_MS

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
        partition_id: TopicPartition,
        data: bytes,
        sequence: int,
        done: Callable[[Any], None],
        until_ms: int,
    ) -> None:
        node = self._find(partition_id)
        producer = (self._producer.transactional_id, self._id, self._epoch)

        def again() -> None:
            if self._cluster.clock.now_ms >= until_ms:
                self._initialize()  # nobody knows whether it is there: the transaction is over
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

        def handle(answer: Answer) -> None:
            try:
                node.leader_of(*partition_id)
            except KafkaError as error:
                answer(error)
                return
            node.transactions.produce(
                node.replicas[partition_id],
                data,
                producer,
                sequence,
                self._producer.version,
                answer,
            )

        self._cluster.network.call(
            self._process, node.process, handle, answered, timeout_ms=REQUEST_MS, what="produce"
        )

    # --- the offsets of a group ------------------------------------------------------------------

    def _offsets_partition(self) -> TopicPartition:
        group_id = group_of(self._producer.transactional_id)
        count = self._cluster.swarm.offsets_partitions
        return OFFSETS_TOPIC, partition_for_group(group_id, count)

    def _commit_offsets(self, transaction: Transaction) -> None:
        transaction.offset = self._cluster.transaction_oracle.new_offset()
        place = TxnOffsetCommitRequestPartition(0, transaction.offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self._producer.transactional_id,
            group_id=group_of(self._producer.transactional_id),
            producer_id=self._id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(READ_TOPIC, [place])],
        )
        self._ask_group(transaction, request, self._cluster.clock.now_ms + DELIVERY_MS)

    def _ask_group(
        self, transaction: Transaction, request: TxnOffsetCommitRequest, until_ms: int
    ) -> None:
        node = self._find(self._offsets_partition())

        def again() -> None:
            if self._cluster.clock.now_ms >= until_ms:
                self._initialize()
            else:
                self._process.after(
                    BACKOFF_MS, lambda: self._ask_group(transaction, request, until_ms)
                )

        def answered(result: Any) -> None:
            code = _code_of(result)
            if isinstance(result, TxnOffsetCommitResponse):
                code = ErrorCode(result.topics[0].partitions[0].error_code)
            if code is None or code in _AGAIN:
                again()
            elif code is ErrorCode.TRANSACTION_ABORTABLE:
                self._end(transaction, is_commit=False)
            elif code:
                self._initialize()
            else:
                self._end_somehow(transaction)

        if node is None:
            again()
            return
        version = self._producer.version
        self._cluster.network.call(
            self._process,
            node.process,
            lambda answer: node.transactions.commit_offsets(request, version, answer),
            answered,
            timeout_ms=REQUEST_MS,
            what="offsets",
        )

    # --- its end ---------------------------------------------------------------------------------

    def _end_somehow(self, transaction: Transaction) -> None:
        self._end(transaction, is_commit=self._random.random() < 0.8)

    def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        transaction.is_commit_asked = is_commit
        producer = (self._producer.transactional_id, self._id, self._epoch)

        def request(shard: Any, answer: Answer) -> None:
            shard.driver.input(
                shard.requests.end,
                answer,
                *producer,
                is_commit=is_commit,
                client_version=self._producer.version,
            )

        def done(result: InitializedProducer) -> None:
            if result.error:
                self._initialize()  # fenced, or its transaction was aborted for its age
                return
            if is_commit:
                self._cluster.transaction_oracle.on_committed(transaction)
            if self._producer.version >= 2:
                self._become(result)
            elif not is_commit:
                self._initialize()  # what was sent and not written has left a gap, for all it knows
                return
            self._rest()

        self._ask("end", request, done)


class CommittedReader:
    """Reads one partition with isolation.level read_committed, as Kafka's consumer does."""

    def __init__(
        self, cluster: SimulatedCluster, machine: int, partition_id: TopicPartition
    ) -> None:
        self.cluster = cluster
        self.partition_id = partition_id
        self.process = Process(cluster.clock, machine, f"c{machine}")
        self.process.begin_life()
        self.position = 0
        self.values: list[bytes] = []
        self.last_stable_offset = 0
        self._aborted: set[int] = set()
        self._ask()

    def _ask(self) -> None:
        node = self._find()
        if node is None:
            self.process.after(BACKOFF_MS, self._ask)
            return
        topic, partition = self.partition_id
        asked = FetchPartition(
            partition=partition,
            fetch_offset=self.position,
            partition_max_bytes=READ_BYTES,
        )
        request = FetchRequest(
            max_bytes=READ_BYTES,
            isolation_level=1,
            topics=[FetchTopic(topic_id=self.cluster.topics()[topic], partitions=[asked])],
        )
        self.cluster.network.call(
            self.process,
            node.process,
            lambda answer: answer_fetch(node, self.process.name, request, answer),
            self._on_answer,
            timeout_ms=REQUEST_MS,
        )

    def _find(self) -> Any:
        up = [node for node in self.cluster.nodes.values() if node.process.is_up]
        if not up:
            return None
        image = self.cluster.random.choice(up).image.partition(*self.partition_id)
        leader = NO_LEADER if image is None else image.leader
        if self.cluster.swarm.follower_reads and image is not None:
            leader = self.cluster.random.choice(image.replicas)
        return self.cluster.nodes.get(leader)

    def _on_answer(self, result: Any) -> None:
        if isinstance(result, FetchResponse):
            [data] = result.responses[0].partitions
            if not data.error_code:
                self._take(data)
        self.process.after(self.cluster.swarm.pace_ms, self._ask)

    def _take(self, data: PartitionData) -> None:
        """Drop what the answer says was aborted, from its first offset to its marker."""
        self.last_stable_offset = data.last_stable_offset
        begins = sorted(
            (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
        )
        records = memoryview(bytes(data.records or b""))
        for position, header in walk_batches(records, strict=False):
            while begins and begins[0][0] <= header.last_offset:
                self._aborted.add(begins.pop(0)[1])
            batch = list(iterate_records(records[position : position + header.size]))
            if header.is_control:
                if batch and control_type(batch[0].key) is ControlType.ABORT:
                    self._aborted.discard(header.producer_id)
            elif header.producer_id not in self._aborted:
                for record in batch:
                    if record.offset >= self.position and record.value is not None:
                        value = bytes(record.value)
                        self.cluster.transaction_oracle.on_read(
                            self.partition_id, record.offset, value
                        )
                        self.values.append(value)
            self.position = max(self.position, header.next_offset)


def _code_of(result: Any) -> ErrorCode | None:
    """None: nobody knows, the answer is lost."""
    if result is LOST:
        return None
    if isinstance(result, KafkaError):
        return result.code
    if isinstance(result, InitializedProducer):
        return result.error
    return result if isinstance(result, ErrorCode) else ErrorCode.NONE
