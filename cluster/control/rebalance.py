"""Planning of replica moves, to spread replicas evenly over nodes or to drain a machine.

Deterministic and stable: only necessary moves are planned, and planning again for the result gives
no moves. All replicas count the same, as their sizes are not known here.

    1  replicas on machines that are drained move to the nodes with the fewest replicas
    2  while a node has two replicas more than another, one of them moves to the other
    3  while a node is first replica of two partitions more than another replica's node, they swap

Invariants: a partition keeps its number of replicas, each on its own machine, and in as
many racks as it had or more, unless only racks of its other replicas can replace a drained machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...protocol.errors import InvalidReplicationFactor, InvalidRequest
from ..metadata.metadata_image import MetadataImage, NodeImage
from ..metadata.metadata_records import DrainRecord, MetadataRecord
from ..partition.replica_placement import machine_of
from .controller_request import DONE, ConfigRules, ControllerRequest
from .reassignment import AlterPartitionReassignments, PartitionReassignment
from .topic_control import role_for


class PartitionMove(NamedTuple):
    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance(ControllerRequest[tuple[PartitionMove, ...]]):
    """Starts a rebalance; answered with the moves.

    drain: a machine that gets no new replicas and whose replicas move off it, until `restore`.
    leave: a machine that is about to be removed: only its replicas move, as far as possible. It is
        not recorded as draining, so it gets replicas again if it comes back.
    leaving: other machines that are about to be removed, and get none of these replicas. Otherwise
        machines removed together would move replicas to each other, which are copied twice.
    most: the most partitions moved at once; send the request again when they are done.

    Raises:
        InvalidRequest: no node is on that machine.
        InvalidReplicationFactor: the machines that stay are too few for some partition.
    """

    drain: str | None = None
    leave: str | None = None
    leaving: frozenset[str] = frozenset()
    restore: str | None = None
    most: int = 1_000

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], tuple[PartitionMove, ...]]:
        records: list[MetadataRecord] = []
        known = {node.machine_name for node in image.nodes.values()}
        for machine, is_draining in ((self.drain, True), (self.restore, False)):
            if machine is None:
                continue
            if machine not in known:
                raise InvalidRequest(
                    f"no node is on {machine!r}; the machines are {', '.join(sorted(known))}"
                )
            if (machine in image.draining) != is_draining:
                records.append(DrainRecord(machine=machine, is_draining=is_draining))
        image = image.apply(records, offset=image.offset + len(records))
        moves = (
            plan(image) if self.leave is None else plan_leaving(image, self.leave, self.leaving)
        )[: self.most]
        if self.restore is not None:
            moves = []  # it may get replicas again, by a later rebalance
        asked = tuple(
            (each.topic, (PartitionReassignment(each.partition, each.after),)) for each in moves
        )
        begun, answers = AlterPartitionReassignments(topics=asked).decide(image, rules)
        done = [
            move
            for move, (_, (answer,)) in zip(moves, answers, strict=True)
            if answer.outcome == DONE
        ]
        return [*records, *begun], tuple(done)


def plan(image: MetadataImage) -> list[PartitionMove]:
    """Moves to start now. Partitions that are being reassigned do not move, but count as load."""
    moves: list[PartitionMove] = []
    for role in ("partition", "group"):
        share = _Share(image, role, image.nodes_for(role))
        share.leave_drained()
        share.level_replicas()
        share.level_leaders()
        moves += share.moves()
    return moves


def plan_leaving(
    image: MetadataImage, machine: str, leaving: frozenset[str] = frozenset()
) -> list[PartitionMove]:
    """Moves of the replicas on a machine to machines that are not `leaving`, as far as possible."""
    image = replace(image, draining=image.draining | {machine})
    moves: list[PartitionMove] = []
    for role in ("partition", "group"):
        staying = [node for node in image.nodes_for(role) if node.machine_name not in leaving]
        share = _Share(image, role, staying)
        share.leave_drained(where_possible=True)
        moves += share.moves()
    return moves


def nodes_on(image: MetadataImage, machine: str) -> set[int]:
    """Ids of the nodes on a machine, in service or not."""
    return {each.node_id for each in image.nodes.values() if each.machine_name == machine}


def replicas_on(image: MetadataImage, machine: str) -> int:
    """Number of partitions with a replica on a machine."""
    nodes = nodes_on(image, machine)
    return sum(
        not nodes.isdisjoint(partition.replicas)
        for topic in image.topics.values()
        for partition in topic.partitions
    )


@dataclass(slots=True)
class _Placed:
    topic: str
    partition: int
    before: tuple[int, ...]
    replicas: list[int]


@dataclass(slots=True)
class _Share:
    """The partitions of the topics of one role, and the nodes that share them."""

    image: MetadataImage
    role: str
    nodes: Sequence[NodeImage]
    placed: list[_Placed] = field(default_factory=list)
    load: Counter[int] = field(default_factory=Counter)
    """Replicas of each node, as they will be after the moves that are under way."""
    first: Counter[int] = field(default_factory=Counter)
    """Partitions of which the node will be the first replica, by node."""

    def __post_init__(self) -> None:
        self.load.update({node.node_id: 0 for node in self.nodes})
        for name, topic in sorted(self.image.topics.items()):
            if role_for(name) != self.role:
                continue
            for index, partition in enumerate(topic.partitions):
                self.load.update(
                    node for node in partition.replicas if node not in partition.removing
                )
                self.first[partition.replicas[0]] += partition.is_reassigned
                if not partition.is_reassigned:
                    self.placed.append(
                        _Placed(name, index, partition.replicas, list(partition.replicas))
                    )

    def leave_drained(self, *, where_possible: bool = False) -> None:
        """Move replicas off draining machines. Raises InvalidReplicationFactor if that is
        impossible, unless partial moves are allowed.
        """
        for each in self.placed:
            for place, node_id in enumerate(each.replicas):
                if str(self._machine(node_id)) in self.image.draining:
                    target = self._emptiest_for(each, place)
                    if target is None:  # then into the rack of another replica
                        target = self._emptiest_for(each, place, keeps_rack=False)
                    if target is None and where_possible:
                        continue
                    if target is None:
                        count = len(each.replicas)
                        raise InvalidReplicationFactor(
                            f"{each.topic}-{each.partition} has {count} replica{'s'[count == 1 :]} "
                            "and too few machines would be left for that; add a machine first, or "
                            "let fewer nodes hold the partition (`bradbury replicas assign`)"
                        )
                    self._move(each, place, target)

    def level_replicas(self) -> None:
        progress = True
        while progress:
            progress = False
            for fullest in self._by_load(reverse=True):
                for each in self.placed:
                    if fullest not in each.replicas:
                        continue
                    place = each.replicas.index(fullest)
                    target = self._emptiest_for(each, place)
                    if target is not None and self.load[fullest] - self.load[target] >= 2:
                        self._move(each, place, target)
                        progress = True

    def level_leaders(self) -> None:
        first = self.first + Counter(each.replicas[0] for each in self.placed)
        progress = True
        while progress:
            progress = False
            for each in self.placed:
                place = min(range(len(each.replicas)), key=lambda n: first[each.replicas[n]])
                leader, other = each.replicas[0], each.replicas[place]
                if first[leader] - first[other] >= 2:
                    each.replicas[0], each.replicas[place] = other, leader
                    first[leader] -= 1
                    first[other] += 1
                    progress = True

    def moves(self) -> list[PartitionMove]:
        return [
            PartitionMove(each.topic, each.partition, each.before, tuple(each.replicas))
            for each in self.placed
            if tuple(each.replicas) != each.before
        ]

    def _by_load(self, *, reverse: bool) -> list[int]:
        ids = [node.node_id for node in self.nodes]
        return sorted(ids, key=lambda node_id: (self.load[node_id], node_id), reverse=reverse)

    def _emptiest_for(self, each: _Placed, place: int, *, keeps_rack: bool = True) -> int | None:
        """Id of the least loaded node that may take the replica at `place`; None: there is none."""
        others = [node for index, node in enumerate(each.replicas) if index != place]
        machines = {self._machine(node) for node in others}
        racks = {self._rack(node) for node in others}
        keeps_rack = keeps_rack and self._rack(each.replicas[place]) not in racks
        for node_id in self._by_load(reverse=False):
            if node_id in each.replicas or self._machine(node_id) in machines:
                continue
            if keeps_rack and self._rack(node_id) in racks:
                continue
            return node_id
        return None

    def _move(self, each: _Placed, place: int, target: int) -> None:
        self.load[each.replicas[place]] -= 1
        self.load[target] += 1
        each.replicas[place] = target

    def _machine(self, node_id: int) -> Hashable:
        node = self.image.nodes.get(node_id)
        return node_id if node is None else machine_of(node)

    def _rack(self, node_id: int) -> str | None:
        node = self.image.nodes.get(node_id)
        return None if node is None else node.rack
