"""Does every version of every API of transactions answer what Kafka's answers?

Requests go in as frames and answers are read back from bytes. The coordinator's rules are the real
ones, over a log in memory; each record is committed at once unless a test says otherwise.
"""

import asyncio
import inspect
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from bradbury.cluster.metadata.metadata_image import (
    MetadataImage,
    NodeImage,
    PartitionImage,
    TopicImage,
)
from bradbury.handlers.ports.request_metrics import RequestMetrics
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.handlers.server.dispatch import dispatch
from bradbury.handlers.server.table import APIS
from bradbury.protocol.codec import read_message, write_message
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import CoordinatorLoadInProgress, NotController, NotCoordinator
from bradbury.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from bradbury.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from bradbury.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from bradbury.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from bradbury.protocol.partitioner import partition_for_group
from bradbury.protocol.schema import Message
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.tests.transactions.transaction_world import TIMEOUT_MS, World
from bradbury.tests.transactions.world_shard import WorldShard
from bradbury.transactions.transaction_metadata import MAX_EPOCH

E = ErrorCode
PARTITION = PartitionImage((1,), (1,), 1, 0, 0)
NODE = NodeImage(1, "directory", "life", ("group",), "host-1", 9093, None, 5)
IMAGE = MetadataImage(
    nodes={1: NODE},
    topics={
        name: TopicImage(UUID(int=number), name, (PARTITION,) * count)
        for number, (name, count) in enumerate(
            {"__transaction_state": 2, "__consumer_offsets": 3, "paid": 2, "sent": 1}.items(), 1
        )
    },
)
MESSAGES: dict[type[Message], type[Message]] = {
    InitProducerIdRequest: InitProducerIdResponse,
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
    AddOffsetsToTxnRequest: AddOffsetsToTxnResponse,
    EndTxnRequest: EndTxnResponse,
    DescribeTransactionsRequest: DescribeTransactionsResponse,
    ListTransactionsRequest: ListTransactionsResponse,
    FindCoordinatorRequest: FindCoordinatorResponse,
}


def versions(request: type[Message]) -> list[int]:
    api = APIS[request.API_KEY]
    return list(range(api.lowest, api.highest + 1))


class Broker:
    """A node with the coordinators of both partitions of __transaction_state, which are one."""

    def __init__(self) -> None:
        self.shard_ = WorldShard()
        self.failure: Exception | None = None
        """Instead of a coordinator."""
        self.no_producer_id: Exception | None = None
        self.node: Any = SimpleNamespace(
            transactions=self,
            producer_ids=self,
            image=IMAGE,
            metrics=RequestMetrics(),
            quotas=None,
            run_in_thread=asyncio.to_thread,
            server_config=ServerConfig(),
            now_ms=lambda: self.world.now_ms,
        )

    @property
    def world(self) -> World:
        return self.shard_.world

    async def next(self) -> int:
        if self.no_producer_id is not None:
            raise self.no_producer_id
        return 4_711

    def shard(self, partition: int) -> WorldShard:
        assert partition in (0, 1)
        if self.failure is not None:
            raise self.failure
        return self.shard_

    def shards(self) -> list[WorldShard]:
        return [self.shard(0)]

    def ask(self, request: Message, version: int) -> Any:
        async def scene() -> bytes:
            flexible = version >= request.FLEXIBLE
            frame = bytearray(struct.pack(">hhih", request.API_KEY, version, 7, 4) + b"test")
            if flexible:
                frame.append(0)
            write_message(request, version, frame)
            answer = dispatch(memoryview(frame), self.node, "127.0.0.1:5000")
            chunks = await answer if inspect.isawaitable(answer) else answer
            return b"".join(bytes(chunk) for chunk in chunks)

        body = asyncio.run(scene())
        assert struct.unpack_from(">ii", body) == (len(body) - 4, 7)
        start = 9 if version >= request.FLEXIBLE else 8
        return read_message(MESSAGES[type(request)], version, body, start)

    # --- requests --------------------------------------------------------------------------------

    def init(
        self,
        name: str | None = "id",
        version: int = 5,
        *,
        timeout_ms: int = TIMEOUT_MS,
        **rest: Any,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, **rest
        )
        answer: InitProducerIdResponse = self.ask(request, version)
        return answer

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartitionPair,
        version: int,
        name: str = "id",
        verify_only: bool = False,
    ) -> dict[TopicPartitionPair, int]:
        topics = [AddPartitionsToTxnTopic(topic, [index]) for topic, index in partitions]
        if version < 4:
            answer = self.ask(AddPartitionsToTxnRequest([], name, *producer, topics), version)
            found = answer.results_by_topic_v3_and_below
        else:
            asked = AddPartitionsToTxnTransaction(name, *producer, verify_only, topics)
            answer = self.ask(AddPartitionsToTxnRequest([asked]), version)
            assert answer.error_code == E.NONE
            (result,) = answer.results_by_transaction
            assert result.transactional_id == name
            found = result.topic_results
        return {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in found
            for each in topic.results_by_partition
        }

    def add_offsets(self, producer: tuple[int, int], version: int, name: str = "id") -> int:
        code: int = self.ask(AddOffsetsToTxnRequest(name, *producer, "group"), version).error_code
        return code

    def end(
        self, producer: tuple[int, int], version: int, *, name: str = "id", is_commit: bool = True
    ) -> EndTxnResponse:
        answer: EndTxnResponse = self.ask(EndTxnRequest(name, *producer, is_commit), version)
        return answer

    def begin(self, name: str = "id") -> tuple[int, int]:
        """Its producer id and epoch."""
        answer = self.init(name)
        assert answer.error_code == E.NONE
        return answer.producer_id, answer.producer_epoch

    def codes(self, producer: tuple[int, int], name: str = "id") -> dict[type[Message], set[int]]:
        """What the three APIs of producers answer, in their newest version for clients."""
        return {
            AddPartitionsToTxnRequest: set(
                self.add(producer, ("paid", 0), version=3, name=name).values()
            ),
            AddOffsetsToTxnRequest: {self.add_offsets(producer, 4, name)},
            EndTxnRequest: {self.end(producer, 4, name=name).error_code},
        }


