"""What one seed's cluster is like, and what happens to it: a swarm of settings and faults.

Each seed draws its own few kinds of faults and how often they come, as faults of one kind are often
found only where another kind is absent. Some are triggered by what the cluster does: the death of a
leader right after it has proposed an ISR finds what blind chance does not.

Data is lost only as far as the settings promise to survive it (min.insync.replicas - 1 replicas of
a partition at a time), but for the seeds that are `reckless`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Self

from bradbury.cluster.control.partition_control import PREFERRED, ElectLeaders
from bradbury.cluster.control.reassignment import AlterPartitionReassignments, PartitionReassignment
from bradbury.controller.controller_calls import (
    AllocateProducerIds,
    Change,
    DescribeQuorum,
    Suspect,
)
from bradbury.protocol.topic_partition import TopicPartition

from .simulated_network import Weather

if TYPE_CHECKING:
    from ..clients.simulated_members import Member
    from .simulated_cluster import SimulatedCluster
    from .simulated_controller import SimulatedController
    from .simulated_node import SimulatedNode
    from .simulated_replica import SimulatedReplica

KINDS = (
    "kill",
    "power",
    "disk",
    "stop",
    "pause",
    "cut",
    "group",
    "controller",
    "rival",
    "pause controller",
    "elect",
)
MEMBER_KINDS = ("kill member", "pause member", "leave", "twin")
MOST_TWINS = 4
MOST_REPLICAS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """Times are in ms, what has no unit is a probability."""

    nodes: int = 3
    voters: int = 3
    partitions: int = 1
    replication_factor: int = 3
    min_insync: int = 2
    flushes: bool = False
    fsync_ms: int = 3
    segment_bytes: int = 1 << 20
    producers: int = 3
    careless_producers: int = 0
    readers: int = 2
    in_flight: int = 3
    pace_ms: int = 40
    session_ms: int = 600
    lag_ms: int = 400
    fetch_wait_ms: int = 150
    checkpoint_ms: int = 700
    controller_restart_ms: int = 200
    duration_ms: int = 6_000
    kinds: tuple[str, ...] = ()
    fault_every_ms: int = 400
    outage_ms: int = 600
    is_reckless: bool = False
    stale_controller: float = 0.0
    loss: float = 0.0
    repeat: float = 0.0
    delay_ms: int = 3
    late: float = 0.0
    ordered: bool = True
    on_expand: float = 0.0
    on_truncated: float = 0.0
    on_votes: float = 0.0
    on_committed: float = 0.0
    lose_alter_answer: float = 0.0
    voter_changes: float = 0.0
    snapshots: float = 0.0
    is_new: bool = False
    """The cluster's first controller has to form it."""
    on_adding: float = 0.0
    follower_reads: bool = False
    groups: int = 0
    group_members: int = 3
    static_members: int = 0
    offsets_partitions: int = 1
    log_errors: float = 0.0
    """How often a coordinator's log refuses an append, says it failed, or cannot be read."""

    @classmethod
    def draw(cls, random: Random) -> Self:
        """Everything that a seed decides."""
        nodes = random.choice((3, 3, 3, 4, 5))
        min_insync = random.choice((1, 2, 2, 2))
        kinds = tuple(kind for kind in KINDS if random.random() < 0.45) or ("kill",)

        def sometimes(chance: float, most: float) -> float:
            return random.random() * most if random.random() < chance else 0.0

        swarm = cls(
            nodes=nodes,
            voters=random.choice((3, 3, 5)) if nodes == 5 else 3,
            partitions=random.choice((1, 1, 2, 3)),
            min_insync=min_insync,
            flushes=random.random() < 0.25,
            fsync_ms=random.choice((1, 3, 10)),
            segment_bytes=random.choice((1 << 20, 1 << 20, 1_500)),
            producers=random.choice((3, 3, 4)),
            careless_producers=random.choice((0, 0, 1)),
            readers=2,
            in_flight=random.choice((1, 3, 5)),
            pace_ms=random.choice((25, 40, 60)),
            session_ms=random.choice((300, 600)),
            lag_ms=random.choice((200, 400)),
            fetch_wait_ms=random.choice((60, 150)),
            checkpoint_ms=random.choice((300, 900)),
            duration_ms=random.choice((4_000, 8_000)),
            kinds=kinds,
            fault_every_ms=random.choice((150, 300, 600)),
            outage_ms=random.choice((100, 500, 1_200)),
            is_reckless=random.random() < 0.08,
            stale_controller=sometimes(0.3, 0.4),
            loss=sometimes(0.3, 0.15),
            repeat=sometimes(0.3, 0.05),
            delay_ms=random.choice((2, 4, 15)),
            late=sometimes(0.3, 0.03),
            ordered=random.random() < 0.7,
            on_expand=sometimes(0.5, 0.5),
            on_truncated=sometimes(0.3, 0.3),
            on_votes=sometimes(0.3, 0.5),
            on_committed=sometimes(0.3, 0.01),
            lose_alter_answer=sometimes(0.3, 0.3),
        )
        groups = random.choice((0, 0, 0, 0, 1, 2))
        reassigns = random.random() < 0.35
        if groups:  # which cost as much as what is left out for them
            swarm = replace(
                swarm, partitions=1, producers=2, careless_producers=0, duration_ms=4_000
            )
        return replace(
            swarm,
            follower_reads=random.random() < 0.3,
            on_adding=sometimes(0.5, 0.5) if reassigns else 0.0,
            groups=groups,
            group_members=random.choice((2, 3)),
            static_members=random.choice((0, 1, 2)),
            offsets_partitions=random.choice((1, 2)),
            kinds=swarm.kinds
            + (("reassign",) if reassigns else ())
            + tuple(kind for kind in MEMBER_KINDS if groups and random.random() < 0.5),
            is_new=random.random() < 0.1,
            snapshots=sometimes(0.5, 0.05),
            voter_changes=sometimes(0.3, 0.05),
            log_errors=sometimes(0.4, 0.1) if groups else 0.0,
        )

    def weather(self) -> Weather:
        return Weather(
            loss=self.loss,
            repeat=self.repeat,
            delay_ms=self.delay_ms,
            late=self.late,
            ordered=self.ordered,
        )


