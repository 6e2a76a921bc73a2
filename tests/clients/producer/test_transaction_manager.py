"""Is a transaction all or nothing, whatever is lost? A coordinator and a log are the judges.

The model's network loses requests and answers, and delivers produce requests late, when the producer
has long given them up; its coordinator moves, refuses, and is busy with the transaction before.
"""

import random as random_module
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.clients.group.membership import ConsumerGroupMetadata
from bradbury.clients.producer.batches.partition_queue import Identity
from bradbury.clients.producer.transactions.transaction_errors import is_ended_by_another
from bradbury.clients.producer.transactions.transaction_manager import (
    OpenTransaction,
    Phase,
    TransactionManager,
)
from bradbury.clients.producer.transactions.transaction_request import (
    TransactionOperation,
    TransactionRequest,
)
from bradbury.clients.wire.record_metadata import OffsetAndMetadata
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    ApplicationRecoverable,
    ConnectionFailed,
    InvalidTxnState,
    KafkaError,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    error_for,
)
from bradbury.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from bradbury.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from bradbury.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from bradbury.protocol.schema import Message
from bradbury.protocol.topic_partition import TopicPartition

GROUP = ConsumerGroupMetadata("g", 4, "member", "i")
MOVED, BUSY = ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS
OFFSETS = "offsets"


@dataclass
class Cluster:
    """A coordinator (KIP-98, KIP-360, KIP-890) and the partitions it writes markers to."""

    version: int
    producer_id: int = 7
    epoch: int = -1
    ended: tuple[int, bool] | None = None  # the epoch that was ended last, and how
    added: set[object] = field(default_factory=set)
    written: dict[object, list[object]] = field(default_factory=dict)
    visible: set[object] = field(default_factory=set)
    appended: set[object] = field(default_factory=set)

    def answer(self, message: Message) -> Message:
        match message:
            case InitProducerIdRequest():
                return self._initialize(message)
            case AddPartitionsToTxnRequest():
                epoch = message.v3_and_below_producer_epoch
                keys = [
                    TopicPartition(topic.name, partition)
                    for topic in message.v3_and_below_topics
                    for partition in topic.partitions
                ]
                code = self._add(epoch, keys)
                rows = [AddPartitionsToTxnPartitionResult(key.partition, code) for key in keys]
                return AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("t", rows)]
                )
            case AddOffsetsToTxnRequest():
                return AddOffsetsToTxnResponse(
                    error_code=self._add(message.producer_epoch, [OFFSETS])
                )
            case TxnOffsetCommitRequest():
                value = message.topics[0].partitions[0].committed_offset
                code = self.write(message.producer_epoch, OFFSETS, ("offset", value))
                row = TxnOffsetCommitResponsePartition(0, code)
                return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("in", [row])])
            case EndTxnRequest():
                return self._end(message)
        raise AssertionError(message)

    def write(self, epoch: int, where: object, value: object) -> int:
        """A batch, or offsets: verified, or added, at the coordinator."""
        if epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.version < 2 and where not in self.added:
            return ErrorCode.INVALID_TXN_STATE
        self.added.add(where)
        if value not in self.appended:  # or its sequence says that it is there already
            self.appended.add(value)
            self.written.setdefault(where, []).append(value)
        return 0

    def _initialize(self, message: InitProducerIdRequest) -> InitProducerIdResponse:
        if message.producer_id >= 0 and message.producer_epoch not in (self.epoch, self.epoch - 1):
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if self.added:
            self._decide(is_commit=False)
            self.epoch += 1
            return InitProducerIdResponse(error_code=BUSY)
        if message.producer_id < 0 or message.producer_epoch == self.epoch:
            self.epoch += 1
        self.ended = None
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def _add(self, epoch: int, keys: list[object]) -> int:
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        self.added.update(keys)
        return 0

    def _end(self, message: EndTxnRequest) -> EndTxnResponse:
        if self.ended == (message.producer_epoch, message.committed) and not self.added:
            return self._ended()  # sent again
        if message.producer_epoch != self.epoch:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if not self.added and (self.version < 2 or message.committed):
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        self._decide(is_commit=message.committed)
        self.ended = (self.epoch, message.committed)
        if self.version >= 2:
            self.epoch += 1
        return self._ended()

    def _ended(self) -> EndTxnResponse:
        if self.version >= 2:
            return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        return EndTxnResponse()

    def _decide(self, *, is_commit: bool) -> None:
        if is_commit:
            for values in self.written.values():
                self.visible.update(values)
        self.written.clear()
        self.added.clear()


