"""The whole replicated cluster in one thread under a virtual clock; a seed says all that happens.

    run()      faults for a while, then calm: whatever was broken is mended, and everything must
               come to rest: partitions led, ISR full, high watermark = log end, replicas the same
    swarm      what this seed's cluster is like and which faults it meets (simulated_faults)
    oracle     what must always hold (simulated_oracle)

The decisions are cluster/'s and storage/'s; the simulated parts only join them, as actors/ does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from uuid import UUID

from bradbury.cluster.broker_config import RACK_AWARE, BrokerConfig
from bradbury.cluster.metadata.metadata_image import NodeImage
from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    EpochRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterNodeRecord,
    TopicRecord,
    encode_metadata_record,
)
from bradbury.cluster.partition.replica_placement import place_replicas
from bradbury.cluster.quorum.voter import Candidate, LogEnd
from bradbury.controller.node.controller_finder import CONTROLLER
from bradbury.controller.voter_requests import AppendEntries, FormatVoter
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records
from bradbury.protocol.topic_name import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.storage.log_config import LogConfig

from ..clients.simulated_access import AccessOperator
from ..clients.simulated_administrator import Administrator
from ..clients.simulated_clients import Producer, Reader
from ..clients.simulated_committed_reader import CommittedReader
from ..clients.simulated_group_operator import GroupOperator
from ..clients.simulated_group_oracle import GroupOracle
from ..clients.simulated_log_checks import Violation
from ..clients.simulated_members import Member
from ..clients.simulated_old_producers import OldProducer
from ..clients.simulated_oracle import Oracle
from ..clients.simulated_transaction_oracle import TransactionOracle
from ..clients.simulated_transactional_clients import TransactionalProducer
from ..clients.simulated_views import Views
from .controllers.simulated_actors import actor_name
from .controllers.simulated_controller import FIRST_PORT, SimulatedController
from .controllers.simulated_drains import Drains
from .controllers.simulated_voter import ask_at_once, open_voter
from .simulated_faults import Faults
from .simulated_network import Network, VirtualClock
from .simulated_node import SimulatedNode
from .simulated_replica import SimulatedReplica
from .simulated_rest import counted_on_offline, unsettled
from .simulated_swarm import Swarm, swarm_of
from .simulated_topic_configs import (
    COORDINATED,
    OLD_TOPIC,
    TOPIC,
    TRANSACTIONAL_TOPIC,
    topic_configs,
)

TOPIC_ID = UUID(int=7)
FORMED = (EpochRecord, ClusterRecord)
"""Records that the first controller of a new cluster writes."""
OFFSETS_ID = UUID(int=8)
TRANSACTIONAL_ID = UUID(int=9)
TRANSACTIONS_ID = UUID(int=10)
OLD_ID = UUID(int=11)
TRANSACTIONAL_PARTITIONS = 2
SETTLE_MS = 20_000
FIRST_CLIENT = 100
OPERATOR = 1_000
FIRST_TRANSACTIONAL = 2_000
FIRST_COMMITTED_READER = 3_000
ACCESS_OPERATOR = 4_000
FIRST_OLD = 5_000
FETCH_BYTES = 2_000
FILE_DELETE_DELAY_MS = 300
THROTTLED_RATE = 2_000


class SimulatedCluster:
    """One seed. Raises Violation."""

    def __init__(self, seed: object, swarm: Swarm | None = None) -> None:
        self.seed = seed
        self.random = Random(f"cluster {seed}")
        self.swarm = swarm or swarm_of(seed)
        swarm = self.swarm
        self.clock = VirtualClock()
        self.network = Network(self.clock, self.random, swarm.weather())
        self.log_config = LogConfig(
            min_insync_replicas=swarm.min_insync,
            flush_messages=1 if swarm.flushes else 2**63 - 1,
            segment_bytes=swarm.segment_bytes,
            retention_ms=swarm.retention_ms,
            file_delete_delay_ms=FILE_DELETE_DELAY_MS,
            leader_replication_throttled_replicas="*" if swarm.throttled else "",
            follower_replication_throttled_replicas="*" if swarm.throttled else "",
        )
        self.broker_config = BrokerConfig(
            replica_lag_time_max_ms=swarm.lag_ms,
            replica_high_watermark_checkpoint_interval_ms=swarm.checkpoint_ms,
            log_retention_check_interval_ms=swarm.retention_check_ms,
            replica_fetch_wait_max_ms=swarm.fetch_wait_ms,
            replica_fetch_max_bytes=FETCH_BYTES,
            replica_fetch_response_max_bytes=FETCH_BYTES,
            replica_selector_class=RACK_AWARE if swarm.racks else "",
            replication_quota_window_num=2,
        )
        self.settings = replace(
            self.broker_config,
            leader_replication_throttled_rate=THROTTLED_RATE,
            follower_replication_throttled_rate=THROTTLED_RATE,
            replica_alter_log_dirs_io_max_bytes_per_second=THROTTLED_RATE,
        )
        """As they are changed while nodes run."""
        self.partitions: list[TopicPartitionPair] = [(TOPIC, n) for n in range(swarm.partitions)]
        """The partitions that are written to and read."""
        self.all_partitions = list(self.partitions)
        if swarm.has_group_coordinators:
            self.all_partitions += [(OFFSETS_TOPIC, n) for n in range(swarm.offsets_partitions)]
        self.transactional_partitions: list[TopicPartitionPair] = []
        """Those that transactions write to."""
        if swarm.transactional_ids:
            self.transactional_partitions = [
                (TRANSACTIONAL_TOPIC, n) for n in range(TRANSACTIONAL_PARTITIONS)
            ]
            self.all_partitions += self.transactional_partitions
            self.all_partitions += [
                (TRANSACTIONS_TOPIC, n) for n in range(swarm.transaction_partitions)
            ]
        if swarm.old_producers:
            self.all_partitions.append((OLD_TOPIC, 0))
        self._first_replicas = self._place(swarm)
        self.oracle = Oracle(self, self.all_partitions)
        self.group_oracle = GroupOracle(self)
        self.transaction_oracle = TransactionOracle(self)
        self._producer_ids = itertools.count(1_000)
        self.nodes = {n: SimulatedNode(self, n) for n in range(1, swarm.nodes + 1)}
        self.known_nodes = set(self.nodes)
        self.voter_ids = tuple(f"d{n}.0" for n in range(1, swarm.voters + 1))
        self.controllers: list[SimulatedController] = []
        self.current: SimulatedController | None = None
        """The newest that was active, or is about to be."""
        self.registered: SimulatedController | None = None
        """The one that Ray has under the controller's name, and starts again."""
        self.is_calm = False
        self._format()
        self.start_controller()
        for node in self.nodes.values():
            node.start()
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.members: list[Member] = []
        self.operator: GroupOperator | None = None
        self.transactional_producers: list[TransactionalProducer] = []
        self.committed_readers: list[CommittedReader] = []
        self.old_producers: list[OldProducer] = []
        self.access = AccessOperator(self, ACCESS_OPERATOR) if swarm.access else None
        self.administrator = Administrator(self)
        self.views = Views(self)
        self._start_clients()
        self.faults = Faults(self)
        self.drains = Drains(self)

    @property
    def roles(self) -> tuple[str, ...]:
        """Of every node. Where none is drained nobody asks who may have partitions of groups."""
        return ("broker", "partition", *(("group",) if self.swarm.drain_every_ms else ()))

    def rack_of(self, node_id: int) -> str | None:
        racks = self.swarm.racks
        return f"r{node_id % racks}" if racks else None

    def _place(self, swarm: Swarm) -> dict[tuple[int, ...]]:
        """By the shipped rule, where there are racks."""
        factor = swarm.replication_factor
        if not swarm.racks:
            return {
                partition_id: tuple(1 + (partition_id[1] + n) % swarm.nodes for n in range(factor))
                for partition_id in self.all_partitions
            }
        nodes = [
            NodeImage(
                node_id=node_id,
                directory_id="",
                incarnation="",
                roles=self.roles,
                host=f"host {node_id}",
                port=0,
                rack=self.rack_of(node_id),
                machine=f"m{node_id}",
                epoch=0,
            )
            for node_id in range(1, swarm.nodes + 1)
        ]
        placed = {}
        for partition_id in self.all_partitions:
            [replicas] = place_replicas(nodes, 1, factor=factor, start=partition_id[1])
            if len({self.rack_of(each) for each in replicas}) < min(factor, swarm.racks):
                raise Violation("P1", f"{replicas} are in too few racks", partition_id)
            placed[partition_id] = replicas
        return placed

    def _format(self) -> None:
        """The first entry of the metadata log, at every voter: nodes and topic are there."""
        records: list[MetadataRecord] = [
            EpochRecord(epoch=0, owner="format"),
            ClusterRecord(cluster_id="simulated", voters=self.voter_ids),
        ]
        records += [
            RegisterNodeRecord(
                node_id=node_id,
                directory_id=node.metadata_directory_id,
                metadata_directory_id=node.metadata_directory_id,
                incarnation="",
                roles=self.roles,
                host="",
                port=0,
                rack=self.rack_of(node_id),
                machine=f"m{node_id}",
                epoch=0,
            )
            for node_id, node in self.nodes.items()
        ]
        for name, topic_id in self.topics().items():
            records.append(TopicRecord(topic_id=str(topic_id), name=name))
        records += topic_configs(self.swarm, self.topics())
        records += [
            PartitionRecord(
                topic_id=str(self.topics()[name]),
                partition=index,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
            )
            for (name, index), replicas in self._first_replicas.items()
        ]
        self._first_records = records
        if self.swarm.is_new:
            return  # on_controller writes them
        values = [encode_metadata_record(record) for record in records]
        batch = encode_records([(0, None, value, ()) for value in values])
        stamp(batch, base_offset=0, leader_epoch=0)
        me = Candidate(epoch=0, owner="format")
        for node in self.nodes.values():
            if node.metadata_directory_id in self.voter_ids:
                voter, effects = open_voter(node.disk, "", node.metadata_directory_id)
                for request in (
                    FormatVoter("simulated", self.voter_ids),
                    AppendEntries(me, LogEnd(-1, 0), bytes(batch), 0),
                ):
                    ask_at_once(voter, effects, request)
                node.disk.after_death()

    def _start_clients(self) -> None:
        swarm = self.swarm
        for number in range(swarm.producers + swarm.careless_producers):
            partition_id = self.partitions[number % len(self.partitions)]
            producer_id = number if number < swarm.producers else -1
            machine = FIRST_CLIENT + number
            self.producers.append(Producer(self, machine, partition_id, producer_id))
        for number in range(swarm.readers):
            partition_id = self.partitions[number % len(self.partitions)]
            machine = FIRST_CLIENT + len(self.producers) + number
            reads_anywhere = swarm.follower_reads and number % 2 == 1
            rack = f"r{number % swarm.racks}" if swarm.racks else ""
            self.readers.append(
                Reader(self, machine, partition_id, reads_anywhere=reads_anywhere, rack=rack)
            )
        for group in range(swarm.groups):
            for number in range(swarm.group_members):
                instance_id = f"i{number}" if number < swarm.static_members else None
                self.add_member(f"g{group}", instance_id)
        if swarm.groups:
            self.operator = GroupOperator(self, OPERATOR)
        for number in range(swarm.transactional_ids):
            version = self.random.choice((1, 2))
            for twin in range(2 if swarm.twins and number == 0 else 1):
                machine = FIRST_TRANSACTIONAL + 10 * number + twin
                self.transactional_producers.append(
                    TransactionalProducer(self, machine, f"id{number}", version)
                )
        for number, partition_id in enumerate(self.transactional_partitions):
            self.committed_readers.append(
                CommittedReader(self, FIRST_COMMITTED_READER + number, partition_id)
            )
        for number in range(swarm.old_producers):
            self.old_producers.append(OldProducer(self, FIRST_OLD + number, (OLD_TOPIC, 0)))

    def add_member(self, group_id: str, instance_id: str | None) -> None:
        machine = FIRST_CLIENT + len(self.producers) + len(self.readers) + len(self.members)
        self.members.append(Member(self, machine, group_id, instance_id))

    def topics(self) -> dict[str, UUID]:
        topics = {TOPIC: TOPIC_ID}
        if self.swarm.has_group_coordinators:
            topics[OFFSETS_TOPIC] = OFFSETS_ID
        if self.swarm.transactional_ids:
            topics[TRANSACTIONAL_TOPIC] = TRANSACTIONAL_ID
            topics[TRANSACTIONS_TOPIC] = TRANSACTIONS_ID
        if self.swarm.old_producers:
            topics[OLD_TOPIC] = OLD_ID
        return topics

    def is_compacted(self, partition_id: TopicPartitionPair) -> bool:
        return self.swarm.compacts and partition_id[0] in COORDINATED

    def take_producer_id(self) -> int:
        return next(self._producer_ids)

    def replicas_of(self, partition_id: TopicPartitionPair) -> tuple[int, ...]:
        """The replicas in the newest committed metadata."""
        state = self.oracle.image.partition(*partition_id)
        return self._first_replicas[partition_id] if state is None else state.replicas

    # --- controllers, as Ray has them ------------------------------------------------------------

    def start_controller(self) -> None:
        """The one that Ray knows from now on; a former one may live on."""
        up = [node.node_id for node in self.nodes.values() if node.process.is_up]
        machine = self.random.choice(up or list(self.nodes))
        self.current = self.registered = SimulatedController(self, len(self.controllers), machine)
        self.controllers.append(self.current)
        self.oracle.note(None, f"controller {self.current.name} starts on machine {machine}")

    def _restart_controller(self, ended: SimulatedController) -> None:
        if ended is not self.registered:
            return
        delay = 20 + self.random.randrange(self.swarm.controller_restart_ms)

        def start() -> None:
            if self.registered is ended:
                self.start_controller()

        self.clock.after(delay, start)

    def kill_controller(self, controller: SimulatedController) -> None:
        if controller.process.is_up:
            self.oracle.note(None, f"controller {controller.name} dies")
            controller.kill()
            self._restart_controller(controller)

    def on_controller_end(self, controller: SimulatedController, reason: str) -> None:
        self.oracle.note(None, f"controller {controller.name} ends: {reason}")
        controller.process.end_life()
        self._restart_controller(controller)

    def on_controller(self, controller: SimulatedController) -> None:
        self.oracle.note(
            None, f"controller {controller.name} is active in epoch {controller.me.epoch}"
        )
        if self.current is None or self.current.me.epoch < controller.me.epoch:
            # Whoever has lost the former one finds this one by the voters' votes.
            self.current = controller
        if not controller.image.topics:
            first = [each for each in self._first_records if not isinstance(each, FORMED)]
            controller.write(lambda image: [] if image.topics else first)

    def is_port_closed(self, port: int) -> bool:
        """Whether the machine is there and nobody listens; not if nobody ever was registered."""
        node = self.nodes.get(port - FIRST_PORT)
        return node is not None and not node.process.is_up

    def start_standby(
        self, node: SimulatedNode, on_started: Callable[[Exception | None], None]
    ) -> SimulatedController:
        """A standby controller, in the process of a broker."""
        made = SimulatedController(
            self,
            len(self.controllers),
            node.process.machine,
            actor=actor_name(node.node_id),
            on_started=on_started,
        )
        self.controllers.append(made)
        self.oracle.note(None, f"controller {made.name} is the standby on machine {node.node_id}")
        return made

    def controller_named(self, name: str) -> SimulatedController | None:
        """The actor of this name, as Ray finds it; it may find a former one."""
        if name != CONTROLLER:
            return next(
                (each.standing for each in self.nodes.values() if actor_name(each.node_id) == name),
                None,
            )
        stale = self.swarm.stale_controller
        if stale and not self.is_calm and self.random.random() < stale:
            alive = [each for each in self.controllers[-4:] if each.process.is_up]
            if alive:
                return self.random.choice(alive)
        return self.registered

    def holder_of(self, directory_id: str) -> SimulatedNode | None:
        for node in self.nodes.values():
            if node.metadata_directory_id == directory_id:
                return node
        return None

    def voter_sets(self) -> set[tuple[str, ...]]:
        """The sets of voters that any log names: a change may be in progress."""
        return {node.voter.voters for node in self.nodes.values() if node.voter} - {()}

    @property
    def is_changing_voters(self) -> bool:
        return any(each.is_changing_voters for each in self.controllers if each.process.is_up)

    # --- moments at which faults may come --------------------------------------------------------

    def on_votes(self, controller: SimulatedController) -> None:
        self.faults.on_votes(controller)

    def on_proposal(self, replica: SimulatedReplica, isr: tuple[tuple[int, int], ...]) -> None:
        assert replica.leader is not None
        self.oracle.note(replica.partition_id, f"node {replica.node.node_id} proposes ISR {isr}")
        self.faults.on_proposal(replica, {node_id for node_id, _ in isr} - replica.leader.isr)

    def on_truncated(self, node: SimulatedNode) -> None:
        self.faults.on_truncated(node)

    def on_committed(self, replica: SimulatedReplica) -> None:
        self.faults.on_committed(replica)

    def on_fenced(self, node: SimulatedNode) -> None:
        """It was told that a newer life of it is registered: it ends, and Ray starts another."""
        self.faults.kill(node)

    # --- running ---------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it. Raises Violation."""
        self.faults.start()
        self.drains.start()
        for until in range(1_000, self.swarm.duration_ms + 1, 1_000):
            self.clock.run(until)
            self.oracle.check_all()
            self.group_oracle.check_all()
            self.views.check_all()
        self.settle()

    def settle(self) -> None:
        """No more faults: does everything come to rest, and is it all there?"""
        self.is_calm = True
        self.settings = self.broker_config
        for node in self.nodes.values():
            if node.process.is_up:
                node.steps.log_configs.on_defaults()
        self.oracle.note(None, "calm")
        self.faults.heal()
        for producer in (*self.producers, *self.transactional_producers, *self.old_producers):
            producer.is_stopped = True
        self._await(partial(counted_on_offline, self))
        self.faults.repair_directories()
        self._await(partial(unsettled, self))
        self.oracle.check_end()
        self.group_oracle.check_all()
        self.views.check_all()
        if self.access is not None:
            self.access.check_end()
        self.administrator.check_end()
        for old in self.old_producers:
            old.check_end()
        self.transaction_oracle.check_end(
            {reader.partition_id: reader.values for reader in self.committed_readers},
            {each.transactional_id: each.offset_at_rest for each in self.transactional_producers},
        )
        for ledger in self.oracle.ledgers.values():
            self.clock.note(ledger.committed_end)

    def _await(self, unsettled: Callable[[], tuple[str, TopicPartitionPair | None] | None]) -> None:
        """Raises Violation: it is still so after SETTLE_MS."""
        deadline_ms = self.clock.now_ms + SETTLE_MS
        while reason := unsettled():
            if self.clock.now_ms >= deadline_ms:
                raise Violation("liveness", *reason)
            self.clock.run(deadline_ms, is_done=lambda: not unsettled())
            # And it stays so: a node may have been about to stop.
            self.clock.run(self.clock.now_ms + self.swarm.fetch_wait_ms + 100)

    @property
    def acknowledged(self) -> int:
        return sum(ledger.acknowledged for ledger in self.oracle.ledgers.values())
