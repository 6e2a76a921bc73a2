"""CreateAcls (API key 30): SECURITY_DISABLED for each rule; see describe_acls."""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ..ports.api import api
from ..ports.context import RequestContext
from .describe_acls import NO_AUTHORIZER


def handle(request: CreateAclsRequest, _context: RequestContext) -> CreateAclsResponse:
    refusal = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refusal] * len(request.creations))


API = api(1, 3, CreateAclsRequest, handle)
