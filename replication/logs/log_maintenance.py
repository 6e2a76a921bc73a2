"""Log maintenance: background work on the logs of a node, in order.

    flush        by flush.ms, and once a segment is closed (so that recovery scans one at most)
    checkpoint   recovery points, high watermarks, log starts
    retain       retention of old segments, expiration of idle producer ids
    delete       files of segments and partitions that were deleted a while ago
    guard        the free space of the disks; see storage/disk/disk_guard

The cost of a fast round depends on what has changed, not on the number of partitions: appends add
their replica to `changed`, and only those are checked several times a second. The slow rounds walk
over all partitions, a few at a time, so that no request waits for the walk. One round runs after
the other: requests are handled between two of them, and while one waits for the disk.

A round that fails is logged and run again when next due; after a disk failure the directory is
offline, and the work on the other disks continues.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from ...cluster.broker_config import BrokerConfig
from ...protocol.errors import KafkaStorageError
from ...protocol.topic_partition import TopicPartitionPair
from ...storage.directories.log_directories import LogDirectories
from ...storage.directories.log_directory import LogDirectory
from ...storage.disk.disk_guard import DiskGuard
from ...storage.disk.storage_failure import StorageFailure
from ...storage.log.partition_log import PartitionLog
from ...storage.log.retention import RETENTION_POLICY, DeletionPolicy, apply_retention
from ...storage.segments.closed_segments import ListSync
from ..effects import Effects
from ..partition.replica import Replica
from ..procedure import ProcedureSteps, Turn
from .log_flusher import FOREVER_MS, LogFlusher

logger = logging.getLogger(__name__)

ROUND_MS = 200
"""Interval of checks for due rounds."""
GUARD_MS = 1000
DELETION_MS = 10_000
AT_A_TIME = 100
"""Partitions that a slow round visits before requests are handled: a millisecond or so."""


class Round:
    """Periodic work, every `every_ms`. due_ms: time of the next run; None until the first check."""

    __slots__ = ("due_ms", "every_ms", "run")

    def __init__(self, every_ms: int, run: Callable[[], ProcedureSteps]) -> None:
        self.every_ms = every_ms
        self.run = run
        self.due_ms: int | None = None


class LogMaintenance:
    """Maintenance of the logs. `begin` before the first request, `due_rounds` every ROUND_MS;
    `halt`, `settle` at last.
    """

    def __init__(
        self,
        directories: LogDirectories,
        replicas: Mapping[TopicPartitionPair, Replica],
        config: BrokerConfig,
        effects: Effects,
        *,
        changed: dict[Replica, None],
        on_storage_failure: Callable[[], None],
        deletion_policy: DeletionPolicy = RETENTION_POLICY,
    ) -> None:
        """`changed`: see replica.ReplicaHost."""
        self._directories = directories
        self._replicas = replicas
        self._effects = effects
        self._changed = changed
        self._on_storage_failure = on_storage_failure
        self._deletion_policy = deletion_policy
        self._flusher = LogFlusher(directories, changed, on_storage_failure=on_storage_failure)
        self._guard = DiskGuard(config.bradbury_log_dir_min_free_bytes)
        self._guard_due_ms = self._room_due_ms = 0
        self._short: set[str] = set()
        self._now_ms = self._wall_ms = 0
        self._is_halted = False
        retention_ms = config.log_retention_check_interval_ms
        self._rounds = (
            Round(ROUND_MS, self._flush_changed),
            Round(ROUND_MS, self._guard_space),
            Round(config.replica_high_watermark_checkpoint_interval_ms, self.checkpoint),
            Round(retention_ms, self._retain_all),
            Round(min(DELETION_MS, retention_ms), self._delete_old_files),
            Round(ROUND_MS, self._delete_old_directories),
        )

    def begin(self) -> None:
        """Measure the free space of the disks, so that the first appends are limited, too."""
        for directory in self._directories.online:
            with contextlib.suppress(StorageFailure):  # it is offline, and the first round says so
                directory.health.headroom = self._guard.headroom(*directory.space())

    def due_rounds(self, now_ms: int, wall_ms: int) -> ProcedureSteps:
        """Run the rounds that are due, one after the other; never called twice at a time."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        for each in self._rounds:
            if each.due_ms is None:
                each.due_ms = now_ms + each.every_ms - ROUND_MS
            if self._is_halted or now_ms < each.due_ms:
                continue
            each.due_ms = now_ms + each.every_ms
            try:
                yield from each.run()
            except StorageFailure:
                self._on_storage_failure()
            except Exception:
                logger.exception("log maintenance failed")

    def halt(self) -> None:
        """Halt: finish only the work under way."""
        self._is_halted = True

    def settle(self) -> ProcedureSteps:
        """End when no checkpoint is being written."""
        return self._flusher.settle()

    def checkpoint(self, log: PartitionLog | None = None) -> ProcedureSteps:
        """See LogFlusher."""
        return self._flusher.checkpoint(log)

    def note_gaps(self, log: PartitionLog) -> ProcedureSteps:
        """See LogFlusher."""
        return self._flusher.note_gaps(log)

    # --- rounds ----------------------------------------------------------------------------------

    def _flush_changed(self) -> ProcedureSteps:
        return self._flusher.flush_changed(self._wall_ms)

    def _guard_space(self) -> ProcedureSteps:
        """Check the free space of the disks; more often during appends, as a fast disk fills
        quickly.
        """
        if self._now_ms < self._guard_due_ms and not self._changed:
            return
        self._guard_due_ms = self._now_ms + GUARD_MS
        for directory in self._directories.online:
            health = directory.health
            before = health.headroom
            query = SpaceQuery(directory)
            [failure] = yield [query]
            if isinstance(failure, KafkaStorageError):
                self._on_storage_failure()
                continue
            if failure is not None:
                raise failure
            # Bytes appended meanwhile may not be in the disk's answer yet: they are subtracted.
            appended = before - health.headroom
            health.headroom = self._guard.headroom(query.free, query.total) - appended
            is_short, was_short = health.headroom <= 0, directory.path in self._short
            if is_short and not was_short:
                self._short.add(directory.path)
                logger.error(
                    "%s has %d bytes free, less than its minimum of %d: producers are refused",
                    directory.path,
                    query.free,
                    self._guard.floor(query.total),
                )
            elif was_short and not is_short:
                self._short.discard(directory.path)
                logger.warning(
                    "%s has %d bytes free again: producers are accepted", directory.path, query.free
                )
            if is_short and (not was_short or self._now_ms >= self._room_due_ms):
                yield from self._make_room(directory)

    def _make_room(self, directory: LogDirectory) -> ProcedureSteps:
        """Apply retention now, and delete files at once: file.delete.delay.ms can wait."""
        self._room_due_ms = self._now_ms + DELETION_MS

        def on_this_disk(act: Callable[[Replica], object]) -> ProcedureSteps:
            yield from self._walk(
                lambda replica: replica.log.health is directory.health and act(replica)
            )

        yield from on_this_disk(self._retain)
        yield from self.checkpoint()  # as in _delete_old_files; a full disk may refuse it
        yield from self._sync_lists(FOREVER_MS, directory)
        yield from on_this_disk(lambda replica: self._unlink(replica, FOREVER_MS))
        yield from self._delete(directory, FOREVER_MS)

    def _retain_all(self) -> ProcedureSteps:
        return self._walk(self._retain)

    def _retain(self, replica: Replica) -> None:
        for deletion in apply_retention(replica.log, self._wall_ms, self._deletion_policy):
            logger.info("%s-%d: deleting %s", replica.topic, replica.partition, deletion)
        replica.log.local.expire_producers(self._wall_ms)

    def _delete_old_files(self) -> ProcedureSteps:
        """Delete files that are due. Log starts and the lists of segments must be durable first:
        otherwise a start would report deleted segments as lost. If the disk has no room for that,
        the log files are deleted, to make room, and the small files beside them stay until it has.
        """
        yield from self.checkpoint()
        yield from self._sync_lists(self._wall_ms)
        yield from self._walk(lambda replica: self._unlink(replica, self._wall_ms))

    def _unlink(self, replica: Replica, due_ms: int) -> None:
        log = replica.log
        is_refused = self._directories.of(log) in self._flusher.refused
        log.local.delete_old_files(due_ms, keeps_marks=is_refused)

    def _sync_lists(self, due_ms: int, directory: LogDirectory | None = None) -> ProcedureSteps:
        """Sync the lists of segments in advance, so that delete_old_files does not wait for the
        disk. If that fails, delete_old_files repeats it and reports the error.
        """
        lists: list[ListSync] = []

        def begin(replica: Replica) -> None:
            local = replica.log.local
            if directory is None or local.health is directory.health:
                with contextlib.suppress(OSError):
                    listing = local.closed.begin_deletion(local.directory, local.segments, due_ms)
                    if listing is not None:
                        lists.append(listing)

        yield from self._walk(begin)
        for listing in lists:
            if not self._is_halted:
                yield [listing]

    def _delete_old_directories(self) -> ProcedureSteps:
        """Delete the due directories of deleted partitions. Few wait, so they are deleted soon."""
        for directory in self._directories.online:
            yield from self._delete(directory, self._wall_ms)

    def _delete(self, directory: LogDirectory, due_ms: int) -> ProcedureSteps:
        paths = directory.deletions.take_due(due_ms)
        if not paths:
            return
        [failure] = yield [DeleteDirectories(directory, paths)]
        if isinstance(failure, KafkaStorageError):
            self._on_storage_failure()
        elif failure is not None:
            raise failure

    def _walk(self, visit: Callable[[Replica], object]) -> ProcedureSteps:
        """Visit every current replica, unless it is gone when its turn comes.

        An error of one log, as its disk is full or broken, does not stop the visits of the others.
        """
        for number, (key, replica) in enumerate(list(self._replicas.items()), 1):
            if self._is_halted:
                return
            if self._replicas.get(key) is replica:
                try:
                    visit(replica)
                except KafkaStorageError as error:
                    logger.warning("%s: %s", replica, error)
                    self._on_storage_failure()
            if number % AT_A_TIME == 0:
                yield [Turn(self._effects)]


class SpaceQuery:
    """Query of the free space of a directory's disk: `free` and `total` bytes, after `run`."""

    __slots__ = ("_directory", "free", "total")

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self.free = self.total = 0

    def run(self) -> None:
        """See storage_work.Work."""
        self.free, self.total = self._directory.space()


class DeleteDirectories:
    """Deletion of due directories of deleted partitions, with their files."""

    __slots__ = ("_directory", "_paths")

    def __init__(self, directory: LogDirectory, paths: Sequence[str]) -> None:
        self._directory = directory
        self._paths = list(paths)

    def run(self) -> None:
        """See storage_work.Work."""
        self._directory.deletions.delete(self._paths)
