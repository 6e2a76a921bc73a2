"""Which actors run where: from the Ray nodes there are to the actors of a cluster. Pure.

A log node is pinned by something that outlives a Ray node's id (that is new at each start):
    label "log-node"      where the operator gave one: `ray start --labels=log-node=n1`
    resource node:<ip>    otherwise: every Ray node offers it
The rack is what RACK_LABELS say, the operator's before the cloud's; without either, the node.
Pinned by node id, an actor would be dead forever once its node died. Two nodes at one address
need labels to be distinguished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...handlers.ports.server_config import ServerConfig
from ..node import NodeConfig

LABEL = "log-node"
RACK_LABELS = ("log-rack", "ray.io/availability-zone")
PORTS_PER_NODE = 16


class PlacementError(Exception):
    """One line: why no cluster can run on these Ray nodes, and the remedy."""


@dataclass(frozen=True, slots=True)
class RayNode:
    address: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPlan:
    """One actor to start: its class's name, its own name, what pins it, its configuration."""

    kind: str
    name: str
    label_selector: Mapping[str, str]
    resources: Mapping[str, float]
    config: NodeConfig
    siblings: tuple[ActorPlan, ...] = field(default=())


def plan(
    nodes: Sequence[RayNode],
    *,
    data_dir: str,
    more_data_dirs: Sequence[str] = (),
    host: str | None,
    port: int,
    server: ServerConfig,
    node_label: Mapping[str, str] | None = None,
    node_resource: str | None = None,
) -> list[ActorPlan]:
    """The broker of every chosen node, with the actors it watches as its siblings.

    Args:
        nodes: the living Ray nodes.
        data_dir: on every node; nodes with a label use a folder of its name in it.
        more_data_dirs: further log directories.
        host: the address to bind; None: loopback if all nodes share one address, else each its own.
        port: of the broker, its siblings take the next ones; nodes at one address are
            PORTS_PER_NODE apart. 0: any free ports.
        server: settings of all nodes.
        node_label, node_resource: take only nodes that have them.

    Raises:
        PlacementError: no node fits, or two cannot be distinguished.
    """
    chosen = [node for node in nodes if _fits(node, node_label, node_resource)]
    if not chosen:
        raise PlacementError(
            f"none of the {len(nodes)} Ray nodes has the label {dict(node_label or {})} and "
            f"resource {node_resource!r} asked for; start nodes that have them"
        )
    chosen.sort(key=lambda node: (node.labels.get(LABEL, ""), node.address))
    _check_distinct(chosen)
    single_address = len({node.address for node in nodes}) == 1
    plans = []
    at_address: dict[str, int] = {}
    for node in chosen:
        index = at_address.get(node.address, 0)
        at_address[node.address] = index + 1
        plans.append(
            _plan_node(
                node,
                data_dirs=(data_dir, *more_data_dirs),
                host=host or ("127.0.0.1" if single_address else node.address),
                advertised_host=_advertised(host, node, single_address=single_address),
                port=port + index * PORTS_PER_NODE if port else 0,
                server=server,
            )
        )
    return plans


def _fits(node: RayNode, label: Mapping[str, str] | None, resource: str | None) -> bool:
    return all(node.labels.get(key) == value for key, value in (label or {}).items()) and (
        resource is None or node.resources.get(resource, 0) > 0
    )


def _check_distinct(chosen: Sequence[RayNode]) -> None:
    identities = [node.labels.get(LABEL) or node.address for node in chosen]
    repeated = sorted({name for name in identities if identities.count(name) > 1})
    if repeated:
        raise PlacementError(
            f"several Ray nodes are called {', '.join(repeated)}; give each its own name: "
            f"ray start --labels={LABEL}=n1 (n2, ...)"
        )


def _advertised(host: str | None, node: RayNode, *, single_address: bool) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 -- compared, not bound
        return node.address
    return host or ("127.0.0.1" if single_address else node.address)


def _rack(node: RayNode) -> str | None:
    return next((node.labels[name] for name in RACK_LABELS if node.labels.get(name)), None)


def _plan_node(
    node: RayNode,
    *,
    data_dirs: tuple[str, ...],
    host: str,
    advertised_host: str,
    port: int,
    server: ServerConfig,
) -> ActorPlan:
    label = node.labels.get(LABEL)
    name = label or node.address
    directory, *more = (str(Path(each) / label) if label else each for each in data_dirs)
    pinned_by_label = {LABEL: label} if label else {}
    pinned_by_resource = {} if label else {f"node:{node.address}": 0.001}

    def actor(kind: str, prefix: str, role: str, folder: str, offset: int) -> ActorPlan:
        return ActorPlan(
            kind=kind,
            name=f"{prefix}/{name}"
            if kind != "PartitionActor"
            else f"{prefix}/{name}/{offset - 2}",
            label_selector=pinned_by_label,
            resources=pinned_by_resource,
            config=NodeConfig(
                name=name,
                roles=(role,),
                data_dir=directory,
                more_data_dirs=tuple(more),
                directory=folder,
                host=host,
                advertised_host=advertised_host,
                port=port + offset if port else 0,
                rack=_rack(node) or name,
                machine=name,
                ray_address=node.address,
                server=server,
            ),
        )

    siblings = [actor("GroupCoordinatorActor", "groups", "group", "groups", 1)]
    siblings += [
        actor("PartitionActor", "partitions", "partition", f"partitions-{index}", 2 + index)
        for index in range(server.broker.bradbury_partition_actors)
    ]
    head = actor("BrokerActor", "broker", "broker", "metadata", 0)
    return ActorPlan(
        kind=head.kind,
        name=head.name,
        label_selector=head.label_selector,
        resources=head.resources,
        config=head.config,
        siblings=tuple(siblings),
    )
