"""Common part of the group handlers: the coordinator of a group, and the client's host."""

from __future__ import annotations

from ...protocol.errors import NotCoordinator
from ...protocol.partitioner import partition_for_group
from ...protocol.topic_name import OFFSETS_TOPIC
from ..ports.context import RequestContext
from ..ports.group_port import GroupShard


def partition_of(group_id: str, context: RequestContext) -> int:
    """Partition of the group in __consumer_offsets. Raises NotCoordinator without that topic."""
    topic = context.node.image.topics.get(OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        raise NotCoordinator("the offsets topic is being created")
    return partition_for_group(group_id, len(topic.partitions))


def shard_of(group_id: str, context: RequestContext) -> GroupShard:
    """The coordinator of this group.

    Raises:
        NotCoordinator: another node is the coordinator; the client looks it up again.
        CoordinatorLoadInProgress: this node is loading the group; the client retries.
    """
    groups = context.node.groups
    if groups is None:
        raise NotCoordinator("this node coordinates no groups")
    return groups.shard(partition_of(group_id, context))


def client_host(context: RequestContext) -> str:
    """Address of the peer in Java's form, for DescribeGroups: "/127.0.0.1"."""
    return f"/{context.peer.rpartition(':')[0] or context.peer}"
