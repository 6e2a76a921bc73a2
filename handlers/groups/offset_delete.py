"""OffsetDelete (API key 47): delete committed offsets of a group, by partition (KIP-496).

While the group has members, only in topics that none of them is subscribed to. A group without
offsets and members remains, empty, until it is deleted or its retention has passed.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...protocol.errors import KafkaError
from ...protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ..authorization.group_access import OFFSET_DELETE
from ..ports.answer_or import answer_or
from ..ports.api import api
from ..ports.context import RequestContext
from .group_request import shard_of


def handle(
    request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    image = context.node.image

    def is_known(topic: str, partition: int) -> bool:
        return image.partition(topic, partition) is not None

    def ask() -> Awaitable[OffsetDeleteResponse]:
        return shard_of(request.group_id, context).delete_offsets(request, is_known=is_known)

    return answer_or(ask, _refuse)


def _refuse(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)


API = api(0, 0, OffsetDeleteRequest, handle, access=OFFSET_DELETE)