@pytest.fixture
def broker() -> Broker:
    return Broker()


# --- InitProducerId ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(InitProducerIdRequest))
def test_a_producer_begins(broker: Broker, version: int) -> None:
    first, second = broker.init(version=version), broker.init(version=version)
    assert (first.error_code, first.producer_id, first.producer_epoch) == (0, 1, 0)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (0, 1, 1)


@pytest.mark.parametrize("version", versions(InitProducerIdRequest))
def test_a_producer_without_transactions_gets_a_new_id(broker: Broker, version: int) -> None:
    answer = broker.init(None, version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 4_711, 0)
    broker.no_producer_id = NotController("it has moved")
    refused = broker.init(None, version)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (
        E.NOT_CONTROLLER,
        -1,
        -1,
    )


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_was_fenced_cannot_recover(broker: Broker, version: int) -> None:
    number, epoch = broker.begin()
    broker.begin()
    answer = broker.init(version=version, producer_id=number, producer_epoch=epoch)
    expected = E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (expected, -1, -1)


def test_a_producer_recovers_with_what_it_had(broker: Broker) -> None:
    number, epoch = broker.begin()
    answer = broker.init(producer_id=number, producer_epoch=epoch)
    assert (answer.error_code, answer.producer_epoch) == (0, epoch + 1)


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(1, -1), (-1, 1)])
@pytest.mark.parametrize("name", [None, "id"])
def test_an_id_without_an_epoch_says_nothing(
    broker: Broker, name: str | None, producer_id: int, producer_epoch: int
) -> None:
    answer = broker.init(name, producer_id=producer_id, producer_epoch=producer_epoch)
    assert answer.error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused_wherever_the_coordinator_is(
    broker: Broker, timeout_ms: int
) -> None:
    broker.failure = NotCoordinator("elsewhere")
    assert broker.init(timeout_ms=timeout_ms).error_code == E.INVALID_TRANSACTION_TIMEOUT
    assert broker.init("", timeout_ms=timeout_ms).error_code == E.INVALID_REQUEST


def test_an_open_transaction_is_aborted_first(broker: Broker) -> None:
    producer = broker.begin()
    broker.add(producer, ("paid", 0), version=3)
    assert broker.init().error_code == E.CONCURRENT_TRANSACTIONS
    assert broker.init().error_code == E.NONE


def test_without_producer_ids_in_stock_the_client_is_to_come_back(broker: Broker) -> None:
    broker.world.has_producer_ids = False
    assert broker.init().error_code == E.COORDINATOR_LOAD_IN_PROGRESS


# --- AddPartitionsToTxn and AddOffsetsToTxn ------------------------------------------------------


