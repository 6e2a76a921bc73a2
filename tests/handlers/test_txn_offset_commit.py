"""Offsets in a transaction: what is asked of its coordinator, and what is a client answered?"""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from bradbury.cluster.metadata.metadata_image import MetadataImage, PartitionImage, TopicImage
from bradbury.handlers.groups.txn_offset_commit import API
from bradbury.handlers.ports.context import RequestContext
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from bradbury.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.storage.producers.verification_guard import UNVERIFIED
from bradbury.tests.support.groups.led_groups import end, fetched, led, new_host, offset_of, run
from bradbury.tests.support.storage.memory_replica import MemoryReplica
from bradbury.transactions.transaction_config import TransactionConfig

PARTITION = PartitionImage((1,), (1,), 1, 0, 0)
IMAGE = MetadataImage(
    topics={
        "__consumer_offsets": TopicImage(UUID(int=1), "__consumer_offsets", (PARTITION,)),
        "t": TopicImage(UUID(int=2), "t", (PARTITION,)),
    }
)
VERSIONS = list(range(API.lowest, API.highest + 1))
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Verifier:
    """What the coordinators of transactions answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[TopicPartitionPair], bool]] = []
        self.answer = ErrorCode.NONE

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartitionPair],
        *,
        adds: bool,
    ) -> dict[TopicPartitionPair, ErrorCode]:
        asked = list(partitions)
        self.asked.append((transactional_id, producer_id, producer_epoch, asked, adds))
        await asyncio.sleep(0)
        return dict.fromkeys(asked, self.answer)


class Node:
    def __init__(self) -> None:
        self.replica = MemoryReplica()
        self.refuse_to_lead: Exception | None = None
        self.groups: Any = new_host()
        self.image = IMAGE
        self.server_config = SimpleNamespace(transactions=TransactionConfig())
        self.transaction_partitions = Verifier()
        self.partitions = SimpleNamespace(leader_of=self.leader_of)

    def leader_of(self, topic: str, partition: int) -> MemoryReplica:
        assert (topic, partition) == ("__consumer_offsets", 0)
        if self.refuse_to_lead is not None:
            raise self.refuse_to_lead
        return self.replica

    async def ask(self, version: int, request: TxnOffsetCommitRequest | None = None) -> list[int]:
        context = RequestContext(self, version, "test", "127.0.0.1:5000", 7)  # type: ignore[arg-type]
        answer = API.handle(request or asked(), context)
        response: Any = await answer if isinstance(answer, asyncio.Future) else answer
        if asyncio.iscoroutine(response):
            response = await response
        return [p.error_code for topic in response.topics for p in topic.partitions]


def asked(group_id: str = "g", *topics: str) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        "payments",
        group_id,
        7,
        3,
        topics=[
            TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(0, 5)])
            for name in topics or ("t",)
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_transaction_is_verified_once_and_added_to_from_version_5_on(version: int) -> None:
    async def scene() -> None:
        node = Node()
        shard = await led(node.groups, node.replica)
        assert await node.ask(version) == [0]
        assert await node.ask(version) == [0]
        partition = ("__consumer_offsets", 0)
        verifier = node.transaction_partitions
        assert verifier.asked == [("payments", 7, 3, [partition], version >= 5)]
        assert node.replica.guards == [node.replica.verifications[7, 3], None]
        assert (await fetched(shard)) is None
        await end(shard)
        assert offset_of(shard) == 5
        node.groups.close()

    run(scene())


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_coordinator_of_the_transaction_refuses_is_not_appended(version: int) -> None:
    async def scene() -> None:
        node = Node()
        await led(node.groups, node.replica)
        for error, expected in {
            ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE
            if version < 4
            else ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE
            if version < 2
            else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }.items():
            node.transaction_partitions.answer = error
            assert await node.ask(version) == [expected]
        assert node.replica.guards == []
        node.groups.close()

    run(scene())


@pytest.mark.parametrize("version", VERSIONS)
def test_an_operator_may_do_without_the_verification_but_not_without_the_addition(
    version: int,
) -> None:
    async def scene() -> None:
        node = Node()
        config = TransactionConfig(transaction_partition_verification_enable=False)
        node.server_config = SimpleNamespace(transactions=config)
        await led(node.groups, node.replica)
        assert await node.ask(version) == [0]
        if version < 5:
            assert (node.transaction_partitions.asked, node.replica.guards) == ([], [UNVERIFIED])
        else:
            assert len(node.transaction_partitions.asked) == 1
        node.groups.close()

    run(scene())


def test_what_does_not_exist_is_refused_one_by_one_and_alone_without_asking() -> None:
    async def scene() -> None:
        node = Node()
        await led(node.groups, node.replica)
        assert await node.ask(5, asked("g", "gone")) == [UNKNOWN]
        assert node.transaction_partitions.asked == []
        assert await node.ask(5, asked("g", "gone", "t")) == [UNKNOWN, 0]
        request = asked("g", "gone", "t")
        request.generation_id, request.member_id = 3, "ghost"
        assert await node.ask(5, request) == [UNKNOWN, ErrorCode.UNKNOWN_MEMBER_ID]
        node.groups.close()

    run(scene())


def test_a_group_without_a_name_is_refused_without_asking() -> None:
    async def scene() -> None:
        node = Node()
        await led(node.groups, node.replica)
        assert await node.ask(5, asked("", "gone", "t")) == [UNKNOWN, ErrorCode.INVALID_GROUP_ID]
        assert node.transaction_partitions.asked == []
        node.groups.close()

    run(scene())


def test_a_node_that_does_not_coordinate_the_group_says_so() -> None:
    async def scene() -> None:
        node = Node()
        assert await node.ask(5) == [ErrorCode.NOT_COORDINATOR]
        node.groups = None
        assert await node.ask(5) == [ErrorCode.NOT_COORDINATOR]
        assert node.transaction_partitions.asked == []

    run(scene())


@pytest.mark.parametrize("version", VERSIONS)
def test_while_the_log_is_read_the_client_asks_again(version: int) -> None:
    """Producers before version 2 could crash at the error of that name (KAFKA-7296)."""

    async def scene() -> None:
        node = Node()
        shard = await led(node.groups, node.replica)
        await node.ask(5)
        await end(shard)
        node.groups.on_leader(0, 2, node.replica)
        assert await node.ask(version) == [
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            if version < 2
            else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ]
        node.groups.close()

    run(scene())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotLeaderOrFollower("moved"), ErrorCode.NOT_COORDINATOR),
        (KafkaStorageError("the disk"), ErrorCode.NOT_COORDINATOR),
        (UnknownTopicOrPartition("gone"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_replica_that_is_not_led_is_no_coordinator(error: Any, expected: ErrorCode) -> None:
    async def scene() -> None:
        node = Node()
        await led(node.groups, node.replica)
        node.refuse_to_lead = error
        assert await node.ask(5) == [expected]
        node.groups.close()

    run(scene())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidProducerEpoch("fenced"), ErrorCode.INVALID_PRODUCER_EPOCH),
        (InvalidTxnState("ended meanwhile"), ErrorCode.INVALID_TXN_STATE),
        (NotEnoughReplicas("alone"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_what_the_log_refuses_is_answered(error: Any, expected: ErrorCode) -> None:
    async def scene() -> None:
        node = Node()
        await led(node.groups, node.replica)
        node.replica.refuse_with = error
        assert await node.ask(5) == [expected]
        node.groups.close()

    run(scene())


def test_the_group_moves_while_the_transaction_is_verified() -> None:
    async def scene() -> None:
        node = Node()
        await led(node.groups, node.replica)
        answer = asyncio.ensure_future(node.ask(5))
        while not node.transaction_partitions.asked:
            await asyncio.sleep(0)
        node.groups.on_resigned(0)
        assert await answer == [ErrorCode.NOT_COORDINATOR]
        assert node.replica.guards == []
        node.groups.close()

    run(scene())
