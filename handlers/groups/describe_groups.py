"""DescribeGroups (API key 15): state, members and assignments of groups.

An unknown group is "Dead" without an error, and from version 6 on GROUP_ID_NOT_FOUND
(KIP-1043). Without an authorizer all operations on a group are reported as authorized.
"""

from __future__ import annotations

from ...groups.classic.group_state import GroupState
from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ..authorization.group_access import DESCRIBE_GROUPS
from ..ports.api import Parts, api
from ..ports.authorized_operations import GROUP_OPERATIONS
from ..ports.context import RequestContext
from .group_request import shard_of

FIRST_WITH_NOT_FOUND = 6


def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        group = _describe(group_id, context)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        response.groups.append(group)
    return response


def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    try:
        group = shard_of(group_id, context).describe(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=str(error))
    if group is not None:
        return group
    group = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if context.api_version >= FIRST_WITH_NOT_FOUND:
        group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        group.error_message = f"Group {group_id} not found."
    return group


API = api(0, 6, DescribeGroupsRequest, handle, Parts("groups", "groups"), access=DESCRIBE_GROUPS)