@pytest.mark.parametrize("version", versions(AddPartitionsToTxnRequest))
def test_partitions_are_added(broker: Broker, version: int) -> None:
    producer = broker.begin()
    wanted = [("paid", 0), ("sent", 0), ("paid", 1)]
    assert broker.add(producer, *wanted, version=version) == dict.fromkeys(wanted, 0)
    metadata = broker.world.metadata()
    assert metadata.partitions == frozenset(wanted)
    assert metadata.client_version == (2 if version >= 4 else 0)


@pytest.mark.parametrize("version", versions(AddPartitionsToTxnRequest))
def test_if_one_does_not_exist_none_is_added(broker: Broker, version: int) -> None:
    producer = broker.begin()
    found = broker.add(producer, ("paid", 0), ("paid", 2), ("none", 0), version=version)
    assert found == {
        ("paid", 0): E.OPERATION_NOT_ATTEMPTED,
        ("paid", 2): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert not broker.world.metadata().partitions


@pytest.mark.parametrize("version", versions(AddPartitionsToTxnRequest))
def test_a_fenced_producer_adds_nothing(broker: Broker, version: int) -> None:
    producer = broker.begin()
    broker.begin()
    expected = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    assert broker.add(producer, ("paid", 0), version=version) == {("paid", 0): expected}


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_asks_what_is_in_a_transaction(broker: Broker, version: int) -> None:
    producer = broker.begin()
    broker.add(producer, ("paid", 0), version=3)
    found = broker.add(producer, ("paid", 0), ("sent", 0), version=version, verify_only=True)
    assert found == {("paid", 0): E.NONE, ("sent", 0): E.TRANSACTION_ABORTABLE}
    assert broker.world.metadata().partitions == {("paid", 0)}, "it was only asked"
    number, epoch = producer
    for other, error in (
        ((number + 1, epoch), E.INVALID_PRODUCER_ID_MAPPING),
        ((number, epoch + 1), E.PRODUCER_FENCED),
    ):
        found = broker.add(other, ("paid", 0), version=version, verify_only=True)
        assert found == {("paid", 0): error}


def test_brokers_ask_for_many_transactions_at_once_each_with_its_own_end(broker: Broker) -> None:
    first, second = broker.begin("first"), broker.begin("second")
    request = AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                name, *producer, False, [AddPartitionsToTxnTopic(topic, [0])]
            )
            for name, producer, topic in (
                ("first", first, "paid"),
                ("second", second, "none"),
                ("third", first, "paid"),
                ("", first, "paid"),
            )
        ]
    )
    answer = broker.ask(request, 5)
    assert {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in answer.results_by_transaction
    } == {
        "first": E.NONE,
        "second": E.UNKNOWN_TOPIC_OR_PARTITION,
        "third": E.INVALID_PRODUCER_ID_MAPPING,
        "": E.INVALID_REQUEST,
    }


@pytest.mark.parametrize("version", versions(AddOffsetsToTxnRequest))
def test_the_partition_of_a_group_is_added(broker: Broker, version: int) -> None:
    number, epoch = broker.begin()
    assert broker.add_offsets((number, epoch), version) == E.NONE
    expected = ("__consumer_offsets", partition_for_group("group", 3))
    assert broker.world.metadata().partitions == {expected}
    fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    assert broker.add_offsets((number, epoch + 1), version) == fenced


def test_before_there_are_groups_it_is_the_partition_where_the_group_will_be(
    broker: Broker,
) -> None:
    topics = {name: each for name, each in IMAGE.topics.items() if name != "__consumer_offsets"}
    broker.node.image = MetadataImage(nodes=IMAGE.nodes, topics=topics)
    broker.add_offsets(broker.begin(), 4)
    expected = ("__consumer_offsets", partition_for_group("group", 50))
    assert broker.world.metadata().partitions == {expected}


# --- EndTxn --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", versions(EndTxnRequest))
def test_a_transaction_ends(broker: Broker, version: int, is_commit: bool) -> None:
    number, epoch = broker.begin()
    broker.add((number, epoch), ("paid", 0), version=5 if version >= 5 else 3)
    answer = broker.end((number, epoch), version, is_commit=is_commit)
    assert answer.error_code == E.NONE
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (number, epoch + 1)
    title = "CompleteCommit" if is_commit else "CompleteAbort"
    assert broker.world.metadata().state.title == title


