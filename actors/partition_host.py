"""The partitions of one node: its log directories, and a replica per partition.

Follows the metadata image: a partition that names this node gets a log; one that it leads serves
as soon as its leader epoch is on the disk; a removed topic's log is renamed away at once and its
files deleted later. A directory whose topic the metadata does not know is set aside as `-stray` and
never deleted: it may be somebody's only copy.

After its first I/O failure a log directory is offline until restart. Requests for its partitions
are answered KAFKA_STORAGE_ERROR, the other directories serve on; with the last one the node ends.
A partition whose directory was missing at the start is offline in the same way.

Not here: what runs beside the requests (partition_upkeep), moves (replica_mover).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol, TypeVar
from uuid import uuid4

from ..cluster.broker_config import BrokerConfig
from ..cluster.metadata_image import MetadataImage, PartitionImage, TopicImage
from ..cluster.topic_name import INTERNAL_TOPICS
from ..handlers.context import LeaderReplica
from ..handlers.request_metrics import Histogram
from ..handlers.server_config import ServerConfig
from ..protocol.errors import (
    FencedLeaderEpoch,
    InvalidConfig,
    KafkaStorageError,
    NotLeaderOrFollower,
    PolicyViolation,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from ..storage.file_system import FileSystem
from ..storage.log_config import LogConfig
from ..storage.log_directories import OFFLINE, LogDirectories
from ..storage.log_directory import LogDirectory
from ..storage.partition_directory import DELETE_SUFFIX, STRAY_SUFFIX, parse_directory_name
from ..storage.partition_log import PartitionLog
from ..storage.replica_directories import ReplicaId
from ..storage.storage_failure import (
    DataDirectoryError,
    DirectoryHealth,
    DirectoryUnusable,
    StorageFailure,
)
from .carry_through import until_thread_ends
from .conversion_queue import ConversionPool
from .log_cleaner import LogCleaner
from .partition_upkeep import PartitionUpkeep
from .replica import Replica
from .replica_mover import ReplicaMover

logger = logging.getLogger("bradbury.partitions")

T = TypeVar("T")
TopicPartition = tuple[str, int]
STORAGE_THREADS = 4
MAKE_AT_ONCE = 64
"""Logs that one thread makes in a row: enough threads get work, and few jobs are handed out."""


class Wanted(NamedTuple):
    """A partition that the metadata places on this node."""

    topic: TopicImage
    partition: int
    state: PartitionImage

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.partition

    @property
    def replica_id(self) -> ReplicaId:
        return self.topic.topic_id, self.partition


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
        self._paths = tuple(paths)
        self._file_system = file_system
        self._config = config
        self._server = ServerConfig()
        self._now_ms = now_ms
        self._on_all_offline = on_all_offline
        self._threads = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="storage")
        self._conversions = ConversionPool()
        self._directories: LogDirectories | None = None
        self._unclaimed: set[PartitionLog] = set()
        self._replicas: dict[TopicPartition, Replica] = {}
        self._offline: dict[TopicPartition, str] = {}
        self._failed: set[str] = set()
        self._image = MetadataImage()
        self.fsyncs = Histogram()
        self._node_id = -1
        self._upkeep: PartitionUpkeep | None = None
        self.cleaner: LogCleaner | None = None
        self._mover: ReplicaMover | None = None
        self._noting = asyncio.Lock()
        self.listener: LeadershipListener | None = None

    # --- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directories and recover their logs. Blocking: in a thread, before the loop's.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        directories = LogDirectories.open(
            self._file_system,
            self._paths,
            directory_ids=[str(uuid4()) for _ in self._paths],
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
        )
        self._directories = directories
        for path, reason in directories.unusable.items():
            logger.error("%s is offline until restart: %s", path, reason)
        try:
            said = directories.load_logs(lambda topic: LogConfig(), now_ms=self._now_ms())
        except (StorageFailure, DataDirectoryError) as error:
            self._directories = None
            directories.close(clean=False)
            if isinstance(error, DataDirectoryError):
                raise
            raise DirectoryUnusable(f"no data directory can be read: {error}") from error
        for sentence in said:
            logger.warning("%s", sentence)
        for directory in directories.online:
            for (topic, partition), log in directory.logs.items():
                self._unclaimed.add(log)
                if log.recovery.bytes_truncated:
                    logger.warning("%s-%d recovered: %s", topic, partition, log.recovery)

    @property
    def directories(self) -> LogDirectories:
        assert self._directories is not None, "open() comes first"
        return self._directories

    @property
    def upkeep(self) -> PartitionUpkeep:
        assert self._upkeep is not None, "start() comes first"
        return self._upkeep

    @property
    def log_dirs(self) -> ReplicaMover:
        """See handlers.context.LogDirs."""
        assert self._mover is not None, "start() comes first"
        return self._mover

    def start(self, node_id: int) -> None:
        self._node_id = node_id
        self._upkeep = PartitionUpkeep(
            self.directories,
            self._replicas,
            self._config,
            now_ms=self._now_ms,
            in_thread=self.in_thread,
            on_failure=self._on_failure,
        )
        self._mover = ReplicaMover(
            self.directories,
            self._replicas,
            now_ms=self._now_ms,
            in_thread=self.in_thread,
            write_note=self._write_note,
            on_failure=self._on_failure,
        )
        self._upkeep.start()
        self.cleaner = LogCleaner(
            lambda: [replica.log for replica in self._replicas.values()],
            self._config,
            now_ms=self._now_ms,
            checkpoint=self._upkeep.checkpoint,
            on_failure=self._on_failure,
        )
        self.cleaner.start()

    async def close(self) -> None:
        """Flush everything, write the checkpoints and the clean marks."""
        if self._mover is not None:
            await self._mover.close()
        if self.cleaner is not None:
            await self.cleaner.stop()
        if self._upkeep is not None:
            await self._upkeep.stop()
        for replica in self._replicas.values():
            replica.resign()
        if self._directories is not None:
            directories, self._directories = self._directories, None
            await self.in_thread(partial(directories.close, clean=True))
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
        """See handlers.context.Partitions."""
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

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """See handlers.context.Partitions."""
        self.leader_of(topic, partition)
        log = self._replicas[topic, partition].log
        if "delete" not in log.config.cleanup_policies:
            raise PolicyViolation(
                f"{topic}-{partition} is only compacted (cleanup.policy={log.config.cleanup_policy}"
                "): its records go when their keys get newer ones"
            )
        log.advance_log_start_offset(log.high_watermark if before_offset == -1 else before_offset)
        return log.log_start_offset

    async def keep_log_starts(self) -> None:
        """See handlers.context.Partitions."""
        await self.upkeep.checkpoint()

    # --- following the metadata ------------------------------------------------------------------

    async def apply(self, image: MetadataImage) -> None:
        """Make this node's partitions what `image` says. Returns when they serve.

        A topic whose image is the same object as before did not change.
        """
        before, self._image = self._image, image
        for name, topic in before.topics.items():
            now = image.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                await self._remove(topic)
        changed = [
            Wanted(topic, index, state)
            for name, topic in image.topics.items()
            if before.topics.get(name) is not topic
            for index, state in enumerate(topic.partitions)
            if self._node_id in state.replicas
        ]
        await self._open_logs([each for each in changed if each.key not in self._replicas])
        await self._begin_epochs(changed)
        for number, each in enumerate(changed, 1):
            self._follow(each)
            if number % MAKE_AT_ONCE == 0:
                await asyncio.sleep(0)
        await self._set_strays_aside()

    def configure(self, server: ServerConfig) -> None:
        """Use these settings from now on; logs that take a default from them follow at once."""
        before, self._server = self._server, server
        if server.log_defaults == before.log_defaults:
            return
        for (name, _), replica in self._replicas.items():
            topic = self._image.topics.get(name)
            if topic is not None:
                replica.log.reconfigure(self._log_config(topic))

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

    async def _begin_epochs(self, wanted: Sequence[Wanted]) -> None:
        """The epochs in which this node is about to lead reach the disk, many at a time."""
        begun = [
            (replica.log, each.state.leader_epoch)
            for each in wanted
            if each.state.leader == self._node_id
            and (replica := self._replicas.get(each.key)) is not None
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
        self._on_failure()

    def _follow(self, wanted: Wanted) -> None:
        """Take or leave the lead of a partition, if its log is here."""
        topic, index, state = wanted
        replica = self._replicas.get(wanted.key)
        if replica is None:
            return  # offline
        config = self._log_config(topic)
        if config != replica.log.config:
            replica.log.reconfigure(config)
        if state.leader != self._node_id:
            if replica.leader is not None:
                replica.resign()
                self._tell_resigned(topic.name, index)
            return
        if replica.leader is None or replica.leader.leader_epoch < state.leader_epoch:
            replica.become_leader(state.leader_epoch, state.partition_epoch)
            if topic.name in INTERNAL_TOPICS and self.listener is not None:
                self.listener.on_leader(index, state.leader_epoch, replica)

    # --- logs ------------------------------------------------------------------------------------

    async def _open_logs(self, wanted: Sequence[Wanted]) -> None:
        """Take the logs that are there; make those that are not, noted before they are made.

        A log that cannot be made, or whose directory is missing, leaves its partition offline.
        """
        directories = self.directories
        missing: list[Wanted] = []
        for each in wanted:
            log = directories.claim(each.key, each.topic.topic_id)
            if log is None:
                missing.append(each)
                continue
            self._unclaimed.discard(log)
            self._add_replica(each, log)
            self.log_dirs.resume(each.key, self._replicas[each.key])
        for each in missing:
            await self._clear_name(each)
        places = directories.place(each.replica_id for each in missing)
        try:
            await self._write_note()
        except KafkaStorageError as error:
            self._on_failure()
            for each in missing:
                self._offline[each.key] = str(error)
            return
        jobs: dict[LogDirectory, list[Wanted]] = {}
        for each in missing:
            directory = places.get(each.replica_id)
            if directory is None:
                self._offline[each.key] = OFFLINE.format(*each.key)
            else:
                jobs.setdefault(directory, []).append(each)
        await asyncio.gather(
            *(
                self._make_logs(directory, each[start : start + MAKE_AT_ONCE])
                for directory, each in jobs.items()
                for start in range(0, len(each), MAKE_AT_ONCE)
            )
        )

    async def _write_note(self) -> None:
        """Where the partitions are, durably. Raises KafkaStorageError."""
        async with self._noting:
            note = self.directories.begin_note()
            if note is not None:
                await self.in_thread(note.run)

    async def _make_logs(self, directory: LogDirectory, wanted: Sequence[Wanted]) -> None:
        made: list[tuple[Wanted, PartitionLog]] = []

        def make() -> None:
            for each in wanted:
                log = directory.make_log(
                    each.topic.name,
                    each.partition,
                    each.topic.topic_id,
                    self._log_config(each.topic),
                    leader_epoch=each.state.leader_epoch,
                    sync_names=False,
                )
                made.append((each, log))
            directory.sync_names()

        try:
            await self.in_thread(make)
        except KafkaStorageError as error:
            self._on_failure()
            for each in wanted[len(made) :]:
                self._offline[each.key] = str(error)
        for each, log in made:
            directory.logs[each.key] = log
            self._add_replica(each, log)

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
            on_failure=self._on_failure,
            changed=self.upkeep.changed,
            may_use_reserve=topic.is_internal,
            fsyncs=self.fsyncs,
        )

    async def _remove(self, topic: TopicImage) -> None:
        self.directories.forget((topic.topic_id, index) for index in range(len(topic.partitions)))
        for index in range(len(topic.partitions)):
            self._offline.pop((topic.name, index), None)
            replica = self._replicas.pop((topic.name, index), None)
            if replica is not None:
                replica.resign()
                self._tell_resigned(topic.name, index)
                await self.log_dirs.end((topic.name, index))
                await self._retire(topic.name, index, replica.log, DELETE_SUFFIX)

    async def _clear_name(self, wanted: Wanted) -> None:
        """A log of this name that belongs to another topic id, which is no more."""
        for directory in self.directories.online:
            log = directory.logs.get(wanted.key)
            if log in self._unclaimed:
                await self._set_aside(*wanted.key, log)

    async def _set_strays_aside(self) -> None:
        """Logs on the disk that the metadata, now known, does not place here."""
        for log in list(self._unclaimed):
            found = parse_directory_name(log.directory.rpartition("/")[2])
            assert found is not None, log.directory
            await self._set_aside(*found, log)

    async def _set_aside(self, topic: str, index: int, log: PartitionLog) -> None:
        self._unclaimed.discard(log)
        logger.warning(
            "the metadata knows no %s-%d with topic id %s: setting its log aside as -stray",
            topic,
            index,
            log.topic_id,
        )
        await self._retire(topic, index, log, STRAY_SUFFIX)

    async def _retire(self, topic: str, index: int, log: PartitionLog, suffix: str) -> None:
        """Close a log and give its directory, durably, a name under which it is not opened."""
        directory = self.directories.of(log)
        try:
            directory.release_log(topic, index)
            target = await self.in_thread(
                partial(
                    directory.retire,
                    log.directory,
                    topic,
                    index,
                    suffix=suffix,
                    unique_id=uuid4(),
                )
            )
        except StorageFailure:
            self._on_failure()
            return
        if suffix == DELETE_SUFFIX:
            directory.doom(target, self._now_ms() + log.config.file_delete_delay_ms)

    def _tell_resigned(self, topic: str, index: int) -> None:
        if topic in INTERNAL_TOPICS and self.listener is not None:
            self.listener.on_resigned(index)

    # --- failures --------------------------------------------------------------------------------

    def _on_failure(self) -> None:
        """A disk failed: take the partitions of its directory out of service, and say so once."""
        directories = self._directories
        if directories is None:
            return  # closing
        for directory in directories.all:
            failure = directory.health.failure
            if failure is None or directory.path in self._failed:
                continue
            self._failed.add(directory.path)
            logger.error("%s is offline until restart: %s", directory.path, failure)
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
            self._offline[topic, index] = failure
            replica.fail_waiting(KafkaStorageError(failure))
            self._tell_resigned(topic, index)

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
