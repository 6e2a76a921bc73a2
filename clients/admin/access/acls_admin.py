"""CreateAcls, DescribeAcls and DeleteAcls at any broker, as steps for Admin.

Source: KafkaAdminClient (createAcls, describeAcls, deleteAcls) in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.errors import KafkaError, error_for
from ....protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ....protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ....protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ....protocol.security.acl_binding import (
    AclBinding,
    AclFilter,
)
from ...threads.io_thread import Steps
from ...wire.cluster_client import ClusterClient


def create_acls(client: ClusterClient, bindings: Sequence[AclBinding]) -> Steps[None]:
    """See Admin.create_acls. Retried after a lost answer: creating an ACL twice has no effect."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=each.resource_type,
                resource_name=each.name,
                resource_pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in bindings
        ]
    )
    response = yield from client.send_to_any(request, CreateAclsResponse, repeatable=True)
    for result in response.results:
        if result.error_code:
            raise error_for(result.error_code, result.error_message)


def describe_acls(client: ClusterClient, wanted: AclFilter) -> Steps[list[AclBinding]]:
    """See Admin.describe_acls."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    response = yield from client.send_to_any(request, DescribeAclsResponse, repeatable=True)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    return sorted(
        AclBinding.of_numbers(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    )


def delete_acls(client: ClusterClient, filters: Sequence[AclFilter]) -> Steps[list[AclBinding]]:
    """See Admin.delete_acls. Not retried after a lost answer: the second answer would be empty."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )
    response = yield from client.send_to_any(request, DeleteAclsResponse, repeatable=False)
    refusal: KafkaError | None = None
    deleted: set[AclBinding] = set()
    for result in response.filter_results:
        if result.error_code:
            refusal = refusal or error_for(result.error_code, result.error_message)
        for acl in result.matching_acls:
            if acl.error_code:
                refusal = refusal or error_for(acl.error_code, acl.error_message)
            else:
                deleted.add(_binding(acl))
    if refusal is not None:
        raise refusal
    return sorted(deleted)


def _binding(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding.of_numbers(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