@pytest.mark.parametrize("version", versions(EndTxnRequest))
def test_a_fenced_producer_ends_nothing(broker: Broker, version: int) -> None:
    producer = broker.begin()
    broker.begin()
    broker.begin()
    answer = broker.end(producer, version)
    assert answer.error_code == (E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH)
    assert answer.producer_epoch == -1


def test_there_is_nothing_to_commit_before_something_was_added(broker: Broker) -> None:
    assert broker.end(broker.begin(), 4).error_code == E.INVALID_TXN_STATE


def test_at_the_last_epoch_the_next_transaction_has_another_producer_id(broker: Broker) -> None:
    number, epoch = broker.begin()
    while epoch < MAX_EPOCH - 1:
        metadata = broker.world.coordinator._transactions["id"]
        metadata.metadata = metadata.metadata.__class__(
            number, TIMEOUT_MS, broker.world.now_ms, producer_epoch=MAX_EPOCH - 1
        )
        epoch = MAX_EPOCH - 1
    broker.add((number, epoch), ("paid", 0), version=5)
    answer = broker.end((number, epoch), 5)
    assert (answer.error_code, answer.producer_epoch) == (E.NONE, 0)
    assert answer.producer_id != number


# --- what all have in common ---------------------------------------------------------------------


def test_while_a_transaction_ends_the_next_one_cannot_begin(broker: Broker) -> None:
    producer = broker.begin()
    broker.add(producer, ("paid", 0), version=3)
    broker.shard_.ends = False
    assert broker.end(producer, 4).error_code == E.NONE
    assert set().union(*broker.codes(producer).values()) == {E.CONCURRENT_TRANSACTIONS}


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotCoordinator("elsewhere"), E.NOT_COORDINATOR),
        (CoordinatorLoadInProgress("soon"), E.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_without_the_coordinator_each_says_so(
    broker: Broker, failure: Exception, error: ErrorCode
) -> None:
    broker.failure = failure
    assert set().union(*broker.codes((1, 0)).values()) == {error}
    assert broker.init().error_code == error
    verified = broker.add((1, 0), ("paid", 0), version=5, verify_only=True)
    assert verified == {("paid", 0): error}
    (described,) = broker.ask(DescribeTransactionsRequest(["id"]), 0).transaction_states
    assert described.error_code == error
    assert broker.ask(ListTransactionsRequest(), 1).error_code == error


def test_before_there_is_the_topic_nobody_is_coordinator(broker: Broker) -> None:
    broker.node.image = MetadataImage(nodes=IMAGE.nodes, topics={"paid": IMAGE.topics["paid"]})
    assert set().union(*broker.codes((1, 0)).values()) == {E.NOT_COORDINATOR}
    assert broker.init().error_code == E.NOT_COORDINATOR


def test_a_node_without_coordinators_says_so(broker: Broker) -> None:
    broker.node.transactions = None
    assert set().union(*broker.codes((1, 0)).values()) == {E.NOT_COORDINATOR}
    assert broker.ask(ListTransactionsRequest(), 0).transaction_states == []


def test_an_id_that_nobody_began_with_is_not_known(broker: Broker) -> None:
    broker.begin("other")
    assert set().union(*broker.codes((1, 0)).values()) == {E.INVALID_PRODUCER_ID_MAPPING}


def test_an_empty_id_is_none(broker: Broker) -> None:
    assert set().union(*broker.codes((1, 0), "").values()) == {E.INVALID_REQUEST}
    assert broker.init("").error_code == E.INVALID_REQUEST
    (described,) = broker.ask(DescribeTransactionsRequest([""]), 0).transaction_states
    assert described.error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_record_that_cannot_be_written_changes_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, refused: ErrorCode, answered: ErrorCode
) -> None:
    producer = broker.begin()
    monkeypatch.setattr(broker.world, "commit", lambda: broker.world.refuse(refused))
    assert broker.add(producer, ("paid", 0), version=3) == {("paid", 0): answered}
    assert broker.add_offsets(producer, 4) == answered
    assert broker.init().error_code == answered
    assert not broker.world.metadata().partitions


# --- DescribeTransactions and ListTransactions ---------------------------------------------------


