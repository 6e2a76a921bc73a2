"""Quotas of clients: described by filter, set and removed (KIP-546).

Source: Admin.describeClientQuotas, Admin.alterClientQuotas, ClientQuotaFilterComponent in
apache/kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...protocol.errors import error_for
from ...protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ...protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient

EXACT, DEFAULT, SPECIFIED = range(3)
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class ClientQuotaEntity(NamedTuple):
    """Entity of a quota. Each part: its name, "" for the default, None if it has no such part.

    A user, a client id or both together; or an address alone.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> dict[str, str | None]:
        """Parts by Kafka's entity types, where None is the default."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return {kind: name or None for kind, name in named if name is not None}


class ClientQuotaFilterComponent(NamedTuple):
    """Entities with this type: of a name, the default, or either.

    For example all quotas of users, of each name and the default:

        admin.describe_client_quotas(
            ClientQuotaFilter((ClientQuotaFilterComponent.of_entity_type(USER),))
        )
    """

    entity_type: str
    match_type: int
    match: str | None = None

    @classmethod
    def of_entity(cls, entity_type: str, name: str) -> ClientQuotaFilterComponent:
        return cls(entity_type, EXACT, name)

    @classmethod
    def of_default_entity(cls, entity_type: str) -> ClientQuotaFilterComponent:
        return cls(entity_type, DEFAULT)

    @classmethod
    def of_entity_type(cls, entity_type: str) -> ClientQuotaFilterComponent:
        return cls(entity_type, SPECIFIED)


class ClientQuotaFilter(NamedTuple):
    """Filter that all components match. strict: only entities that have no other type."""

    components: tuple[ClientQuotaFilterComponent, ...] = ()
    strict: bool = False


ALL_QUOTAS: Final = ClientQuotaFilter()


def describe_client_quotas(
    client: ClusterClient, wanted: ClientQuotaFilter
) -> Steps[dict[ClientQuotaEntity, dict[str, float]]]:
    """The quotas of each entity, by key. Raises InvalidRequest, UnsupportedVersion."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in wanted.components
        ],
        strict=wanted.strict,
    )
    response = yield from client.send_to_any(request, DescribeClientQuotasResponse)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    found = {}
    for entry in response.entries or ():
        parts = {each.entity_type: each.entity_name or "" for each in entry.entity}
        entity = ClientQuotaEntity(parts.get(USER), parts.get(CLIENT_ID), parts.get(IP))
        found[entity] = {each.key: each.value for each in entry.values}
    return found


def alter_client_quotas(
    client: ClusterClient,
    changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
) -> Steps[None]:
    """Set quotas, or with None remove them. Raises InvalidRequest: the first that is refused."""
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.parts().items()
                ],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in quotas.items()
                ],
            )
            for entity, quotas in changes.items()
        ],
        validate_only=validate_only,
    )
    # It is idempotent, so it may be sent again.
    response = yield from client.send_to_any(request, AlterClientQuotasResponse)
    for entry in response.entries:
        if entry.error_code:
            raise error_for(entry.error_code, entry.error_message)
