"""DeleteRecords (API key 21): records below an offset are no longer served (KIP-107).

-1 stands for the high watermark. Whole segments below the new log start offset go with the next
round of retention; the offset itself is on the disk before the answer. The answer is the low
watermark, the least log start offset of the replicas: with one replica, its own.
Source: ReplicaManager.deleteRecords, Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

from ..cluster.topic_name import INTERNAL_TOPICS
from ..protocol.errors import InvalidTopicException, KafkaError, OffsetOutOfRange
from ..protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from .context import RequestContext


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_delete(topic.name, each, context) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    if any(not each.error_code for topic in topics for each in topic.partitions):
        await context.node.partitions.keep_log_starts()
        for topic in topics:
            for result in topic.partitions:
                _check_kept(topic.name, result, context)
    return DeleteRecordsResponse(topics=topics)


def _delete(
    topic: str, wanted: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicException(f"records of the internal topic {topic} stay")
        if wanted.offset < -1:
            raise OffsetOutOfRange(f"{wanted.offset} is no offset")
        result.low_watermark = context.node.partitions.delete_records(
            topic, wanted.partition_index, wanted.offset
        )
    except KafkaError as error:
        result.error_code = error.code
    return result


def _check_kept(topic: str, result: DeleteRecordsPartitionResult, context: RequestContext) -> None:
    """A partition whose disk failed meanwhile is not led here any more."""
    if result.error_code:
        return
    try:
        context.node.partitions.leader_of(topic, result.partition_index)
    except KafkaError as error:
        result.error_code = error.code
        result.low_watermark = -1
