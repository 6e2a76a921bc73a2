"""DescribeClientQuotas (API key 48): the quotas that are set (KIP-546). Rules: quota_filter."""

from __future__ import annotations

from ...cluster.quotas.quota_filter import Component, QuotaFilter
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ..authorization.quota_access import DESCRIBE_CLIENT_QUOTAS
from ..ports.api import api
from ..ports.context import RequestContext


def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    try:
        asked = QuotaFilter(
            (
                Component(each.entity_type, each.match_type, each.match)
                for each in request.components
            ),
            strict=request.strict,
        )
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None
        )
    found = asked.find(context.node.image.client_quotas)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )


API = api(0, 1, DescribeClientQuotasRequest, handle, access=DESCRIBE_CLIENT_QUOTAS)
