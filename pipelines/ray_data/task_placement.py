"""Where the tasks of a read run: on the Ray node of a partition's leader, whose files they read.

A node is recognised by its label `log-node`, which a broker tells as its rack, or else by its
address, if it is the only Ray node there. Ray places a task elsewhere where that node is gone or
has no CPUs for it; it then asks the broker instead of reading its files.

Ray Data places all tasks of one datasource alike, so there is one for each node, and a union.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ray

from ...clients.wire.cluster_view import Broker, ClusterView
from ..ranges.partition_range import PartitionRange

LABEL: Final = "log-node"
NODE_ID: Final = "ray.io/node-id"
"""The label that Ray gives every node."""
ANYWHERE: Final = ""
PLACING: Final = frozenset(
    {
        "scheduling_strategy",
        "label_selector",
        "fallback_strategy",
        "resources",
        "ray_remote_args",
    }
)
"""With one of these among the arguments of the tasks the user places them."""

RayNodes = Sequence[Mapping[str, Any]]
"""As ray.nodes() gives them."""


def ranges_by_node(
    view: ClusterView, ranges: Sequence[PartitionRange], nodes: RayNodes
) -> dict[str, list[PartitionRange]]:
    """The ranges that are read on each Ray node, by its id; those of ANYWHERE on any."""
    alive = [node for node in nodes if node["Alive"]]
    found: defaultdict[str, list[PartitionRange]] = defaultdict(list)
    for one in ranges:
        leader = view.leader(one.topic, one.partition)
        found[ANYWHERE if leader is None else _node_of(leader, alive)].append(one)
    return dict(found)


def _node_of(broker: Broker, alive: RayNodes) -> str:
    labelled = [node for node in alive if (node.get("Labels") or {}).get(LABEL) == broker.rack]
    there = [node for node in alive if node["NodeManagerAddress"] == broker.host]
    for nodes in (labelled if broker.rack else [], there):
        if len(nodes) == 1:
            return str(nodes[0]["NodeID"])
    return ANYWHERE


def living_ray_nodes() -> RayNodes:
    """Empty where this process is in no Ray."""
    if not ray.is_initialized():
        return []
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def placed(remote_args: Mapping[str, Any], node_id: str) -> dict[str, Any]:
    """The arguments of tasks that run on that node, if it can be."""
    given = dict(remote_args)
    if node_id != ANYWHERE and not PLACING & given.keys():
        given["label_selector"] = {NODE_ID: node_id}
        given["fallback_strategy"] = [{"label_selector": {}}]
    return given
