"""One data directory: its logs, its owner, and what is stored between two runs.

    .lock                                held by the process that uses the directory (flock)
    meta.properties                      see directory_identity
    .kafka_cleanshutdown                 present only between a clean stop and the next start
    *-offset-checkpoint                  see directory_checkpoints
    <topic>-<partition>/                 see partition_log, partition_directory

Invariants:
    One process uses a directory. The clean mark is the last thing written by a clean stop, and the
    first thing removed by a start, so that a crash while loading does not look like a clean stop.
    A recovery point in the checkpoint was true when it was written, and is lowered there before a
    truncated log grows again.
    The first disk failure takes the directory offline (see storage_failure); other directories of
    the node continue.
Source: apache/kafka core/.../log/LogManager.scala, storage/.../CleanShutdownFileHandler.java.

Not here: several directories of one node (log_directories), which partitions belong on this node
(cluster), when to checkpoint (actors).
"""

from __future__ import annotations

import errno
import json
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from os.path import dirname
from uuid import UUID

from ...protocol.errors import InconsistentTopicId, KafkaStorageError, UnknownTopicOrPartition
from ...protocol.topic_partition import TopicPartitionPair
from ..disk.checkpoint_file import write_atomically
from ..disk.file_system import File, FileSystem, sync_directory
from ..disk.storage_failure import (
    DataDirectoryError,
    DirectoryHealth,
    DirectoryUnusable,
    StorageFailure,
    refused_or_failed,
)
from ..log.local_log import PRODUCER_ID_EXPIRATION_MS
from ..log.partition_log import PartitionLog
from ..log_config import LogConfig
from ..segments.closed_segments import remove_list
from .directory_checkpoints import (
    DirectoryCheckpoints,
    MakeLock,
)
from .directory_deletions import DirectoryDeletions, remove_directory
from .directory_identity import (
    FILE_NAME as IDENTITY_FILE,
    DirectoryIdentity,
    has_copy,
    merge_identities,
    read_identity,
    write_identity,
)
from .partition_directory import (
    DELETE_SUFFIX,
    directory_name,
    future_directory_name,
    parse_directory_name,
    parse_future_directory_name,
    read_topic_id,
    retired_directory_name,
    write_topic_id,
)

LOCK_FILE = ".lock"
CLEAN_FILE = ".kafka_cleanshutdown"
PROBE_FILE = ".probe"


