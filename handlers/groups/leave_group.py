"""LeaveGroup (API key 13): members leave before their sessions time out.

Versions 0-2 name one member, whose error is the response's; later ones a list with an error each
(KIP-345), which administrators also use to remove static members.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...protocol.errors import KafkaError
from ...protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ..authorization.group_access import LEAVE_GROUP
from ..ports.answer_or import answer_or
from ..ports.api import api
from ..ports.context import RequestContext
from .group_request import shard_of

FIRST_WITH_MEMBERS = 3


def handle(
    request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    def ask() -> Awaitable[LeaveGroupResponse]:
        return shard_of(request.group_id, context).leave(request)

    if context.api_version >= FIRST_WITH_MEMBERS:
        return answer_or(ask, _refuse)
    request.members = [MemberIdentity(member_id=request.member_id)]
    return answer_or(ask, _refuse, _as_one)


def _as_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    if response.members:
        response.error_code = response.members[0].error_code
    return response


def _refuse(error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


API = api(0, 5, LeaveGroupRequest, handle, access=LEAVE_GROUP)
