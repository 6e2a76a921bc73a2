"""The partitions of one node: one log directory, a replica per partition, and their upkeep.

Follows the metadata image: a partition that names this node gets a log; one that it leads serves
as soon as its leader epoch is on the disk; a removed topic's log is renamed away at once and its
files deleted later. A directory whose topic the metadata does not know is set aside as `-stray` and
never deleted: it may be somebody's only copy.

Upkeep runs beside the requests, its blocking parts in threads: fsync by flush.ms, checkpoints of
recovery points and high watermarks, retention, expiry of producer ids, deletion of old files.
After the first I/O failure the directory is offline until restart: every request that needs it is
answered KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar
from uuid import uuid4

from ..cluster.broker_config import BrokerConfig
from ..cluster.metadata_image import MetadataImage, PartitionImage, TopicImage
from ..cluster.topic_name import INTERNAL_TOPICS
from ..handlers.context import LeaderReplica
from ..protocol.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from ..storage.file_system import FileSystem
from ..storage.log_config import LogConfig
from ..storage.log_directory import LogDirectory
from ..storage.partition_log import PartitionLog
from ..storage.storage_failure import StorageFailure
from .replica import Replica

logger = logging.getLogger("bradbury.partitions")

T = TypeVar("T")
TopicPartition = tuple[str, int]
UPKEEP_SECONDS = 0.2
PARALLEL_OPENS = 4


class LeadershipListener(Protocol):
    """Told of the internal topic's partitions: the group coordinator."""

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None: ...
    def on_resigned(self, partition: int) -> None: ...


