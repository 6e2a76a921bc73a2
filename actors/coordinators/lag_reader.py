"""Driver of groups/offsets/lag_query: the lag of the groups of this node, read on request.

Nothing is kept between two scrapes, so without a scrape there is no cost: each opens a connection
to every leader it needs, this node included. A leader that is slow or down delays the scrape by at
most NODE_SECONDS for each kind of request, and the lag of its partitions is not shown.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from ...cluster.metadata.metadata_image import MetadataImage
from ...groups.offsets.lag_query import GroupPartitionLag, GroupPosition, LagQuery
from ...protocol.errors import ConnectionFailed
from ...protocol.messages.fetch import FetchResponse
from ...protocol.messages.list_offsets import ListOffsetsResponse
from ...protocol.schema import Message
from ..network.peer_connection import PeerConnection
from ..network.peers import Peers
from .group_host import GroupHost

logger = logging.getLogger(__name__)

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

MAX_GROUP_PARTITIONS: Final = 20_000
"""Maximum number of committed partitions of one node whose lag is shown."""
NODE_SECONDS: Final = 3.0
POSITIONS_AT_ONCE: Final = 1_000
LIST_OFFSETS_VERSION: Final = 9
FETCH_VERSION: Final = 12
"""The last version of Fetch that has the names of topics."""
MAX_ANSWER_BYTES: Final = 16 * 1024**2


class CoordinatingNode(Protocol):
    """The part of a node that the lag of its groups needs."""

    groups: GroupHost | None

    def now_ms(self) -> int: ...
    @property
    def node_id(self) -> int: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def peers(self) -> Peers: ...


async def read_lags(node: CoordinatingNode) -> tuple[list[GroupPartitionLag], int]:
    """Read the lags. Returns (lags, number of committed partitions that are not among them)."""
    if node.groups is None:
        return [], 0
    positions, beyond = await _positions(node.groups)
    if not positions:
        return [], beyond
    image = node.image
    look = LagQuery(positions, lambda key: image.live_leader(*key))
    leaders = _Leaders(node)
    try:
        ends = await asyncio.to_thread(lambda: list(look.ends()))
        await leaders.ask(
            ends, ListOffsetsResponse, LIST_OFFSETS_VERSION, lambda _, a: look.on_ends(a)
        )
        starts = await asyncio.to_thread(lambda: list(look.starts()))
        await leaders.ask(
            starts, ListOffsetsResponse, LIST_OFFSETS_VERSION, lambda _, a: look.on_starts(a)
        )
        times = await asyncio.to_thread(lambda: list(look.times()))
        await leaders.ask(times, FetchResponse, FETCH_VERSION, look.on_times)
    finally:
        leaders.close()
    found = await asyncio.to_thread(look.lags, node.now_ms())
    return found, beyond + len(positions) - len(found)


async def _positions(groups: GroupHost) -> tuple[list[GroupPosition], int]:
    """Collect positions. Returns (at most MAX_GROUP_PARTITIONS of them, number of the rest)."""
    found: list[GroupPosition] = []
    beyond = since = 0
    for offsets in groups.offsets():
        room = MAX_GROUP_PARTITIONS - len(found)
        if room > 0:
            found += offsets.positions()[:room]
        beyond += max(0, len(offsets) - max(0, room))
        since += len(offsets)
        if since >= POSITIONS_AT_ONCE:
            since = 0
            await asyncio.sleep(0)
    return found, beyond


class _Leaders:
    """Connections to the leaders that are asked, for one scrape."""

    def __init__(self, node: CoordinatingNode) -> None:
        self._node = node
        self._connections: dict[int, PeerConnection] = {}
        self._given_up: set[int] = set()

    async def ask(
        self,
        requests: Iterable[tuple[int, Q]],
        response: type[R],
        version: int,
        on_answer: Callable[[Q, R], None],
    ) -> None:
        """Send requests to all leaders concurrently, to each of them one at a time."""
        by_leader: defaultdict[int, list[Q]] = defaultdict(list)
        for leader, request in requests:
            by_leader[leader].append(request)
        await asyncio.gather(
            *(
                self._ask_one(leader, asked, response, version, on_answer)
                for leader, asked in by_leader.items()
                if leader not in self._given_up
            )
        )

    async def _ask_one(
        self,
        leader: int,
        requests: list[Q],
        response: type[R],
        version: int,
        on_answer: Callable[[Q, R], None],
    ) -> None:
        try:
            async with asyncio.timeout(NODE_SECONDS):
                connection = await self._connection(leader)
                for request in requests:
                    answer = await connection.request(
                        request, response, version, timeout_seconds=NODE_SECONDS
                    )
                    on_answer(request, answer)
        except (ConnectionFailed, TimeoutError) as error:
            self._given_up.add(leader)
            logger.info("the lag of groups on node %d is not known: %s", leader, error)

    async def _connection(self, leader: int) -> PeerConnection:
        known = self._connections.get(leader)
        if known is None:
            node = self._node.image.nodes.get(leader)
            if node is None:
                raise ConnectionFailed(f"the address of node {leader} is not known")
            known = await self._node.peers.connect(
                node,
                client_id=f"group-lag-{self._node.node_id}",
                max_answer_bytes=MAX_ANSWER_BYTES,
            )
            self._connections[leader] = known
        return known

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
