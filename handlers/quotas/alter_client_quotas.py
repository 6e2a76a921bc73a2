"""AlterClientQuotas (API key 49): set and remove quotas (KIP-546).

Rules: cluster/control/client_quota_control.
"""

from __future__ import annotations

from ...cluster.control.client_quota_control import AlterClientQuotas, QuotaChange
from ...cluster.control.controller_request import RequestOutcome
from ...cluster.quotas.quota_entity import QuotaEntity, entity_of
from ...protocol.errors import KafkaError
from ...protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
)
from ..authorization.quota_access import ALTER_CLIENT_QUOTAS
from ..ports.api import api
from ..ports.context import RequestContext

WAIT_MS = 1_000
"""Milliseconds to wait for the nodes to apply the change, which is committed before."""


async def handle(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    entries = tuple((_entity(entry), _changes(entry)) for entry in request.entries)
    outcomes: dict[QuotaEntity, RequestOutcome] = {}
    if entries:
        change = AlterClientQuotas(entries=entries, validate_only=request.validate_only)
        try:
            outcomes = await context.node.controller.change(change, timeout_ms=WAIT_MS)
        except KafkaError as error:
            outcomes = {entity: RequestOutcome.of(error) for entity, _ in entries}
    return AlterClientQuotasResponse(
        entries=[
            EntryDataResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            )
            for entity, outcome in outcomes.items()
        ]
    )


def _entity(entry: EntryData) -> QuotaEntity:
    return entity_of({each.entity_type: each.entity_name for each in entry.entity})


def _changes(entry: EntryData) -> tuple[QuotaChange, ...]:
    return tuple(QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops)


API = api(0, 1, AlterClientQuotasRequest, handle, access=ALTER_CLIENT_QUOTAS)
