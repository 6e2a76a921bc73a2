"""DeleteTopics (API key 20): by name, and by id from v6 on."""

from __future__ import annotations

import asyncio
from uuid import UUID

from ..protocol.errors import InvalidRequest, KafkaError
from ..protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ..protocol.schema import ZERO_UUID
from .context import RequestContext


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    wanted: list[tuple[str | None, UUID]] = [(name, ZERO_UUID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    results = await asyncio.gather(
        *(_delete(name, topic_id, request.timeout_ms, context) for name, topic_id in wanted)
    )
    return DeleteTopicsResponse(responses=list(results))


async def _delete(
    name: str | None, topic_id: UUID, timeout_ms: int, context: RequestContext
) -> DeletableTopicResult:
    result = DeletableTopicResult(name=name, topic_id=topic_id)
    try:
        if (name is None) == (topic_id == ZERO_UUID):
            raise InvalidRequest("name a topic by its name or by its id, not by both")
        known = None if name is None else context.node.image.topics.get(name)
        result.name = await context.node.controller.delete_topic(
            name=name, topic_id=None if name is not None else topic_id, timeout_ms=timeout_ms
        )
        if known is not None:
            result.topic_id = known.topic_id
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = str(error)
    return result
