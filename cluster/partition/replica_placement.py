"""Placement of the replicas of new partitions on nodes.

Invariants: no two replicas of a partition are on one machine; as long as there are enough
racks, no two are in one rack. Leaders are assigned round-robin over all nodes, and the followers of
the partitions that one node leads over the other nodes, so that many share its load when it fails.
Source of the idea: StripedReplicaPlacer in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

from ...protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from ..metadata.metadata_image import NodeImage


def place_replicas(
    nodes: Sequence[NodeImage], count: int, *, factor: int, start: int
) -> list[tuple[int, ...]]:
    """The replicas of `count` partitions, each with its preferred leader first.

    Args:
        nodes: those in service that may hold the topic.
        factor: replicas of each partition.
        start: number, modulo their count, of the node that leads the first partition, so that
            topics with one partition are spread, too.

    Raises:
        InvalidReplicationFactor: there are fewer machines than replicas.
    """
    machines = len({machine_of(node) for node in nodes})
    if machines == 0:
        raise InvalidReplicationFactor("no node that can hold partitions is in service")
    if factor < 1:
        raise InvalidReplicationFactor(f"replication factor {factor} is not at least 1")
    if factor > machines:
        raise InvalidReplicationFactor(
            f"replication factor {factor} needs as many machines, and {machines} "
            f"{'is' if machines == 1 else 'are'} in service"
        )
    ring = _spread(nodes)
    return [_place_one(ring, number, factor) for number in range(start, start + count)]


def check_replicas(ids: Sequence[int], nodes: Mapping[int, NodeImage], where: str) -> None:
    """Raises InvalidReplicaAssignment unless a partition may have its replicas on these nodes."""
    if not ids or len(set(ids)) != len(ids):
        raise InvalidReplicaAssignment(f"{where} would have none or repeated replicas")
    unknown = sorted(set(ids) - nodes.keys())
    if unknown:
        named = ", ".join(map(str, unknown))
        raise InvalidReplicaAssignment(
            f"{where}: {named}: there is no such node that can hold partitions"
        )
    machines = {machine_of(nodes[node_id]) for node_id in ids}
    if len(machines) < len(ids):
        raise InvalidReplicaAssignment(f"{where}: several of the nodes {ids} are on one machine")


def machine_of(node: NodeImage) -> Hashable:
    """Failure unit of a node: nodes of one machine fail together."""
    return node.machine_name


def _place_one(ring: Sequence[NodeImage], number: int, factor: int) -> tuple[int, ...]:
    size = len(ring)
    lead = number % size
    # In the second round the followers begin one node further, in the third two, ...
    shift = number // size % max(1, size - 1)
    others = [ring[(lead + 1 + (shift + index) % (size - 1)) % size] for index in range(size - 1)]
    chosen = [ring[lead]]
    for is_new in (_in_new_rack, _on_new_machine):
        for node in others:
            if len(chosen) < factor and is_new(node, chosen):
                chosen.append(node)
    return tuple(node.node_id for node in chosen)


def _on_new_machine(node: NodeImage, chosen: Collection[NodeImage]) -> bool:
    return all(machine_of(node) != machine_of(other) for other in chosen)


def _in_new_rack(node: NodeImage, chosen: Collection[NodeImage]) -> bool:
    return _on_new_machine(node, chosen) and all(node.rack != other.rack for other in chosen)


def _spread(nodes: Sequence[NodeImage]) -> list[NodeImage]:
    """Nodes in an order that alternates racks, and machines within a rack."""
    racks = _grouped(nodes, lambda node: node.rack)
    return _dealt([_dealt(_grouped(rack, machine_of)) for rack in racks])


def _grouped(
    nodes: Sequence[NodeImage], key: Callable[[NodeImage], Hashable]
) -> list[list[NodeImage]]:
    groups: dict[Hashable, list[NodeImage]] = {}
    for node in nodes:
        groups.setdefault(key(node), []).append(node)
    return list(groups.values())


def _dealt(groups: Sequence[Sequence[NodeImage]]) -> list[NodeImage]:
    return [
        group[index]
        for index in range(max((len(group) for group in groups), default=0))
        for group in groups
        if index < len(group)
    ]
