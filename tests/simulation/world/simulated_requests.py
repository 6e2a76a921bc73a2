"""Requests to a node's handlers, as shipped: from clients of the simulation, and between nodes.

A handler runs on the virtual loop of its process, and finds there what it finds in actors/node: the
hosts of coordinators, the replicas, the image. What it awaits ends with the process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bradbury.cluster.metadata.metadata_image import NodeImage
from bradbury.handlers.ports.context import RequestContext
from bradbury.handlers.ports.produce_answer import ProducedBatch
from bradbury.handlers.server.table import APIS
from bradbury.protocol.errors import ConnectionFailed, KafkaError, error_for
from bradbury.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from bradbury.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from bradbury.protocol.schema import Message
from bradbury.protocol.topic_partition import TopicPartitionPair

from .simulated_network import LOST, Answer

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode

BETWEEN_NODES_MS = 300
"""After which a connection between nodes is given up: long before their request.timeout.ms."""
PRODUCE_TIMEOUT_MS = 30_000
LAST_WITH_NAMES = 12
"""Produce names topics, up to this version; its clients follow transaction.version 2."""
WITHOUT_BUMPS = 11
"""Produce of a client of transaction.version 1 or less."""


def handle(node: SimulatedNode, request: Message, version: int, answer: Answer) -> None:
    """Have `node` handle a request. `answer` is given the response."""
    context: Any = RequestContext(node, version, None, "client", 0)  # type: ignore[arg-type]
    handler = APIS[request.API_KEY].handle
    node.loop.answer(lambda: handler(request, context), answer)


def produce(
    node: SimulatedNode,
    partition: TopicPartitionPair,
    batch: bytes,
    answer: Answer,
    *,
    acks_all: bool = True,
    transactional_id: str | None = None,
    version: int = LAST_WITH_NAMES,
) -> None:
    """Produce one batch. `answer` is given the base offset, or a KafkaError."""
    data = PartitionProduceData(index=partition[1], records=bytearray(batch))
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1 if acks_all else 1,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=partition[0], partition_data=[data])],
    )

    def answered(response: Any) -> None:
        if not isinstance(response, ProducedBatch | KafkaError):
            [found] = response.responses[0].partition_responses
            response = error_for(found.error_code) if found.error_code else found
        answer(response if isinstance(response, KafkaError) else response.base_offset)

    handle(node, request, version, answered)


class SimulatedPeers:
    """The nodes of the cluster as one of them reaches them; see actors/network/peers."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def address_of(self, node: NodeImage) -> tuple[str, int]:
        return node.host, node.port

    async def connect(
        self, node: NodeImage, *, client_id: str, max_answer_bytes: int
    ) -> SimulatedPeerConnection:
        return SimulatedPeerConnection(self._node, self._node.cluster.nodes[node.node_id])


class SimulatedPeerConnection:
    """A connection between two nodes: it is lost when an answer does not come."""

    def __init__(self, node: SimulatedNode, target: SimulatedNode) -> None:
        self._node, self._target = node, target

    async def request(
        self, message: Any, response: type[Any], version: int, *, timeout_seconds: float
    ) -> Any:
        node, target, faults = self._node, self._target, self._node.cluster.faults
        arrived = node.loop.create_future()

        def answered(result: Any) -> None:
            if not arrived.done():
                arrived.set_result(result)

        carry_out = partial(handle, target, message, version)
        match message:
            case WriteTxnMarkersRequest():
                what, carry_out = "markers", faults.strayed(target.process, message, carry_out)
            case AddPartitionsToTxnRequest():
                what = "add partitions"
                at_once = carry_out
                carry_out = lambda answer: at_once(faults.slowed(target.process, answer))  # noqa: E731
            case _:
                what = "between nodes"
        node.cluster.network.call(
            node.process,
            target.process,
            carry_out,
            answered,
            timeout_ms=min(BETWEEN_NODES_MS, round(timeout_seconds * 1000)),
            what=what,
        )
        result = await arrived
        if result is LOST or isinstance(result, KafkaError):
            raise ConnectionFailed("the connection was lost")
        return result

    def close(self) -> None: ...