@dataclass(eq=False)
class Batch:
    where: TopicPartition
    value: int
    was_sent: bool = False


class World:
    """A manager, batches that wait, and a network driven by a seed."""

    def __init__(self, seed: int, version: int) -> None:
        self.random = random_module.Random(seed)
        self.cluster = Cluster(version)
        self.manager = TransactionManager("x", 1000)
        self.manager.on_features(version)
        self.waiting: list[Batch] = []
        self.late: list[tuple[int, Batch]] = []
        self.is_calm = False
        self.number = 0

    def chance(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    def step(self) -> None:
        if self.late and self.chance(0.2):
            epoch, batch = self.late.pop(self.random.randrange(len(self.late)))
            self.cluster.write(epoch, batch.where, batch.value)
        for batch in list(self.waiting):
            self._send(batch)
        request = self.manager.next_request(is_flushed=not self.waiting)
        if request is not None:
            self._ask(request)

    def _send(self, batch: Batch) -> None:
        manager = self.manager
        if not manager.accepts_batches:
            self.waiting.remove(batch)
            if batch.was_sent:
                manager.on_send_failed(RequestTimedOut("dropped"))
        elif manager.may_send(batch.where):
            batch.was_sent = True
            if self.chance(0.05):
                self.waiting.remove(batch)
                manager.on_send_failed(MessageTooLarge())
                return
            if self.chance(0.15):  # no answer: sent again, or given up; it may come later
                self.late.append((manager.identity.producer_epoch, batch))
                if self.chance(0.3):
                    self.waiting.remove(batch)
                    manager.on_send_failed(RequestTimedOut())
                return
            code = self.cluster.write(manager.identity.producer_epoch, batch.where, batch.value)
            if self.chance(0.1):
                return  # the answer is lost
            self.waiting.remove(batch)
            if code:
                manager.on_send_failed(error_for(code))

    def _ask(self, request: TransactionRequest) -> None:
        if self.chance(0.1):
            self.manager.on_error(request, ConnectionFailed("the request is lost"))
            return
        if self.chance(0.1):
            self.manager.on_response(request, refused(request, self.random.choice([MOVED, BUSY])))
            return
        response = self.cluster.answer(request.message)
        if self.chance(0.1):
            self.manager.on_error(request, ConnectionFailed("the answer is lost"))
        else:
            self.manager.on_response(request, response)

    def hand_over(self) -> bool:
        """Another producer goes on; whether the one that was has released the transactional id."""
        identity = self.manager.release()
        if identity is not None:
            with pytest.raises(InvalidTxnState):
                self.manager.begin()
            self.manager = TransactionManager("x", 1000)
            self.manager.resume(identity)
        return identity is not None

    def run(self, operation: TransactionOperation) -> Exception | None:
        for _ in range(10_000):
            if operation.is_done:
                operation.is_acknowledged = True
                return operation.error
            self.step()
        raise AssertionError(f"{operation.name} does not end; {self.manager.phase}")

    def transaction(self) -> tuple[set[object], bool]:
        """What one transaction wrote, and whether its commit has succeeded."""
        self.manager.begin()
        values: set[object] = set()
        for _ in range(self.random.randrange(5)):
            self.number += 1
            values.add(self.number)
            self.waiting.append(Batch(TopicPartition("t", self.random.randrange(3)), self.number))
            if self.chance(0.5):
                self.step()
        try:
            if self.random.random() < 0.4:
                self.number += 1
                values.add(("offset", self.number))
                offsets = {TopicPartition("in", 0): OffsetAndMetadata(self.number)}
                error = self.run(self.manager.send_offsets(offsets, GROUP))
                if error is not None:
                    raise error
            if self.chance(0.2):
                raise InterruptedError
            error = self.run(self.manager.end(is_commit=True))
            if error is not None:
                raise error
        except (TransactionAbortable, InterruptedError):
            error = self.run(self.manager.end(is_commit=False))
            assert error is None, error
            return values, False
        return values, True


def refused(request: TransactionRequest, code: int) -> Message:
    match request.message:
        case AddPartitionsToTxnRequest(v3_and_below_topics=topics):
            rows = [AddPartitionsToTxnPartitionResult(n, code) for n in topics[0].partitions]
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("t", rows)]
            )
        case TxnOffsetCommitRequest():
            row = TxnOffsetCommitResponsePartition(0, code)
            return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("in", [row])])
        case _:
            response = request.response()
            response.error_code = code  # type: ignore[attr-defined]
            return response


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    version=st.sampled_from([1, 2]),
    upgrade=st.booleans(),
    hand_over=st.booleans(),
)
def test_a_committed_transaction_is_there_as_a_whole_and_nothing_else_ever_is(
    seed: int, version: int, upgrade: bool, hand_over: bool
) -> None:
    world = World(seed, version)
    assert world.run(world.manager.initialize()) is None
    committed: set[object] = set()
    for number in range(6):
        if upgrade and number == 3:
            world.manager.on_features(2)
        if hand_over:
            assert world.hand_over() == (world.manager.transaction_version == 2)
        values, is_committed = world.transaction()
        if world.manager.transaction_version == 2:
            world.cluster.version = 2
        if is_committed:
            committed |= values
    world.is_calm = True
    for epoch, batch in world.late:
        world.cluster.write(epoch, batch.where, batch.value)
    world.transaction()  # a commit of what came late, if it could get in
    assert {one for one in world.cluster.visible if one in committed} == committed
    last = set(range(world.number - 6, world.number + 1))
    strays = {one for one in world.cluster.visible - committed if one not in last}
    assert {one for one in strays if not isinstance(one, tuple)} == set()


