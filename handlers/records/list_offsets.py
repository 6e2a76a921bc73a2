"""ListOffsets (API key 2): the offset at a timestamp, or at the start or end of the log.

Timestamps below zero have a meaning: -1 latest, -2 earliest, -3 the largest timestamp (KIP-734),
-4 earliest local (KIP-405), -5 latest tiered (none, as there is no tiered storage). Look-ups of a
read_committed consumer end at the last stable offset. A look-up by time reads the disk, so it runs
in a thread.

For a follower the latest offset is the log end offset, committed or not.

Version 0 (before Kafka 0.10.1) gets the high watermark and base offsets of segments, newest first,
at most max_num_offsets: for -1 all, for -2 the first segment's, for a time those of segments not
newer. Unlike Kafka: the time of a segment is its newest record's, not the file's.

Source: Partition.fetchOffsetForTimestamp, UnifiedLog.legacyFetchOffsetsBefore (Kafka 3.9).
"""

from __future__ import annotations

import asyncio
from collections import Counter

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnsupportedVersion,
)
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ...protocol.topic_partition import TopicPartitionPair
from ...storage.log.partition_log import PartitionLog
from ..authorization.record_access import LIST_OFFSETS
from ..ports.api import Parts, api
from ..ports.context import RequestContext
from ..ports.replica_port import FoundOffset, LeaderReplica

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

# special timestamp -> first version that has it
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
READ_COMMITTED = 1
FIRST_WITH_OFFSET_NOT_AVAILABLE = 5
NONE = FoundOffset(-1, -1, -1)


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    asked = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if request.isolation_level not in (0, READ_COMMITTED):
        return _refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    repeated = {pair for pair, count in Counter(asked).items() if count > 1}
    topics = []
    for topic in request.topics:
        answers = await asyncio.gather(
            *(
                _answer(topic.name, wanted, request, context, repeated)
                for wanted in topic.partitions
            )
        )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=list(answers)))
    return ListOffsetsResponse(topics=topics)


def _refuse(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=code,
                        offset=-1,
                        timestamp=-1,
                        leader_epoch=-1,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _answer(
    topic: str,
    wanted: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
    repeated: set[TopicPartitionPair],
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, offset=-1, timestamp=-1, leader_epoch=-1
    )
    found = NONE
    try:
        if (topic, wanted.partition_index) in repeated:
            raise InvalidRequest(f"{topic}-{wanted.partition_index} is named twice in the request")
        replica = context.node.partitions.leader_of(
            topic, wanted.partition_index, current_leader_epoch=wanted.current_leader_epoch
        )
        if context.api_version == 0:
            answer.old_style_offsets = await _old_style(replica, wanted, context.node.now_ms())
        else:
            found = await _find(
                replica,
                wanted.timestamp,
                request.isolation_level,
                context.api_version,
                is_follower=request.replica_id >= 0,
            )
    except KafkaError as error:
        answer.error_code = error.code
    else:
        answer.offset, answer.timestamp, answer.leader_epoch = found
    return answer


async def _old_style(
    replica: LeaderReplica, wanted: ListOffsetsPartition, now_ms: int
) -> list[int]:
    """Offsets of version 0, newest first: the latest, the earliest, or those up to a timestamp."""
    end = replica.log.high_watermark
    times = await replica.segment_times()
    entries = [
        (max(base_offset, replica.log.log_start_offset), time) for base_offset, time in times
    ]
    if end > entries[-1][0]:
        entries.append((end, now_ms))
    if wanted.timestamp == EARLIEST:
        entries = entries[:1]
    elif wanted.timestamp != LATEST:
        while entries and entries[-1][1] > wanted.timestamp:
            entries.pop()
    offsets = sorted({min(offset, end) for offset, _ in entries}, reverse=True)
    return offsets[: max(wanted.max_num_offsets, 0)]


async def _find(
    replica: LeaderReplica,
    timestamp: int,
    isolation_level: int,
    version: int,
    *,
    is_follower: bool,
) -> FoundOffset:
    if timestamp < 0 and SINCE.get(timestamp, 99) > version:
        raise UnsupportedVersion(f"timestamp {timestamp} is not supported in version {version}")
    if is_follower and timestamp == LATEST:
        return FoundOffset(replica.log.log_end_offset, -1, replica.leader_epoch)
    committed = isolation_level == READ_COMMITTED
    up_to = replica.log.last_stable_offset if committed else replica.log.high_watermark
    # The high watermark in either case: an open transaction may have begun before the epoch.
    is_behind = replica.log.high_watermark < _epoch_start_offset(replica.log)
    if is_behind and timestamp not in (EARLIEST, EARLIEST_LOCAL):
        _refuse_for_now(version)
    match timestamp:
        case -1:
            return FoundOffset(up_to, -1, replica.leader_epoch)
        case -2 | -4:
            start = replica.log.log_start_offset
            return FoundOffset(start, -1, replica.log.epochs.epoch_at(start))
        case -3:
            found = await replica.offset_of_max_timestamp(up_to=up_to)
        case -5:
            found = None
        case _:
            found = await replica.offset_for_timestamp(timestamp, up_to=up_to)
    return found if found is not None else NONE


def _refuse_for_now(version: int) -> None:
    """Refuse while a new leader's high watermark may be too low (KIP-207)."""
    text = "the high watermark is not known yet after an election"
    if version >= FIRST_WITH_OFFSET_NOT_AVAILABLE:
        raise OffsetNotAvailable(text)
    raise LeaderNotAvailable(text)


API = api(
    0,
    10,
    ListOffsetsRequest,
    handle,
    Parts("topics", "topics", 50, "partitions", "partitions"),
    access=LIST_OFFSETS,
)


def _epoch_start_offset(log: PartitionLog) -> int:
    """Start offset of the leader epoch. A high watermark below it may be out of date."""
    entries = log.epochs.entries
    return entries[-1][1] if entries else log.log_start_offset
