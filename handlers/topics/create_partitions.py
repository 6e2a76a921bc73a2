"""CreatePartitions (API key 37): more partitions for topics. Rules: partition_control."""

from __future__ import annotations

from collections import Counter

from ...cluster.control.controller_request import RequestOutcome
from ...cluster.control.partition_control import CreatePartitions, NewPartitions
from ...protocol.errors import InvalidRequest, KafkaError
from ...protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ..authorization.topic_access import CREATE_PARTITIONS
from ..ports.api import api
from ..ports.context import RequestContext
from .metered_change import metered_change

FIRST_WITH_QUOTA_ERROR = 3


async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    unique = {topic.name: topic for topic in request.topics}
    outcomes = {
        name: RequestOutcome.of(InvalidRequest(f"topic {name!r} is named twice in the request"))
        for name in unique
        if counts[name] > 1
    }
    accepted = [topic for name, topic in unique.items() if name not in outcomes]
    throttle_ms = 0
    if accepted:
        decision = CreatePartitions(
            topics=tuple(map(_new_partitions, accepted)), validate_only=request.validate_only
        )
        decided: tuple[RequestOutcome, ...]
        try:
            decided, throttle_ms = await metered_change(
                decision,
                context,
                timeout_ms=request.timeout_ms,
                strict_from=FIRST_WITH_QUOTA_ERROR,
            )
        except KafkaError as error:
            decided = (RequestOutcome.of(error),) * len(accepted)
        for topic, outcome in zip(accepted, decided, strict=True):
            outcomes[topic.name] = outcome
    return CreatePartitionsResponse(
        throttle_time_ms=throttle_ms,
        results=[
            CreatePartitionsTopicResult(
                name=name, error_code=outcomes[name].code, error_message=outcomes[name].message
            )
            for name in unique
        ],
    )


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(each.broker_ids) for each in topic.assignments)
    return NewPartitions(topic.name, topic.count, assignments)


API = api(0, 3, CreatePartitionsRequest, handle, access=CREATE_PARTITIONS)
