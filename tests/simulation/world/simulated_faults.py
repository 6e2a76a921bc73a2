"""What one seed's cluster is like, and what happens to it: a swarm of settings and faults.

Each seed draws its own few kinds of faults and how often they come, as faults of one kind are often
found only where another kind is absent. Some are triggered by what the cluster does: the death of a
leader right after it has proposed an ISR finds what blind chance does not.

Data is lost only as far as the settings promise to survive it (min.insync.replicas - 1 replicas of
a partition at a time), but for the seeds that are `reckless`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bradbury.cluster.control.partition_control import PREFERRED, ElectLeaders
from bradbury.cluster.control.reassignment import AlterPartitionReassignments, PartitionReassignment
from bradbury.cluster.control.topic_control import (
    CreateTopics,
    DeleteTopics,
    TopicKey,
    TopicToCreate,
)
from bradbury.controller.controller_calls import (
    AllocateProducerIds,
    Change,
    DescribeQuorum,
    ReportUnreachableBroker,
)
from bradbury.protocol.topic_partition import TopicPartitionPair

from .directories.simulated_directories import PATHS

if TYPE_CHECKING:
    from bradbury.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
    from bradbury.transactions.transaction_records import TransactionRecord

    from ..clients.simulated_members import Member
    from .controllers.simulated_controller import SimulatedController
    from .simulated_cluster import SimulatedCluster
    from .simulated_network import Answer, Process
    from .simulated_node import SimulatedNode
    from .simulated_replica import SimulatedReplica

SIDE_TOPIC = "side"
KNOWN_AFTER_MS = 1_500
MOST_TWINS = 4
LATE_MARKERS_MS = 300
SLOW_VERIFICATION_MS = 280
"""Less than a leader waits."""
MOST_REPLICAS = 4


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
        """Everything is mended but directories that failed, and everybody is started again."""
        self._is_over = True
        self._cluster.network.heal()
        for controller in self._cluster.controllers:
            controller.process.resume()
        for node in self._cluster.nodes.values():
            node.disk.full.clear()
            if node.process.is_up:
                node.process.resume()
            else:
                node.start()
        for producer in self._cluster.transactional_producers:
            producer.process.resume()
            producer.start()
        for member in self._cluster.members:
            member.process.resume()
            self._start_or_forget(member)

    def repair_directories(self) -> None:
        for node in self._cluster.nodes.values():
            if not node.process.is_up or node.disk.failing or not node.logs.are_online:
                node.kill()
                node.start()

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
            "kill producer": self._kill_producer,
            "pause producer": self._pause_producer,
            "disk error": lambda: self._fail_directory(self._node()),
            "full disk": lambda: self._fill(self._node()),
            "topic": self._change_topic,
            "damage": lambda: self._damage(self._node()),
            "rot": lambda: self._rot(self._node()),
            "move": lambda: self._move(self._node()),
            "delete records": self._delete_records,
            "settings": self._cluster.administrator.act,
        }
        strikes[kind]()
        self._later(self._strike)

    def _kill_producer(self) -> None:
        """It dies in the middle of whatever it does, and its successor takes over its id."""
        producer = self._random.choice(self._cluster.transactional_producers)
        if producer.process.is_up:
            producer.kill()
            self._cluster.clock.after(self._outage(), producer.start)

    def _pause_producer(self) -> None:
        producer = self._random.choice(self._cluster.transactional_producers)
        producer.process.pause()
        self._cluster.clock.after(self._outage(), producer.process.resume)

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

    def _fail_directory(self, node: SimulatedNode) -> None:
        """Of what was written last nothing is known any more; the node may live on without it."""
        cluster = self._cluster
        if not node.process.is_up or node.disk.failing:
            return
        if not (self._swarm.is_reckless or cluster.oracle.may_lose(node.node_id)):
            return
        path = self._random.choice(PATHS[: self._swarm.directories])
        cluster.oracle.note(None, f"{path} of node {node.node_id} fails")
        cluster.oracle.on_loss(node.node_id)
        node.disk.failing.add(path)
        life = node.process.life

        def end() -> None:
            # In the calm it lives on until others have taken its place, see simulated_rest.
            if node.process.life == life and not self._is_over:
                self.kill(node)

        cluster.clock.after(3 * self._outage(), end)

    def _damage(self, node: SimulatedNode) -> None:
        """The process dies, and what it has written last is not what is read again."""
        cluster = self._cluster
        if not node.process.is_up or node.disk.failing:
            return
        if not (self._swarm.is_reckless or cluster.oracle.may_lose(node.node_id)):
            return
        self.kill(node)
        path = self._random.choice(PATHS[: self._swarm.directories])
        if node.disk.damage(self._random, path):
            cluster.oracle.note(None, f"{path} of node {node.node_id} is damaged")
            cluster.oracle.on_loss(node.node_id)

    def _rot(self, node: SimulatedNode) -> None:
        """What is safe on a disk is not what was written there any more, whoever lives or not."""
        cluster = self._cluster
        if not (self._swarm.is_reckless or cluster.oracle.may_lose(node.node_id)):
            return
        path = self._random.choice(PATHS[: self._swarm.directories])
        if node.disk.rot(self._random, path):
            cluster.oracle.note(None, f"a batch on {path} of node {node.node_id} rots")
            cluster.oracle.on_loss(node.node_id)

    def _fill(self, node: SimulatedNode) -> None:
        """A disk has no room for a while. What it could not do without it refuses for good."""
        cluster = self._cluster
        if not (self._swarm.is_reckless or cluster.oracle.may_lose(node.node_id)):
            return
        path = self._random.choice(PATHS[: self._swarm.directories])
        cluster.oracle.note(None, f"{path} of node {node.node_id} is full")
        cluster.oracle.on_loss(node.node_id)
        node.disk.full.add(path)

        def make_room() -> None:
            node.disk.full.clear()  # of the disk that it has then

        cluster.clock.after(self._outage(), make_room)

    def _change_topic(self) -> None:
        """One that nobody uses is deleted, or made again under its name."""
        controller = self._cluster.current
        if controller is None or not controller.process.is_up:
            return
        request: Any = DeleteTopics(topics=(TopicKey(name=SIDE_TOPIC),))
        if SIDE_TOPIC not in self._cluster.oracle.image.topics:
            topic_id = UUID(int=self._random.getrandbits(120))
            new = TopicToCreate(
                name=SIDE_TOPIC, topic_id=topic_id, partitions=2, replication_factor=3
            )
            request = CreateTopics(topics=(new,))
        controller.change(request, lambda answer: None)

    def _move(self, node: SimulatedNode) -> None:
        """A replica is to be in the other directory of its node; or where it is."""
        if node.process.is_up and node.replicas:
            partition_id = self._random.choice(self._cluster.all_partitions)
            path = self._random.choice((*PATHS, *PATHS, *PATHS, "/nowhere"))
            self._cluster.oracle.note(
                partition_id, f"node {node.node_id} is asked to move it to {path}"
            )
            node.logs.move(partition_id, path)

    def _delete_records(self) -> None:
        cluster = self._cluster
        partition_id = self._random.choice(cluster.partitions)
        offset = cluster.oracle.ledgers[partition_id].committed_before(
            cluster.clock.now_ms - self._swarm.deleted_after_ms
        )
        state = cluster.oracle.image.partition(*partition_id)
        node = None if state is None else cluster.nodes.get(state.leader)
        if node is not None and node.process.is_up and offset:
            offset = self._random.randint(1, offset)
            cluster.oracle.on_deletion(partition_id, offset)
            # What a leader knows of a follower that has just begun to live it knows of its last life.
            lives = {
                node_id: each.process.life
                for node_id, each in cluster.nodes.items()
                if each.process.born_ms < cluster.clock.now_ms - KNOWN_AFTER_MS
            }

            def answered(result: Any) -> None:
                if isinstance(result, int):
                    cluster.oracle.on_deleted(node, partition_id, result, lives)

            node.process.after(1, lambda: node.logs.delete_records(partition_id, offset, answered))

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

    def _separate(
        self, some: set[int], others: set[int], *, one_way: bool, mend_ms: int | None = None
    ) -> None:
        network = self._cluster.network
        how = "to" if one_way else "and"
        named = sorted(each for each in some if each in self._cluster.nodes)
        rest = sorted(each for each in others if each in self._cluster.nodes)
        self._cluster.oracle.note(None, f"the network is cut: {named} {how} {rest}")
        network.cut(some, others, one_way=one_way)

        def mend() -> None:
            network.mend(some, others)
            self._cluster.oracle.note(None, f"the network is mended: {named} and {rest}")

        self._cluster.clock.after(2 * self._outage() if mend_ms is None else mend_ms, mend)

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
        others = (AllocateProducerIds(), ReportUnreachableBroker(suspected), DescribeQuorum())
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
        self, partition_id: TopicPartitionPair, replicas: tuple[int, ...] | None
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

    def _on_adding(self, partition_id: TopicPartitionPair) -> None:
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

    def on_decision(self, node: SimulatedNode, records: tuple[TransactionRecord, ...]) -> None:
        """The coordinator's node, or one that leads what the transaction has written to, fails. Or
        the coordinator is cut off from other nodes, not from clients, just before it appends.
        """
        swarm, random, cluster = self._swarm, self._random, self._cluster
        if self._is_over or not swarm.on_decision or random.random() >= swarm.on_decision:
            return
        if random.random() < 0.3:
            others = set(cluster.nodes) - {node.node_id}
            until_another_leads = 2 * swarm.session_ms
            self._separate({node.node_id}, others, one_way=False, mend_ms=until_another_leads)
            return
        concerned = [node.node_id, node.node_id]
        for record in records:
            for partition_id in sorted(record.metadata.partitions if record.metadata else ()):
                state = cluster.oracle.image.partition(*partition_id)
                if state is not None and state.leader in cluster.nodes:
                    concerned.append(state.leader)
        what = random.choice((self.kill, self.kill, self._pause))
        self._soon(partial(what, cluster.nodes[random.choice(concerned)]), 25)

    def strayed(
        self, target: Process, request: WriteTxnMarkersRequest, write: Callable[[Answer], None]
    ) -> Callable[[Answer], None]:
        """`write`, or what becomes of it: it does not arrive, or is done again much later.

        Up to transaction.version 1 nothing tells a late marker from one of the next transaction,
        which is why there is KIP-890: those are only lost.
        """
        swarm, random = self._swarm, self._random
        if self._is_over or not swarm.stray_markers or random.random() >= swarm.stray_markers:
            return write
        is_known_late = all(marker.transaction_version >= 2 for marker in request.markers)
        if not is_known_late or random.random() < 0.5:
            return lambda answer: None
        target.after(random.randrange(LATE_MARKERS_MS), lambda: write(lambda result: None))
        return write

    def slowed(self, source: Process, answer: Answer) -> Answer:
        """`answer`, or one that is given a while later, and still counts."""
        swarm, random = self._swarm, self._random
        if self._is_over or not swarm.slow_verification:
            return answer
        if random.random() >= swarm.slow_verification:
            return answer
        delay_ms = random.randrange(SLOW_VERIFICATION_MS)
        return lambda result: source.after(delay_ms, lambda: answer(result))

    def on_committed(self, replica: SimulatedReplica) -> None:
        if not self._is_over and self._random.random() < self._swarm.on_committed:
            self._soon(partial(self.kill, replica.node), 5)
