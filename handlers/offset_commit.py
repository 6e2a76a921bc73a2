"""OffsetCommit (API key 8): a group's positions are stored; answered once they are committed.

Topics and partitions that do not exist are refused one by one; the rest is stored as one batch.
From version 10 on topics have ids instead of names (KIP-848); what is stored has names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..protocol.error_code import ErrorCode
from ..protocol.errors import KafkaError
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from .context import RequestContext
from .group_port import answer_or, shard_of

FIRST_WITH_TOPIC_IDS = 10


def handle(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    image = context.node.image

    def is_known(topic: str, partition: int) -> bool:
        return image.partition(topic, partition) is not None

    def ask() -> Awaitable[OffsetCommitResponse]:
        return shard_of(request.group_id, context).commit_offsets(
            request, api_version=context.api_version, is_known=is_known
        )

    def refuse(error: KafkaError) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=[_failed(topic, error.code) for topic in request.topics])

    finish = None
    if context.api_version >= FIRST_WITH_TOPIC_IDS:
        finish = _by_name(request, context)
    return answer_or(ask, refuse, finish)


def _by_name(
    request: OffsetCommitRequest, context: RequestContext
) -> Callable[[OffsetCommitResponse], OffsetCommitResponse]:
    """Give the topics their names. Returns what gives the answer its ids, and the lost topics."""
    image = context.node.image
    for topic in request.topics:
        topic.name = image.topic_names.get(topic.topic_id, "")
    lost = [
        _failed(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in request.topics if not topic.name
    ]
    request.topics = [topic for topic in request.topics if topic.name]
    ids = [topic.topic_id for topic in request.topics]

    def finish(response: OffsetCommitResponse) -> OffsetCommitResponse:
        for topic, topic_id in zip(response.topics, ids, strict=True):
            topic.topic_id = topic_id
        response.topics += lost
        return response

    return finish


def _failed(topic: OffsetCommitRequestTopic, error: ErrorCode | int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        topic_id=topic.topic_id,
        name=topic.name,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
            for partition in topic.partitions
        ],
    )
