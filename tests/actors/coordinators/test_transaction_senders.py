"""Do questions and markers reach the nodes that they are for, this one and others?"""

import asyncio
import contextlib
import socket
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import bradbury
from bradbury.actors.coordinators.node_requests import NodeRequests
from bradbury.actors.coordinators.transaction_marker_sender import TransactionMarkerSender
from bradbury.actors.coordinators.transaction_partitions import HostedTransactionPartitions
from bradbury.actors.network.peers import Peers
from bradbury.cluster.metadata.metadata_image import (
    MetadataImage,
    NodeImage,
    PartitionImage,
    TopicImage,
)
from bradbury.cluster.security.security_config import SecurityConfig
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import ConnectionFailed
from bradbury.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from bradbury.tests.support.wire.raw_client import RawClient
from bradbury.tests.transactions.transaction_world import TIMEOUT_MS
from bradbury.tests.transactions.world_shard import WorldShard
from bradbury.transactions.transaction_effects import SendMarkers
from bradbury.transactions.transaction_markers import MarkersWritten

OWN, OTHER = 1, 2
PAID = ("paid", 0)
TIMEOUT = 10_000


def image_with(address: str, *, leader: int, coordinator: int = OWN, fenced: bool = False) -> Any:
    host, _, port = address.rpartition(":")

    def topic(name: str, number: int, led_by: int) -> TopicImage:
        partition = PartitionImage((led_by,), (led_by,), led_by, 0, 0)
        return TopicImage(UUID(int=number), name, (partition,))

    return MetadataImage(
        nodes={
            OWN: NodeImage(OWN, "a", "a", ("group",), "nowhere", 1, None, 1),
            OTHER: NodeImage(OTHER, "b", "b", ("group",), host, int(port), None, 2, fenced),
        },
        topics={
            "__transaction_state": topic("__transaction_state", 1, coordinator),
            "paid": topic("paid", 2, leader),
        },
    )


class OwnNode(SimpleNamespace):
    """A node whose one coordinator has a log in memory."""

    def __init__(self, image: MetadataImage) -> None:
        self.coordinator = WorldShard()
        super().__init__(
            node_id=OWN,
            image=image,
            server_config=ServerConfig(),
            transactions=SimpleNamespace(shard=lambda partition: self.coordinator),
            partitions=None,
            peers=Peers(SecurityConfig()),
        )


@pytest.fixture(scope="module")
def servers() -> Any:
    """The other node: a real one, with the topic "paid" and a transactional id "known"."""
    with bradbury.local(config={"transaction.state.log.num.partitions": 1}) as cluster:
        with bradbury.Admin(cluster.bootstrap_servers) as admin:
            admin.create_topic("paid", 1)
        with RawClient(cluster.bootstrap_servers) as client:
            client.begin_transactions("known")
        yield cluster.bootstrap_servers


ASKED = DescribeTransactionsRequest(["known"])


def test_a_request_goes_to_the_node_that_it_is_for(servers: str) -> None:
    async def scene() -> None:
        node = OwnNode(image_with(servers, leader=OTHER))
        requests = NodeRequests(node, "test")
        for _ in range(2):
            answer = await requests.ask(OTHER, ASKED, DescribeTransactionsResponse, 0, TIMEOUT)
            assert answer.transaction_states[0].transaction_state == "Empty"
        own = await requests.ask(OWN, ASKED, DescribeTransactionsResponse, 0, TIMEOUT)
        assert own.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        requests.close()

    asyncio.run(scene())


def test_a_node_that_is_not_there_or_not_known_is_not_reached_and_then_it_is(servers: str) -> None:
    async def scene() -> None:
        with contextlib.closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
            node = OwnNode(image_with(f"127.0.0.1:{taken.getsockname()[1]}", leader=OTHER))
            requests = NodeRequests(node, "test")
            for node_id in (OTHER, 77):
                with pytest.raises(ConnectionFailed):
                    await requests.ask(node_id, ASKED, DescribeTransactionsResponse, 0, TIMEOUT)
        node.image = image_with(servers, leader=OTHER)
        await requests.ask(OTHER, ASKED, DescribeTransactionsResponse, 0, TIMEOUT)
        requests.close()

    asyncio.run(scene())


def test_this_nodes_coordinator_is_asked_without_a_socket(servers: str) -> None:
    async def scene() -> None:
        node = OwnNode(image_with(servers, leader=OTHER, coordinator=OWN))
        world = node.coordinator.world
        begun = await node.coordinator.init_producer_id("id", TIMEOUT_MS, expected=None)
        partitions = HostedTransactionPartitions(node)
        partitions.on_metadata(node.image)
        producer = (begun.producer_id, begun.producer_epoch)
        asked = await partitions.verify("id", *producer, [PAID], adds=False)
        assert asked == {PAID: ErrorCode.TRANSACTION_ABORTABLE}
        assert (partitions.answer_times.count, partitions.failed_partitions) == (1, 1)
        assert await partitions.verify("id", *producer, [PAID], adds=True) == {PAID: ErrorCode.NONE}
        assert world.metadata().partitions == {PAID}
        assert (partitions.answer_times.count, partitions.failed_partitions) == (2, 1)
        await partitions.close()

    asyncio.run(scene())


def test_another_nodes_coordinator_is_asked_and_a_lost_one_is_not_waited_for(servers: str) -> None:
    async def scene() -> None:
        node = OwnNode(image_with(servers, leader=OTHER, coordinator=OTHER))
        partitions = HostedTransactionPartitions(node)
        nobody = await partitions.verify("known", 0, 0, [PAID], adds=False)
        assert nobody == {PAID: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        partitions.on_metadata(node.image)
        found = await partitions.verify("known", 999_999, 0, [PAID], adds=False)
        assert found == {PAID: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        partitions.on_metadata(image_with(servers, leader=OTHER, coordinator=OTHER, fenced=True))
        gone = await partitions.verify("known", 0, 0, [PAID], adds=False)
        assert gone == {PAID: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        await partitions.close()

    asyncio.run(scene())


def test_who_waits_for_a_coordinator_is_answered_when_the_node_ends(servers: str) -> None:
    async def scene() -> None:
        node = OwnNode(image_with(servers, leader=OTHER, coordinator=OTHER))
        partitions = HostedTransactionPartitions(node)
        partitions.on_metadata(node.image)
        asked = partitions.verify("known", 0, 0, [PAID], adds=False)
        await partitions.close()
        assert await asked == {PAID: ErrorCode.NETWORK_EXCEPTION}

    asyncio.run(scene())


def test_markers_go_to_another_node_and_wait_for_a_leader(servers: str) -> None:
    async def scene() -> None:
        written: asyncio.Queue[MarkersWritten] = asyncio.Queue()
        sender = TransactionMarkerSender(
            OwnNode(image_with(servers, leader=OTHER)), written.put_nowait
        )
        sender.on_metadata(image_with(servers, leader=OTHER, fenced=True))
        markers = SendMarkers("id", 999, 0, True, frozenset({PAID}))
        sender.send(0, 5, markers)
        assert sender.manager.unknown_leader_count == 1
        sender.on_metadata(image_with(servers, leader=OTHER))
        done = await asyncio.wait_for(written.get(), 30)
        assert (done.key.transactional_id, done.key.coordinator_epoch) == ("id", 5)
        sender.send(0, 5, SendMarkers("gone", 999, 0, True, frozenset({("deleted", 0)})))
        assert written.empty(), "the coordinator may be carrying out what has led here"
        done = await asyncio.wait_for(written.get(), 30)
        assert done.key.transactional_id == "gone"
        await sender.close()

    asyncio.run(scene())
