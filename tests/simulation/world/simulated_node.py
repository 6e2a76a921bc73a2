"""A node of the simulation: its disk, its process, its replicas; composed as actors/node is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bradbury.actors.controller.controller_handle import ControllerHandle
from bradbury.actors.coordinators.transaction_partitions import HostedTransactionPartitions
from bradbury.actors.replication.controller_request_sender import ControllerRequestSender
from bradbury.actors.replication.hosted_partitions import HostedPartitions
from bradbury.cluster.control.alter_partition import AlterPartition, ProposedIsr
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.controller.controller_effects import (
    ApplyMetadata,
    AskController,
    AskStandby,
    EndStandby,
    Fenced,
    Instant,
    ProbePort,
    StartStandby,
    StoreIdentity,
    VoteGranted,
)
from bradbury.controller.node.node_lifecycle import BrokerIncarnation, NodeLifecycle
from bradbury.controller.standby_controller import StandbyController, StandbyTimes, StandbyView
from bradbury.handlers.ports.fetch_session import FetchSessionCache
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.errors import KafkaError, StaleBrokerEpoch
from bradbury.protocol.messages.fetch import FetchRequest
from bradbury.protocol.topic_name import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.replication.effects import SendControllerRequest
from bradbury.replication.manager.broker_metadata_publisher import (
    MetadataUsers,
    publish_metadata,
)
from bradbury.replication.manager.node_close import close_node
from bradbury.replication.manager.node_join import join_node
from bradbury.replication.manager.replica_manager import ReplicaManager
from bradbury.replication.partition.partition_effects import (
    LeaderElected,
    ReplicaClosed,
    ReplicaOpened,
)
from bradbury.replication.partition.replica import Replica
from bradbury.replication.partition.replication_throttle import ReplicationThrottle
from bradbury.replication.procedure import ProcedureSteps
from bradbury.steps.replies import Refuse, Reply
from bradbury.storage.directories.directory_identity import DirectoryIdentity, write_identity

from .controllers.simulated_actors import TIMES, SimulatedActors, actor_name
from .controllers.simulated_controller import FIRST_PORT, SimulatedController
from .controllers.simulated_voter import SimulatedVoter
from .coordinators.simulated_groups import CONFIG as GROUPS_CONFIG, SimulatedGroups
from .coordinators.simulated_transactions import (
    CONFIG as TRANSACTIONS_CONFIG,
    SimulatedProducerIds,
    SimulatedTransactions,
)
from .directories.simulated_directories import PATHS, SimulatedDirectories
from .simulated_conversions import SimulatedConversions
from .simulated_disk import SimulatedDisk
from .simulated_driver import Ended, SimulatedDriver
from .simulated_fetcher import SimulatedConnections
from .simulated_network import Process
from .simulated_replica import SimulatedReplica
from .simulated_requests import SimulatedPeers
from .virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from .simulated_cluster import SimulatedCluster

RETRY_MS = 30
NOBODY_LOOKS: Any = SimpleNamespace(on_follower=lambda node_id, peer: None)
"""Whether the connection of a follower closes."""
STANDBY_TIMES = StandbyTimes(look_ms=50, again_ms=200, start_ms=2_000)
OF_STANDBY = (ProbePort, StartStandby, AskStandby, EndStandby)


class SimulatedNode:
    """One machine with one disk. What is set in `start` lives as long as the process."""

    def __init__(self, cluster: SimulatedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.clock = cluster.clock
        self.node_id = node_id
        self.process = Process(cluster.clock, node_id, f"n{node_id}")
        self.disk = SimulatedDisk()
        self.metadata_directory_id = f"d{node_id}.0"
        self.voter: SimulatedVoter | None = None
        """The process's voter; that of the last process while there is none."""
        self.disks_used = 1
        self.ends: dict[TopicPartitionPair, int] = {}
        """The ends of the logs, when the process died."""
        self.deleted: dict[TopicPartitionPair, int] = {}
        """Log starts that this node, as the leader, has said to be on its disk."""
        self.claimed: dict[TopicPartitionPair, int] = {}
        """Where flush.messages is 1: up to where each log was said to be safe."""
        self.memory: set[str] = set()
        """Ids of directories whose page cache is there: the files in memory of intact_token."""
        self.incarnation = ""
        self.is_registered = False
        self.is_stopping = False
        self.image = MetadataImage()
        self.access = self.image
        """The image by which the node lets users in."""
        self.replicas: dict[TopicPartitionPair, SimulatedReplica] = {}
        self.logs: SimulatedDirectories
        self.config = cluster.broker_config
        self.server_config = ServerConfig(
            broker=self.config, groups=GROUPS_CONFIG, transactions=TRANSACTIONS_CONFIG
        )
        self.log_defaults = cluster.log_config
        self.peers = SimulatedPeers(self)
        self.producer_ids = SimulatedProducerIds(cluster)
        self._begin_steps()
        self._begin_coordinators()

    def _begin_steps(self) -> None:
        cluster = self.cluster
        self.standing: SimulatedController | None = None
        self.driver = driver = SimulatedDriver(
            self.process, fsync_ms=cluster.swarm.fsync_ms, on_work=self._on_work
        )
        self.fetch_sessions = FetchSessionCache(
            1_000, 120_000, random_id=lambda: 1 + cluster.random.randrange(2**31 - 1)
        )
        SimulatedConnections(self)
        SimulatedConversions(self)
        self.steps = steps = ReplicaManager(self, driver.effects)
        self.throttle = ReplicationThrottle(
            steps.by_partition,
            cluster.broker_config,
            node_id=lambda: self.node_id,
            image=lambda: steps.image,
            settings=lambda: cluster.settings,
            monotonic_ms=self.now_ms,
        )
        shipped: Any = driver
        self.partitions = HostedPartitions(
            steps.serving,
            shipped,
            throttle=self.throttle,
            unreachable=NOBODY_LOOKS,
            host_replica=lambda step: self.replica_of(step).hosted,
        )
        driver.before(ReplicaOpened, self._on_replica_opened)
        driver.before(ReplicaClosed, self._on_replica_closed)
        driver.before(LeaderElected, self._on_leader_elected)
        self.steps.truncate = self._truncate
        self._proposed: dict[TopicPartitionPair, ProposedIsr] = {}

    def _begin_coordinators(self) -> None:
        """On a new loop: nothing of a former life is resumed."""
        if self.process.loop is not None:
            self.loop.end()
        self.loop = self.process.loop = VirtualLoop(
            self.process, fail_in_thread=self._fail_in_thread
        )
        asking: Any = self
        self.controller = ControllerHandle(SimulatedActors(self), lambda: self.image, TIMES)
        shipped: Any = self.driver
        self._sender = ControllerRequestSender(self.controller, shipped)
        self.driver.on(SendControllerRequest, self._send_controller_request)
        self.groups = SimulatedGroups(self)
        self.transactions = SimulatedTransactions(self)
        self.partitions.listeners = {
            OFFSETS_TOPIC: self.groups,
            TRANSACTIONS_TOPIC: self.transactions,
        }
        self.transaction_partitions = HostedTransactionPartitions(asking)

    def errs(self) -> bool:
        """Whether the next thing that a coordinator does with its log goes wrong."""
        chance = 0.0 if self.cluster.is_calm else self.cluster.swarm.log_errors
        return chance > 0 and self.cluster.random.random() < chance

    def _fail_in_thread(self) -> Exception | None:
        return OSError("unreadable") if self.errs() else None

    def _on_work(self) -> None:
        for replica in self.replicas.values():
            replica.claim_counted()

    @property
    def broker_epoch(self) -> int:
        return self.steps.broker_epoch

    @property
    def has_all_data(self) -> bool:
        """Whether nothing was lost that the controller does not know of."""
        is_told = self.is_registered or self.logs.lifecycle.has_all_data
        return is_told and not self.disk.failing

    # --- life and death --------------------------------------------------------------------------

    def start(self) -> None:
        self.process.begin_life()
        self.incarnation = f"{self.node_id}/{self.process.life}"
        self.is_registered = False
        self.is_stopping = False
        self.image = self.access = MetadataImage()
        self.replicas = {}
        self._begin_steps()
        self._begin_coordinators()
        if self.disk.failing:
            # It says so of the whole node, also of what it has elsewhere; what was not synced there
            # is lost by the repair, after which it is another mount: see intact_token.
            self.cluster.oracle.on_loss(self.node_id)
            if (
                self.cluster.is_calm
                or self.cluster.swarm.directories == 1
                or self.cluster.random.random() < 0.5
            ):
                self.disk = self.disk.repaired(self.cluster.random)
                if self.logs.are_online:  # nobody has seen it fail
                    self.memory.clear()
        self.disk.full.clear()  # with no room it would not be opened, and somebody makes some
        self.logs = SimulatedDirectories(self)
        self.driver.tick_when_due(self.steps.alter_partition)
        self.voter = SimulatedVoter(
            f"broker/{self.node_id}",
            self.metadata_directory_id,
            self.disk,
            self.process,
            self.cluster.random,
        )
        self.voter.disk_ms = self.cluster.swarm.fsync_ms
        self.metadata_directory_id = self.voter.step.state.directory_id
        self._live()

    def kill(self) -> None:
        """The process dies; its machine, and with it the page cache, lives on."""
        if self.standing is not None:
            self.cluster.kill_controller(self.standing)
            self.standing = None
        self.process.end_life()
        self.disk = self.disk.after_death()
        self.is_registered = False
        for partition_id, replica in self.replicas.items():
            self.ends[partition_id] = replica.log.log_end_offset
        self.replicas = {}
        self._begin_coordinators()

    def end(self, reason: str) -> None:
        """As the process does when nothing is left to serve; Ray starts another."""
        self.cluster.oracle.note(None, f"node {self.node_id} ends: {reason}")
        life = self.process.life
        self.clock.after(
            0, lambda: self.cluster.on_fenced(self) if self.process.life == life else None
        )

    def lose_power(self) -> None:
        self.kill()
        self.disk = self.disk.lose_power(self.cluster.random)
        self.memory.clear()

    def replace_disk(self) -> None:
        """An empty disk; or one with the node's id on it, as whoever restores the node writes it."""
        self.kill()
        self.disk = SimulatedDisk()
        self.claimed.clear()
        self.deleted.clear()
        self.metadata_directory_id, self.voter = f"d{self.node_id}.{self.disks_used}", None
        self.disks_used += 1
        self.disk.make_directory(PATHS[0])
        # Of a directory that nothing was ever written to no loss is known, so the controller has to
        # see by itself that it is another one.
        is_restored = self.cluster.random.random() < 0.5 and not self.cluster.swarm.is_new
        write_identity(
            self.disk,
            PATHS[0],
            DirectoryIdentity(
                directory_id=self.metadata_directory_id,
                cluster_id="simulated" if is_restored else None,
                node_id=self.node_id if is_restored else None,
            ),
        )

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """A clean stop: others lead, all is flushed, the mark is written."""
        if not self.is_registered:
            return

        def left(is_heard: Any) -> None:
            if self.process.is_up:
                self.is_stopping = True
                self.driver.run(self._close(), stopped)

        def stopped(error: Exception | None) -> None:
            if error is not None:
                raise error
            self.kill()
            on_stopped()

        self.lifecycle.leave(left, self._now())
        self._perform()

    def _close(self) -> ProcedureSteps:
        """Clients have no connections here, and the voter ends with the process."""
        return close_node(
            clients=None,
            metadata=self.lifecycle.stop,
            coordinators=(
                self._awaited(self.transaction_partitions.close),
                self._awaited(self._close_coordinators),
            ),
            partitions=Ended(self.driver, self.logs.shut_down),
            voter=None,
        )

    async def _close_coordinators(self) -> None:
        self.groups.close()
        await self.transactions.close()

    def _awaited(self, run: Callable[[], Coroutine[Any, Any, None]]) -> Ended:
        return Ended(self.driver, lambda then: self.loop.answer(run, then))

    # --- the controller --------------------------------------------------------------------------

    def _live(self) -> None:
        """Registers, and follows the metadata from then on."""
        effects: list[Any] = []
        life = BrokerIncarnation(self.incarnation, self.cluster.swarm.session_ms)
        self.lifecycle = NodeLifecycle(life, effects, retry_ms=RETRY_MS)
        self._effects = effects
        registration = NodeRegistration(
            directory_id=self.logs.all.identity.directory_id,
            incarnation=self.incarnation,
            roles=self.cluster.roles,
            host="host",
            port=FIRST_PORT + self.node_id,
            rack=self.cluster.rack_of(self.node_id),
            machine=f"m{self.node_id}",
            name=f"{actor_name(self.node_id)}/data",
            node_id=self.node_id if self.node_id in self.cluster.known_nodes else None,
            cluster_id=None,
            has_all_data=self.logs.lifecycle.has_all_data,
            metadata_directory_id=self.metadata_directory_id,
        )
        driver, lifecycle = self.driver, self.lifecycle
        driver.run(
            join_node(
                registered=Ended(driver, lambda then: lifecycle.register(then, registration)),
                partitions=self._begin_following,
                followed=Ended(driver, lifecycle.follow),
                clients=lambda: None,  # they ask by the network, and are refused until then
            ),
            self._on_joined,
        )
        self._perform()
        self.standby = StandbyController(self.controller.candidacy, effects, STANDBY_TIMES)
        self._tick_standby()

    def _tick_standby(self) -> None:
        """Whether to start a standby controller."""
        lifecycle, standing = self.lifecycle, self.standing
        assert self.voter is not None
        self.standby.on_tick(
            StandbyView(
                self.voter.step.vote,
                self.metadata_directory_id,
                self.image,
                None if standing is None else standing.me,
                standing is not None and standing.is_active,
            ),
            self._now(),
        )
        self._perform()
        self.process.after(
            max(1, self.standby.next_deadline_ms - self.clock.now_ms),
            lambda: self._tick_standby() if lifecycle is self.lifecycle else None,
        )

    def _start_standby(self, done: Callable[[Any], None]) -> None:
        self.standing = made = self.cluster.start_standby(
            self, lambda failure: done(made.image if failure is None else failure)
        )

    def _begin_following(self) -> None:
        assert self.lifecycle.node_id == self.node_id, "ids are given in order of the first start"
        self.is_registered = True
        self.logs.begin()

    def _on_joined(self, failure: Exception | None) -> None:
        if isinstance(failure, StaleBrokerEpoch):  # a newer life: this one ends
            self.cluster.on_fenced(self)
        elif failure is not None:
            self.process.after(RETRY_MS, self._live)

    def _perform(self) -> None:
        while self._effects:
            self._perform_one(self._effects.pop(0))
        deadline_ms = self.lifecycle.next_deadline_ms
        if deadline_ms is not None:
            lifecycle = self.lifecycle

            def on_time() -> None:
                if lifecycle is self.lifecycle and lifecycle.next_deadline_ms == deadline_ms:
                    lifecycle.on_tick(self._now())
                    self._perform()

            self.process.after(max(0, deadline_ms - self.clock.now_ms), on_time)

    def _now(self) -> Instant:
        return Instant(self.clock.now_ms, self.clock.now_ms)

    def _perform_one(self, effect: Any) -> None:
        lifecycle = self.lifecycle

        def done(result: Any) -> None:
            if lifecycle is self.lifecycle:
                step = self.standby if isinstance(effect, OF_STANDBY) else lifecycle
                step.on_done(effect, result, self._now())
                self._perform()

        match effect:
            case Reply(answer, result) | Refuse(answer, result):
                answer(result)
            case AskController(call):
                self._ask_controller(call, done)
            case StoreIdentity(registered):
                result = self._store_identity(registered.cluster_id, registered.node_id)
                self.process.after(1, lambda: done(result))
            case ApplyMetadata(image):
                self.apply(image, then=lambda: self.process.after(0, lambda: done(None)))
            case Fenced():
                self.cluster.on_fenced(self)
            case ProbePort(_, port):
                is_dead = self.cluster.is_port_closed(port)
                self.process.after(2, lambda: done(is_dead))
            case StartStandby():
                self._start_standby(done)
            case AskStandby(call):
                if self.standing is not None:
                    self.standing.ask(call, done)
            case VoteGranted():
                with self.loop.running():
                    self.controller.find_controller_again()
            case EndStandby(reason):
                standing, self.standing = self.standing, None
                if standing is not None:
                    standing.end(reason)

    def _store_identity(self, cluster_id: str, node_id: int) -> KafkaError | None:
        try:
            self.logs.all.assign_identity(cluster_id=cluster_id, node_id=node_id)
        except KafkaError as error:
            return error
        return None

    def _ask_controller(self, call: Any, done: Callable[[Any], None]) -> None:
        self.loop.answer(lambda: self.controller.ask(call), done)

    def _send_controller_request(self, effect: SendControllerRequest) -> None:
        if isinstance(effect.request, AlterPartition):
            for proposed in effect.request.partitions:
                self._note_proposal(proposed)
        self._sender._send(effect)

    def _note_proposal(self, proposed: ProposedIsr) -> None:
        """Told to the faults once, however often it is sent."""
        topic = self.image.topic_by_id(proposed.topic_id)
        partition_id = (topic.name if topic else "", proposed.partition)
        replica = self.replicas.get(partition_id)
        if self._proposed.get(partition_id) != proposed and replica and replica.leader:
            self._proposed[partition_id] = proposed
            self.cluster.on_proposal(replica, proposed.isr)

    # --- following the metadata ------------------------------------------------------------------

    def apply(self, image: MetadataImage, *, then: Callable[[], None] = lambda: None) -> None:
        """Take an image over; `then` is called when requests are answered by it."""
        for partition_id in {*self.claimed, *self.ends, *self.deleted}:
            state = image.partition(*partition_id)
            if state is None or self.node_id not in state.replicas:
                self.claimed.pop(partition_id, None)
                self.ends.pop(partition_id, None)
                self.deleted.pop(partition_id, None)

        def applied(error: Exception | None) -> None:
            if error is not None:
                raise error
            then()

        self.driver.run(publish_metadata(image, self._metadata_users()), applied)

    def _metadata_users(self) -> MetadataUsers:
        """Settings and quotas of clients are the cluster's: see simulated_administrator."""
        return MetadataUsers(
            settings=lambda image: None,
            access=self._use_access,
            coordinators=self.transactions.on_metadata,
            partitions=self._partitions_become,
            serve_image=self._answer_by,
            quotas=lambda before, image: None,
            pending_verifications=self.transaction_partitions.on_metadata,
            offsets=self.groups.on_metadata,
            is_stopping=lambda: self.is_stopping,
        )

    def _use_access(self, image: MetadataImage) -> None:
        self.access = image

    def _partitions_become(self, image: MetadataImage) -> Ended:
        now_ms = self.clock.now_ms
        return Ended(
            self.driver,
            lambda then: self.steps.apply(image, then, now_ms=now_ms, wall_ms=now_ms),
        )

    def _answer_by(self, image: MetadataImage) -> MetadataImage:
        before, self.image = self.image, image
        self.cluster.oracle.on_applied(self, before)
        return before

    def replica_of(self, step: Replica) -> SimulatedReplica:
        """Also of one whose effects are still to be carried out."""
        known = self.replicas.get((step.topic, step.partition))
        if known is None:
            known = SimulatedReplica(self, step)
            self.replicas[known.partition_id] = known
        return known

    def _on_replica_opened(self, effect: ReplicaOpened) -> None:
        self.cluster.oracle.on_high_watermark(self.replica_of(effect.replica))

    def _on_replica_closed(self, effect: ReplicaClosed) -> None:
        partition_id = (effect.replica.topic, effect.replica.partition)
        del self.replicas[partition_id]
        self.cluster.oracle.note(partition_id, f"node {self.node_id} drops its replica")

    def _on_leader_elected(self, effect: LeaderElected) -> None:
        step, state = effect
        replica = self.replicas[step.topic, step.partition]
        if step.leader is not None and step.leader.leader_epoch == state.leader_epoch:
            self.cluster.oracle.on_leader(replica, state)

    def _truncate(self, step: Replica, offset: int) -> None:
        """The oracle looks at what is about to go."""
        self.cluster.oracle.on_truncate(self.replica_of(step), offset)
        ReplicaManager.truncate(self.steps, step, offset)
        self.cluster.on_truncated(self)

    def claim_asked(self, request: FetchRequest) -> None:
        """What is asked from is said to be safe, as far as the topic asks."""
        for topic in request.topics:
            known = self.steps.image.topic_by_id(topic.topic_id)
            for asked in topic.partitions if known is not None else ():  # it is being deleted
                self.replicas[known.name, asked.partition].claim(asked.fetch_offset)

    # --- what handlers ask of it: handlers.ports.context.Node ------------------------------------

    def now_ms(self) -> int:
        return self.clock.now_ms

    def new_id(self) -> UUID:
        return UUID(int=self.cluster.random.getrandbits(128))
