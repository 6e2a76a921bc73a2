"""OffsetFetch (API key 9): the committed positions of groups.

Version 8 asks for many groups with an error each; before, one group fills the response, with an
error of its own from v2 on, and v1 repeats the error for each partition. A list of topics that is
null asks for all (v2+). `require_stable` waits for transactions: no offset is part of one yet.
"""

from __future__ import annotations

from ..protocol.error_code import ErrorCode
from ..protocol.errors import KafkaError
from ..protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from .context import RequestContext
from .group_port import shard_of

FIRST_WITH_GROUPS = 8
FIRST_WITH_ERROR_CODE = 2
NO_OFFSET = -1


def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version >= FIRST_WITH_GROUPS:
        return OffsetFetchResponse(groups=[_fetch(asked, context) for asked in request.groups])
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = _fetch(asked, context)
    if found.error_code and context.api_version < FIRST_WITH_ERROR_CODE:
        found.topics = _failed(asked, found.error_code)
    return OffsetFetchResponse(topics=_folded(found), error_code=found.error_code)


def _fetch(asked: OffsetFetchRequestGroup, context: RequestContext) -> OffsetFetchResponseGroup:
    try:
        return shard_of(asked.group_id, context).fetch_offsets(asked)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)


def _failed(
    asked: OffsetFetchRequestGroup, error: ErrorCode | int
) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=partition, committed_offset=NO_OFFSET, error_code=error
                )
                for partition in topic.partition_indexes
            ],
        )
        for topic in asked.topics or []
    ]


def _folded(found: OffsetFetchResponseGroup) -> list[OffsetFetchResponseTopic]:
    """The one group of the old form."""
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in found.topics
    ]
