"""DeleteRecords (API key 21): records below an offset are no longer served (KIP-107).

-1 means the high watermark. Whole segments below the new log start offset are deleted in the next
retention pass; before the response is sent, the offset is on the leader's disk, and the in-sync
replicas have deleted the records, too. The response has the low watermark, the least of their log
start offsets.
Source: ReplicaManager.deleteRecords, Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

import asyncio

from ...protocol.error_code import ErrorCode
from ...protocol.errors import InvalidTopicException, KafkaError, OffsetOutOfRange
from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ...protocol.topic_name import INTERNAL_TOPICS
from ..authorization.record_access import DELETE_RECORDS
from ..ports.api import api
from ..ports.context import RequestContext


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_delete(topic.name, each, context) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    deleted = [
        (topic.name, each) for topic in topics for each in topic.partitions if not each.error_code
    ]
    if deleted:
        errors = await context.node.partitions.checkpoint_log_start_offsets(
            [(topic, result.partition_index) for topic, result in deleted]
        )
        deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
        await asyncio.gather(
            *(
                _await_replicas(topic, result, context, deadline)
                for topic, result in deleted
                if (topic, result.partition_index) not in errors
            )
        )
        for topic, result in deleted:
            if (error := errors.get((topic, result.partition_index))) is not None:
                result.error_code, result.low_watermark = error.code, -1
    return DeleteRecordsResponse(topics=topics)


def _delete(
    topic: str, wanted: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicException(f"records of the internal topic {topic} cannot be deleted")
        if wanted.offset < -1:
            raise OffsetOutOfRange(f"{wanted.offset} is not an offset")
        result.low_watermark = context.node.partitions.delete_records(
            topic, wanted.partition_index, wanted.offset
        )
    except KafkaError as error:
        result.error_code = error.code
    return result


async def _await_replicas(
    topic: str, result: DeleteRecordsPartitionResult, context: RequestContext, deadline: float
) -> None:
    """Wait for the replicas in sync, and set the result.

    The result is an error if the partition's disk has failed, or another node now leads it.
    """
    try:
        replica = context.node.partitions.leader_of(topic, result.partition_index)
        copied = replica.when_deleted(result.low_watermark)
        if copied is not None:
            async with asyncio.timeout_at(deadline):
                await copied
    except TimeoutError:
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
    except KafkaError as error:
        result.error_code = error.code
    if result.error_code:
        result.low_watermark = -1


API = api(0, 2, DeleteRecordsRequest, handle, access=DELETE_RECORDS)
