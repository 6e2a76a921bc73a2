"""Rights to see and change clients' quotas. Source: KafkaApis.scala, ControllerApis.scala."""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryDataResponse,
)
from ...protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from ...protocol.security.acl_binding import AclOperation
from .guarding import MESSAGES, on_cluster


def _refuse_change(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            EntryDataResponse(
                error_code=code,
                error_message=MESSAGES[code],
                entity=[
                    EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                    for each in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _refuse_description(_request: object, code: ErrorCode) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=MESSAGES[code], entries=None)


DESCRIBE_CLIENT_QUOTAS = on_cluster(AclOperation.DESCRIBE_CONFIGS, _refuse_description)
ALTER_CLIENT_QUOTAS = on_cluster(AclOperation.ALTER_CONFIGS, _refuse_change)
