"""ListGroups (API key 16): the groups that this node coordinates.

A client sends it to every node and concatenates the lists. Filters by state (v4) and type (v5)
ignore case; an empty filter matches all groups.
"""

from __future__ import annotations

import asyncio

from ...protocol.errors import KafkaError
from ...protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ..authorization.group_access import LIST_GROUPS
from ..ports.api import api
from ..ports.context import RequestContext


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    groups = context.node.groups
    if groups is None:
        return ListGroupsResponse()
    try:
        shards = groups.shards()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse()
    for shard in shards:
        response.groups += [g for g in shard.list_groups() if _passes(g, states, types)]
        await asyncio.sleep(0)  # there may be thousands: other requests run in between
    return response


def _passes(group: ListedGroup, states: set[str], types: set[str]) -> bool:
    return (not states or group.group_state.lower() in states) and (
        not types or group.group_type.lower() in types
    )


API = api(0, 5, ListGroupsRequest, handle, access=LIST_GROUPS)
