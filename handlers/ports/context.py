"""Context of a handler: the ports of the node it runs on, and the client's session.

The ports are implemented in actors/. A handler never awaits between reading a replica's state and
acting on it, so between two awaits it sees one consistent state of the node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

from ...cluster.control.controller_request import ControllerRequest
from ...cluster.metadata.listener_address import ListenerAddress
from ...cluster.metadata.metadata_image import MetadataImage, NodeImage
from ...controller.controller_calls import Change, ControllerCall
from .access import Authorizer, Rights
from .client_session import INTERNAL_SESSION, ClientSession
from .fetch_session import FetchSessionCache
from .group_port import Groups
from .quota_port import Quotas
from .replica_port import Partitions
from .request_metrics import RequestMetrics, RequestTrace
from .server_config import ServerConfig
from .transaction_port import TransactionPartitions, Transactions

T = TypeVar("T")


class Controller(ABC):
    """The cluster's controller, in this process or another one. It answers after commit."""

    @abstractmethod
    async def ask(self, call: ControllerCall[T]) -> T:
        """Carry out a call. Raises its KafkaErrors, and NotController while unreachable."""

    async def change(self, request: ControllerRequest[T], *, timeout_ms: int) -> T:
        """Carry out a change; see controller_calls.Change."""
        return await self.ask(Change(request, timeout_ms))


class ProducerIds(Protocol):
    """Source of producer ids that are unique in the cluster."""

    async def next(self) -> int:
        """Wait for the next id. Raises KafkaErrors of the controller."""
        ...

    def take(self) -> int | None:
        """Take an id without waiting; None if the block is used up: try again soon."""
        ...


class Coordinators(Protocol):
    """Coordinators of groups and transactions on one node, and the port to other nodes' ones."""

    @property
    def groups(self) -> Groups | None:
        """Groups of the node; None without the group role."""
        ...

    @property
    def transactions(self) -> Transactions | None:
        """Transactions of the node; None without the group role."""
        ...

    @property
    def transaction_partitions(self) -> TransactionPartitions: ...


class Node(Coordinators, Protocol):
    """A listening process: one Kafka node."""

    @property
    def node_id(self) -> int: ...
    @property
    def server_config(self) -> ServerConfig:
        """Current settings of the node."""
        ...

    @property
    def image(self) -> MetadataImage: ...
    def listed_nodes(self) -> list[NodeImage]:
        """Nodes that Metadata lists as brokers; see cluster.metadata.departed_nodes."""
        ...

    @property
    def partitions(self) -> Partitions: ...
    @property
    def fetch_sessions(self) -> FetchSessionCache: ...
    @property
    def controller(self) -> Controller: ...
    @property
    def metrics(self) -> RequestMetrics: ...
    @property
    def authorizer(self) -> Authorizer | None:
        """Authorizer of the node; None: all clients may do everything."""
        ...

    @property
    def quotas(self) -> Quotas | None:
        """Quotas of the node; None: no quota is set for any client."""
        ...

    @property
    def delegation_token_key(self) -> bytes | None:
        """Key that delegation tokens are signed with; None: they are disabled."""
        ...

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        """Run a long call without shared state in the node's thread, one call after another."""
        ...

    @property
    def producer_ids(self) -> ProducerIds: ...
    def now_ms(self) -> int: ...
    def new_id(self) -> UUID:
        """Make a random id."""
        ...


@dataclass(slots=True)
class RequestContext:
    """Context of one request. It never changes, but a frozen one is four times as slow to make."""

    node: Node
    api_version: int
    client_id: str | None
    peer: str
    correlation_id: int
    session: ClientSession = INTERNAL_SESSION
    trace: RequestTrace | None = None
    """Trace of the request; None: the node's own request, to which no quotas apply."""

    def endpoint_of(self, node: NodeImage) -> ListenerAddress | None:
        """Address of `node` for this client: at the listener that the request came by (KIP-103)."""
        return node.endpoint(self.session.listener)

    @property
    def authorizer(self) -> Authorizer | None:
        """Authorizer of this client; None: it may do everything."""
        return None if self.session is INTERNAL_SESSION else self.node.authorizer

    def rights(self, api: str) -> Rights | None:
        """Rights of this client in a request of the API; None: it may do everything."""
        authorizer = self.authorizer
        return None if authorizer is None else Rights(authorizer, self.session, api)
