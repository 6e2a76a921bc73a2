"""DeleteAcls (API key 31): delete the ACLs that match the filters. See create_acls."""

from __future__ import annotations

from ...cluster.control.access.acl_control import DeleteAcls, DeletedAcls
from ...cluster.control.controller_request import RequestOutcome
from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ..authorization.cluster_access import DELETE_ACLS
from ..ports.api import api
from ..ports.context import RequestContext
from .create_acls import WAIT_MS
from .describe_acls import NO_AUTHORIZER, filter_of


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    node = context.node
    answers: tuple[DeletedAcls, ...]
    if node.authorizer is None:
        refusal = RequestOutcome(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        answers = ((refusal, ()),) * len(request.filters)
    else:
        filters = tuple(filter_of(each) for each in request.filters)
        try:
            answers = await node.controller.change(DeleteAcls(filters=filters), timeout_ms=WAIT_MS)
        except KafkaError as error:
            answers = ((RequestOutcome.of(error), ()),) * len(filters)
    return DeleteAclsResponse(filter_results=[_result(answer) for answer in answers])


def _result(answer: DeletedAcls) -> DeleteAclsFilterResult:
    outcome, deleted = answer
    return DeleteAclsFilterResult(
        error_code=outcome.code,
        error_message=outcome.message,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=binding.resource_type,
                resource_name=binding.name,
                pattern_type=binding.pattern,
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
            for binding in deleted
        ],
    )


API = api(1, 3, DeleteAclsRequest, handle, access=DELETE_ACLS)
