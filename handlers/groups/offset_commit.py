"""OffsetCommit (API key 8): store a group's offsets; answered once the records are committed.

Topics and partitions that do not exist are refused one by one; the rest is stored as one batch.

Unlike Kafka: a long commit is handled in parts (request_parts), each a separate batch, so that no
other client waits behind it. Each part is checked again: for a member removed in between the rest
is refused, partition by partition.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...protocol.errors import KafkaError
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..authorization.group_access import OFFSET_COMMIT
from ..ports.answer_or import answer_or
from ..ports.api import Parts, api
from ..ports.context import RequestContext
from .group_request import shard_of


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
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=error.code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer_or(ask, refuse)


API = api(
    1,
    9,
    OffsetCommitRequest,
    handle,
    Parts("topics", "topics", 500, "partitions", "partitions"),
    access=OFFSET_COMMIT,
)
