"""What a client must be allowed before a handler sees its request: declared with each API.

An Access says it twice. `needs` is for readers: the document of all APIs is made of it. `guard`
does it: it is called in the handler's place, if the node has an authorizer, with the handler as its
last argument. It takes out of a request what is not allowed, has the handler answer the rest, and
answers for what it took out. So a handler knows nothing of rights and does nothing for those who
have none. Only Fetch asks for itself: what it reads is in its sessions, not in the request.

The guards are in handlers/authorization. Source: apache/kafka core/.../server/KafkaApis.scala.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...protocol.security.acl_binding import CLUSTER_NAME, AclOperation, ResourceType
from .client_session import ClientSession


class Authorizer(Protocol):
    """Decides by the rules of the metadata, and writes down what it decided."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Another one: the rules have changed since."""

    @abstractmethod
    def authorize(
        self,
        session: ClientSession,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        api: str,
        *,
        asks: bool = False,
    ) -> bool:
        """`asks`: nothing is refused by it, so a denial is no news."""

    @abstractmethod
    def authorize_any(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, api: str
    ) -> bool:
        """Whether there may be a resource of the type on which it is allowed."""


class Rights:
    """What one client may do, in one request."""

    __slots__ = ("_api", "_authorizer", "_session")

    def __init__(self, authorizer: Authorizer, session: ClientSession, api: str) -> None:
        self._authorizer = authorizer
        self._session = session
        self._api = api

    def may(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, asks: bool = False
    ) -> bool:
        return self._authorizer.authorize(
            self._session, operation, resource_type, name, self._api, asks=asks
        )

    def may_cluster(self, operation: AclOperation, *, asks: bool = False) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, asks=asks)

    def may_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self._authorizer.authorize_any(self._session, operation, resource_type, self._api)

    def operations(self, supported: int, resource_type: ResourceType, name: str) -> int:
        """Those of `supported`, a bit field, that are allowed."""
        return sum(
            1 << operation
            for operation in AclOperation
            if supported >> operation & 1 and self.may(operation, resource_type, name, asks=True)
        )


Guard = Callable[[Any, Any, Rights, Callable[[Any, Any], Any]], Any]
"""guard(request, context, rights, handle): what `handle(request, context)` would return."""


@dataclass(frozen=True, slots=True)
class Need:
    """One operation on one kind of resource.

    `what`: which resources, and how else it is allowed. `refusal`: the error code without it; ""
    where what may not be seen is left out.
    """

    operation: AclOperation
    resource: ResourceType
    refusal: str = ""
    what: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """`guard` None: everybody may, or the handler asks for itself."""

    needs: tuple[Need, ...] = ()
    guard: Guard | None = None
    remark: str = ""


EVERYBODY = Access()
