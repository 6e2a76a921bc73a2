"""DeleteGroups (API key 42): delete groups without members, and their committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ...protocol.errors import KafkaError
from ...protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ..authorization.group_access import DELETE_GROUPS
from ..ports.answer_or import answer_or
from ..ports.api import api
from ..ports.context import RequestContext
from ..ports.group_port import GroupShard
from .group_request import shard_of


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Ask each shard once, for all its groups, so that they are deleted in one batch."""
    response = DeleteGroupsResponse()
    shards: dict[int, tuple[GroupShard, list[str]]] = {}
    for group_id in dict.fromkeys(request.groups_names):
        try:
            shard = shard_of(group_id, context)
        except KafkaError as error:
            response.results += _refused([group_id], error).results
        else:
            shards.setdefault(id(shard), (shard, []))[1].append(group_id)
    answers = await asyncio.gather(
        *(_delete(shard, group_ids) for shard, group_ids in shards.values())
    )
    for answer in answers:
        response.results += answer.results
    return response


async def _delete(shard: GroupShard, group_ids: list[str]) -> DeleteGroupsResponse:
    answer = answer_or(lambda: shard.delete(group_ids), lambda error: _refused(group_ids, error))
    return await answer if isinstance(answer, Awaitable) else answer


def _refused(group_ids: list[str], error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.code) for group_id in group_ids
        ]
    )


API = api(0, 2, DeleteGroupsRequest, handle, access=DELETE_GROUPS)
