"""What a handler may reach: the ports of the node it runs on, and who is asking.

The ports are implemented in actors/. A handler never awaits between reading a replica's state and
acting on it, so between two awaits it sees one consistent node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from ..cluster.broker_config import BrokerConfig
from ..cluster.controller_request import ControllerRequest
from ..cluster.metadata_image import MetadataImage, NodeImage
from ..cluster.poll_times import PollTime
from ..cluster.voter_change import VoterChange
from ..groups.group_config import GroupCoordinatorConfig
from .fetch_session import FetchSessionCache
from .group_port import Groups
from .log_dirs_port import LogDirs
from .replica_port import Partitions
from .request_metrics import RequestMetrics
from .server_config import ServerConfig

T = TypeVar("T")


class QuorumState(NamedTuple):
    """State of the metadata log: voters by directory id, nodes by id, each with its log end.

    polls: when each node has asked for news.
    """

    epoch: int
    high_watermark: int
    voters: dict[str, int]
    applied: dict[int, int]
    polls: dict[int, PollTime]


class Controller(Protocol):
    """The cluster's controller, wherever it runs. It answers after commit.

    Each raises KafkaErrors: what it decided, or NotController while it cannot be reached.
    """

    async def change(self, request: ControllerRequest[T], *, timeout_ms: int) -> T:
        """The request's answer, when it is carried out and the nodes concerned act on it.

        It stands also if timeout_ms go by before they do.
        """
        ...

    async def change_voter(self, request: VoterChange, *, timeout_ms: int) -> tuple[str, ...]:
        """Add a voter of the metadata or remove one; the directory ids of those that vote then.

        Raises RequestTimedOut if a new one has not caught up within timeout_ms.
        """
        ...

    async def quorum(self) -> QuorumState:
        """Who holds the metadata log, and how far."""
        ...


class Node(Protocol):
    """The listening process: one Kafka node."""

    @property
    def node_id(self) -> int: ...
    @property
    def server_config(self) -> ServerConfig:
        """All settings of this moment; the next two are parts of it."""
        ...

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def group_config(self) -> GroupCoordinatorConfig: ...
    @property
    def image(self) -> MetadataImage: ...
    def listed_nodes(self) -> list[NodeImage]:
        """What Metadata lists as brokers; see cluster.departed_nodes."""
        ...

    @property
    def partitions(self) -> Partitions: ...
    @property
    def fetch_sessions(self) -> FetchSessionCache: ...
    @property
    def log_dirs(self) -> LogDirs: ...
    @property
    def controller(self) -> Controller: ...
    @property
    def groups(self) -> Groups | None:
        """None on a node without the group role."""
        ...

    @property
    def metrics(self) -> RequestMetrics: ...

    async def run_aside(self, call: Callable[[], T]) -> T:
        """Run what takes long and touches nothing shared in a thread, one call after another."""
        ...

    async def next_producer_id(self) -> int:
        """An id no other producer of this cluster ever had."""
        ...

    def now_ms(self) -> int: ...
    def new_id(self) -> UUID:
        """A random one."""
        ...


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request's surroundings."""

    node: Node
    api_version: int
    client_id: str | None
    peer: str
    correlation_id: int