def test_what_is_known_of_a_transaction(broker: Broker) -> None:
    number, epoch = broker.begin()
    broker.add((number, epoch), ("sent", 0), ("paid", 1), ("paid", 0), version=3)
    answer = broker.ask(DescribeTransactionsRequest(["id", "none"]), 0)
    known, unknown = answer.transaction_states
    assert (known.error_code, known.transactional_id) == (0, "id")
    assert known.transaction_state == "Ongoing"
    assert known.transaction_timeout_ms == TIMEOUT_MS
    assert known.transaction_start_time_ms == broker.world.now_ms
    assert (known.producer_id, known.producer_epoch) == (number, epoch)
    assert [(each.topic, each.partitions) for each in known.topics] == [
        ("paid", [0, 1]),
        ("sent", [0]),
    ]
    assert unknown.error_code == E.TRANSACTIONAL_ID_NOT_FOUND


def test_transactions_are_listed_by_what_is_asked_for(broker: Broker) -> None:
    begun = {name: broker.begin(name) for name in ("pay-1", "pay-2", "send-1")}
    broker.add(begun["pay-2"], ("paid", 0), version=3, name="pay-2")
    broker.world.now_ms += 10_000
    broker.add(begun["send-1"], ("sent", 0), version=3, name="send-1")

    def listed(version: int, **filters: Any) -> set[str]:
        answer = broker.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == E.NONE
        assert answer.unknown_state_filters == []
        return {each.transactional_id for each in answer.transaction_states}

    for version in versions(ListTransactionsRequest):
        assert listed(version) == {"pay-1", "pay-2", "send-1"}
        assert listed(version, state_filters=["Ongoing"]) == {"pay-2", "send-1"}
        assert listed(version, state_filters=["Empty", "Dead"]) == {"pay-1"}
        assert listed(version, producer_id_filters=[begun["pay-1"][0]]) == {"pay-1"}
    for version in (1, 2):
        assert listed(version, duration_filter=0, state_filters=["Ongoing"]) == {"pay-2"}
        assert listed(version, duration_filter=9_999, state_filters=["Ongoing"]) == {"pay-2"}
        assert listed(version, duration_filter=10_000, state_filters=["Ongoing"]) == set()
    assert listed(2, transactional_id_pattern="pay-.*") == {"pay-1", "pay-2"}
    assert listed(2, transactional_id_pattern="pay") == set(), "the whole id matches"
    assert len(listed(2, transactional_id_pattern="")) == 3


def test_a_state_that_is_none_is_named_and_nothing_has_it(broker: Broker) -> None:
    broker.begin()
    answer = broker.ask(ListTransactionsRequest(state_filters=["Fast", "ongoing"]), 0)
    assert answer.unknown_state_filters == ["Fast", "ongoing"]
    assert answer.transaction_states == []


def test_a_pattern_that_is_none_is_refused(broker: Broker) -> None:
    answer = broker.ask(ListTransactionsRequest(transactional_id_pattern="(a"), 2)
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION


# --- FindCoordinator -----------------------------------------------------------------------------


@pytest.mark.parametrize(("machines", "min_isr"), [(1, "1"), (2, "2"), (4, "2")])
@pytest.mark.parametrize("version", [1, 4, 6])
def test_the_topic_is_made_when_the_first_id_is_looked_for(
    broker: Broker, version: int, machines: int, min_isr: str
) -> None:
    asked: list[Any] = []

    async def change(request: Any, *, timeout_ms: int) -> Any:
        asked.append(request)
        broker.node.image = replace(IMAGE, nodes=broker.node.image.nodes)
        return [SimpleNamespace(outcome=SimpleNamespace(code=E.NONE, message=""))]

    topics = {name: each for name, each in IMAGE.topics.items() if name != "__transaction_state"}
    nodes = {
        number: replace(NODE, node_id=number, machine=f"machine-{number}", rack=f"{number}")
        for number in range(1, machines + 1)
    }
    broker.node.image = MetadataImage(nodes=nodes, topics=topics)
    broker.node.new_id = lambda: UUID(int=99)
    broker.node.controller = SimpleNamespace(change=change)
    request = FindCoordinatorRequest(key="id", key_type=1, coordinator_keys=["id"])
    for _ in range(2):
        answer = broker.ask(request, version)
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id) == (E.NONE, 1)
    ((topic,),) = (each.topics for each in asked)
    assert (topic.name, topic.partitions) == ("__transaction_state", 50)
    assert topic.replication_factor == min(machines, 3)
    assert topic.configs == {
        "cleanup.policy": "compact",
        "flush.messages": "1",
        "segment.bytes": str(100 * 1024**2),
        "min.insync.replicas": min_isr,
    }