class LogDirectory:
    """One data directory; see open(). Not thread-safe, except CheckpointWork.run() and as noted."""

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        lock: File,
        identity: DirectoryIdentity,
        make_lock: MakeLock,
    ) -> None:
        self._file_system = file_system
        self.path = path
        self._lock: File | None = lock
        self.identity = identity
        self._is_loaded = False
        self._now_ms = 0
        self._producer_id_expiration_ms = PRODUCER_ID_EXPIRATION_MS
        self.health = DirectoryHealth()
        self.checkpoints = DirectoryCheckpoints(file_system, path, self.health, make_lock())
        self.deletions = DirectoryDeletions(file_system, path, self.health)
        self.logs: dict[TopicPartitionPair, PartitionLog] = {}
        self.future_logs: dict[TopicPartitionPair, PartitionLog] = {}
        """Copies that will replace logs in other directories of the node."""
        self.identity_flaw = ""
        """Damage of one of the two identity files; it is rewritten. "": none."""
        self.unopened: dict[TopicPartitionPair, str] = {}
        """Reasons of logs that could not be opened, by partition: the disk is fine otherwise."""
        self.was_clean = False
        """Whether the last shutdown was clean."""
        self.is_closed_cleanly = False
        """Whether everything is durable, and the clean shutdown mark is written."""
        self.has_dropped_damaged = False
        """Whether a damaged log was replaced by a copy that may have fewer records."""

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        path: str,
        *,
        directory_id: str,
        cluster_id: str | None = None,
        node_id: int | None = None,
        is_known: bool = False,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        make_lock: MakeLock = nullcontext,
    ) -> LogDirectory:
        """Lock the data directory `path`, created if absent, and check its owner.

        Args:
            file_system: the disk.
            path: the data directory.
            directory_id: its id if it is new; an existing directory keeps its own.
            cluster_id: the cluster it must belong to; None accepts any, or none yet.
            node_id: the node it must belong to; None accepts any, or none yet.
            is_known: the directory is known to have this id, even if meta.properties is missing.
            producer_id_expiration_ms: producer.id.expiration.ms of the broker.
            make_lock: threading.Lock, if CheckpointWork.run() is called in several threads.

        Raises:
            DataDirectoryError: in use, or of another cluster or node. It is then unchanged.
            DirectoryUnusable: damaged, or the disk refuses access.
        """
        try:
            if not file_system.is_directory(path):
                file_system.make_directory(path)
                sync_directory(file_system, dirname(path) or ".")
            lock = file_system.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise DataDirectoryError(
                f"{path} is in use by a running broker; stop it, or use another data directory"
            ) from None
        except OSError as error:
            raise _not_usable(path, error) from error
        try:
            given = DirectoryIdentity(
                directory_id=directory_id, cluster_id=cluster_id, node_id=node_id
            )
            stored, flaw = read_identity(file_system, path)
            if stored is None and not is_known:
                _check_new(file_system, path)
            identity = given if stored is None else merge_identities(path, stored, given)
            if identity != stored or not has_copy(file_system, path):
                write_identity(file_system, path, identity)
            directory = cls(file_system, path, lock, identity, make_lock)
            directory._producer_id_expiration_ms = producer_id_expiration_ms
            directory.identity_flaw = flaw if stored else ""
            directory._take_clean_mark()
        except BaseException as error:
            lock.close()
            if isinstance(error, OSError):
                raise _not_usable(path, error) from error
            raise
        return directory

    def _take_clean_mark(self) -> None:
        mark = f"{self.path}/{CLEAN_FILE}"
        self.was_clean = self._file_system.exists(mark)
        if self.was_clean:
            self._file_system.unlink(mark)
            sync_directory(self._file_system, self.path)

    def has_all_data(self, is_intact: Callable[[str], bool]) -> bool:
        """Whether no acknowledged record is missing, as far as one directory can tell.

        Args:
            is_intact: whether the page cache of a directory's last run has survived, by its id.
        """
        if self.identity.node_id is None:
            return True
        if self.unopened or self.has_dropped_damaged:
            return False
        if any(log.recovery.is_damaged for log in self.logs.values()):
            return False
        return self.was_clean or is_intact(self.identity.directory_id)

    def space(self) -> tuple[int, int]:
        """(free bytes for this process, total bytes) of its disk. Raises StorageFailure."""
        try:
            return self._file_system.free_bytes(self.path), self._file_system.total_bytes(self.path)
        except OSError as error:
            raise self.health.fail(f"asking for the free space of {self.path}", error) from error

    def assign_identity(self, *, cluster_id: str | None = None, node_id: int | None = None) -> None:
        """Assign a new directory to a cluster or a node, durably. Repeating it changes nothing.

        Raises:
            DataDirectoryError: it belongs to another cluster or node already.
            KafkaStorageError: the disk is full.
            StorageFailure: the disk failed.
        """
        given = DirectoryIdentity(
            directory_id=self.identity.directory_id, cluster_id=cluster_id, node_id=node_id
        )
        identity = merge_identities(self.path, self.identity, given)
        if identity != self.identity:
            try:
                write_identity(self._file_system, self.path, identity)
            except OSError as error:
                what = f"writing the identity of {self.path}"
                raise refused_or_failed(self.health, what, error) from error
            self.identity = identity

    def load_logs(
        self,
        config_for: Callable[[str], LogConfig],
        *,
        now_ms: int,
        on_damaged: Callable[[], None] = lambda: None,
        keeps_places: bool = False,
    ) -> dict[TopicPartitionPair, PartitionLog]:
        """Open every log in the directory; internal topics first, as others wait for them.

        Args:
            config_for: the settings of a topic, by its name.
            now_ms: the time now.
            on_damaged: see LogDirectories.load_logs.
            keeps_places: see PartitionLog.open.

        Raises:
            StorageFailure: the disk failed.
        Cost: see PartitionLog.open, per partition. Each log's `recovery` reports it.
        """
        self._now_ms = now_ms
        try:
            recovery_points, high_watermarks, log_starts = self.checkpoints.read()
            cleaner_offsets = self.checkpoints.read_cleaner_offsets()
            are_foreign = self.checkpoints.are_foreign()
            names = sorted(
                self._file_system.list_directory(self.path),
                key=lambda name: (not name.startswith("__"), name),
            )
            for name in names:
                if name.endswith(DELETE_SUFFIX):
                    remove_directory(self._file_system, f"{self.path}/{name}")
        except OSError as error:
            raise self.health.fail(f"loading {self.path}", error) from error
        for name in names:
            key, future = parse_directory_name(name), parse_future_directory_name(name)
            directory = f"{self.path}/{name}"
            if (key or future) is None or not self._file_system.is_directory(directory):
                continue
            if are_foreign:  # listed segments may have been deleted or compacted since
                self._forget_list(directory)
            if key is None:
                self._load_future(future, directory, config_for)
                continue
            try:
                log = self._open_log(
                    directory,
                    self._topic_id(directory),
                    config_for(key[0]),
                    clean=self.was_clean,
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=log_starts.get(key),
                    high_watermark=high_watermarks.get(key, 0),
                    cleaner_offset=0 if cleaner_offsets is None else cleaner_offsets.get(key),
                    keeps_places=keeps_places,
                )
            except StorageFailure as error:
                if not keeps_places:
                    raise
                self._leave_out(key, directory, error)
                on_damaged()
                continue
            self.logs[key] = log
            if log.recovery.is_damaged:
                on_damaged()
        self._is_loaded = True
        self.checkpoints.follow(self.logs)
        if any(
            log.flushing.recovery_point < recovery_points.get(key, 0)
            for key, log in self.logs.items()
        ):  # as in truncate_log: flushed records are missing, others will get their offsets
            self._lower_recovery_points()
        return dict(self.logs)

    def _leave_out(self, key: TopicPartitionPair, directory: str, error: StorageFailure) -> None:
        """Leave out a log that cannot be opened. If the disk can be written, the others are loaded.

        Raises StorageFailure: the disk cannot be written.
        """
        probe = f"{self.path}/{PROBE_FILE}"
        try:
            write_atomically(self._file_system, probe, PROBE_FILE.encode())
            self._file_system.unlink(probe)
        except OSError as second:
            raise self.health.fail(f"{error}; writing {probe}", second) from second
        self.unopened[key] = f"{directory} cannot be opened: {error}"

    def _forget_list(self, directory: str) -> None:
        try:
            remove_list(self._file_system, directory)
        except OSError as error:
            raise self.health.fail(f"loading {directory}", error) from error

    def _topic_id(self, directory: str) -> UUID | None:
        try:
            return read_topic_id(self._file_system, directory)
        except OSError:
            return None  # the cluster's metadata determines the topic

    def assign_topic_id(self, log: PartitionLog, topic_id: UUID) -> None:
        """Restore the lost topic id of a log, durably. Raises KafkaStorageError."""
        try:
            write_topic_id(self._file_system, log.directory, topic_id)
        except OSError as error:
            raise refused_or_failed(self.health, f"writing in {log.directory}", error) from error
        log.topic_id = topic_id

    def _load_future(
        self,
        key: TopicPartitionPair | None,
        directory: str,
        config_for: Callable[[str], LogConfig],
    ) -> None:
        """Load the copy of a move with a full scan, as checkpoints do not contain it. At a gap,
        which a power loss may have left, the rest is dropped, to be copied again.
        """
        assert key is not None
        if key in self.future_logs:  # two moves, one of them abandoned unfinished
            self.deletions.delete([directory])
            return
        log = self._open_log(
            directory,
            self._topic_id(directory),
            config_for(key[0]),
            clean=False,
        )
        self.future_logs[key] = log

    def _open_log(
        self,
        directory: str,
        topic_id: UUID | None,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        high_watermark: int = 0,
        cleaner_offset: int | None = None,
        keeps_places: bool = False,
    ) -> PartitionLog:
        self.health.check()
        health = DirectoryHealth() if keeps_places else self.health
        log = PartitionLog.open(
            self._file_system,
            directory,
            topic_id=topic_id,
            config=config,
            recovery_point=recovery_point,
            clean=clean,
            now_ms=self._now_ms,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            cleaner_offset=cleaner_offset,
            keeps_places=keeps_places,
            health=health,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
        )
        log.local.health = self.health
        return log

    def create_log(
        self,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        *,
        now_ms: int | None = None,
    ) -> PartitionLog:
        """Open or create the log of a partition, durably. load_logs() comes first.

        Raises:
            InconsistentTopicId: a topic of this name that was deleted and made again still has
                its old log here.
            StorageFailure: the disk failed.
        """
        assert self._is_loaded, "load_logs() comes first"
        self.health.check()
        self._now_ms = now_ms or self._now_ms
        log = self.logs.get((topic, partition))
        if log is not None:
            if log.topic_id not in (None, topic_id):
                raise InconsistentTopicId(
                    f"{log.directory} belongs to topic id {log.topic_id}, not {topic_id}"
                )
            return log
        forgetting = self.checkpoints.begin_forgetting([(topic, partition)])
        if forgetting is not None:
            forgetting.run()
        log = self.make_log(topic, partition, topic_id, config)
        self.logs[topic, partition] = log
        return log

    def make_log(
        self,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        *,
        unique_id: UUID | None = None,
        leader_epoch: int | None = None,
        sync_names: bool = True,
    ) -> PartitionLog:
        """Create a log, durably; the caller puts it into `logs` (or `future_logs`, if `unique_id`).

        Unless `unique_id` is given, checkpoints.begin_forgetting must have run before.

        In any thread, and for different partitions in several at once: nothing else is touched.
        With `leader_epoch`, the log begins with that epoch. Without `sync_names` the caller makes
        several logs and then calls sync_names().

        Cost: four fsyncs at most.

        Raises:
            KafkaStorageError: the disk is full; a partly created directory is not in use.
            StorageFailure: the disk failed.
        """
        self.health.check()
        name = (
            directory_name(topic, partition)
            if unique_id is None
            else future_directory_name(topic, partition, unique_id)
        )
        directory = f"{self.path}/{name}"
        try:
            # The topic id is there before the first record, so records are never of unknown topic.
            self._file_system.make_directory(directory)
            write_topic_id(self._file_system, directory, topic_id, sync_names=False)
            log = self._open_log(directory, topic_id, config, clean=True)
            if leader_epoch is not None:
                log.local.assign_epoch(leader_epoch)
            sync_directory(self._file_system, directory)
            if sync_names:
                sync_directory(self._file_system, self.path)
        except OSError as error:
            raise refused_or_failed(self.health, f"making {directory}", error) from error
        return log

    def release_log(self, topic: str, partition: int, *, future: bool = False) -> PartitionLog:
        """Close a log that is not used any more, unchanged; its files stay.

        Raises:
            UnknownTopicOrPartition: there is no such log.
            StorageFailure: the directory is offline.
        """
        self.health.check()
        log = (self.future_logs if future else self.logs).pop((topic, partition), None)
        if log is None:
            raise UnknownTopicOrPartition(f"no log of {topic}-{partition} in {self.path}")
        log.close(clean=False)
        return log

    def retire(
        self, directory: str, topic: str, partition: int, *, suffix: str, unique_id: UUID
    ) -> str:
        """Rename a closed log's directory, durably, so that no start opens it.

        Returns its path. In any thread. Raises StorageFailure.
        """
        name = retired_directory_name(topic, partition, suffix=suffix, unique_id=unique_id)
        target = f"{self.path}/{name}"
        try:
            self._file_system.rename(directory, target)
            sync_directory(self._file_system, self.path)
        except OSError as error:
            raise self.health.fail(f"renaming {directory}", error) from error
        return target

    def rename_log(self, log: PartitionLog, name: str) -> None:
        """Rename an open log's directory; durable after sync_names.

        Nobody else may be reading files of the log. Raises StorageFailure.
        """
        target = f"{self.path}/{name}"
        try:
            self._file_system.rename(log.directory, target)
        except OSError as error:
            raise self.health.fail(f"renaming {log.directory}", error) from error
        log.local.relocate(target)

    def sync_names(self) -> None:
        """Make renames durable. In any thread. Raises StorageFailure."""
        try:
            sync_directory(self._file_system, self.path)
        except OSError as error:
            raise self.health.fail(f"fsync of {self.path}", error) from error

    def truncate_log(self, topic: str, partition: int, offset: int) -> int:
        """Truncate a log and lower its recovery point on the disk; returns the bytes dropped.

        If the checkpoint still had the old recovery point after new records have replaced the old
        ones, recovery from a crash would not scan the new ones. It is lowered before the
        truncation: a recovery point beyond the log end offset would be taken for a loss of flushed
        records. Raises StorageFailure.
        """
        log = self.logs[topic, partition]
        if offset < log.log_end_offset:
            log.flushing.on_truncation(offset)
            self._lower_recovery_points()
        dropped = log.truncate_to(offset)
        if log.log_end_offset < offset:  # the whole batch that contains it was dropped
            self._lower_recovery_points()
        return dropped

    def _lower_recovery_points(self) -> None:
        """Store lower recovery points. Raises StorageFailure, also if the disk is full."""
        try:
            self.checkpoints.bring_up_to_date()
        except KafkaStorageError as error:
            raise self.health.fail(
                f"checkpoint in {self.path}", OSError(errno.ENOSPC, str(error))
            ) from error

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Close all logs and unlock the directory.

        With `clean`: everything is flushed first, and the clean mark is written last, so the next
        start scans nothing. Skipped if logs were never loaded, or the directory is offline.

        Raises, and the directory is unlocked all the same:
            StorageFailure: the disk failed meanwhile.
            KafkaStorageError: it is full.
        """
        if self._lock is None:
            return
        remaining = deque(self.logs.values())
        try:
            if clean and self._is_loaded and self.health.failure is None:
                self._close_cleanly(remaining, broker_epoch)
        finally:
            for log in (*remaining, *self.future_logs.values()):
                log.close(clean=False)
            self._lock.close()
            self._lock = None

    def _close_cleanly(self, remaining: deque[PartitionLog], broker_epoch: int) -> None:
        # First the logs are flushed, then their checkpoints written, then the mark for all of them.
        while remaining:
            remaining[0].close(clean=True)
            remaining.popleft()
        self.checkpoints.bring_up_to_date()
        mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
        try:
            write_atomically(self._file_system, f"{self.path}/{CLEAN_FILE}", mark.encode())
        except OSError as error:
            raise refused_or_failed(self.health, f"closing {self.path}", error) from error
        self.is_closed_cleanly = True


def _check_new(file_system: FileSystem, path: str) -> None:
    """Check that a directory without an owner holds no partition's log.

    It would get a new id, and its logs would be taken for leftovers of another directory.
    """
    for name in file_system.list_directory(path):
        if parse_directory_name(name) and file_system.is_directory(f"{path}/{name}"):
            raise DirectoryUnusable(
                f"{path}/{IDENTITY_FILE} is missing, and so is its copy, but there are logs "
                f"({name}); restore it with the lines version=1, cluster.id=, node.id= and "
                f"directory.id= as they were, or let `bradbury metadata recover` write it"
            )


def _not_usable(path: str, error: OSError) -> DirectoryUnusable:
    if isinstance(error, IsADirectoryError):
        file = error.filename2 or error.filename or path
        return DirectoryUnusable(
            f"{path} cannot be used as a data directory ({file} is a directory); move that away "
            "and start again"
        )
    return DirectoryUnusable(
        f"{path} cannot be used as a data directory ({_words(error)}); "
        "make it writable for this user, or use another one"
    )


def _words(error: OSError) -> str:
    about = f"{error.filename}: " if error.filename else ""
    return f"{about}{error.strerror or error}"
