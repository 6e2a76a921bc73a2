"""Replica manager: the replicas of one node, each of which leads or follows.

Acts on the metadata image: a partition that names this node gets a log; one that it leads serves
as soon as its leader epoch is on the disk; one that another node leads is fetched from that one.
Before a replica leads, or follows another leader, its former fetcher has finished with the log.

After its first I/O failure a log directory is offline until restart. Requests for its partitions
are answered KAFKA_STORAGE_ERROR until others lead them (offline_replicas_manager), the other
directories continue to serve; with the last one the node ends. A partition whose directory was
missing at the start is offline in the same way. A log that could not be made for lack of disk space
is retried (replicas_to_create).

Not here: the replica for a request (served_replicas), the logs on the disk (log_manager), how
followers fetch (replica_fetcher), background work (log_maintenance), moves to other directories
(alter_log_dirs_manager).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from ...cluster.broker_config import BrokerConfig
from ...cluster.metadata.metadata_image import NO_LEADER, MetadataImage, TopicImage
from ...protocol.errors import KafkaStorageError
from ...protocol.topic_partition import TopicPartitionPair
from ...steps.replies import ended
from ...storage.directories.log_directories import LogDirectories
from ...storage.directories.log_directory import LogDirectory
from ...storage.directories.partition_directory import DELETE_SUFFIX
from ...storage.disk.storage_failure import DirectoryHealth
from ...storage.log.partition_log import PartitionLog
from ...storage.log_config import LogConfig
from ..effects import (
    DirectoryFailed,
    Effects,
    EndMove,
    FetchersEnded,
    NoDirectoryLeft,
    WorkingStep,
)
from ..followers.following_node import FollowerThrottle
from ..followers.replica_fetcher import FollowedPartition
from ..followers.replica_fetcher_manager import ReplicaFetcherManager
from ..logs.log_manager import MAKE_AT_ONCE, AssignedPartition, LogManager
from ..partition.conversion_queue import ConversionMemory
from ..partition.partition_effects import (
    LeaderElected,
    ReplicaClosed,
    ReplicaOpened,
    Resigned,
    ResumeMove,
)
from ..partition.replica import Replica
from ..partition.served_replicas import ServedReplicas
from ..partition.topic_log_configs import TopicLogConfigs
from ..procedure import Procedure, ProcedureSteps, Turn
from .alter_partition_manager import AlterPartitionManager
from .offline_replicas_manager import OfflineReplicasManager
from .replicas_to_create import ReplicasToCreate

logger = logging.getLogger(__name__)


class ReplicaManagerNode(Protocol):
    """Node as its replica manager needs it."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def log_defaults(self) -> LogConfig:
        """Settings of logs where a topic sets none."""
        ...

    @property
    def throttle(self) -> FollowerThrottle: ...


