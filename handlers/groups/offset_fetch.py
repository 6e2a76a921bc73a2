"""OffsetFetch (API key 9): the committed offsets of groups.

From version 8 on for many groups, with an error each; before, the response is about one group, with
a top-level error from v2 on, while v1 repeats the error for each partition. A null list of topics
means all (v2+). With `require_stable` (v7+) an offset that an open transaction may change
is UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from __future__ import annotations

import asyncio

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.offset_fetch import (
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
from ..authorization.offset_fetch_access import OFFSET_FETCH
from ..ports.api import api
from ..ports.context import RequestContext
from .group_request import shard_of

FIRST_WITH_GROUPS = 8
FIRST_WITH_ERROR_CODE = 2
NO_OFFSET = -1


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version >= FIRST_WITH_GROUPS:
        groups = []
        for asked in request.groups:
            groups.append(await _fetch(asked, request, context))
            await asyncio.sleep(0)  # there may be thousands: other requests run in between
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = await _fetch(asked, request, context)
    if found.error_code and context.api_version < FIRST_WITH_ERROR_CODE:
        found.topics = _failed(asked.topics or [], found.error_code)
    return OffsetFetchResponse(topics=_folded(found), error_code=found.error_code)


async def _fetch(
    asked: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponseGroup:
    try:
        return await shard_of(asked.group_id, context).fetch_offsets(
            asked, require_stable=request.require_stable
        )
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)


def _failed(
    topics: list[OffsetFetchRequestTopics], error: ErrorCode | int
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
        for topic in topics
    ]


def _folded(found: OffsetFetchResponseGroup) -> list[OffsetFetchResponseTopic]:
    """Convert the group of a response to the layout of versions below 8."""
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


API = api(1, 9, OffsetFetchRequest, handle, access=OFFSET_FETCH)
