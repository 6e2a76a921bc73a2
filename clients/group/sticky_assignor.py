"""The sticky strategies: balanced assignments that move as few partitions as possible.

Invariants, for any members:
    Each partition of a subscribed topic has one owner.
    No partition could move to a subscriber that has at least two partitions fewer than its owner.
    If all subscribe to the same topics, no balanced assignment moves fewer partitions.

A partition that two members claim belongs to the one with the higher generation: the other was
absent when it was reassigned. If both claim it in the same generation neither keeps it.

`sticky` is eager: a member sends its previous assignment as user data, in the layout of Java's. For
`cooperative-sticky` the subscription has the owned partitions, and those that stay are not revoked.

Cost: about n log n in partitions where all subscribe to the same; otherwise each move compares the
members of one topic.

Sources: KIP-54, KIP-429, KIP-792; AbstractStickyAssignor.java for the rules, not the algorithm.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace

from ...protocol.topic_partition import TopicPartition
from .assignor import Assignment, Assignor, subscribers_by_topic
from .consumer_protocol import (
    NO_GENERATION,
    Member,
    decode_cooperative_data,
    decode_sticky_data,
    encode_cooperative_data,
    encode_sticky_data,
)

Claims = Mapping[str, tuple[Iterable[TopicPartition], int]]
"""The partitions that each member reports as its previous ones, with their generation, by member
id.
"""


class StickyAssignor(Assignor):
    """Eager strategy: all members revoke their partitions, and are assigned most of them again."""

    name = "sticky"

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] = ()
        self._generation = NO_GENERATION

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
        claims = {member.member_id: decode_sticky_data(member.user_data) for member in members}
        return assign_sticky(members, partition_counts, claims)

    def user_data(self, owned: Sequence[TopicPartition]) -> bytes | None:
        if self._generation == NO_GENERATION:
            return None
        return encode_sticky_data(self._partitions, self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self._partitions, self._generation = tuple(partitions), generation


class CooperativeStickyAssignor(Assignor):
    """Cooperative: a first rebalance revokes moving partitions, a second assigns them (KIP-429)."""

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
        claims = {
            member.member_id: (
                member.owned,
                max(member.generation, decode_cooperative_data(member.user_data)),
            )
            for member in members
        }
        return assign_sticky(members, partition_counts, claims)

    def user_data(self, owned: Sequence[TopicPartition]) -> bytes | None:
        return encode_cooperative_data(self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self._generation = generation


def assign_sticky(
    members: Sequence[Member], partition_counts: Mapping[str, int], claims: Claims
) -> Assignment:
    """Assign partitions by the invariants in the module's docstring."""
    subscribers = subscribers_by_topic(members)
    kept = _settle(claims, subscribers, partition_counts)
    ordered = [one.member_id for one in sorted(members, key=lambda member: member.order)]
    if len({frozenset(member.topics) for member in members}) == 1:
        return _assign_alike(ordered, subscribers, partition_counts, kept)
    return _assign_unlike(ordered, subscribers, partition_counts, kept)


def _settle(
    claims: Claims, subscribers: Mapping[str, list[Member]], partition_counts: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """The previous owner of each partition: by the latest claim that is possible and unique."""
    allowed = {topic: {one.member_id for one in ones} for topic, ones in subscribers.items()}
    latest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (partitions, generation) in claims.items():
        for one in set(partitions):
            if not 0 <= one.partition < partition_counts.get(one.topic, 0):
                continue
            if member_id not in allowed.get(one.topic, ()):
                continue
            before = latest.get(one)
            if before is None or generation > before[0]:
                latest[one] = (generation, member_id)
            elif generation == before[0]:
                latest[one] = (generation, None)
    return {one: owner for one, (_, owner) in latest.items() if owner is not None}


def _assign_alike(
    members: list[str],
    subscribers: Mapping[str, list[Member]],
    partition_counts: Mapping[str, int],
    kept: Mapping[TopicPartition, str],
) -> Assignment:
    """Assign if all subscribe to the same: each member gets n // m, and n % m of them one more."""
    everything = [
        TopicPartition(topic, partition)
        for topic in subscribers
        for partition in range(partition_counts.get(topic, 0))
    ]
    each, more = divmod(len(everything), len(members))
    had: Assignment = {member_id: [] for member_id in members}
    for one in everything:
        if one in kept:
            had[kept[one]].append(one)
    # The n % m extra partitions go first to members that would otherwise lose a partition.
    in_need = [member_id for member_id in members if len(had[member_id]) > each]
    larger = set((in_need + [one for one in members if one not in set(in_need)])[:more])
    assignment: Assignment = {}
    taken: set[TopicPartition] = set()
    for member_id in members:
        assignment[member_id] = had[member_id][: each + (member_id in larger)]
        taken.update(assignment[member_id])
    places = deque(members)
    for one in everything:
        if one in taken:
            continue
        # Round-robin, so that the partitions of a topic are spread.
        while len(assignment[places[0]]) >= each + (places[0] in larger):
            places.popleft()
        assignment[places[0]].append(one)
        places.rotate(-1)
    return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}


def _assign_unlike(
    members: list[str],
    subscribers: Mapping[str, list[Member]],
    partition_counts: Mapping[str, int],
    kept: Mapping[TopicPartition, str],
) -> Assignment:
    """Start from the previous owners, assign free partitions to the least loaded members, then
    balance.

    Each balancing step moves a partition to a member with at least two fewer, which lowers the sum
    of squares of the loads, so it terminates.
    """
    topics: dict[str, dict[str, list[TopicPartition]]] = {
        topic: {one.member_id: [] for one in ones} for topic, ones in subscribers.items()
    }
    load = dict.fromkeys(members, 0)
    for one, owner in kept.items():
        topics[one.topic][owner].append(one)
        load[owner] += 1
    place = {member_id: number for number, member_id in enumerate(members)}
    for topic, shares in sorted(topics.items(), key=lambda item: (len(item[1]), item[0])):
        least = [(load[member_id], place[member_id], member_id) for member_id in shares]
        heapify(least)
        for partition in range(partition_counts.get(topic, 0)):
            one = TopicPartition(topic, partition)
            if one not in kept:
                count, number, member_id = least[0]
                shares[member_id].append(one)
                load[member_id] = count + 1
                heapreplace(least, (count + 1, number, member_id))
    while sum(_even_out(shares, load, kept) for shares in topics.values()):
        pass
    assignment: dict[str, list[TopicPartition]] = defaultdict(list)
    for shares in topics.values():
        for member_id, partitions in shares.items():
            assignment[member_id] += partitions
    return {member_id: sorted(assignment[member_id]) for member_id in members}


def _even_out(
    shares: dict[str, list[TopicPartition]],
    load: dict[str, int],
    kept: Mapping[TopicPartition, str],
) -> bool:
    """Move partitions of one topic from the most to the least loaded member; whether any moved."""
    moved = False
    while True:
        giver = max((one for one in shares if shares[one]), key=lambda one: load[one], default="")
        taker = min(shares, key=lambda one: load[one])
        if not giver or load[giver] - load[taker] < 2:
            return moved
        # Partitions new to the giver move first, best to their previous owner; those it kept, last.
        chosen = min(
            shares[giver],
            key=lambda one: (kept.get(one) != taker, kept.get(one) == giver, one),
        )
        shares[giver].remove(chosen)
        shares[taker].append(chosen)
        load[giver] -= 1
        load[taker] += 1
        moved = True
