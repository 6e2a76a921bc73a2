"""What the group handlers reach: the coordinator of a group, if it is this node.

The port is implemented in actors/group_host. Every method takes what it needs from the request
before it returns (a request points into the receive buffer), and returns the answer, now or later.
A later answer raises a KafkaError: NotCoordinator when the partition has moved away meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..cluster.topic_name import OFFSETS_TOPIC
from ..protocol.errors import KafkaError, NotCoordinator
from ..protocol.messages.delete_groups import DeleteGroupsResponse
from ..protocol.messages.describe_groups import DescribedGroup
from ..protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ..protocol.messages.list_groups import ListedGroup
from ..protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ..protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ..protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..protocol.partitioner import partition_for_group

if TYPE_CHECKING:
    from .context import RequestContext

T = TypeVar("T")


class GroupShard(Protocol):
    """The groups of one partition of __consumer_offsets, which this node leads."""

    def join(
        self, request: JoinGroupRequest, *, api_version: int, client_id: str, client_host: str
    ) -> Awaitable[JoinGroupResponse]: ...
    def sync(self, request: SyncGroupRequest) -> Awaitable[SyncGroupResponse]: ...
    def heartbeat(self, request: HeartbeatRequest) -> Awaitable[HeartbeatResponse]: ...
    def leave(self, request: LeaveGroupRequest) -> Awaitable[LeaveGroupResponse]: ...
    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        *,
        api_version: int,
        is_known: Callable[[str, int], bool],
    ) -> Awaitable[OffsetCommitResponse]: ...
    def delete(self, group_ids: Sequence[str]) -> Awaitable[DeleteGroupsResponse]: ...
    def delete_offsets(
        self, request: OffsetDeleteRequest, *, is_known: Callable[[str, int], bool]
    ) -> Awaitable[OffsetDeleteResponse]: ...
    def fetch_offsets(
        self, asked: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Awaitable[OffsetFetchResponseGroup]: ...
    def describe(self, group_id: str) -> DescribedGroup | None: ...
    def list_groups(self) -> list[ListedGroup]: ...


class Groups(Protocol):
    """The shards of this node."""

    def shard(self, partition: int) -> GroupShard:
        """Raises NotCoordinator, or CoordinatorLoadInProgress while its log is read."""
        ...

    def shards(self) -> list[GroupShard]:
        """All of them. Raises CoordinatorLoadInProgress if one is not loaded."""
        ...


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
        CoordinatorLoadInProgress: it is this node, in a moment; the client comes again.
    """
    groups = context.node.groups
    if groups is None:
        raise NotCoordinator("this node coordinates no groups")
    return groups.shard(partition_of(group_id, context))


def answer_or(
    ask: Callable[[], Awaitable[T]],
    refuse: Callable[[KafkaError], T],
    finish: Callable[[T], T] | None = None,
) -> T | Awaitable[T]:
    """`finish` of the answer of `ask()`, or of `refuse(error)` if that raises, at once or later.

    An answer that is there already costs no task: most heartbeats.
    """
    try:
        answer = ask()
    except KafkaError as error:
        refused = refuse(error)
        return refused if finish is None else finish(refused)
    if isinstance(answer, asyncio.Future) and answer.done() and answer.exception() is None:
        response: T = answer.result()
        return response if finish is None else finish(response)
    return _later(answer, refuse, finish)


async def _later(
    answer: Awaitable[T], refuse: Callable[[KafkaError], T], finish: Callable[[T], T] | None
) -> T:
    try:
        response = await answer
    except KafkaError as error:
        response = refuse(error)
    return response if finish is None else finish(response)


def client_host(context: RequestContext) -> str:
    """The peer's address in Java's form, as DescribeGroups shows it: "/127.0.0.1"."""
    return f"/{context.peer.rpartition(':')[0] or context.peer}"
