"""SyncGroup (API key 14): the leader sends all assignments, and each member receives its own.

Answered when the assignment is committed. The rules are in groups/classic/classic_group.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..authorization.group_access import SYNC_GROUP
from ..ports.answer_or import answer_or
from ..ports.api import api
from ..ports.context import RequestContext
from .group_request import shard_of

FIRST_WITH_PROTOCOL = 5


def handle(
    request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if context.api_version >= FIRST_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def ask() -> Awaitable[SyncGroupResponse]:
        return shard_of(request.group_id, context).sync(request)

    return answer_or(ask, _refuse)


def _refuse(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)


API = api(0, 5, SyncGroupRequest, handle, access=SYNC_GROUP)
