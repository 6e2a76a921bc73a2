"""What the controller decides, without a cluster: random requests, right and wrong, on one image.

Shipped are `cluster/control` with all it goes by, the records, the image and its snapshots. A seed
is some hundred requests: nodes come, go, lose their disks and are taken out; topics, partitions,
settings, leaders, reassignments, drained machines, ACLs, users, tokens, quotas. Replicas
follow at once or never: the ISR is what a request says. See control_checks for what must hold.

At the end all nodes come back, moves are carried through, and the cluster has to come to rest.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bradbury.cluster.control.alter_partition import AlterPartition, Insync, ProposedIsr
from bradbury.cluster.control.automatic_rebalance import AutomaticRebalance, empty_nodes
from bradbury.cluster.control.controller_request import ControllerRequest
from bradbury.cluster.control.controller_state import (
    NodeRegistration,
    Sessions,
    allocate_producer_ids,
    check_session,
    fence_node,
    register_node,
)
from bradbury.cluster.control.metered_request import MeteredRequest
from bradbury.cluster.control.partition_control import (
    PeriodicLeaderElection,
    may_be_unclean,
    min_insync_replicas,
)
from bradbury.cluster.control.rebalance import Rebalance
from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage, TopicImage
from bradbury.cluster.metadata.metadata_records import ClusterRecord, EpochRecord, MetadataRecord
from bradbury.controller.active.metered_changes import MeteredChanges
from bradbury.controller.controller_calls import MeteredChange
from bradbury.controller.controller_effects import Instant
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.errors import KafkaError

from ..world.controllers.simulated_controller import rules
from .control_checks import check_answer, check_image, check_repeat, check_step, same_by_replay
from .control_requests import RequestMaker

MACHINES = 6
SESSION_MS = 9_000
RATE = 1_000_000
REST_STEPS = 60


class ControlWorld:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"control {seed}")
        self.image = MetadataImage()
        self.history: list[MetadataRecord] = []
        self.now_ms = 1_000_000
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._numbers = 0
        self._racks = self.random.choice([0, 2, 3])
        self._rules = rules()
        config = ServerConfig.from_kafka(
            {
                "bradbury.auto.rebalance": "true",
                "bradbury.auto.rebalance.bytes.per.second": str(RATE),
            }
        ).broker
        self._automatic = AutomaticRebalance(config)
        self._metered = MeteredChanges(config)
        self._sessions = Sessions(SESSION_MS)
        self._requests = RequestMaker(self)
        self._lost: set[str] = set()
        self._apply(
            [ClusterRecord(cluster_id="a cluster", voters=("v1",)), EpochRecord(epoch=1, owner="")]
        )

    # --- what happens ----------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(self.random.randint(1, 4)):
            self._register()
        happenings = (
            [self._request] * 16
            + [self._register, self._wait] * 2
            + [self._fence, self._alter_partition, self._balance, self._check_voters]
        )
        for step in range(steps):
            self.random.choice(happenings)()
            if step % 50 == 0:
                same_by_replay(self.history, self.image)
        self._come_to_rest()
        same_by_replay(self.history, self.image)

    def new_name(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}{self._numbers}"

    def ask(self, request: ControllerRequest[Any]) -> Any:
        """The answer, or the error; carried out."""
        kind, before = type(request).__name__, self.image
        is_metered = isinstance(request, MeteredRequest) and self.random.random() < 0.3
        try:
            if is_metered:
                records, answer = self._decide_metered(request)
            else:
                records, answer = request.decide(before, self._rules)
                again = request.decide(before, self._rules)
                assert again == (records, answer), "it depends on more than the image"
        except KafkaError as error:
            self.refused[type(error).__name__] += 1
            return error
        assert self.image is before
        self.done[kind] += bool(records)
        self.refused.update(check_answer(answer, records))
        self._apply(records, joins=isinstance(request, AlterPartition))
        if not is_metered:  # what was throttled may be carried out the next time
            check_repeat(request, self.image, self._rules)
        return answer

    def _decide_metered(self, request: Any) -> tuple[Sequence[MetadataRecord], Any]:
        """For a client, who may have a quota of partitions that come and go."""
        call: MeteredChange[Any] = MeteredChange(
            request=request,
            timeout_ms=1_000,
            user=self.random.choice(["User:alice", "User:bob"]),
            client_id=self.random.choice(["loader", "other"]),
            is_strict=self.random.random() < 0.7,
        )
        now = Instant(self.now_ms, self.now_ms)
        records, finish = self._metered.decide(call, self.image, self._rules, now)
        answer = finish(now)
        assert answer.throttle_ms >= 0
        return records, answer.answer

    def _apply(self, records: Sequence[MetadataRecord], *, joins: bool = False) -> None:
        before = self.image
        after = before.apply(records, offset=before.offset + len(records))
        self.history += records
        self.image = after
        if before.nodes:
            check_step(before, after, joins=joins)
        check_image(after)

    def _request(self) -> None:
        self.ask(self._requests.make())

    def _wait(self) -> None:
        """Time passes; whoever was silent for a session is fenced."""
        self.now_ms += self.random.choice([100, 1_000, 5_000, 12_000])
        for node_id in self.image.nodes:
            if self.random.random() < 0.9:
                self._sessions.on_contact(node_id, now_ms=self.now_ms)
        for node_id in self._sessions.expired(self.image, now_ms=self.now_ms):
            assert not self.image.nodes[node_id].fenced
            self._set_fenced(node_id, is_fenced=True)
        first, records = allocate_producer_ids(self.image)
        self._apply(records)
        assert self.image.next_producer_id > first

    def _register(self) -> None:
        """A node starts: a new one, one that was here, or one whose disk was replaced."""
        name = f"n{self.random.randrange(MACHINES)}"
        if self.random.random() < 0.1:
            self._lost.add(name)
        directory = f"{name}'s disk"
        if name in self._lost:
            directory = f"{name}'s {self.random.choice(['second', 'third'])} disk"
        known = [node for node in self.image.nodes.values() if node.name == name]
        registration = NodeRegistration(
            directory_id=directory,
            incarnation=self.new_name("incarnation"),
            roles=("broker", "partition", *(["group"] if name < "n4" else [])),
            host="localhost",
            port=9092,
            rack=f"rack{int(name[1:]) % self._racks}" if self._racks else None,
            machine=name,
            name=name,
            metadata_directory_id=f"{directory} for metadata",
            node_id=self.random.choice([None, None, None, 40]),
            cluster_id=self.random.choice([None, "a cluster", "a cluster", "another"]),
            has_all_data=self.random.random() < 0.7,
        )
        try:
            node_id, records = register_node(
                self.image, registration, min_insync=self._min_insync, is_unclean=self._is_unclean
            )
        except KafkaError as error:
            self.refused[type(error).__name__] += 1
            return
        assert registration.cluster_id != "another"
        assert all(node.node_id == node_id for node in known), "a node of this name is another one"
        self._apply(records)
        self._sessions.on_contact(node_id, now_ms=self.now_ms)
        node = check_session(self.image, node_id, registration.incarnation)
        assert not node.fenced and node.directory_id == directory
        if not registration.has_all_data or (known and known[0].directory_id != directory):
            self._check_lost(node_id)

    def _check_lost(self, node_id: int) -> None:
        """Its replicas count nowhere, but where it leads for want of anybody else, and says so."""
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                assert node_id not in partition.elr, partition
                if node_id in partition.isr:
                    assert partition.isr == (node_id,) and partition.recovering, partition

    def _fence(self) -> None:
        if self.image.nodes:
            node_id = self.random.choice(list(self.image.nodes))
            self._set_fenced(node_id, is_fenced=self.random.random() < 0.4)

    def _set_fenced(self, node_id: int, *, is_fenced: bool) -> None:
        self._apply(
            fence_node(
                self.image,
                node_id,
                fenced=is_fenced,
                min_insync=self._min_insync,
                is_unclean=self._is_unclean,
            )
        )
        assert self.image.nodes[node_id].fenced == is_fenced

    def _alter_partition(self) -> None:
        """The leader of a partition asks for an ISR, rightly or not."""
        request = self._requests.alter_partition()
        if request is not None:
            self.ask(request)

    def _balance(self) -> None:
        self.now_ms += 1_500
        if (step := self._automatic.next_step(self.image, self.now_ms)) is not None:
            self._automatic.on_done(self.ask(step), None)

    def _check_voters(self) -> None:
        """Who votes is decided, and written now and then."""
        records = self._requests.change_voters(self.refused)
        if records:
            self._apply(records)

    def _min_insync(self, topic: TopicImage) -> int:
        return min_insync_replicas(self.image, self._rules, topic)

    def _is_unclean(self, topic: TopicImage) -> bool:
        return may_be_unclean(self.image, self._rules, topic)

    # --- the end ---------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """Everybody is there, whoever follows is in sync, and nothing moves any more."""
        self.ask(self._requests.lift_rates())
        for node_id in self.image.nodes:
            self._set_fenced(node_id, is_fenced=False)
        for machine in sorted(self.image.draining):
            self.ask(Rebalance(restore=machine))
        for _ in range(REST_STEPS):
            self.now_ms += 20_000
            before = self.image.offset
            for _ in range(2):
                self._balance()
            self._bring_in_sync()
            self.ask(PeriodicLeaderElection(is_balancing=True))
            if self.image.offset == before:
                break
        else:
            raise AssertionError("the automatic rebalance does not come to its end")
        rates = self.image.broker_configs.get("", {})
        assert str(RATE) not in rates.values(), "the rate of moves is still set"
        for _ in range(REST_STEPS):
            moves = self.ask(Rebalance())
            if isinstance(moves, KafkaError) or not moves:
                break
            self._bring_in_sync()
        else:
            raise AssertionError("the second look at a level cluster moves something")
        self._check_level(moves)

    def _bring_in_sync(self) -> None:
        """Leaders ask for all their replicas, and leaderless partitions get a leader if one may."""
        self.ask(PeriodicLeaderElection(is_balancing=False))
        for topic in list(self.image.topics.values()):
            for index, partition in enumerate(topic.partitions):
                if partition.leader == NO_LEADER:
                    continue
                leader = self.image.nodes[partition.leader]
                isr = tuple(
                    Insync(each, self.image.nodes[each].epoch) for each in partition.replicas
                )
                proposed = ProposedIsr(
                    topic.topic_id, index, partition.leader_epoch, partition.partition_epoch, isr
                )
                (answer,) = self.ask(
                    AlterPartition(
                        node_id=leader.node_id, broker_epoch=leader.epoch, partitions=(proposed,)
                    )
                )
                assert answer.partition is not None, answer
                assert not answer.partition.is_reassigned, "all are in sync, and it goes on"
                assert not answer.partition.elr and not answer.partition.recovering

    def _check_level(self, moves: Any) -> None:
        """Where each node may hold everything, none has two replicas more than another."""
        nodes = self.image.nodes_for("partition")
        if isinstance(moves, KafkaError) or self._racks or len(nodes) < len(self.image.nodes):
            return
        load = Counter({node.node_id: 0 for node in nodes})
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                if topic.is_internal or partition.leader == NO_LEADER:
                    return
                load.update(partition.replicas)
        assert max(load.values()) - min(load.values()) <= 1, load
        if sum(load.values()) >= len(nodes):
            assert not empty_nodes(self.image)