class Faults:
    """Carries them out, until `heal`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._swarm = cluster.swarm
        self._random = cluster.random
        self._is_over = False
        self.count = 0

    def start(self) -> None:
        random = self._random
        if self._swarm.lose_alter_answer:
            self._cluster.network.drop_answer = lambda source, target, what: (
                what == "alter" and random.random() < self._swarm.lose_alter_answer
            )
        if self._swarm.kinds:
            self._later(self._strike)

    def heal(self) -> None:
        """Everything is mended, and everybody is started again."""
        self._is_over = True
        self._cluster.network.heal()
        for controller in self._cluster.controllers:
            controller.process.resume()
        for node in self._cluster.nodes.values():
            if node.process.is_up:
                node.process.resume()
            else:
                node.start()
        for member in self._cluster.members:
            member.process.resume()
            self._start_or_forget(member)

    def _start_or_forget(self, member: Member) -> None:
        """Some do not come back: the others must have their partitions in the end."""
        others = [
            each
            for each in self._cluster.members
            if each.group_id == member.group_id and each is not member and not each.is_over
        ]
        if not member.process.is_up and others and self._random.random() < 0.5:
            member.is_over = True
        member.start()

    def _later(self, event: Callable[[], None]) -> None:
        delay = 1 + int(self._random.expovariate(1 / self._swarm.fault_every_ms))
        self._cluster.clock.after(delay, event)

    def _outage(self) -> int:
        return 10 + int(self._random.expovariate(1 / self._swarm.outage_ms))

    def _strike(self) -> None:
        if self._is_over:
            return
        kind = self._random.choice(self._swarm.kinds)
        self.count += 1
        strikes: dict[str, Callable[[], None]] = {
            "kill": lambda: self.kill(self._node()),
            "power": lambda: self.lose_power(self._node()),
            "disk": lambda: self.replace_disk(self._node()),
            "stop": lambda: self._stop(self._node()),
            "pause": lambda: self._pause(self._node()),
            "cut": self._cut,
            "group": self._part,
            "controller": self._kill_controller,
            "rival": self._cluster.start_controller,
            "pause controller": self._pause_controller,
            "elect": self._elect,
            "reassign": self._reassign,
            "kill member": lambda: self._end(self._member(), "dies"),
            "pause member": lambda: self._pause_member(self._member()),
            "leave": lambda: self._end(self._member(), "leaves"),
            "twin": self._add_twin,
        }
        strikes[kind]()
        self._later(self._strike)

    # --- nodes -----------------------------------------------------------------------------------

    def _node(self) -> SimulatedNode:
        """Leaders more often than others."""
        cluster = self._cluster
        if self._random.random() < 0.5:
            state = cluster.oracle.image.partition(*self._random.choice(cluster.all_partitions))
            if state is not None and state.leader in cluster.nodes:
                return cluster.nodes[state.leader]
        return self._random.choice(list(cluster.nodes.values()))

    def _start_later(self, node: SimulatedNode) -> None:
        life = node.process.life

        def start() -> None:
            if not node.process.is_up and node.process.life == life:
                node.start()

        self._cluster.clock.after(self._outage(), start)

    def kill(self, node: SimulatedNode) -> None:
        if node.process.is_up:
            self._cluster.oracle.note(None, f"node {node.node_id}'s process dies")
            node.kill()
            self._start_later(node)

    def lose_power(self, node: SimulatedNode) -> None:
        cluster = self._cluster
        if not (self._swarm.is_reckless or cluster.oracle.may_lose(node.node_id)):
            return
        cluster.oracle.note(None, f"node {node.node_id}'s machine loses power")
        cluster.oracle.on_loss(node.node_id)
        node.lose_power()
        for controller in cluster.controllers:
            if controller.process.machine == node.node_id:
                cluster.kill_controller(controller)
        self._start_later(node)

    def replace_disk(self, node: SimulatedNode) -> None:
        cluster = self._cluster
        if not (self._swarm.is_reckless or cluster.oracle.may_lose(node.node_id)):
            return
        if cluster.is_changing_voters:
            return  # those who stay are counted upon
        for voters in cluster.voter_sets():
            left = [each for each in voters if cluster.holder_of(each) is not None]
            if node.metadata_directory_id in left and len(left) - 1 <= len(voters) // 2:
                return  # the metadata would be lost
        cluster.oracle.note(None, f"node {node.node_id} gets a new disk")
        cluster.oracle.on_loss(node.node_id)
        node.replace_disk()
        self._start_later(node)

    def _stop(self, node: SimulatedNode) -> None:
        if node.process.is_up:
            self._cluster.oracle.note(None, f"node {node.node_id} is stopped")
            node.stop(lambda: self._start_later(node))

    def _pause(self, node: SimulatedNode) -> None:
        self._cluster.oracle.note(None, f"node {node.node_id} hangs")
        node.process.pause()
        life = node.process.life
        self._cluster.clock.after(
            self._outage(), lambda: node.process.resume() if node.process.life == life else None
        )

    # --- the network -----------------------------------------------------------------------------

    def _cut(self) -> None:
        a, b = self._random.sample(list(self._cluster.nodes), 2)
        self._separate({a}, {b}, one_way=self._random.random() < 0.5)

    def _part(self) -> None:
        """A group of nodes, with some of the clients, from all the others."""
        random, cluster = self._random, self._cluster
        ids = list(cluster.nodes)
        group = set(random.sample(ids, random.randint(1, len(ids) // 2)))
        if random.random() < 0.5:
            group = {self._node().node_id}
        others = set(ids) - group
        for client in (*cluster.producers, *cluster.readers, *cluster.members):
            (group if random.random() < 0.3 else others).add(client.process.machine)
        self._separate(group, others, one_way=random.random() < 0.2)

    def _separate(self, some: set[int], others: set[int], *, one_way: bool) -> None:
        network = self._cluster.network
        how = "to" if one_way else "and"
        named = sorted(each for each in some if each in self._cluster.nodes)
        rest = sorted(each for each in others if each in self._cluster.nodes)
        self._cluster.oracle.note(None, f"the network is cut: {named} {how} {rest}")
        network.cut(some, others, one_way=one_way)

        def mend() -> None:
            network.mend(some, others)
            self._cluster.oracle.note(None, f"the network is mended: {named} and {rest}")

        self._cluster.clock.after(2 * self._outage(), mend)

    # --- controllers -----------------------------------------------------------------------------

    def _kill_controller(self) -> None:
        if self._cluster.current is not None:
            self._cluster.kill_controller(self._cluster.current)

    def _pause_controller(self) -> None:
        controller = self._cluster.current
        if controller is None or not controller.process.is_up:
            return
        self._cluster.oracle.note(None, f"controller {controller.name} hangs")
        controller.process.pause()
        if self._random.random() < 0.7:
            self._cluster.clock.after(
                self._random.randrange(200),
                lambda: (
                    self._cluster.start_controller()
                    if self._cluster.current is controller and not self._is_over
                    else None
                ),
            )
        self._cluster.clock.after(self._outage(), controller.process.resume)

    def _elect(self) -> None:
        """As an administrator or a balancer does: everybody's first replica is to lead. Or another
        call: producers get their ids, a node is said not to be reached.
        """
        controller = self._cluster.current
        if controller is None or not controller.process.is_up:
            return
        elect = Change(ElectLeaders(election_type=PREFERRED, partitions=None), timeout_ms=50)
        suspected = self._random.choice(list(self._cluster.nodes))
        others = (AllocateProducerIds(), Suspect(suspected), DescribeQuorum())
        call = elect if self._random.random() < 0.5 else self._random.choice(others)
        controller.ask(call, lambda answer: self._cluster.oracle.on_called(call, answer))

    def _reassign(self) -> None:
        """More, fewer, other replicas, in another order; or the one under way is given up."""
        cluster, random = self._cluster, self._random
        partition_id = random.choice(cluster.all_partitions)
        state = cluster.oracle.image.partition(*partition_id)
        if state is not None and state.is_reassigned and random.random() < 0.4:
            self._ask_for_replicas(partition_id, None)
            return
        # With fewer than min.insync.replicas of them the settings would promise less.
        most = min(len(cluster.nodes), MOST_REPLICAS)
        size = random.randint(min(max(2, self._swarm.min_insync), most), most)
        self._ask_for_replicas(partition_id, tuple(random.sample(list(cluster.nodes), size)))

    def _ask_for_replicas(
        self, partition_id: TopicPartition, replicas: tuple[int, ...] | None
    ) -> None:
        controller = self._cluster.current
        if controller is None or not controller.process.is_up:
            return
        topic, index = partition_id
        self._cluster.oracle.note(
            partition_id, f"asked for replicas: {replicas or 'the reassignment is given up'}"
        )
        request = AlterPartitionReassignments(
            topics=((topic, (PartitionReassignment(index, replicas),)),)
        )
        controller.change(request, lambda answer: None)

    # --- members of groups -----------------------------------------------------------------------

    def _member(self) -> Member:
        return self._random.choice(self._cluster.members)

    def _end(self, member: Member, how: str) -> None:
        if not member.process.is_up:
            return
        self._note_member(member, how)
        outage = self._outage()
        if how == "leaves":
            member.leave(lambda: self._cluster.clock.after(outage, member.start))
        else:
            member.kill()
            self._cluster.clock.after(outage, member.start)

    def _pause_member(self, member: Member) -> None:
        self._note_member(member, "hangs")
        member.process.pause()
        life = member.process.life
        self._cluster.clock.after(
            2 * self._outage(),
            lambda: member.process.resume() if member.process.life == life else None,
        )

    def _add_twin(self) -> None:
        """A second process with the instance id of a static member."""
        members = self._cluster.members
        static = [each for each in members if each.instance_id is not None and not each.is_over]
        swarm = self._swarm
        if static and len(members) < swarm.groups * swarm.group_members + MOST_TWINS:
            one = self._random.choice(static)
            self._note_member(one, "gets a twin")
            self._cluster.add_member(one.group_id, one.instance_id)

    def _note_member(self, member: Member, what: str) -> None:
        name = f"{member.process.name} of {member.group_id}"
        self._cluster.oracle.note(member.partition_id, f"{name} {what}")

    # --- faults that something triggers ----------------------------------------------------------

    def _soon(self, event: Callable[[], None], most_ms: int = 40) -> None:
        self._cluster.clock.after(
            self._random.randrange(most_ms), lambda: None if self._is_over else event()
        )

    def on_proposal(self, replica: SimulatedReplica, joining: set[int]) -> None:
        if self._is_over or not joining:
            return
        state = self._cluster.oracle.image.partition(*replica.partition_id)
        if state is not None and joining & {*state.adding}:
            self._on_adding(replica.partition_id)
        if self._random.random() >= self._swarm.on_expand:
            return
        what = self._random.choice((self.kill, self.kill, self._pause, self.lose_power))
        node_id = self._random.choice((replica.node.node_id, *sorted(joining)))
        self._soon(partial(what, self._cluster.nodes[node_id]))

    def _on_adding(self, partition_id: TopicPartition) -> None:
        """A replica is about to come: the moment to give it up, or to want another one."""
        if self._random.random() < self._swarm.on_adding:
            self._soon(partial(self._ask_for_replicas, partition_id, None), 20)

    def on_truncated(self, node: SimulatedNode) -> None:
        if not self._is_over and self._random.random() < self._swarm.on_truncated:
            self._soon(partial(self._random.choice((self.kill, self.lose_power)), node))

    def on_votes(self, controller: SimulatedController) -> None:
        if self._is_over or self._random.random() >= self._swarm.on_votes:
            return
        voters = [node for node in self._cluster.nodes.values() if node.process.is_up]
        if voters and self._random.random() < 0.7:
            self._soon(partial(self.kill, self._random.choice(voters)), 10)
        if self._random.random() < 0.5:
            self._soon(self._cluster.start_controller, 20)
        if self._random.random() < 0.3:
            self._soon(partial(self._cluster.kill_controller, controller), 30)

    def on_committed(self, replica: SimulatedReplica) -> None:
        if not self._is_over and self._random.random() < self._swarm.on_committed:
            self._soon(partial(self.kill, replica.node), 5)