def started(version: int = 2) -> World:
    world = World(0, version)
    world.is_calm = True
    assert world.run(world.manager.initialize()) is None
    return world


def test_a_released_transactional_id_is_resumed_once_and_else_initialized() -> None:
    world = started()
    world.transaction()
    with pytest.raises(InvalidTxnState, match="resume: the producer of 'x' is between trans"):
        world.manager.resume(Identity(7, 9))
    released, epoch = world.manager, world.cluster.epoch
    assert world.hand_over()
    world.transaction()
    assert world.cluster.epoch == epoch + 1  # that of the commit: nothing was initialized
    other, world.manager = world.manager, released
    assert world.run(world.manager.initialize()) is None
    world.manager = other
    world.manager.begin()
    offsets = {TopicPartition("in", 0): OffsetAndMetadata(1)}
    assert isinstance(world.run(world.manager.send_offsets(offsets, GROUP)), ProducerFenced)
    assert world.manager.release() is None


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_an_open_transaction_is_ended_by_the_producer_that_it_was_released_to(
    version: int, is_commit: bool
) -> None:
    world = started(version)
    world.manager.begin()
    offsets = {TopicPartition("in", 0): OffsetAndMetadata(1)}
    assert world.run(world.manager.send_offsets(offsets, GROUP)) is None
    released = world.manager.release()
    assert isinstance(released, OpenTransaction)
    assert world.manager.phase is Phase.UNINITIALIZED
    world.manager = TransactionManager("x", 1000)
    world.manager.resume(released)
    assert world.run(world.manager.end(is_commit=is_commit)) is None
    assert world.cluster.ended == (released.epoch, is_commit) or version == 1
    assert (("offset", 1) in world.cluster.visible) is is_commit


def test_a_transaction_that_has_failed_is_not_released() -> None:
    world = started()
    world.manager.begin()
    world.manager.on_send_failed(MessageTooLarge("too large"))
    assert world.manager.release() is None
    assert world.manager.phase is Phase.ABORTABLE_ERROR


@pytest.mark.parametrize("version", [1, 2])
def test_a_failed_send_makes_the_commit_fail_and_the_abort_work(version: int) -> None:
    world = started(version)
    world.manager.begin()
    world.manager.may_send(TopicPartition("t", 0))
    world.manager.on_send_failed(MessageTooLarge("too large"))
    with pytest.raises(TransactionAbortable, match=r"too large; abort\(\) it") as raised:
        world.manager.end(is_commit=True)
    assert isinstance(raised.value.__cause__, MessageTooLarge)
    assert world.run(world.manager.end(is_commit=False)) is None
    assert world.manager.phase is Phase.READY
    world.manager.begin()


def test_below_version_2_an_abort_after_a_lost_batch_raises_the_epoch() -> None:
    world = started(version=1)
    before = world.manager.identity
    world.manager.begin()
    world.waiting.append(Batch(TopicPartition("t", 0), 1))
    world.step()  # adds the partition
    world.waiting.clear()
    world.manager.on_send_failed(OutOfOrderSequenceNumber())
    world.run(world.manager.end(is_commit=False))
    assert world.manager.identity == Identity(before.producer_id, before.producer_epoch + 1)


def test_below_version_2_a_commit_keeps_the_epoch_and_at_2_it_is_the_coordinators() -> None:
    for version, raised in ((1, 0), (2, 1)):
        world = started(version)
        before = world.manager.identity
        world.manager.begin()
        world.waiting.append(Batch(TopicPartition("t", 0), 1))
        world.run(world.manager.end(is_commit=True))
        assert world.manager.identity.producer_epoch == before.producer_epoch + raised