class ReplicaManager:
    """Replicas of a node's incarnation. `start`, `apply` for each image; `halt`, `shut_down`."""

    def __init__(self, node: ReplicaManagerNode, effects: Effects) -> None:
        self.effects = effects
        self.conversion_memory = ConversionMemory()
        self.image = MetadataImage()
        """Image that this node applies, or has applied."""
        self.changed: dict[Replica, None] = {}
        """See replica.ReplicaHost."""
        self.by_partition: dict[TopicPartitionPair, Replica] = {}
        self._node = node
        self._logs: LogManager | None = None
        self._offline: dict[TopicPartitionPair, str] = {}
        self._failed: dict[str, None] = {}
        self._applying: Procedure | None = None
        self._next_image: Callable[[], None] | None = None
        """Begins the next image after an attempt to create logs, which is under way; None: no image
        waits.
        """
        self._is_halted = False
        self._wall_ms = 0
        self.alter_partition = AlterPartitionManager(self, effects)
        self.serving = ServedReplicas(self, self._offline)
        self.log_configs = TopicLogConfigs(node, self)
        self.offline_replicas = OfflineReplicasManager(self, self._offline, effects)
        self._unmade = ReplicasToCreate(self, effects)
        self.fetchers = ReplicaFetcherManager(self)

    def start(self, logs: LogManager, note_gaps: Callable[[PartitionLog], ProcedureSteps]) -> None:
        """`note_gaps`: see LogFlusher."""
        self._logs = logs
        self.note_gaps = note_gaps

    def _close(self, replica: Replica) -> None:
        self.changed.pop(replica, None)
        self.effects.append(ReplicaClosed(replica))

    def halt(self) -> None:
        """Halt: stop following, and apply no image any further; only work under way is finished."""
        self._is_halted = True
        if self._applying is not None:
            self._applying.cancel()
        self.fetchers.leave_all()

    def shut_down(self, directories: LogDirectories) -> ProcedureSteps:
        """Stop cleanly, after others lead: end appends, wait for writes under way, flush all and
        write the clean shutdown marks. `halt` comes first.
        """
        for replica in self.by_partition.values():
            replica.resign()
        yield [
            condition
            for replica in self.by_partition.values()
            if (condition := replica.flush.ended()) is not None
        ]
        self._logs = None  # from here on no disk failure is reported
        [failure] = yield [CloseDirectories(directories)]
        if isinstance(failure, KafkaStorageError):
            logger.error("not closed cleanly, the next start recovers the logs: %s", failure)
        elif failure is not None:
            raise failure

    @property
    def logs(self) -> LogManager:
        assert self._logs is not None, "start() comes first"
        return self._logs

    # --- following the metadata ------------------------------------------------------------------

    def apply(self, image: MetadataImage, ticket: Any, *, now_ms: int, wall_ms: int) -> None:
        """Apply an image to this node's partitions; the ticket is answered when they serve.

        A topic whose image is the same object as before did not change. The next image has to wait
        for that answer.
        """
        begin = partial(self._begin, self._apply(image), ticket, now_ms=now_ms)
        self._wall_ms = wall_ms
        if self._applying is None:
            begin()
        else:
            assert self._next_image is None, "one image at a time"
            self._next_image = begin

    def make_replicas(self, keys: Collection[TopicPartitionPair], now_ms: int) -> bool:
        """See replicas_to_create.MakingNode."""
        if self._applying is not None or self._is_halted:
            return False
        self._begin(self._make_again(keys), None, now_ms=now_ms)
        return True

    def _begin(self, steps: ProcedureSteps, ticket: Any, *, now_ms: int) -> None:
        """Begin a procedure. `ticket`: answered at its end; None: a failure is only logged."""

        def on_end(error: Exception | None) -> None:
            self._applying = None
            if ticket is not None:
                self.effects.append(ended(ticket, error))
            elif error is not None:
                logger.error("creating logs again failed: %s", error, exc_info=error)
            begin, self._next_image = self._next_image, None
            if begin is not None:
                begin()

        self._applying = Procedure(self.effects, steps, now_ms, on_end)
        if self._is_halted:
            self._applying.cancel()
        self._applying.begin()

    def _make_again(self, keys: Collection[TopicPartitionPair]) -> ProcedureSteps:
        """Create logs that failed for lack of disk space, as the newest image assigns them."""
        assigned = []
        for name, index in keys:
            state = self.image.partition(name, index)
            if state is None or self.node_id not in state.replicas:
                self._unmade.forget((name, index))
                continue
            is_led_here = state.leader == self.node_id
            assigned.append(AssignedPartition(self.image.topics[name], index, state, is_led_here))
        yield from self._open_replicas(assigned)
        made = [each for each in assigned if each.key in self.by_partition]
        if made:
            logger.info("created %d logs that failed earlier for lack of disk space", len(made))
            yield from self._start_replicas(made)

    def _apply(self, image: MetadataImage) -> ProcedureSteps:
        before, self.image = self.image, image
        for name, topic in before.topics.items():
            now = image.topics.get(name)
            if now is topic:
                continue
            if now is None or now.topic_id != topic.topic_id:
                yield from self._remove(topic, range(len(topic.partitions)))
            else:
                yield from self._remove(topic, self._taken_away(topic, now))
        changed = [
            AssignedPartition(topic, index, topic.partitions[index], is_led_here)
            for name, topic in image.topics.items()
            for index, is_led_here in self._changed_here(before.topics.get(name), topic)
        ]
        yield from self._start_replicas(changed)
        if image.nodes is not before.nodes:
            self.alter_partition.look_at_all()
        ended = self.fetchers.end_empty()
        if ended:
            self.effects.append(FetchersEnded(ended))
        if self.logs.has_unclaimed:
            served = {key: replica.log for key, replica in self.by_partition.items()}
            yield from self.logs.set_strays_aside(image, self.node_id, served, self._wall_ms)

    def _start_replicas(self, changed: Sequence[AssignedPartition]) -> ProcedureSteps:
        """Open missing replicas, and lead or follow."""
        yield from self._open_replicas([p for p in changed if p.key not in self.by_partition])
        # Also if another leader is to be followed: an epoch from the former one may just be being
        # written to the disk.
        yield self.fetchers.leave(
            [
                each.replica_id
                for each in changed
                if each.is_led_here or self.fetchers.leader_of(each.replica_id) != each.state.leader
            ]
        )
        led_here = [each for each in changed if each.is_led_here]
        self._resign_before(changed)
        yield from self._begin_epochs(led_here)
        for number, each in enumerate(changed, 1):
            self._act_on(each)
            if number % MAKE_AT_ONCE == 0:
                yield [Turn(self.effects)]

    def _taken_away(self, before: TopicImage, now: TopicImage) -> list[int]:
        """Indexes of partitions that lost their replica here."""
        node_id = self._node.node_id
        return [
            index
            for index, (old, new) in enumerate(zip(before.partitions, now.partitions, strict=False))
            if old is not new and node_id in old.replicas and node_id not in new.replicas
        ]

    def _changed_here(
        self, before: TopicImage | None, now: TopicImage
    ) -> Iterable[tuple[int, bool]]:
        """(partition, whether this node leads it) of changed partitions with a replica here."""
        if before is now:
            return
        node_id = self._node.node_id
        known: tuple[object, ...] = ()
        if before is not None and before.topic_id == now.topic_id:
            known = before.partitions if before.configs == now.configs else ()
        for index, state in enumerate(now.partitions):
            if index < len(known) and known[index] is state:
                continue
            if node_id in state.replicas:
                yield index, state.leader == node_id

    def _resign_before(self, changed: Sequence[AssignedPartition]) -> None:
        """Resign before a new leader epoch is stored, which takes a while: this node must not lead
        in the old one meanwhile.
        """
        for each in changed:
            replica = self.by_partition.get(each.key)
            leader = None if replica is None else replica.leader
            if replica is None or leader is None:
                continue
            if leader.leader_epoch < each.state.leader_epoch:
                self._resign(replica)

    def _begin_epochs(self, led_here: Sequence[AssignedPartition]) -> ProcedureSteps:
        """Store the leader epochs in which this node is about to lead, many at a time."""
        begun = [
            (replica.log, each.state.leader_epoch)
            for each in led_here
            if (replica := self.by_partition.get(each.key)) is not None
            and replica.log.epochs.latest_epoch < each.state.leader_epoch
        ]
        if begun:
            outcomes = yield [
                BeginEpochs(begun[start : start + MAKE_AT_ONCE])
                for start in range(0, len(begun), MAKE_AT_ONCE)
            ]
            self.on_storage_failure()
            for failure in outcomes:
                if failure is not None:
                    raise failure

    def _act_on(self, assigned: AssignedPartition) -> None:
        """Lead a partition, or follow its leader, if its log is here."""
        topic, _, state, is_led_here = assigned
        replica = self.by_partition.get(assigned.key)
        if replica is None:  # offline
            self.offline_replicas.look()
            return
        config = self.log_configs.of(topic)
        if config != replica.log.config:
            replica.reconfigure(config)
        if not is_led_here:
            if replica.leader is not None:
                self._resign(replica)
            if state.leader != NO_LEADER:
                followed = FollowedPartition(topic.topic_id, replica, state.leader_epoch)
                self.fetchers.follow(followed, state.leader)
            return
        begins = replica.leader is None or replica.leader.leader_epoch < state.leader_epoch
        assert self._applying is not None
        replica.become_leader(state, self._applying.now_ms)
        if begins:
            self.effects.append(LeaderElected(replica, state))

    # --- replicas --------------------------------------------------------------------------------

    def _open_replicas(self, assigned: Sequence[AssignedPartition]) -> ProcedureSteps:
        opened = yield from self.logs.open_logs(assigned, self._wall_ms)
        self._offline.update(opened.offline)
        for each, log in opened.logs:
            self._offline.pop(each.key, None)
            self._unmade.forget(each.key)
            replica = Replica(*each.key, log, self, may_use_reserve=each.topic.is_internal)
            self.by_partition[each.key] = replica
            self.effects.append(ReplicaOpened(replica))
        assert self._applying is not None
        self._unmade.wait_for(opened.unmade, self._applying.now_ms)
        for each in opened.found:
            self.effects.append(ResumeMove(each.key, self.by_partition[each.key]))

    def _remove(self, topic: TopicImage, indexes: Iterable[int]) -> ProcedureSteps:
        """Remove partitions that are no longer assigned to this node, with their records."""
        gone = list(indexes)
        if not gone:
            return
        self.logs.forget((topic.topic_id, index) for index in gone)
        yield self.fetchers.leave([(topic.topic_id, index) for index in gone])
        for index in gone:
            key = (topic.name, index)
            self._offline.pop(key, None)
            self._unmade.forget(key)
            replica = self.by_partition.pop(key, None)
            if replica is not None:
                self._resign(replica)
                self._close(replica)
                yield [MoveEnded(key, self.effects)]
                yield from self.logs.retire(key, replica.log, DELETE_SUFFIX, self._wall_ms)

    def _resign(self, replica: Replica) -> None:
        replica.resign()
        self.effects.append(Resigned(replica))

    # --- failures --------------------------------------------------------------------------------

    def on_storage_failure(self) -> None:
        """Handle a disk failure: take the partitions of its directory out of service, and report it
        once.
        """
        if self._logs is None:
            return
        directories = self._logs.directories
        has_news = False
        for directory in directories.all:
            failure = directory.health.failure
            if failure is None or directory.path in self._failed:
                continue
            has_news = True
            self._failed[directory.path] = None
            logger.error("%s is offline until restart: %s", directory.path, failure)
            self.effects.append(DirectoryFailed(directory.path))
            self._take_offline(directory, failure)
            self.offline_replicas.look()
        if has_news and not directories.online:
            reason = f"no log directory is online: {', '.join(sorted(self._failed))} failed"
            self.effects.append(NoDirectoryLeft(reason))

    def _take_offline(self, directory: LogDirectory, failure: str) -> None:
        for (topic, index), replica in list(self.by_partition.items()):
            if replica.log.health is not directory.health:
                continue
            del self.by_partition[topic, index]
            image = self.image.topics.get(topic)
            if image is not None:
                self.fetchers.leave([(image.topic_id, index)])
            self._offline[topic, index] = failure
            replica.fail_waiting(KafkaStorageError(failure))
            self.effects.append(Resigned(replica))
            self._close(replica)

    # --- for its replicas, fetchers and AlterPartition manager -----------------------------------

    @property
    def node_id(self) -> int:
        return self._node.node_id

    @property
    def broker_epoch(self) -> int:
        """See following_node.FollowingNode."""
        node = self.image.nodes.get(self._node.node_id)
        return -1 if node is None else node.epoch

    @property
    def config(self) -> BrokerConfig:
        return self._node.config

    @property
    def lag_time_max_ms(self) -> int:
        return self._node.config.replica_lag_time_max_ms

    @property
    def throttle(self) -> FollowerThrottle:
        return self._node.throttle

    @property
    def replicas(self) -> list[Replica]:
        return list(self.by_partition.values())

    def on_follower_caught_up(self, replica: Replica) -> None:
        """See replica.ReplicaHost."""
        self.alter_partition.look_at(replica)

    def truncate(self, replica: Replica, offset: int) -> None:
        """See following_node.FollowingNode."""
        directory = self.logs.directories.of(replica.log)
        directory.truncate_log(replica.topic, replica.partition, offset)


class CloseDirectories:
    """Close of all log directories at a clean stop."""

    def __init__(self, directories: LogDirectories) -> None:
        self._directories = directories

    def run(self) -> None:
        """See storage_work.Work."""
        self._directories.close(clean=True)


class BeginEpochs:
    """Storing of leader epochs for logs that are about to lead."""

    def __init__(self, begun: Sequence[tuple[PartitionLog, int]]) -> None:
        self._begun = begun

    def run(self) -> None:
        """Run the work, see storage_work.Work. A failure is recorded in the directory's health."""
        failed: set[DirectoryHealth] = set()
        for log, leader_epoch in self._begun:
            if log.health in failed:
                continue
            try:
                log.local.assign_epoch(leader_epoch)
            except KafkaStorageError:
                failed.add(log.health)


class MoveEnded:
    """Condition that the move of a partition to another directory, if there is one, has ended."""

    def __init__(self, key: TopicPartitionPair, effects: Effects) -> None:
        self.key = key
        self._effects = effects

    def begin_waiting(self, step: WorkingStep) -> None:
        self._effects.append(EndMove(step, self))
