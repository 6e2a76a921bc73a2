"""Placement of actors: from the existing Ray nodes to the actors of a cluster. Pure.

`plan` is for the nodes that exist when a cluster comes up, `plan_joined` for those that join
later. A name stands for one node forever: no other node gets it, and its port stays the same.

A log node is pinned by something that outlives a Ray node's id (that is new at each start):
    label "log-node"      where the operator gave one: `ray start --labels=log-node=n1`
    resource node:<ip>    otherwise: every Ray node offers it
The rack is the node's first label of RACK_LABELS, the operator's before the cloud's; without
either, the node's name. An actor pinned by node id could not restart once that Ray node died. Two
nodes at one address need labels to be distinguished.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ...handlers.ports.server_config import ServerConfig
from ..node import NodeConfig

LABEL = "log-node"
RACK_LABELS = ("log-rack", "ray.io/availability-zone")
PORTS_PER_NODE = 16
PIN = 0.001
"""Amount of a resource that pins an actor: enough for placement, and too little to matter."""
CORES_PER_PARTITION_ACTOR = 4
"""CPU cores per partition actor where bradbury.partition.actors is not set."""
PARTITION_DIRECTORY = "partitions-"
LOOPBACK = "127.0.0.1"

Address = tuple[str, int]
"""Host and port."""


class PlacementError(Exception):
    """Reason why no cluster can run on these Ray nodes, and the remedy, in one line."""


@dataclass(frozen=True, slots=True)
class RayNode:
    address: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]

    @property
    def name(self) -> str:
        """Name of the node in the cluster, the same whenever the node comes back."""
        return self.labels.get(LABEL) or self.address


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPlan:
    """Plan of one actor to start: its class's name, its own name, its pins, its configuration."""

    kind: str
    name: str
    label_selector: Mapping[str, str]
    resources: Mapping[str, float]
    config: NodeConfig
    siblings: tuple[ActorPlan, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Ray nodes that a cluster runs on, where they keep its data, and where they listen.

    data_dirs: data directories on every node; nodes with a label use a folder of its name in each.
    host: the address to bind; None: loopback if there is a `shared_address`, else the node's own.
    port: the broker's port, its siblings take the next ones; nodes at one address are
        PORTS_PER_NODE apart. 0: any free ports.
    node_label, node_resource: a Ray node needs these to be used.
    shared_address: the address of all Ray nodes when the cluster came up; None if they had several.
    """

    data_dirs: tuple[str, ...]
    host: str | None = None
    port: int
    node_label: Mapping[str, str] = field(default_factory=dict)
    node_resource: str | None = None
    shared_address: str | None = None

    def includes(self, node: RayNode) -> bool:
        """Whether the cluster runs on this Ray node."""
        return all(node.labels.get(key) == value for key, value in self.node_label.items()) and (
            self.node_resource is None or node.resources.get(self.node_resource, 0) > 0
        )

    def host_of(self, node: RayNode) -> str:
        """Address that the node's actors bind."""
        return self.host or (LOOPBACK if self.shared_address else node.address)

    def advertised_host_of(self, node: RayNode) -> str:
        """Address of the node that clients get in metadata responses."""
        host = self.host_of(node)
        return node.address if host in ("0.0.0.0", "::") else host  # noqa: S104 -- not bound

    def reaches(self, node: RayNode) -> bool:
        """Whether clients reach the node; False if the cluster is on another machine's loopback."""
        return self.shared_address in (None, node.address) or not is_loopback(self.host_of(node))

    @property
    def controller_pins(self) -> dict[str, object]:
        """Ray's options for the controller: any node that the cluster runs on.

        The controller holds no data, so any of these nodes will do, and Ray restarts it on another
        one when its node dies. Without these pins Ray could place it on a node outside of the
        cluster, which may leave at any moment.
        """
        pins: dict[str, object] = {}
        if self.node_label:
            pins["label_selector"] = dict(self.node_label)
        if self.node_resource:
            pins["resources"] = {self.node_resource: PIN}
        return pins


class JoinedNodes(NamedTuple):
    """Brokers to start (plans); reasons why other nodes get none, by their names (left_out)."""

    plans: list[ActorPlan]
    left_out: dict[str, str]


def shared_address(nodes: Sequence[RayNode]) -> str | None:
    """Address that all nodes share; None if they have several."""
    addresses = {node.address for node in nodes}
    return addresses.pop() if len(addresses) == 1 else None


def partition_actors(node: RayNode, server: ServerConfig) -> int:
    """Number of partition actors of a node: as configured, or by its number of cores.

    Cores are those that Ray counts: `ray start --num-cpus`.
    """
    configured = server.broker.bradbury_partition_actors
    by_cores = int(node.resources.get("CPU", 0)) // CORES_PER_PARTITION_ACTOR
    return configured or max(1, min(by_cores, PORTS_PER_NODE - 2))


def plan(
    nodes: Sequence[RayNode],
    placement: Placement,
    server: ServerConfig,
    *,
    brokers: Mapping[str, Address] | None = None,
) -> list[ActorPlan]:
    """The broker of every chosen node, with the actors it watches as its siblings.

    Args:
        nodes: the living Ray nodes.
        placement: of the cluster.
        server: settings of all nodes.
        brokers: addresses of the existing brokers, alive or not, by name.

    Raises:
        PlacementError: no node fits, or two cannot be distinguished.
    """
    chosen = [node for node in nodes if placement.includes(node)]
    if not chosen:
        asked = [f"label {key}={value}" for key, value in placement.node_label.items()]
        if placement.node_resource is not None:
            asked.append(f"resource {placement.node_resource}")
        raise PlacementError(
            f"none of the {len(nodes)} Ray nodes has the {' and the '.join(asked)} asked for; "
            "start nodes that have that"
        )
    if repeated := _repeated(chosen):
        raise PlacementError(_not_distinct(repeated))
    for node in chosen:
        if not placement.reaches(node):
            raise PlacementError(f"Ray node {node.name} gets no broker: {_not_reached(placement)}")
    plans = _plan_nodes(chosen, placement, server, brokers or {})
    for name, reason in _advertised_twice(plans, server, taken=set()).items():
        raise PlacementError(f"Ray node {name} gets no broker: {reason}")
    return plans


def plan_joined(
    nodes: Sequence[RayNode],
    placement: Placement,
    server: ServerConfig,
    *,
    started: Collection[str],
    brokers: Mapping[str, Address],
) -> JoinedNodes:
    """The brokers of those chosen nodes that have none yet. A problem of one node affects no other.

    Args:
        nodes: the living Ray nodes, without the draining ones.
        placement: of the cluster.
        server: settings of all nodes.
        started: names of the nodes whose brokers Ray knows, wherever those nodes are.
        brokers: as for `plan`.
    """
    fitting = [node for node in nodes if placement.includes(node)]
    repeated = _repeated(fitting)
    left_out = {name: _not_distinct([name]) for name in repeated}
    joined = []
    for node in fitting:
        if node.name in started or node.name in repeated:
            continue
        if placement.reaches(node):
            joined.append(node)
        else:
            left_out[node.name] = _not_reached(placement)
    plans = _plan_nodes(joined, placement, server, brokers)
    taken = {
        port - placement.port if placement.port else 0
        for name, (_, port) in brokers.items()
        if name in started
    }
    twice = _advertised_twice(plans, server, taken=taken)
    return JoinedNodes([each for each in plans if each.config.name not in twice], left_out | twice)


def with_kept(siblings: Sequence[ActorPlan], directories: Iterable[str]) -> list[ActorPlan]:
    """Add partition actors to the planned siblings, for partition directories without an actor.

    Args:
        siblings: the planned actors; there may be fewer of them than before.
        directories: the directories with partitions on the node's disks.
    """
    planned = {actor.config.directory for actor in siblings}
    model = next((actor for actor in siblings if actor.kind == "PartitionActor"), None)
    kept = []
    for directory in sorted(set(directories) - planned):
        number = directory.removeprefix(PARTITION_DIRECTORY)
        if model is None or number == directory or not number.isdecimal():
            continue
        first = int(model.config.directory.removeprefix(PARTITION_DIRECTORY))
        port = model.config.port + int(number) - first if model.config.port else 0
        config = replace(
            model.config,
            directory=directory,
            port=port,
            port_offset=model.config.port_offset + int(number) - first,
        )
        name = f"{model.name.rpartition('/')[0]}/{number}"
        kept.append(replace(model, name=name, config=config))
    return [*siblings, *kept]


def _plan_nodes(
    chosen: Sequence[RayNode],
    placement: Placement,
    server: ServerConfig,
    brokers: Mapping[str, Address],
) -> list[ActorPlan]:
    taken = set(brokers.values())
    plans = []
    for node in sorted(chosen, key=lambda node: (node.labels.get(LABEL, ""), node.address)):
        port = placement.port
        if port:
            host = placement.advertised_host_of(node)
            if node.name in brokers:
                port = brokers[node.name][1]
            while node.name not in brokers and (host, port) in taken:
                port += PORTS_PER_NODE
            taken.add((host, port))
        plans.append(_plan_node(node, placement, port, server))
    return plans


def _repeated(chosen: Sequence[RayNode]) -> list[str]:
    return sorted(
        name for name, count in Counter(node.name for node in chosen).items() if count > 1
    )


def _not_distinct(names: Sequence[str]) -> str:
    return (
        f"several Ray nodes have the name {', '.join(names)}; give each its own name: "
        f"ray start --labels={LABEL}=n1 (n2, ...)"
    )


def _not_reached(placement: Placement) -> str:
    return (
        f"the cluster listens on the loopback address of {placement.shared_address}, where no "
        "other machine reaches it; `bradbury down` and `bradbury up` let it listen on all"
    )


def _advertised_twice(
    plans: Sequence[ActorPlan], server: ServerConfig, *, taken: set[int]
) -> dict[str, str]:
    """Reasons why nodes get no broker, since clients would look for it at another one; by name.

    taken: port offsets that other nodes add to the ports of advertised.listeners.
    """
    fixed = [each for each in server.security.advertised() if each.is_fixed]
    if not fixed:
        return {}
    reason = (
        f"advertised.listeners would give it the address {fixed[0].host}:{fixed[0].port} of "
        "another node; give a host, or a port, that each node looks up: ${env:NAME}"
    )
    used, twice = set(taken), {}
    for plan in plans:
        if plan.config.port_offset in used:
            twice[plan.config.name] = reason
        used.add(plan.config.port_offset)
    return twice


def is_loopback(host: str) -> bool:
    """Whether the host is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _rack(node: RayNode) -> str | None:
    return next((node.labels[name] for name in RACK_LABELS if node.labels.get(name)), None)


def _plan_node(node: RayNode, placement: Placement, port: int, server: ServerConfig) -> ActorPlan:
    label = node.labels.get(LABEL)
    name = node.name
    directory, *more = (str(Path(each) / label) if label else each for each in placement.data_dirs)
    pinned_by_label = {LABEL: label} if label else {}
    pinned_by_resource = {} if label else {f"node:{node.address}": PIN}

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
                host=placement.host_of(node),
                advertised_host=placement.advertised_host_of(node),
                port=port + offset if port else 0,
                port_offset=(port - placement.port if port else 0) + offset,
                rack=_rack(node) or name,
                machine=name,
                ray_address=node.address,
                server=server,
            ),
        )

    siblings = [actor("GroupCoordinatorActor", "groups", "group", "groups", 1)]
    siblings += [
        actor(
            "PartitionActor", "partitions", "partition", f"{PARTITION_DIRECTORY}{index}", 2 + index
        )
        for index in range(partition_actors(node, server))
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
