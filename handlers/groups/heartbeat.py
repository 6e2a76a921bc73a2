"""Heartbeat (API key 12): extends a member's session, and reports whether the member must rejoin.

While the coordinator loads its log it has no members yet, and answers without error, as Kafka does:
after loading each member has a full session timeout, and some clients leave the group on an error.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...protocol.errors import CoordinatorLoadInProgress, KafkaError
from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..authorization.group_access import HEARTBEAT
from ..ports.answer_or import answer_or
from ..ports.api import api
from ..ports.context import RequestContext
from .group_request import shard_of


def handle(
    request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    def ask() -> Awaitable[HeartbeatResponse]:
        return shard_of(request.group_id, context).heartbeat(request)

    return answer_or(ask, _refuse)


def _refuse(error: KafkaError) -> HeartbeatResponse:
    if isinstance(error, CoordinatorLoadInProgress):
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error.code)


API = api(0, 4, HeartbeatRequest, handle, access=HEARTBEAT)
