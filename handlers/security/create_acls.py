"""CreateAcls (API key 30): create ACLs. Which are valid: cluster/control/access/acl_control.

The response is sent when every node applies the new ACLs, or after WAIT_MS.
"""

from __future__ import annotations

from ...cluster.control.access.acl_control import AclToCreate, CreateAcls
from ...cluster.control.controller_request import RequestOutcome
from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ...protocol.security.acl_binding import (
    AclBinding,
)
from ..authorization.cluster_access import CREATE_ACLS
from ..ports.api import api
from ..ports.context import RequestContext
from .describe_acls import NO_AUTHORIZER

WAIT_MS = 5_000


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    node = context.node
    outcomes: tuple[RequestOutcome, ...]
    if node.authorizer is None:
        refusal = RequestOutcome(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        outcomes = (refusal,) * len(request.creations)
    else:
        acls = tuple(
            AclToCreate(acl_id=str(node.new_id()), binding=_binding(each))
            for each in request.creations
        )
        try:
            outcomes = await node.controller.change(CreateAcls(acls=acls), timeout_ms=WAIT_MS)
        except KafkaError as error:
            outcomes = (RequestOutcome.of(error),) * len(acls)
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=outcome.code, error_message=outcome.message)
            for outcome in outcomes
        ]
    )


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding.of_numbers(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


API = api(1, 3, CreateAclsRequest, handle, access=CREATE_ACLS)
