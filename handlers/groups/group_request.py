"""What the group handlers share: whose group it is, who asks, and answers now or later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...cluster.topic_name import OFFSETS_TOPIC
from ...protocol.errors import KafkaError, NotCoordinator
from ...protocol.partitioner import partition_for_group
from ..ports.context import RequestContext
from ..ports.group_port import GroupShard

T = TypeVar("T")


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
