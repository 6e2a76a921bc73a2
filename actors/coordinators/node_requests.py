"""Requests of one node to the nodes of its cluster: one connection to each, one request at a time.

A request to the node itself is passed to the API's handler directly. Over the node's own socket the
answer would be the same, for two more frames and four more turns of the loop, and in a cluster of
one node that is every request. The code after the frame is read is the same, with one exception:
the node's request metrics do not count it, as they count requests from outside.
"""

from __future__ import annotations

import inspect
from typing import Protocol, TypeVar

from ...handlers.ports.context import Node, RequestContext
from ...handlers.server.table import APIS
from ...protocol.errors import ConnectionFailed
from ...protocol.schema import Message
from ..loop.carry_through import within
from ..network.peer_connection import PeerConnection
from ..network.peers import Peers

R = TypeVar("R", bound=Message)
MAX_ANSWER_BYTES = 16 * 1024**2


class AskingNode(Node, Protocol):
    """A node that connects to other nodes."""

    @property
    def peers(self) -> Peers: ...


class NodeRequests:
    """Requests to nodes, on one event loop. The steps send a node one request at a time."""

    def __init__(self, node: AskingNode, client_id: str) -> None:
        self._node = node
        self._client_id = client_id
        self._connections: dict[int, tuple[tuple[str, int], PeerConnection]] = {}

    async def ask(
        self, node_id: int, message: Message, response: type[R], version: int, timeout_ms: int
    ) -> R:
        """Send a request; returns the response. Raises ConnectionFailed: it may take effect."""
        if node_id == self._node.node_id:
            return await self._ask_own(message, response, version, timeout_ms)
        connection = await self._connection(node_id)
        try:
            return await connection.request(
                message, response, version, timeout_seconds=timeout_ms / 1000
            )
        except BaseException:
            self._close(node_id)
            raise

    async def _ask_own(
        self, message: Message, response: type[R], version: int, timeout_ms: int
    ) -> R:
        context = RequestContext(self._node, version, self._client_id, "this node", 0)
        try:
            answer = APIS[message.API_KEY].handle(message, context)
            if inspect.isawaitable(answer):
                answer = await within(timeout_ms / 1000, answer)
        except TimeoutError:
            raise ConnectionFailed(f"this node does not answer in {timeout_ms} ms") from None
        assert isinstance(answer, response)
        return answer

    async def _connection(self, node_id: int) -> PeerConnection:
        node = self._node.image.nodes.get(node_id)
        if node is None:
            raise ConnectionFailed(f"the address of node {node_id} is not known")
        address = self._node.peers.address_of(node)
        known = self._connections.get(node_id)
        if known is not None:
            if known[0] == address:
                return known[1]
            self._close(node_id)  # the node has a new address
        connection = await self._node.peers.connect(
            node, client_id=self._client_id, max_answer_bytes=MAX_ANSWER_BYTES
        )
        self._connections[node_id] = (address, connection)
        return connection

    def _close(self, node_id: int) -> None:
        known = self._connections.pop(node_id, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        """Close all connections. Call it when the tasks that called `ask` have ended."""
        for node_id in list(self._connections):
            self._close(node_id)
