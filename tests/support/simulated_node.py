"""A node of the simulation: its disk, its process, its replicas; composed as actors/node,
actors/partition_host are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bradbury.cluster.alter_partition import ProposedIsr
from bradbury.cluster.controller_state import NodeRegistration
from bradbury.cluster.metadata_image import NO_LEADER, MetadataImage
from bradbury.cluster.topic_name import OFFSETS_TOPIC
from bradbury.controller.controller_calls import MetadataUpdate, Poll
from bradbury.controller.effects import (
    ApplyMetadata,
    AskController,
    Fenced,
    Instant,
    Refuse,
    Reply,
    StoreIdentity,
)
from bradbury.controller.node_lifecycle import Life, NodeLifecycle
from bradbury.protocol.errors import (
    ConnectionFailed,
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
)
from bradbury.replication.alter_partition_manager import AlterPartitionManager
from bradbury.replication.effects import SendAlterPartition
from bradbury.storage.directories.directory_identity import DirectoryIdentity, write_identity
from bradbury.storage.directories.log_directory import LogDirectory

from .simulated_controller import FIRST_PORT
from .simulated_disk import SimulatedDisk
from .simulated_driver import SimulatedDriver
from .simulated_fetcher import Fetcher, Followed
from .simulated_groups import SimulatedGroups
from .simulated_network import LOST, Process
from .simulated_replica import PartitionId, SimulatedReplica
from .simulated_voter import SimulatedVoter

if TYPE_CHECKING:
    from .simulated_cluster import SimulatedCluster

DATA = "/data"
RETRY_MS = 30
CONTROLLER_MS = 250


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
        """Of the process; that of the last one while there is none."""
        self.disks_used = 1
        self.ends: dict[PartitionId, int] = {}
        """Of the logs, when the process died."""
        self.claimed: dict[PartitionId, int] = {}
        """Where flush.messages is 1: up to where each log was said to be safe."""
        self.has_all_data = True
        """The token of RELIABILITY 1.2.9: False from a loss until a registration has said so."""
        self.incarnation = ""
        self.is_registered = False
        self.image = MetadataImage()
        self.replicas: dict[PartitionId, SimulatedReplica] = {}
        self.directory: LogDirectory | None = None
        self._fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[PartitionId, int] = {}
        self._begin_steps()
        self.groups = SimulatedGroups(self)

    def _begin_steps(self) -> None:
        self.driver = SimulatedDriver(self.process)
        self.driver.on(SendAlterPartition, self._send_alter_partition)
        self.insync = AlterPartitionManager(Leading(self), self.driver.effects)
        self._proposed: dict[PartitionId, ProposedIsr] = {}

    @property
    def broker_epoch(self) -> int:
        node = self.image.nodes.get(self.node_id)
        return -1 if node is None else node.epoch

    # --- life and death --------------------------------------------------------------------------

    def start(self) -> None:
        self.process.begin_life()
        self.incarnation = f"{self.node_id}/{self.process.life}"
        self.is_registered = False
        self.image = MetadataImage()
        self.replicas, self._fetchers, self._leaders = {}, {}, {}
        self._begin_steps()
        self.driver.tick_when_due(self.insync)
        self.groups = SimulatedGroups(self)
        directory = LogDirectory.open(self.disk, DATA, directory_id=self.metadata_directory_id)
        directory.assign_identity(cluster_id="simulated", node_id=self.node_id)
        for (name, index), log in directory.load_logs(
            self.cluster.log_config_of, now_ms=self.clock.now_ms
        ).items():
            self.cluster.oracle.on_opened(self, (name, index), log)
        self.directory = directory
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
        self.process.after(self.cluster.swarm.checkpoint_ms, self._checkpoint)

    def kill(self) -> None:
        """The process dies; its machine, and with it the page cache, lives on."""
        self.process.end_life()
        self.disk = self.disk.after_death()
        self.is_registered = False
        for partition_id, replica in self.replicas.items():
            self.ends[partition_id] = replica.log.log_end_offset
        self.replicas, self._fetchers = {}, {}
        self.groups = SimulatedGroups(self)

    def lose_power(self) -> None:
        self.kill()
        self.disk = self.disk.lose_power(self.cluster.random)
        self.has_all_data = False

    def replace_disk(self) -> None:
        """An empty disk with the node's id on it, as whoever restores the node writes it there."""
        self.kill()
        self.disk = SimulatedDisk()
        self.claimed.clear()
        self.metadata_directory_id, self.voter = self._new_directory_id(), None
        self.disks_used += 1
        self.disk.make_directory(DATA)
        write_identity(
            self.disk,
            DATA,
            DirectoryIdentity(
                directory_id=self.metadata_directory_id,
                cluster_id="simulated",
                node_id=self.node_id,
            ),
        )
        # Of a directory that nothing was ever written to no loss is known, so the controller has to
        # see by itself that it is another one.
        self.has_all_data = self.cluster.random.random() < 0.5

    def _new_directory_id(self) -> str:
        return f"d{self.node_id}.{self.disks_used}"

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """A clean stop: others lead, all is flushed, the mark is written."""
        if not self.is_registered:
            return
        self.lifecycle.stop()  # or it would be heard of again

        def left(_: Any) -> None:
            if self.process.is_up and self.directory is not None:
                self.directory.close(clean=True)
                self.kill()
                on_stopped()

        controller = self.cluster.controller_for(self)
        self.cluster.network.call(
            self.process,
            controller.process,
            lambda answer: controller.leave(self.node_id, self.incarnation, answer),
            left,
            timeout_ms=CONTROLLER_MS,
        )

    def _checkpoint(self) -> None:
        assert self.directory is not None
        for replica in self.replicas.values():
            log = replica.log
            if log.recovery_point < log.segments[-1].base_offset:
                replica.flush(lambda: None)
        self.directory.checkpoint()
        self.process.after(self.cluster.swarm.checkpoint_ms, self._checkpoint)

    # --- the controller --------------------------------------------------------------------------

    def _live(self) -> None:
        """Registers, and follows the metadata from then on."""
        assert self.directory is not None
        effects: list[Any] = []
        life = Life(self.incarnation, self.cluster.swarm.session_ms)
        self.lifecycle = NodeLifecycle(life, effects, retry_ms=RETRY_MS)
        self._effects = effects
        registration = NodeRegistration(
            directory_id=self.directory.directory_id,
            incarnation=self.incarnation,
            roles=("broker", "partition"),
            host="host",
            port=FIRST_PORT + self.node_id,
            rack=None,
            node_id=self.node_id if self.node_id in self.cluster.known_nodes else None,
            cluster_id=None,
            has_all_data=self.has_all_data,
            metadata_directory_id=self.metadata_directory_id,
        )
        self.lifecycle.register(self._on_registered, registration)
        self._perform()

    def _on_registered(self, failure: Exception | None) -> None:
        if failure is not None:
            self.process.after(RETRY_MS, self._live)
            return
        assert self.lifecycle.node_id == self.node_id, "ids are given in order of the first start"
        self.is_registered = True
        self.lifecycle.follow(self._on_followed)

    def _on_followed(self, failure: Exception | None) -> None:
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
                lifecycle.on_done(effect, result, self._now())
                self._perform()

        match effect:
            case Reply(answer, result) | Refuse(answer, result):
                answer(result)
            case AskController(call):
                self._ask_controller(call, done)
            case StoreIdentity():
                self.has_all_data = True
                self.process.after(1, lambda: done(None))
            case ApplyMetadata(image):
                self.apply(image, then=lambda: self.process.after(0, lambda: done(None)))
            case Fenced():
                self.cluster.on_fenced(self)

    def _ask_controller(self, call: Any, done: Callable[[Any], None]) -> None:
        controller = self.cluster.controller_for(self)
        is_parked = isinstance(call, Poll)

        def answered(result: Any) -> None:
            if is_parked and isinstance(result, MetadataUpdate):
                if result.controller_epoch < self.lifecycle.controller_epoch:
                    self.cluster.on_former_controller()
            done(ConnectionFailed("lost") if result is LOST else result)

        self.cluster.network.call(
            self.process,
            controller.process,
            lambda answer: controller.ask(call, answer),
            answered,
            timeout_ms=CONTROLLER_MS + (self.cluster.swarm.session_ms // 3 if is_parked else 0),
            what=type(call).__name__,
        )

    def _send_alter_partition(self, effect: SendAlterPartition) -> None:
        step = effect.step
        for proposed in effect.request.partitions:
            self._note_proposal(proposed)
        controller = self.cluster.controller_for(self)

        def answered(result: Any) -> None:
            if isinstance(result, tuple):
                step.on_answer(result, self.clock.now_ms)
            else:
                error = result if isinstance(result, KafkaError) else ConnectionFailed("lost")
                step.on_failed(error, self.clock.now_ms)
            self.driver.carry_out()
            self.driver.tick_when_due(step)

        self.cluster.network.call(
            self.process,
            controller.process,
            lambda answer: controller.change(effect.request, answer),
            answered,
            timeout_ms=CONTROLLER_MS,
            what="alter",
        )

    def _note_proposal(self, proposed: ProposedIsr) -> None:
        """Told to the faults once, however often it is sent."""
        topic = self.image.topic_by_id(proposed.topic_id)
        partition_id = (topic.name if topic else "", proposed.partition)
        replica = self.replicas.get(partition_id)
        if self._proposed.get(partition_id) != proposed and replica and replica.leader:
            self._proposed[partition_id] = proposed
            self.cluster.on_proposal(replica, proposed.isr)

    # --- following the metadata ------------------------------------------------------------------

    def _drop(self, partition_id: PartitionId) -> None:
        """It is not placed on this node any more; its records go."""
        assert self.directory is not None
        self._leave(partition_id)
        replica = self.replicas.pop(partition_id)
        replica.resign()
        self._tell_resigned(partition_id)
        self.directory.remove_log(
            *partition_id, unique_id=self._unique_id(), now_ms=self.clock.now_ms
        )
        self._forget(partition_id)
        self.cluster.oracle.note(partition_id, f"node {self.node_id} drops its replica")

    def _set_strays_aside(self) -> None:
        """Logs that the metadata, now known, does not place here."""
        assert self.directory is not None
        for partition_id in sorted(self.directory.logs.keys() - self.replicas.keys()):
            self.directory.set_aside(*partition_id, unique_id=self._unique_id())
            self._forget(partition_id)
            self.cluster.oracle.note(partition_id, f"node {self.node_id} sets a stray log aside")

    def _forget(self, partition_id: PartitionId) -> None:
        self.claimed.pop(partition_id, None)
        self.ends.pop(partition_id, None)

    def _unique_id(self) -> UUID:
        return UUID(int=self.cluster.random.getrandbits(128))

    def apply(self, image: MetadataImage, *, then: Callable[[], None] = lambda: None) -> None:
        """Leader epochs reach the disk first, which takes a while; no news are taken meanwhile."""
        before, self.image = self.image, image
        self.cluster.oracle.on_applied(self, before)
        for partition_id in list(self.replicas):
            now = image.partition(*partition_id)
            if now is None or self.node_id not in now.replicas:
                self._drop(partition_id)
        changed = []
        for name, topic in image.topics.items():
            old = before.topics.get(name)
            for index, state in enumerate(topic.partitions):
                known = old.partitions[index] if old and index < len(old.partitions) else None
                if known is not state and self.node_id in state.replicas:
                    changed.append(((name, index), topic, state))
        begun = []
        for partition_id, topic, state in changed:
            if partition_id not in self.replicas:
                self._open_replica(partition_id, topic.topic_id)
            if state.leader == self.node_id:
                self._leave(partition_id)
                log = self.replicas[partition_id].log
                if log.epochs.latest_epoch < state.leader_epoch:
                    self.resign_before(partition_id, state.leader_epoch)
                    begun.append((log, state.leader_epoch, log.log_end_offset))

        if not before.topics and image.topics:
            self._set_strays_aside()

        def act() -> None:
            for log, leader_epoch, end in begun:
                log.assign_epochs([(leader_epoch, end)])
            for partition_id, _, state in changed:
                self._act_on(partition_id, state)
            if image.nodes is not before.nodes:
                self.insync.look_at_all()
                self.driver.carry_out()
            then()

        if begun:
            self.process.after(self.cluster.swarm.fsync_ms, act)
        else:
            act()

    def resign_before(self, partition_id: PartitionId, leader_epoch: int) -> None:
        """Nothing is appended in a former epoch while a newer one is written to the disk."""
        leader = self.replicas[partition_id].leader
        if leader is not None and leader.leader_epoch < leader_epoch:
            self.replicas[partition_id].resign()
            self._tell_resigned(partition_id)

    def _tell_resigned(self, partition_id: PartitionId) -> None:
        if partition_id[0] == OFFSETS_TOPIC:
            self.groups.on_resigned(partition_id[1])

    def _open_replica(self, partition_id: PartitionId, topic_id: Any) -> None:
        assert self.directory is not None
        log = self.directory.logs.get(partition_id)
        config = self.cluster.log_config_of(partition_id[0])
        if log is None:
            log = self.directory.create_log(*partition_id, topic_id, config)
        log.reconfigure(config)
        self.replicas[partition_id] = SimulatedReplica(self, partition_id, log)

    def _act_on(self, partition_id: PartitionId, state: Any) -> None:
        replica = self.replicas[partition_id]
        if state.leader == self.node_id:
            begins = replica.leader is None or replica.leader.leader_epoch < state.leader_epoch
            replica.become_leader(state)
            if begins and partition_id[0] == OFFSETS_TOPIC:
                self.groups.on_leader(partition_id[1], state.leader_epoch, replica)
            return
        if replica.leader is not None:
            replica.resign()
            self._tell_resigned(partition_id)
        if state.leader != NO_LEADER:
            self._follow(Followed(replica, state.leader_epoch), state.leader)

    def _follow(self, followed: Followed, leader_id: int) -> None:
        partition_id = followed.replica.partition_id
        if self._leaders.get(partition_id, leader_id) != leader_id:
            self._leave(partition_id)
        if leader_id not in self._fetchers:
            self._fetchers[leader_id] = Fetcher(self, leader_id)
        self._leaders[partition_id] = leader_id
        self._fetchers[leader_id].follow(followed)

    def _leave(self, partition_id: PartitionId) -> None:
        leader_id = self._leaders.pop(partition_id, None)
        if leader_id is not None:
            self._fetchers[leader_id].leave(partition_id)

    # --- what is asked of it ---------------------------------------------------------------------

    def leader_of(self, partition_id: PartitionId, leader_epoch: int = -1) -> SimulatedReplica:
        replica = self.replicas.get(partition_id)
        if replica is None or replica.leader is None:
            raise NotLeaderOrFollower("not led here")
        epoch = replica.leader.leader_epoch
        if -1 < leader_epoch < epoch:
            raise FencedLeaderEpoch("over")
        if leader_epoch > epoch:
            raise UnknownLeaderEpoch("news")
        return replica

    def readable(
        self, partition_id: PartitionId, leader_epoch: int, position: int
    ) -> SimulatedReplica:
        """What a consumer may read from: the leader, or a follower that knows of it (KIP-392)."""
        try:
            return self.leader_of(partition_id, leader_epoch)
        except NotLeaderOrFollower:
            replica, state = self.replicas.get(partition_id), self.image.partition(*partition_id)
            if replica is None or replica.leader is not None or state is None:
                raise
            if leader_epoch not in (-1, state.leader_epoch):
                raise
            if position > replica.log.log_end_offset:
                raise OffsetNotAvailable("not here yet") from None
            return replica

    def told_end(self, partition_id: PartitionId) -> int:
        """Of a leader's log, as ListOffsets tells a follower."""
        return self.replicas[partition_id].log.log_end_offset

    def truncate(self, replica: SimulatedReplica, offset: int) -> None:
        assert self.directory is not None
        self.cluster.oracle.on_truncate(replica, offset)
        self.directory.truncate_log(*replica.partition_id, offset)
        self.cluster.on_truncated(self)


class Leading:
    """A node, as its AlterPartition manager sees it."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self.node_id = node.node_id
        self.lag_time_max_ms = node.cluster.swarm.lag_ms

    @property
    def image(self) -> MetadataImage:
        return self._node.image

    @property
    def replicas(self) -> list[SimulatedReplica]:
        return list(self._node.replicas.values())


def is_error(result: object) -> bool:
    return result is LOST or isinstance(result, KafkaError)
