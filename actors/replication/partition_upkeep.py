"""What is done beside the requests for the partitions of a node, its blocking parts in threads.

    flush        by flush.ms, and once a segment is closed (so that recovery scans one at most)
    checkpoint   recovery points, high watermarks, log starts
    retain       old segments, idle producer ids
    delete       the files of what was deleted a while ago
    guard        the free space of the disks; see storage/disk/disk_guard

A round costs what has changed, not what is there: appends leave their replica in `changed`, and
only those are looked at several times a second. The slow rounds walk over all partitions, a few at
a time, so that no request waits for the walk.

Other rounds are added by `every`. A round that fails is logged and comes again; one that meets a
broken disk says so (on_failure) and the other disks' work goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from ...cluster.broker_config import BrokerConfig
from ...protocol.topic_partition import TopicPartition
from ...replication.log_flusher import FOREVER_MS, LogFlusher
from ...replication.procedure import Sequel
from ...replication.replica import Replica
from ...storage.directories.log_directories import LogDirectories
from ...storage.directories.log_directory import LogDirectory
from ...storage.disk.disk_guard import DiskGuard
from ...storage.disk.storage_failure import StorageFailure
from ...storage.log.retention import apply_retention
from .deletion_policy import load_deletion_policy
from .hosted_replica import InThread

logger = logging.getLogger(__name__)

ROUND_SECONDS = 0.2
GUARD_SECONDS = 1.0
DELETION_SECONDS = 10.0
AT_A_TIME = 100
"""Partitions of a slow round between two chances for requests: a millisecond or so."""


class Round(NamedTuple):
    seconds: float
    run: Callable[[], Awaitable[None]]


class PartitionUpkeep:
    """Runs on the node's loop from start() to stop(). `changed`: see replication.replica.

    `run` runs a sequel of the steps.
    """

    def __init__(
        self,
        directories: LogDirectories,
        replicas: Mapping[TopicPartition, Replica],
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        in_thread: InThread,
        changed: dict[Replica, None],
        run: Callable[[Sequel], Awaitable[None]],
        on_failure: Callable[[], None],
    ) -> None:
        self._directories = directories
        self._replicas = replicas
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._on_failure = on_failure
        self._run = run
        self._changed = changed
        self._flusher = LogFlusher(directories, changed, on_storage_failure=on_failure)
        self._guard = DiskGuard(config.bradbury_log_dir_min_free_bytes)
        self._guard_due = 0.0
        self._room_due = 0.0
        self._short: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._deletion_policy = load_deletion_policy(config.bradbury_log_deletion_policy)
        retention_seconds = config.log_retention_check_interval_ms / 1000
        self._rounds = [
            Round(ROUND_SECONDS, self._flush_changed),
            Round(ROUND_SECONDS, self._guard_space),
            Round(config.replica_high_watermark_checkpoint_interval_ms / 1000, self.checkpoint),
            Round(retention_seconds, self._retain_all),
            Round(min(DELETION_SECONDS, retention_seconds), self._delete_old_files),
            Round(ROUND_SECONDS, self._delete_old_directories),
        ]

    def every(self, seconds: float, run: Callable[[], Awaitable[None]]) -> None:
        """Add a round, before start()."""
        self._rounds.append(Round(seconds, run))

    def start(self) -> None:
        """Before the first request, so that the first appends find the floor of a disk, too."""
        for directory in self._directories.online:
            with contextlib.suppress(StorageFailure):  # it is offline, and the first round says so
                directory.health.headroom = self._guard.headroom(*directory.space())
        self._task = asyncio.create_task(self._keep_up())

    async def stop(self) -> None:
        """Returns when nothing of it runs any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._run(self._flusher.settle())

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        due = [loop.time() + each.seconds for each in self._rounds]
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            for index, each in enumerate(self._rounds):
                if loop.time() < due[index]:
                    continue
                due[index] = loop.time() + each.seconds
                try:
                    await each.run()
                except StorageFailure:
                    self._on_failure()
                except Exception:
                    logger.exception("upkeep of the partitions failed")

    # --- rounds ----------------------------------------------------------------------------------

    async def _flush_changed(self) -> None:
        await self._run(self._flusher.flush_changed(self._now_ms()))

    async def _guard_space(self) -> None:
        """More often while there are appends: a fast disk fills a lot in a second."""
        now = asyncio.get_running_loop().time()
        if now < self._guard_due and not self._changed:
            return
        self._guard_due = now + GUARD_SECONDS
        for directory in self._directories.online:
            health = directory.health
            before = health.headroom
            try:
                free, total = await self._in_thread(directory.space)
            except StorageFailure:
                self._on_failure()
                continue
            # What was appended meanwhile may or may not be in the disk's answer: it counts.
            appended = before - health.headroom
            health.headroom = self._guard.headroom(free, total) - appended
            is_short, was_short = health.headroom <= 0, directory.path in self._short
            if is_short and not was_short:
                self._short.add(directory.path)
                logger.error(
                    "%s has %d bytes free, its floor is %d: producers are refused",
                    directory.path,
                    free,
                    self._guard.floor(total),
                )
            elif was_short and not is_short:
                self._short.discard(directory.path)
                logger.warning("%s has %d bytes free again: writing goes on", directory.path, free)
            if is_short and (not was_short or now >= self._room_due):
                await self._make_room(directory)

    async def _make_room(self, directory: LogDirectory) -> None:
        """Retention now, and what is deleted goes at once: file.delete.delay.ms can wait."""
        self._room_due = asyncio.get_running_loop().time() + DELETION_SECONDS
        now = self._now_ms()
        async for replica in self._slowly():
            if replica.log.health is directory.health:
                self._retain(replica, now)
                replica.log.local.delete_old_files(FOREVER_MS)
        paths = directory.deletions.take_due(FOREVER_MS)
        await self._in_thread(partial(directory.deletions.delete, paths))

    async def checkpoint(self) -> None:
        """Returns when it is on the disks."""
        await self._run(self._flusher.checkpoint())

    async def _retain_all(self) -> None:
        now = self._now_ms()
        async for replica in self._slowly():
            try:
                self._retain(replica, now)
            except StorageFailure:
                self._on_failure()

    def _retain(self, replica: Replica, now_ms: int) -> None:
        for deletion in apply_retention(replica.log, now_ms, self._deletion_policy):
            logger.info("%s-%d: deleting %s", replica.topic, replica.partition, deletion)
        replica.log.local.expire_producers(now_ms)

    async def _delete_old_files(self) -> None:
        now = self._now_ms()
        async for replica in self._slowly():
            try:
                replica.log.local.delete_old_files(now)
            except StorageFailure:
                self._on_failure()

    async def _delete_old_directories(self) -> None:
        """Of deleted partitions. Few wait for it, so those that are due go soon."""
        now = self._now_ms()
        for directory in self._directories.online:
            paths = directory.deletions.take_due(now)
            if paths:
                await self._in_thread(partial(directory.deletions.delete, paths))

    async def _slowly(self) -> AsyncIterator[Replica]:
        """Every replica of this moment that is still here when its turn comes."""
        for number, (key, replica) in enumerate(list(self._replicas.items()), 1):
            if self._replicas.get(key) is replica:
                yield replica
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
