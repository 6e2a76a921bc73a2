"""ListGroups (API key 16): the groups that this node coordinates.

A client asks every node and joins the lists. Filters by state (v4) and type (v5) do not look at
case; an empty filter lets all through.
"""

from __future__ import annotations

from ..protocol.errors import KafkaError
from ..protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from .context import RequestContext


def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    groups = context.node.groups
    if groups is None:
        return ListGroupsResponse()
    try:
        found = [group for shard in groups.shards() for group in shard.list_groups()]
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(groups=[group for group in found if _passes(group, states, types)])


def _passes(group: ListedGroup, states: set[str], types: set[str]) -> bool:
    return (not states or group.group_state.lower() in states) and (
        not types or group.group_type.lower() in types
    )
