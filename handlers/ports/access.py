"""Rights that a client needs before a handler sees its request: declared with each API.

An Access has two parts. `needs` is documentation: docs/access.md is generated from it. `guard`
enforces them: on a node with an authorizer it is called in the handler's place, with the handler as
its last argument. It removes from a request the items that are not authorized, calls the handler
with the rest, and adds the errors of the removed items. So handlers do not check rights. The two
exceptions have no guard: Fetch, which reads the partitions of its session, not only those of the
request, and DescribeTopicPartitions, whose pages count authorized topics only.

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
    """Authorizer: decides by the ACLs in the metadata, and logs its decisions."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Version of the ACLs: another number after each change."""

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
        """Whether the operation is allowed. `asks`: a denial is no error, and is not logged."""

    @abstractmethod
    def authorize_any(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, api: str
    ) -> bool:
        """Whether the operation may be allowed on any resource of the type."""


class Rights:
    """Rights of one client, in one request."""

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
        """Allowed operations among `supported`, both as bit fields."""
        return sum(
            1 << operation
            for operation in AclOperation
            if supported >> operation & 1 and self.may(operation, resource_type, name, asks=True)
        )


Guard = Callable[[Any, Any, Rights, Callable[[Any, Any], Any]], Any]
"""Function guard(request, context, rights, handle); it returns a response like `handle`."""


@dataclass(frozen=True, slots=True)
class Need:
    """One operation on one kind of resource that a client needs.

    `what`: which resources, or what else allows it. `refusal`: the error code without the right;
    "" where resources that may not be seen are omitted from the response.
    """

    operation: AclOperation
    resource: ResourceType
    refusal: str = ""
    what: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """Rights needed for an API. `guard` None: open to all, or the handler checks them itself."""

    needs: tuple[Need, ...] = ()
    guard: Guard | None = None
    remark: str = ""


EVERYBODY = Access()