def test_an_empty_transaction_asks_nobody() -> None:
    world = started()
    for is_commit in (True, False):
        world.manager.begin()
        operation = world.manager.end(is_commit=is_commit)
        assert world.manager.next_request(is_flushed=True) is None
        assert operation.is_done
        operation.is_acknowledged = True


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, ProducerFenced),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (ErrorCode.INVALID_TXN_STATE, ApplicationRecoverable),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortable),
    ],
)
def test_the_end_of_a_transaction_fails_in_the_kind_of_its_error(
    code: int, expected: type[KafkaError]
) -> None:
    world = started()
    world.manager.begin()
    world.manager.may_send(TopicPartition("t", 0))
    operation = world.manager.end(is_commit=True)
    request = world.manager.next_request(is_flushed=True)
    assert request is not None
    world.manager.on_response(request, EndTxnResponse(error_code=code))
    assert type(operation.error) is expected
    assert "close()" in str(operation.error) or "abort()" in str(operation.error)
    may_be_late = code != ErrorCode.TRANSACTION_ABORTABLE
    assert ("transaction_timeout_ms=1000" in str(operation.error)) is may_be_late


@pytest.mark.parametrize(
    ("code", "is_so"),
    [
        (ErrorCode.PRODUCER_FENCED, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.INVALID_TXN_STATE, True),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False),
    ],
)
def test_whether_somebody_else_has_ended_it_can_be_asked(code: int, is_so: bool) -> None:
    world = started()
    world.manager.begin()
    world.manager.may_send(TopicPartition("t", 0))
    operation = world.manager.end(is_commit=True)
    request = world.manager.next_request(is_flushed=True)
    assert request is not None
    world.manager.on_response(request, EndTxnResponse(error_code=code))
    assert operation.error is not None
    assert is_ended_by_another(operation.error) is is_so


@pytest.mark.parametrize("code", [25, 22, 82, 30], ids=lambda code: ErrorCode(code).name)
def test_a_member_that_the_group_has_gone_on_without_ends_its_transaction(code: int) -> None:
    world = started()
    world.manager.begin()
    operation = world.manager.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(1)}, GROUP)
    request = world.manager.next_request(is_flushed=False)
    assert request is not None
    assert (request.min_version, request.max_version, request.group_id) == (5, 5, "g")
    world.manager.on_response(request, refused(request, code))
    assert isinstance(operation.error, TransactionAbortable)
    assert world.manager.phase is Phase.ABORTABLE_ERROR
    if code == ErrorCode.FENCED_INSTANCE_ID:
        assert "another consumer has group_instance_id='i' now; close" in str(operation.error)


def test_below_version_2_no_version_is_used_that_would_not_say_the_generation() -> None:
    world = started(version=1)
    world.manager.begin()
    world.manager.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(1)}, GROUP)
    request = world.manager.next_request(is_flushed=False)
    assert request is not None
    world.manager.on_response(request, world.cluster.answer(request.message))
    request = world.manager.next_request(is_flushed=False)
    assert request is not None
    assert (request.min_version, request.max_version) == (3, 4)


def test_a_call_that_timed_out_is_to_be_repeated_before_any_other() -> None:
    world = started()
    world.manager.begin()
    world.manager.may_send(TopicPartition("t", 0))
    commit = world.manager.end(is_commit=True)
    with pytest.raises(InvalidTxnState, match="call it again"):
        world.manager.end(is_commit=False)
    world.cluster.added.add("t")
    world.step()
    assert commit.is_done
    with pytest.raises(InvalidTxnState, match="call it again"):
        world.manager.begin()
    assert world.manager.end(is_commit=True) is commit
    commit.is_acknowledged = True
    world.manager.begin()


def test_a_refused_start_can_be_repeated() -> None:
    manager = TransactionManager("x", 1000)
    operation = manager.initialize()
    request = manager.next_request(is_flushed=True)
    assert request is not None
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    manager.on_response(request, InitProducerIdResponse(error_code=code))
    assert isinstance(operation.error, TransactionalIdAuthorizationFailed)
    operation.is_acknowledged = True
    assert not manager.initialize().is_done


def test_nothing_joins_a_transaction_whose_end_has_left() -> None:
    world = started()
    world.manager.begin()
    world.manager.may_send(TopicPartition("t", 0))
    world.manager.end(is_commit=True)
    assert world.manager.accepts_batches
    assert world.manager.next_request(is_flushed=True) is not None
    assert not world.manager.may_send(TopicPartition("t", 0))
