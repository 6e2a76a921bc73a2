"""Rights to join groups, to see them, and to commit and read their offsets.

Source: KafkaApis.handleJoinGroupRequest, handleOffsetCommitRequest and the others by name.
"""

from __future__ import annotations

from typing import Any, Final

from ...protocol.error_code import ErrorCode
from ...protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ...protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ...protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...protocol.messages.heartbeat import HeartbeatResponse
from ...protocol.messages.join_group import JoinGroupResponse
from ...protocol.messages.leave_group import LeaveGroupResponse
from ...protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...protocol.messages.sync_group import SyncGroupResponse
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ..ports.access import Access, Need, Rights
from ..ports.authorized_operations import GROUP_OPERATIONS
from ..ports.context import RequestContext
from .guarding import MESSAGES, Handle, each, need, then, whole, with_code, without

READ, DELETE, DESCRIBE = AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
FIRST_WITH_KEYS: Final = 4


# --- members --------------------------------------------------------------------------------------


def _group_of(request: Any) -> str:
    group_id: str = request.group_id
    return group_id


def _refuse_join(_request: Any, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name="", member_id="")


HEARTBEAT = whole(need(READ, GROUP), _group_of, with_code(HeartbeatResponse))
JOIN_GROUP = whole(need(READ, GROUP), _group_of, _refuse_join)
LEAVE_GROUP = whole(need(READ, GROUP), _group_of, with_code(LeaveGroupResponse))
SYNC_GROUP = whole(need(READ, GROUP), _group_of, with_code(SyncGroupResponse))


# --- groups ---------------------------------------------------------------------------------------


def _describe_refused(
    group_id: str, _context: RequestContext, rights: Rights
) -> DescribedGroup | None:
    if rights.may(DESCRIBE, GROUP, group_id):
        return None
    return DescribedGroup(group_id=group_id, error_code=GROUP_REFUSED)


_describe_each = each("groups", "groups", _describe_refused, DescribeGroupsResponse)


def _guard_description(
    request: DescribeGroupsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    def finish(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            for group in response.groups:
                if not group.error_code:
                    group.authorized_operations = rights.operations(
                        GROUP_OPERATIONS, GROUP, group.group_id
                    )
        return response

    return then(_describe_each(request, context, rights, handle), finish)


DESCRIBE_GROUPS = Access((need(DESCRIBE, GROUP),), _guard_description)


def _guard_list(
    request: ListGroupsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if rights.may_cluster(DESCRIBE, asks=True):
        return handle(request, context)

    def finish(response: ListGroupsResponse) -> ListGroupsResponse:
        response.groups = [
            group
            for group in response.groups
            if rights.may(DESCRIBE, GROUP, group.group_id, asks=True)
        ]
        return response

    return then(handle(request, context), finish)


LIST_GROUPS = Access(
    (
        Need(DESCRIBE, CLUSTER, what="enough for every group"),
        Need(DESCRIBE, GROUP, what="others are left out"),
    ),
    _guard_list,
)


def _delete_refused(
    group_id: str, _context: RequestContext, rights: Rights
) -> DeletableGroupResult | None:
    if rights.may(DELETE, GROUP, group_id):
        return None
    return DeletableGroupResult(group_id=group_id, error_code=GROUP_REFUSED)


_delete_each = each("groups_names", "results", _delete_refused, DeleteGroupsResponse)


def _guard_deletion(
    request: DeleteGroupsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    unique = list(dict.fromkeys(request.groups_names))
    return _delete_each(without(request, "groups_names", unique), context, rights, handle)


DELETE_GROUPS = Access((need(DELETE, GROUP),), _guard_deletion)


# --- coordinators ---------------------------------------------------------------------------------

_KEY_TYPES = {0: GROUP, 1: TRANSACTIONAL_ID}
_KEY_CODES = {0: GROUP_REFUSED, 1: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


def _guard_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    resource_type = _KEY_TYPES.get(request.key_type)
    if resource_type is None:
        return handle(request, context)  # which refuses the key type
    code = _KEY_CODES[request.key_type]
    if context.api_version < FIRST_WITH_KEYS:
        if rights.may(DESCRIBE, resource_type, request.key):
            return handle(request, context)
        return FindCoordinatorResponse(
            error_code=code, error_message=MESSAGES[code], node_id=-1, host="", port=-1
        )

    def refuse(key: str, _context: RequestContext, rights: Rights) -> Coordinator | None:
        if rights.may(DESCRIBE, resource_type, key):
            return None
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=MESSAGES[code]
        )

    guard = each("coordinator_keys", "coordinators", refuse, FindCoordinatorResponse)
    return guard(request, context, rights, handle)


FIND_COORDINATOR = Access(
    (need(DESCRIBE, GROUP), need(DESCRIBE, TRANSACTIONAL_ID)), _guard_coordinator
)


# --- offsets --------------------------------------------------------------------------------------


def _uncommitted(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _commit_refused(
    topic: OffsetCommitRequestTopic, _context: RequestContext, rights: Rights
) -> OffsetCommitResponseTopic | None:
    return None if rights.may(READ, TOPIC, topic.name) else _uncommitted(topic, TOPIC_REFUSED)


_commit_each = each("topics", "topics", _commit_refused, OffsetCommitResponse)


def _guard_commit(
    request: OffsetCommitRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if not rights.may(READ, GROUP, request.group_id):
        return OffsetCommitResponse(
            topics=[_uncommitted(topic, GROUP_REFUSED) for topic in request.topics]
        )
    return _commit_each(request, context, rights, handle)


OFFSET_COMMIT = Access((need(READ, GROUP), need(READ, TOPIC)), _guard_commit)


def _undeleted(
    topic: OffsetDeleteRequestTopic, _context: RequestContext, rights: Rights
) -> OffsetDeleteResponseTopic | None:
    if rights.may(READ, TOPIC, topic.name):
        return None
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index, error_code=TOPIC_REFUSED
            )
            for each in topic.partitions
        ],
    )


_undelete_each = each("topics", "topics", _undeleted, OffsetDeleteResponse)


def _guard_offset_deletion(
    request: OffsetDeleteRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if not rights.may(DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=GROUP_REFUSED)

    def finish(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code:
            response.topics = []
        return response

    return then(_undelete_each(request, context, rights, handle), finish)


OFFSET_DELETE = Access((need(DELETE, GROUP), need(READ, TOPIC)), _guard_offset_deletion)