class PartitionHost:
    """One event loop. `open` first, then `apply` for every image, `close` at last."""

    def __init__(
        self,
        path: str,
        directory_id: str,
        file_system: FileSystem,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._path = path
        self._directory_id = directory_id
        self._file_system = file_system
        self._config = config
        self._now_ms = now_ms
        self._threads = ThreadPoolExecutor(PARALLEL_OPENS, thread_name_prefix="storage")
        self._directory: LogDirectory | None = None
        self._unclaimed: dict[TopicPartition, PartitionLog] = {}
        self._replicas: dict[TopicPartition, Replica] = {}
        self._image = MetadataImage()
        # A LogDirectory is for one thread at a time.
        self._directory_lock = asyncio.Lock()
        self._node_id = -1
        self._upkeep: asyncio.Task[None] | None = None
        self.listener: LeadershipListener | None = None

    # --- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directory and recover its logs. Blocking: call in a thread, before the loop's.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        self._directory = LogDirectory.open(
            self._file_system, self._path, directory_id=self._directory_id
        )
        self._unclaimed = self._directory.load_logs(
            lambda topic: LogConfig(), now_ms=self._now_ms()
        )
        for (topic, partition), log in self._unclaimed.items():
            if log.recovery.bytes_truncated:
                logger.warning("%s-%d recovered: %s", topic, partition, log.recovery)

    @property
    def directory(self) -> LogDirectory:
        assert self._directory is not None, "open() comes first"
        return self._directory

    def start(self, node_id: int) -> None:
        self._node_id = node_id
        self._upkeep = asyncio.create_task(self._keep_up())

    async def close(self) -> None:
        """Flush everything, write the checkpoints and the clean mark."""
        if self._upkeep is not None:
            self._upkeep.cancel()
        for replica in self._replicas.values():
            replica.resign()
        if self._directory is not None:
            directory, self._directory = self._directory, None
            async with self._directory_lock:
                await self.in_thread(partial(directory.close, clean=True))
        self._threads.shutdown(wait=True)

    async def _on_directory(self, call: Callable[[], T]) -> T:
        """A change of the directory, in a thread, one at a time."""
        async with self._directory_lock:
            return await self.in_thread(call)

    async def in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    @property
    def is_online(self) -> bool:
        return self.directory.health.failure is None

    # --- handlers' port --------------------------------------------------------------------------

    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> LeaderReplica:
        """See handlers.context.Partitions."""
        replica = self._replicas.get((topic, partition))
        if replica is None or replica.leader is None:
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
        jobs: list[Awaitable[None]] = []
        for name, topic in image.topics.items():
            if before.topics.get(name) is topic:
                continue
            for index, state in enumerate(topic.partitions):
                if self._node_id in state.replicas:
                    jobs.append(self._follow(topic, index, state))
        results = await asyncio.gather(*jobs, return_exceptions=True)
        for error in results:
            if isinstance(error, StorageFailure):
                self._go_offline()
            elif isinstance(error, BaseException):
                raise error
        await self._set_strays_aside()

    async def _follow(self, topic: TopicImage, index: int, state: PartitionImage) -> None:
        """Open the log if need be and take or leave the lead."""
        replica = self._replicas.get((topic.name, index))
        if replica is None:
            log = await self._open_log(topic, index)
            replica = Replica(
                topic.name,
                index,
                log,
                now_ms=self._now_ms,
                in_thread=self.in_thread,
                on_failure=self._go_offline,
            )
            self._replicas[topic.name, index] = replica
        else:
            config = _log_config(topic)
            if config != replica.log.config:
                replica.log.reconfigure(config)
        if state.leader != self._node_id:
            if replica.leader is not None:
                replica.resign()
                self._tell_resigned(topic.name, index)
            return
        if replica.leader is None or replica.leader.leader_epoch < state.leader_epoch:
            await self.in_thread(partial(replica.log.assign_epoch, state.leader_epoch))
            replica.become_leader(state.leader_epoch, state.partition_epoch)
            if topic.name in INTERNAL_TOPICS and self.listener is not None:
                self.listener.on_leader(index, state.leader_epoch, replica)

    async def _open_log(self, topic: TopicImage, index: int) -> PartitionLog:
        config = _log_config(topic)
        log = self._unclaimed.get((topic.name, index))
        if log is not None and log.topic_id == topic.topic_id:
            del self._unclaimed[topic.name, index]
            log.reconfigure(config)
            return log
        if log is not None:
            await self._set_aside(topic.name, index)
        return await self._on_directory(
            partial(self.directory.create_log, topic.name, index, topic.topic_id, config)
        )

    async def _remove(self, topic: TopicImage) -> None:
        for index in range(len(topic.partitions)):
            replica = self._replicas.pop((topic.name, index), None)
            if replica is not None:
                replica.resign()
                self._tell_resigned(topic.name, index)
                await self._on_directory(
                    partial(
                        self.directory.remove_log,
                        topic.name,
                        index,
                        unique_id=uuid4(),
                        now_ms=self._now_ms(),
                    )
                )

    async def _set_strays_aside(self) -> None:
        """Logs on the disk that the metadata, now known, does not place here."""
        for topic, index in list(self._unclaimed):
            await self._set_aside(topic, index)

    async def _set_aside(self, topic: str, index: int) -> None:
        log = self._unclaimed.pop((topic, index))
        logger.warning(
            "the metadata knows no %s-%d with topic id %s: setting its log aside as -stray",
            topic,
            index,
            log.topic_id,
        )
        await self._on_directory(partial(self.directory.set_aside, topic, index, unique_id=uuid4()))

    def _tell_resigned(self, topic: str, index: int) -> None:
        if topic in INTERNAL_TOPICS and self.listener is not None:
            self.listener.on_resigned(index)

    # --- upkeep ----------------------------------------------------------------------------------

    def _go_offline(self) -> None:
        failure = self.directory.health.failure or "the log directory is offline"
        logger.error("%s is offline until restart: %s", self._path, failure)
        for replica in self._replicas.values():
            replica.fail_waiting(KafkaStorageError(failure))

    async def _keep_up(self) -> None:
        """A failed round is logged and the next one comes; a failed disk ends them."""
        loop = asyncio.get_running_loop()
        config = self._config
        every: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (UPKEEP_SECONDS, self._flush_due),
            (config.replica_high_watermark_checkpoint_interval_ms / 1000, self._checkpoint),
            (config.log_retention_check_interval_ms / 1000, self._retain),
            (min(10.0, config.log_retention_check_interval_ms / 1000), self._delete_old_files),
        ]
        due = [(loop.time() + seconds, seconds, action) for seconds, action in every]
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            for index, (at, seconds, action) in enumerate(due):
                if loop.time() < at:
                    continue
                due[index] = (loop.time() + seconds, seconds, action)
                try:
                    await action()
                except StorageFailure:
                    self._go_offline()
                    return
                except Exception:
                    logger.exception("upkeep of %s failed", self._path)

    async def _flush_due(self) -> None:
        """By flush.ms; and once a segment is closed, so that recovery scans one segment at most."""
        now = self._now_ms()
        for replica in list(self._replicas.values()):
            log = replica.log
            if log.needs_flush(now) or log.recovery_point < log.segments[-1].base_offset:
                await replica.flush()

    async def _checkpoint(self) -> None:
        async with self._directory_lock:
            work = self.directory.begin_checkpoint()
            if work is not None:
                await self.in_thread(work.run)

    async def _retain(self) -> None:
        now = self._now_ms()
        for replica in list(self._replicas.values()):
            for deletion in replica.log.apply_retention(now):
                logger.info("%s-%d: deleting %s", replica.topic, replica.partition, deletion)
            replica.log.expire_producers(now)

    async def _delete_old_files(self) -> None:
        now = self._now_ms()
        for replica in list(self._replicas.values()):
            replica.log.delete_old_files(now)
        await self._on_directory(partial(self.directory.delete_old_directories, now))

    # --- what people ask -------------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        return len(self._replicas)

    @property
    def size_in_bytes(self) -> int:
        return sum(replica.log.size_in_bytes for replica in self._replicas.values())


def _log_config(topic: TopicImage) -> LogConfig:
    """The topic's settings.

    An internal topic is compacted, which users may not ask for yet, and fsynced before an answer: a
    committed offset survives a power cut. Many commits share one fsync.
    """
    if topic.is_internal:
        return LogConfig(
            cleanup_policy=topic.configs.get("cleanup.policy", "delete"), flush_messages=1
        )
    return LogConfig.from_kafka(topic.configs)
