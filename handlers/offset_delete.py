"""OffsetDelete (API key 47): single committed offsets of a group go (KIP-496).

Of a group with members only those in topics that no member is subscribed to. Whether a topic exists
is asked, not whether the partition does: offsets of partitions that are gone can be deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ..protocol.errors import KafkaError
from ..protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from .context import RequestContext
from .group_request import answer_or, shard_of


def handle(
    request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    topics = context.node.image.topics

    def ask() -> Awaitable[OffsetDeleteResponse]:
        return shard_of(request.group_id, context).delete_offsets(
            request, is_known=lambda topic, _: topic in topics
        )

    return answer_or(ask, _refuse)


def _refuse(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)
