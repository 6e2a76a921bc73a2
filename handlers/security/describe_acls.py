"""DescribeAcls (API key 29): SECURITY_DISABLED, as of every broker without an authorizer.

The code says that nothing is protected here, which it asks before it copies or shows
rules; without the API it would take the broker for one of before 0.11.
"""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ..ports.api import api
from ..ports.context import RequestContext

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's words, which tools look for."""


def handle(_request: DescribeAclsRequest, _context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


API = api(1, 3, DescribeAclsRequest, handle)
