"""What the group handlers share: whose group it is, and who asks."""

from __future__ import annotations

from ...protocol.errors import NotCoordinator
from ...protocol.internal_topics import OFFSETS_TOPIC
from ...protocol.partitioner import partition_for_group
from ..ports.context import RequestContext
from ..ports.group_port import GroupShard


def partition_of(group_id: str, context: RequestContext) -> int:
    """Raises NotCoordinator while there is no offsets topic."""
    topic = context.node.image.topics.get(OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        raise NotCoordinator("the offsets topic is being created")
    return partition_for_group(group_id, len(topic.partitions))


def shard_of(group_id: str, context: RequestContext) -> GroupShard:
    """The coordinator of this group.

    Raises:
        NotCoordinator: it is another node; the client looks it up again.
        CoordinatorLoadInProgress: it is this node, in a moment; the client asks again.
    """
    groups = context.node.groups
    if groups is None:
        raise NotCoordinator("this node coordinates no groups")
    return groups.shard(partition_of(group_id, context))


def client_host(context: RequestContext) -> str:
    """The peer's address in Java's form, as DescribeGroups shows it: "/127.0.0.1"."""
    return f"/{context.peer.rpartition(':')[0] or context.peer}"
