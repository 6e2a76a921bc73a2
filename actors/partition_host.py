"""The partitions of one node: a replica for each, which leads or follows.

Acts on the metadata image: a partition that names this node gets a log; one that it leads serves
as soon as its leader epoch is on the disk; one that another node leads is fetched from that one.
Before a replica changes sides its fetcher has let go of the log.

After its first I/O failure a log directory is offline until restart. Requests for its partitions
are answered KAFKA_STORAGE_ERROR, the other directories serve on; with the last one the node ends.
A partition whose directory was missing at the start is offline in the same way.

Not here: the logs on the disk (partition_logs), how followers fetch (replica_fetcher), what runs
beside the requests (partition_upkeep), moves to other directories (replica_mover).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from ..cluster.broker_config import BrokerConfig
from ..cluster.metadata_image import NO_LEADER, MetadataImage, TopicImage
from ..cluster.topic_name import INTERNAL_TOPICS
from ..handlers.context import Controller
from ..handlers.replica_port import LeaderReplica
from ..handlers.request_metrics import Histogram
from ..handlers.server_config import ServerConfig
from ..protocol.errors import (
    ConnectionFailed,
    FencedLeaderEpoch,
    InvalidConfig,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    PolicyViolation,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from ..replication.alter_partition_manager import AlterPartitionManager
from ..storage.directories.log_directories import LogDirectories
from ..storage.directories.log_directory import LogDirectory
from ..storage.directories.partition_directory import DELETE_SUFFIX
from ..storage.disk.file_system import FileSystem
from ..storage.disk.storage_failure import DirectoryHealth
from ..storage.log.partition_log import PartitionLog
from ..storage.log_config import LogConfig
from .alter_partition_sender import AlterPartitionSender
from .carry_through import until_thread_ends
from .conversion_queue import ConversionPool
from .log_cleaner import LogCleaner
from .partition_logs import MAKE_AT_ONCE, PartitionLogs, Wanted
from .partition_upkeep import PartitionUpkeep
from .replica import Replica
from .replica_fetcher import Followed, ReplicaFetcher, ReplicaFetchers
from .replica_mover import ReplicaMover
from .replication_throttle import ReplicationThrottle
from .step_driver import StepDriver

logger = logging.getLogger("bradbury.partitions")

T = TypeVar("T")
TopicPartition = tuple[str, int]
STORAGE_THREADS = 4


class LeadershipListener(Protocol):
    """Told of the internal topic's partitions: the group coordinator."""

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None: ...
    def on_resigned(self, partition: int) -> None: ...


