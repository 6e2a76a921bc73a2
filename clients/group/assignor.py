"""Base class of assignment strategies, and helpers of the group's leader.

    class Alternate(Assignor):
        name = "alternate"
        def assign(self, members, partition_counts): ...

    consumer = Consumer("flights", group="delays", partition_assignment_strategy=[Alternate()])

Source: ConsumerPartitionAssignor.java, CooperativeStickyAssignor.adjustAssignment.

Not here: the strategies that every client has (assignors, sticky_assignor).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from ...protocol.topic_partition import TopicPartition
from .consumer_protocol import Member

Assignment = dict[str, list[TopicPartition]]
"""Partitions by member id. A member that is omitted gets none."""


class Assignor(ABC):
    """One strategy. Each consumer has its own instance, which may keep state.

    All methods are called on the consumer's background thread, one call at a time. An exception is
    raised in the poll that takes part in the rebalance.
    """

    name: ClassVar[str]
    """Name of the strategy, by which members agree on it."""

    cooperative: ClassVar[bool] = False
    """Whether its members keep their partitions during a rebalance (KIP-429).

    `assign` then returns the final assignment. The leader withholds partitions that another member
    still owns; they are assigned in the rebalance that follows their revocation.
    """

    @abstractmethod
    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
        """The assignment: each partition of a topic to one member that subscribes to it.

        Args:
            members: all members of the group, in no particular order.
            partition_counts: of every topic that any member subscribes to; 0 if it does not exist.
        """

    def user_data(self, owned: Sequence[TopicPartition]) -> bytes | None:
        """User data that this member sends to the leader's assignor, as `Member.user_data`.

        Args:
            owned: partitions the member keeps during the rebalance; none unless `cooperative`.
        """
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Called when this member is assigned `partitions`, whichever member leads."""
        return  # most strategies keep no state


def subscribers_by_topic(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Topics in order, and the subscribers of each in order. No topic is without subscribers."""
    found: dict[str, list[Member]] = {}
    for member in sorted(members, key=lambda member: member.order):
        for topic in dict.fromkeys(member.topics):
            found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))


def withhold_owned(
    assignment: Mapping[str, list[TopicPartition]], members: Iterable[Member]
) -> Assignment:
    """Return `assignment` without partitions that another member still owns.

    Withheld partitions have no owner at first: when the old owner has revoked them it rejoins,
    which begins the rebalance that assigns them.
    """
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            owners.setdefault(partition, set()).add(member.member_id)
    return {
        member_id: [one for one in partitions if owners.get(one, {member_id}) == {member_id}]
        for member_id, partitions in assignment.items()
    }
