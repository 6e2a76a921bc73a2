"""SyncGroup (API key 14): the leader brings the assignment, everyone else fetches a share of it.

Answered when the assignment is committed. The rules are in groups/classic_group.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ..protocol.errors import KafkaError
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from .context import RequestContext
from .group_request import answer_or, shard_of


def handle(
    request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    def ask() -> Awaitable[SyncGroupResponse]:
        return shard_of(request.group_id, context).sync(request)

    return answer_or(ask, _refuse)


def _refuse(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)
