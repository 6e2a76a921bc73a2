"""DescribeAcls (API key 29): the ACLs that a filter matches, by resource.

Without an authorizer it is answered SECURITY_DISABLED, as in Kafka: tools check for that error
before they copy or show ACLs. Source: AclApis.handleDescribeAcls.
"""

from __future__ import annotations

from ...cluster.control.access.acl_control import check_filter
from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.delete_acls import DeleteAclsFilter
from ...protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ...protocol.security.acl_binding import (
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ..authorization.cluster_access import DESCRIBE_ACLS
from ..ports.api import api
from ..ports.context import RequestContext

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's message, which tools check for."""


def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    if context.node.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
    wanted = filter_of(request)
    try:
        check_filter(wanted)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=str(error))
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    for binding in context.node.image.acls.values():
        if not wanted.matches(binding):
            continue
        key = binding.resource_type, binding.pattern, binding.name
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=binding.resource_type,
                resource_name=binding.name,
                pattern_type=binding.pattern,
            )
        resource.acls.append(
            AclDescription(
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        ResourceType.of(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType.of(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        AclOperation.of(asked.operation),
        AclPermission.of(asked.permission_type),
    )


API = api(1, 3, DescribeAclsRequest, handle, access=DESCRIBE_ACLS)
