"""JoinGroup (API key 11): a member joins its group, or rejoins it for the next generation.

Answered when the join phase ends, which may take the rebalance timeout. The rules are in
groups/classic/classic_group. Versions 0-6 cannot carry a null protocol name: it is "" there.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...protocol.errors import KafkaError
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..authorization.group_access import JOIN_GROUP
from ..ports.answer_or import answer_or
from ..ports.api import api
from ..ports.context import RequestContext
from .group_request import client_host, shard_of

FIRST_WITH_NULLABLE_PROTOCOL = 7


def handle(
    request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    def ask() -> Awaitable[JoinGroupResponse]:
        return shard_of(request.group_id, context).join(
            request,
            api_version=context.api_version,
            client_id=context.client_id or "",
            client_host=client_host(context),
        )

    def refuse(error: KafkaError) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=error.code, protocol_name=None, member_id=request.member_id
        )

    old = context.api_version < FIRST_WITH_NULLABLE_PROTOCOL
    return answer_or(ask, refuse, _without_null if old else None)


def _without_null(response: JoinGroupResponse) -> JoinGroupResponse:
    if response.protocol_name is None:
        response.protocol_name = ""
    return response


API = api(0, 9, JoinGroupRequest, handle, access=JOIN_GROUP)
