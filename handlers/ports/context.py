"""What a handler may reach: the ports of the node it runs on, and who is asking.

The ports are implemented in actors/. A handler never awaits between reading a replica's state and
acting on it, so between two awaits it sees one consistent node.
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
    """The cluster's controller, in whichever process it runs. It answers after commit."""

    @abstractmethod
    async def ask(self, call: ControllerCall[T]) -> T:
        """Raises KafkaErrors: what the call says, or NotController while it cannot be reached."""

    async def change(self, request: ControllerRequest[T], *, timeout_ms: int) -> T:
        """See Change, the call that most ask for."""
        return await self.ask(Change(request, timeout_ms))


class ProducerIds(Protocol):
    """Ids that no other producer of this cluster ever had."""

    async def next(self) -> int:
        """Raises what the controller says."""
        ...

    def take(self) -> int | None:
        """None: there is none at the moment; ask again soon."""
        ...


class Coordinators(Protocol):
    """The coordinators of groups and transactions on one node, and what it asks those of others."""

    @property
    def groups(self) -> Groups | None:
        """None on a node without the group role."""
        ...

    @property
    def transactions(self) -> Transactions | None:
        """None on a node without the group role."""
        ...

    @property
    def transaction_partitions(self) -> TransactionPartitions: ...


class Node(Coordinators, Protocol):
    """The listening process: one Kafka node."""

    @property
    def node_id(self) -> int: ...
    @property
    def server_config(self) -> ServerConfig:
        """All settings of this moment."""
        ...

    @property
    def image(self) -> MetadataImage: ...
    def listed_nodes(self) -> list[NodeImage]:
        """What Metadata lists as brokers; see cluster.metadata.departed_nodes."""
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
        """None: everybody may do everything."""
        ...

    @property
    def quotas(self) -> Quotas | None:
        """None: none is set for any client."""
        ...

    @property
    def delegation_token_key(self) -> bytes | None:
        """What delegation tokens are signed with; None: there are none."""
        ...

    async def run_aside(self, call: Callable[[], T]) -> T:
        """Run what takes long and touches nothing shared in a thread, one call after another."""
        ...

    @property
    def producer_ids(self) -> ProducerIds: ...
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
    session: ClientSession = INTERNAL_SESSION
    trace: RequestTrace | None = None
    """None: the node asks itself. Such requests have no quotas."""

    def endpoint_of(self, node: NodeImage) -> ListenerAddress | None:
        """Where the client that asks reaches `node`: by the listener that it asks at (KIP-103)."""
        return node.endpoint(self.session.listener)

    @property
    def authorizer(self) -> Authorizer | None:
        """Of who asks over a connection; None: he may do everything."""
        return None if self.session is INTERNAL_SESSION else self.node.authorizer

    def rights(self, api: str) -> Rights | None:
        """What who asks may do, in a request of this API; None: everything."""
        authorizer = self.authorizer
        return None if authorizer is None else Rights(authorizer, self.session, api)
