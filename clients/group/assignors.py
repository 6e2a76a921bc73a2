"""The strategies that every Kafka client has, by name, and those of one consumer.

    consumer = Consumer("flights", group="delays", partition_assignment_strategy="roundrobin")

Every member of a group lists its strategies, and the coordinator chooses one that all support. The
leader may be any Kafka client, so range and roundrobin use Kafka's formulas, as all clients do.

Not here: the base class of strategies (assignor), the sticky ones (sticky_assignor), the bytes
(consumer_protocol).

Sources: RangeAssignor.java, RoundRobinAssignor.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Final

from ...protocol.errors import InvalidConfig
from ...protocol.topic_partition import TopicPartition
from .assignor import Assignment, Assignor, subscribers_by_topic
from .consumer_protocol import Member
from .sticky_assignor import CooperativeStickyAssignor, StickyAssignor


def assign_range(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Each topic in contiguous ranges: the first m of its n subscribers get one partition more.

    Subscribers are in order: static members by instance id, then the others by member id, so that
    a static member that restarts keeps its range.
    """
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic, subscribers in subscribers_by_topic(members).items():
        each, more = divmod(partition_counts.get(topic, 0), len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + each + (1 if index < more else 0)
            assignment[member.member_id] += [
                TopicPartition(topic, partition) for partition in range(start, end)
            ]
            start = end
    return assignment


def assign_roundrobin(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """All partitions in order, assigned to the members in turn, skipping those not subscribed."""
    assignment: Assignment = {member.member_id: [] for member in members}
    subscribed = {member.member_id: frozenset(member.topics) for member in members}
    turns = cycle(sorted(members, key=lambda member: member.order))
    for topic in sorted({topic for member in members for topic in member.topics}):
        for partition in range(partition_counts.get(topic, 0)):
            member = next(one for one in turns if topic in subscribed[one.member_id])
            assignment[member.member_id].append(TopicPartition(topic, partition))
    return assignment


class RangeAssignor(Assignor):
    """Kafka's default: equal partition numbers of different topics go to the same member."""

    name = "range"

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
        return assign_range(members, partition_counts)


class RoundRobinAssignor(Assignor):
    """Strategy that is even over all topics together."""

    name = "roundrobin"

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
        return assign_roundrobin(members, partition_counts)


ASSIGNORS: Final[Mapping[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
"""The strategies, by their names in JoinGroup, which are the same in all clients."""


def make_assignors(strategy: str | Assignor | Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The strategies that one consumer supports, in order of preference.

    Raises:
        InvalidConfig: an unknown name, a name that is given twice, or no strategy.
    """
    wanted = [strategy] if isinstance(strategy, str | Assignor) else list(strategy)
    assignors = []
    for one in wanted:
        if isinstance(one, str):
            if one not in ASSIGNORS:
                raise InvalidConfig(
                    f"partition_assignment_strategy={one!r}: use one of {', '.join(ASSIGNORS)}, "
                    "or give an Assignor"
                )
            one = ASSIGNORS[one]()
        assignors.append(one)
    names = [one.name for one in assignors]
    if not names or len(set(names)) < len(names):
        raise InvalidConfig(f"partition_assignment_strategy={names}: one or more, each once")
    return tuple(assignors)