class PartitionHost:
    """One event loop. `open` first, then `start`, `apply` for every image, `close` at last."""

    def __init__(
        self,
        paths: Sequence[str],
        file_system: FileSystem,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        on_all_offline: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._config = config
        self._server = ServerConfig()
        self._now_ms = now_ms
        self._on_all_offline = on_all_offline
        self._threads = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="storage")
        self._conversions = ConversionPool()
        self.logs = PartitionLogs(
            paths,
            file_system,
            config,
            now_ms=now_ms,
            in_thread=self.in_thread,
            log_config=self._log_config,
            on_failure=self.on_failure,
        )
        self._replicas: dict[TopicPartition, Replica] = {}
        self._offline: dict[TopicPartition, str] = {}
        self._failed: set[str] = set()
        self._image = MetadataImage()
        self.fsyncs = Histogram()
        self._node_id = -1
        self._upkeep: PartitionUpkeep | None = None
        self.cleaner: LogCleaner | None = None
        self._mover: ReplicaMover | None = None
        self._driver = StepDriver()
        self._insync = AlterPartitionManager(self, self._driver.effects)
        self._insync_sender: AlterPartitionSender | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self.throttle = ReplicationThrottle(
            self._replicas,
            config,
            node_id=lambda: self._node_id,
            image=lambda: self._image,
            settings=lambda: self.config,
            monotonic_ms=_monotonic_ms,
        )
        """See handlers.replica_port.Partitions."""
        self._followers: dict[str, int] = {}
        """Node by the other end of its connection."""
        self.fetchers = ReplicaFetchers(
            lambda leader_id: ReplicaFetcher(self, leader_id, self.in_thread)
        )
        self.listener: LeadershipListener | None = None

    # --- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directories and recover their logs. Blocking: in a thread, before the loop's.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        self.logs.open()

    @property
    def directories(self) -> LogDirectories:
        return self.logs.directories

    @property
    def upkeep(self) -> PartitionUpkeep:
        assert self._upkeep is not None, "start() comes first"
        return self._upkeep

    @property
    def log_dirs(self) -> ReplicaMover:
        """See handlers.log_dirs_port.LogDirs."""
        assert self._mover is not None, "start() comes first"
        return self._mover

    def start(
        self,
        node_id: int,
        controller: Controller,
        *,
        suspect: Callable[[int], Coroutine[None, None, None]],
    ) -> None:
        """`suspect`: tells the controller of a node that cannot be reached."""
        self._node_id = node_id
        self._suspect = suspect
        self.logs.begin()
        self._insync_sender = AlterPartitionSender(controller, self._driver)
        self._driver.tick_when_due(self._insync)
        self._upkeep = PartitionUpkeep(
            self.directories,
            self._replicas,
            self._config,
            now_ms=self._now_ms,
            in_thread=self.in_thread,
            on_failure=self.on_failure,
        )
        self._mover = ReplicaMover(
            self.directories,
            self._replicas,
            now_ms=self._now_ms,
            in_thread=self.in_thread,
            throttle=self.throttle,
            write_note=self.logs.write_note,
            on_failure=self.on_failure,
        )
        self._upkeep.start()
        self.cleaner = LogCleaner(
            lambda: [replica.log for replica in self._replicas.values()],
            self._config,
            now_ms=self._now_ms,
            checkpoint=self._upkeep.checkpoint,
            on_failure=self.on_failure,
        )
        self.cleaner.start()

    async def close(self) -> None:
        """Flush everything, write the checkpoints and the clean marks."""
        await self.fetchers.close()
        self._driver.close()
        if self._insync_sender is not None:
            await self._insync_sender.close()
        if self._mover is not None:
            await self._mover.close()
        if self.cleaner is not None:
            await self.cleaner.stop()
        if self._upkeep is not None:
            await self._upkeep.stop()
        for replica in self._replicas.values():
            replica.resign()
        await self.logs.close()
        self._threads.shutdown(wait=True)
        self._conversions.close()

    async def in_thread(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises. Also when cancelled, this ends after the thread."""
        loop = asyncio.get_running_loop()
        return await until_thread_ends(loop.run_in_executor(self._threads, call))

    @property
    def is_online(self) -> bool:
        """Whether all log directories are."""
        directories = self.directories
        return not directories.unusable and len(directories.online) == len(directories.all)

    # --- handlers' port --------------------------------------------------------------------------

    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> LeaderReplica:
        """See handlers.replica_port.Partitions."""
        replica = self._replicas.get((topic, partition))
        if replica is None or replica.leader is None:
            if (topic, partition) in self._offline:
                raise KafkaStorageError(self._offline[topic, partition])
            if self._image.partition(topic, partition) is None:
                raise UnknownTopicOrPartition(f"there is no {topic}-{partition}")
            raise NotLeaderOrFollower(f"{topic}-{partition} is led by another node")
        if current_leader_epoch != -1:
            epoch = replica.leader.leader_epoch
            if current_leader_epoch < epoch:
                raise FencedLeaderEpoch(f"leader epoch {current_leader_epoch} is over")
            if current_leader_epoch > epoch:
                raise UnknownLeaderEpoch(f"leader epoch {current_leader_epoch} is news here")
        return replica

    def follower_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> LeaderReplica | None:
        """See handlers.replica_port.Partitions."""
        replica = self._replicas.get((topic, partition))
        state = self._image.partition(topic, partition)
        if replica is None or replica.leader is not None or state is None:
            return None
        if current_leader_epoch not in (-1, state.leader_epoch):
            return None
        return replica

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """See handlers.replica_port.Partitions."""
        self.leader_of(topic, partition)
        log = self._replicas[topic, partition].log
        if "delete" not in log.config.cleanup_policies:
            raise PolicyViolation(
                f"{topic}-{partition} has cleanup.policy={log.config.cleanup_policy!r} without "
                "delete: its records are not deleted by offset"
            )
        return self._replicas[topic, partition].delete_records(
            log.high_watermark if before_offset == -1 else before_offset
        )

    async def keep_log_starts(self) -> None:
        """See handlers.replica_port.Partitions."""
        await self.upkeep.checkpoint()

    # --- following the metadata ------------------------------------------------------------------

    async def apply(self, image: MetadataImage) -> None:
        """Make this node's partitions what `image` says. Returns when they serve.

        A topic whose image is the same object as before did not change.
        """
        before, self._image = self._image, image
        for name, topic in before.topics.items():
            now = image.topics.get(name)
            if now is topic:
                continue
            if now is None or now.topic_id != topic.topic_id:
                await self._remove(topic, range(len(topic.partitions)))
            else:
                await self._remove(topic, self._taken_away(topic, now))
        changed = [
            Wanted(topic, index, topic.partitions[index], is_led_here)
            for name, topic in image.topics.items()
            for index, is_led_here in self._changed_here(before.topics.get(name), topic)
        ]
        await self._open_replicas([each for each in changed if each.key not in self._replicas])
        await self.fetchers.leave([each.replica_id for each in changed if each.is_led_here])
        self._resign_before(changed)
        await self._begin_epochs([each for each in changed if each.is_led_here])
        for number, each in enumerate(changed, 1):
            self._act_on(each)
            if number % MAKE_AT_ONCE == 0:
                await asyncio.sleep(0)
        if image.nodes is not before.nodes:
            self._insync.look_at_all()
            self._driver.carry_out()
        await self.fetchers.close_empty()
        await self.logs.set_strays_aside()

    def _taken_away(self, before: TopicImage, now: TopicImage) -> list[int]:
        """Partitions that had a replica here and have none any more."""
        return [
            index
            for index, (old, new) in enumerate(zip(before.partitions, now.partitions, strict=False))
            if old is not new
            and self._node_id in old.replicas
            and self._node_id not in new.replicas
        ]

    def _changed_here(
        self, before: TopicImage | None, now: TopicImage
    ) -> Iterable[tuple[int, bool]]:
        """(partition, whether this node leads it) of those here of which anything is new."""
        if before is now:
            return
        known: tuple[object, ...] = ()
        if before is not None and before.topic_id == now.topic_id:
            known = before.partitions if before.configs == now.configs else ()
        for index, state in enumerate(now.partitions):
            if index < len(known) and known[index] is state:
                continue
            if self._node_id in state.replicas:
                yield index, state.leader == self._node_id

    def configure(self, server: ServerConfig) -> None:
        """Use these settings from now on; logs that take a default from them follow at once."""
        before, self._server = self._server, server
        if self.cleaner is not None and server.broker != before.broker:
            self.cleaner.configure(server.broker)
        if server.log_defaults == before.log_defaults:
            return
        for (name, _), replica in self._replicas.items():
            topic = self._image.topics.get(name)
            if topic is not None:
                replica.reconfigure(self._log_config(topic))

    def _log_config(self, topic: TopicImage) -> LogConfig:
        """The topic's settings. What contradicts itself must not stop the node, nor lose records.

        Changes are checked before they are stored, but the settings a node is started with may be
        other ones by now.
        """
        for defaults in (self._server.log_defaults, LogConfig()):
            try:
                return LogConfig.from_kafka(topic.configs, defaults=defaults)
            except InvalidConfig as error:
                logger.warning("topic %s: %s", topic.name, error)
        return LogConfig(retention_ms=-1)

    def _resign_before(self, changed: Sequence[Wanted]) -> None:
        """A new leader epoch takes a while to reach the disk: nobody leads in the old one then."""
        for each in changed:
            replica = self._replicas.get(each.key)
            leader = None if replica is None else replica.leader
            if (
                replica is not None
                and leader is not None
                and (leader.leader_epoch < each.state.leader_epoch)
            ):
                replica.resign()
                self._tell_resigned(each.topic.name, each.partition)

    async def _begin_epochs(self, wanted: Sequence[Wanted]) -> None:
        """The epochs in which this node is about to lead reach the disk, many at a time."""
        begun = [
            (replica.log, each.state.leader_epoch)
            for each in wanted
            if (replica := self._replicas.get(each.key)) is not None
            and replica.log.epochs.latest_epoch < each.state.leader_epoch
        ]

        def begin(some: Sequence[tuple[PartitionLog, int]]) -> None:
            failed: set[DirectoryHealth] = set()
            for log, leader_epoch in some:
                if log.health in failed:
                    continue
                try:
                    log.assign_epoch(leader_epoch)
                except KafkaStorageError:
                    failed.add(log.health)

        await asyncio.gather(
            *(
                self.in_thread(partial(begin, begun[start : start + MAKE_AT_ONCE]))
                for start in range(0, len(begun), MAKE_AT_ONCE)
            )
        )
        self.on_failure()

    def _act_on(self, wanted: Wanted) -> None:
        """Lead a partition, or follow who does, if its log is here."""
        topic, index, state, is_led_here = wanted
        replica = self._replicas.get(wanted.key)
        if replica is None:
            return  # offline
        config = self._log_config(topic)
        if config != replica.log.config:
            replica.reconfigure(config)
        if not is_led_here:
            if replica.leader is not None:
                replica.resign()
                self._tell_resigned(topic.name, index)
            if state.leader != NO_LEADER:
                followed = Followed(topic.topic_id, replica, state.leader_epoch)
                self.fetchers.follow(followed, state.leader)
            return
        begins = replica.leader is None or replica.leader.leader_epoch < state.leader_epoch
        replica.become_leader(state)
        if begins and topic.name in INTERNAL_TOPICS and self.listener is not None:
            self.listener.on_leader(index, state.leader_epoch, replica)

    # --- replicas --------------------------------------------------------------------------------

    async def _open_replicas(self, wanted: Sequence[Wanted]) -> None:
        taken = await self.logs.take(wanted)
        self._offline.update(taken.offline)
        for each, log in taken.logs:
            self._add_replica(each, log)
        for each in taken.found:
            self.log_dirs.resume(each.key, self._replicas[each.key])

    def _add_replica(self, wanted: Wanted, log: PartitionLog) -> None:
        topic = wanted.topic
        self._offline.pop(wanted.key, None)
        self._replicas[wanted.key] = Replica(
            topic.name,
            wanted.partition,
            log,
            now_ms=self._now_ms,
            in_thread=self.in_thread,
            conversions=self._conversions,
            on_failure=self.on_failure,
            changed=self.upkeep.changed,
            may_use_reserve=topic.is_internal,
            fsyncs=self.fsyncs,
            node_id=self._node_id,
            monotonic_ms=_monotonic_ms,
            on_insync_work=self._on_insync_work,
        )

    def _on_insync_work(self, replica: Replica) -> None:
        self._insync.look_at(replica)
        self._driver.carry_out()

    async def _remove(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        """These partitions are not placed on this node any more; their records go."""
        gone = list(indexes)
        self.logs.forget((topic.topic_id, index) for index in gone)
        await self.fetchers.leave([(topic.topic_id, index) for index in gone])
        for index in gone:
            self._offline.pop((topic.name, index), None)
            replica = self._replicas.pop((topic.name, index), None)
            if replica is not None:
                replica.resign()
                self._tell_resigned(topic.name, index)
                await self.log_dirs.end((topic.name, index))
                await self.logs.retire(topic.name, index, replica.log, DELETE_SUFFIX)

    def _tell_resigned(self, topic: str, index: int) -> None:
        if topic in INTERNAL_TOPICS and self.listener is not None:
            self.listener.on_resigned(index)

    # --- failures --------------------------------------------------------------------------------

    def on_failure(self) -> None:
        """A disk failed: take the partitions of its directory out of service, and say so once."""
        if not self.logs.is_open:
            return  # closing
        directories = self.directories
        for directory in directories.all:
            failure = directory.health.failure
            if failure is None or directory.path in self._failed:
                continue
            self._failed.add(directory.path)
            logger.error("%s is offline until restart: %s", directory.path, failure)
            self.logs.on_failure_of_disk()
            self._take_offline(directory, failure)
        if not directories.online:
            self._on_all_offline(
                f"no log directory is left: {', '.join(sorted(self._failed))} failed"
            )

    def _take_offline(self, directory: LogDirectory, failure: str) -> None:
        for (topic, index), replica in list(self._replicas.items()):
            if replica.log.health is not directory.health:
                continue
            del self._replicas[topic, index]
            image = self._image.topics.get(topic)
            if image is not None:
                self.fetchers.drop((image.topic_id, index))
            self._offline[topic, index] = failure
            replica.fail_waiting(KafkaStorageError(failure))
            self._tell_resigned(topic, index)

    # --- what replication asks -------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def image(self) -> MetadataImage:
        """That this node acts on, or is about to."""
        return self._image

    @property
    def broker_epoch(self) -> int:
        """See replica_fetcher.FollowingNode."""
        node = self._image.nodes.get(self._node_id)
        return -1 if node is None else node.epoch

    @property
    def config(self) -> BrokerConfig:
        return self._server.broker

    @property
    def lag_time_max_ms(self) -> int:
        return self.config.replica_lag_time_max_ms

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """See replica_fetcher.FollowingNode."""
        node = self._image.nodes.get(node_id)
        return None if node is None else (node.host, node.port)

    def on_unreachable(self, node_id: int) -> None:
        """See replica_fetcher.FollowingNode."""

        async def tell() -> None:
            with contextlib.suppress(KafkaError, ConnectionFailed):
                await self._suspect(node_id)

        task = asyncio.get_running_loop().create_task(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def follower_asks(self, node_id: int, peer: str) -> None:
        """See handlers.replica_port.Partitions."""
        self._followers[peer] = node_id

    def on_closed(self, peer: str) -> None:
        """A follower that leads nothing is missed by nobody else, and acks=all waits for it."""
        node_id = self._followers.pop(peer, None)
        if node_id is not None and self._insync_sender is not None:
            self.on_unreachable(node_id)

    def truncate(self, replica: Replica, offset: int) -> None:
        """See replica_fetcher.FollowingNode."""
        directory = self.directories.of(replica.log)
        directory.truncate_log(replica.topic, replica.partition, offset)

    # --- what people ask -------------------------------------------------------------------------

    @property
    def replicas(self) -> list[Replica]:
        return list(self._replicas.values())

    @property
    def offline_count(self) -> int:
        """Log directories that failed or could not be opened."""
        directories = self.directories
        return len(directories.unusable) + len(directories.all) - len(directories.online)

    @property
    def short_count(self) -> int:
        """Log directories below their floor of free space."""
        return sum(each.health.headroom <= 0 for each in self.directories.online)

    @property
    def partition_count(self) -> int:
        return len(self._replicas)

    @property
    def size_in_bytes(self) -> int:
        return sum(replica.log.size_in_bytes for replica in self._replicas.values())


def _monotonic_ms() -> int:
    """Lags are counted on a clock that never jumps."""
    return int(asyncio.get_running_loop().time() * 1000)
