"""DeleteTopics (API key 20): by name, and from version 6 on by name or id.

If a topic is given by name and by id, the first entry deletes it, and the other one fails; equal
entries are all refused. Source: ControllerApis.deleteTopics.
"""

from __future__ import annotations

from collections import Counter

from ...cluster.control.controller_request import RequestOutcome
from ...cluster.control.topic_control import DeleteTopics, TopicKey, TopicOutcome
from ...protocol.errors import InvalidRequest, KafkaError, TopicDeletionDisabled
from ...protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ...protocol.schema import ZERO_UUID
from ..authorization.topic_access import DELETE_TOPICS
from ..ports.api import api
from ..ports.context import RequestContext
from .metered_change import metered_change

FIRST_WITH_DISABLED = 3
FIRST_WITH_QUOTA_ERROR = 5


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    keys = [TopicKey(name) for name in request.topic_names]
    keys += [
        TopicKey(topic.name, None if topic.topic_id == ZERO_UUID else topic.topic_id)
        for topic in request.topics
    ]
    outcomes: dict[TopicKey, TopicOutcome] = {}
    accepted: list[TopicKey] = []
    counts = Counter(keys)
    for key, count in counts.items():
        try:
            _check(key, count, context)
        except KafkaError as error:
            outcomes[key] = TopicOutcome(RequestOutcome.of(error), key.name, key.topic_id)
        else:
            accepted.append(key)
    throttle_ms = 0
    if accepted:
        decided: tuple[TopicOutcome, ...]
        try:
            decided, throttle_ms = await metered_change(
                DeleteTopics(topics=tuple(accepted)),
                context,
                timeout_ms=request.timeout_ms,
                strict_from=FIRST_WITH_QUOTA_ERROR,
            )
        except KafkaError as error:
            decided = tuple(
                TopicOutcome(RequestOutcome.of(error), key.name, key.topic_id) for key in accepted
            )
        outcomes |= dict(zip(accepted, decided, strict=True))
    return DeleteTopicsResponse(
        throttle_time_ms=throttle_ms,
        responses=[
            DeletableTopicResult(
                name=_shown_name(each, context),
                topic_id=each.topic_id or ZERO_UUID,
                error_code=each.outcome.code,
                error_message=each.outcome.message,
            )
            for each in outcomes.values()
        ],
    )


def _check(key: TopicKey, count: int, context: RequestContext) -> None:
    if not context.node.server_config.broker.delete_topic_enable:
        if context.api_version < FIRST_WITH_DISABLED:
            raise InvalidRequest("topics cannot be deleted: delete.topic.enable=false")
        raise TopicDeletionDisabled("topics cannot be deleted: delete.topic.enable=false")
    if (key.name is None) == (key.topic_id is None):
        raise InvalidRequest("give a topic by its name or by its id, not by both or neither")
    if count > 1:
        raise InvalidRequest(f"topic {key.name or key.topic_id} is named twice in the request")


def _shown_name(outcome: TopicOutcome, context: RequestContext) -> str | None:
    """Name in a response; null only in versions with ids, for an unknown id."""
    return outcome.name if context.api_version >= 6 or outcome.name is not None else ""


API = api(1, 6, DeleteTopicsRequest, handle, access=DELETE_TOPICS)
