"""Placement of a read's tasks on the Ray node of a partition's leader, whose files they read.

A node is identified by its label `log-node`, which a broker reports as its rack, or else by its
address, if it is the only Ray node there. Ray places a task elsewhere if that node is gone or has
no CPUs for it; the task then fetches from the broker instead of reading its files.

Ray Data places all tasks of one datasource alike, so there is a datasource for each node, and a
union of them.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ray
from ray._common.ray_option_utils import task_options

from ...clients.security.security_options import check_names
from ...clients.wire.cluster_view import Broker, ClusterView
from ..ranges.partition_range import PartitionRange

LABEL: Final = "log-node"
NODE_ID: Final = "ray.io/node-id"
"""Label that Ray gives every node."""
ANYWHERE: Final = ""
PLACING: Final = frozenset(
    {
        "label_selector",
        "fallback_strategy",
        "resources",
        "ray_remote_args",
    }
)
"""Task arguments by which users place tasks themselves."""

READ_KAFKA: Final = {
    "timeout_ms": "use poll_timeout_ms, the time without a record",
    "kafka_auth_config": "use security_protocol, ssl_* and sasl_*",
    "consumer_config": "it has no counterpart",
}
"""Arguments of ray.data.read_kafka that have another name, or none."""

RayNodes = Sequence[Mapping[str, Any]]
"""Ray nodes, as returned by ray.nodes()."""


def ranges_by_node(
    view: ClusterView, ranges: Sequence[PartitionRange], nodes: RayNodes
) -> dict[str, list[PartitionRange]]:
    """Ranges to read on each Ray node, by node id; those of ANYWHERE can be read on any."""
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
    """Ray nodes that are alive; empty if this process is not connected to Ray."""
    if not ray.is_initialized():
        return []
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def check_remote_args(
    remote_args: Mapping[str, Any], of: Callable[..., object], *, continuous: bool
) -> None:
    """Check the names of the further arguments of `of`: those of connections, of
    `read_datasource`, which would ignore any other one, and in a continuous Dataset of all tasks.

    Raises TypeError: one of another name.
    """
    from ray.data import read_datasource

    for name in remote_args.keys() & READ_KAFKA.keys():
        raise TypeError(f"{name} is an argument of read_kafka; {READ_KAFKA[name]}")
    known = inspect.signature(read_datasource).parameters.keys() - {"datasource", "read_args"}
    check_names(remote_args, of, known | task_options.keys() if continuous else known)


def placed(remote_args: Mapping[str, Any], node_id: str) -> dict[str, Any]:
    """Task arguments that prefer this node, unless users place tasks themselves."""
    given = dict(remote_args)
    if node_id != ANYWHERE and not PLACING & given.keys():
        given["label_selector"] = {NODE_ID: node_id}
        given["fallback_strategy"] = [{"label_selector": {}}]
    return given
