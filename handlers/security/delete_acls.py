"""DeleteAcls (API key 31): SECURITY_DISABLED for each filter; see describe_acls."""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ..ports.api import api
from ..ports.context import RequestContext
from .describe_acls import NO_AUTHORIZER


def handle(request: DeleteAclsRequest, _context: RequestContext) -> DeleteAclsResponse:
    refusal = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
    )
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


API = api(1, 3, DeleteAclsRequest, handle)
