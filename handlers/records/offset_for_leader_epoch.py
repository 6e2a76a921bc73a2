"""OffsetForLeaderEpoch (API key 23): end offset of a leader epoch; detects truncation (KIP-320)."""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ..authorization.record_access import OFFSET_FOR_LEADER_EPOCH
from ..ports.api import Parts, api
from ..ports.context import RequestContext


def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(topic.topic, p, context) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_offset(
    topic: str, wanted: OffsetForLeaderPartition, context: RequestContext
) -> EpochEndOffset:
    try:
        replica = context.node.partitions.leader_of(
            topic, wanted.partition, current_leader_epoch=wanted.current_leader_epoch
        )
        epoch, end_offset = replica.log.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(
            error_code=error.code, partition=wanted.partition, leader_epoch=-1, end_offset=-1
        )
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


API = api(
    2,
    4,
    OffsetForLeaderEpochRequest,
    handle,
    Parts("topics", "topics", 200, "partitions", "partitions"),
    access=OFFSET_FOR_LEADER_EPOCH,
)
