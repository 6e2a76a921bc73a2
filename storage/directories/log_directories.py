"""All log directories of one node: placement of partitions, and missing directories.

Invariants:
    A partition is in one directory. It is served from there or, while that directory is offline or
    missing, not at all: it is never made again elsewhere (see replica_directories).
    A new partition goes to the directory with the fewest partitions; of several to the first one.
    All directories belong to the same node of the same cluster.

A move (AlterReplicaLogDirs) makes a copy `<topic>-<partition>.<id>-future` in the other directory.
While both exist, the one with the newer leader epoch, or with equal epochs the longer one, is the
valid log: a copy only fetches from the log, so it is ahead only if it has already replaced the log,
or if the log was truncated; then the copy is at most longer, until the log has records of a newer
epoch. Steps, each fsynced before the next, and the state after a crash between two of them:
    note names the new directory         both logs exist: the copy continues to follow
    copy gets the log's name, in memory
    at the same moment it takes over     the new name may be lost: the newer log is the valid one
    copy flushed, its name fsynced       two logs of one name: as above; the other is removed
    old log renamed to -delete           done

Not here: threads, when a move is ready to take over (actors).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from uuid import UUID

from ...protocol.errors import KafkaStorageError
from ...protocol.topic_partition import TopicPartitionPair
from ..disk.file_system import FileSystem
from ..disk.storage_failure import (
    DataDirectoryError,
    DirectoryUnusable,
    StorageFailure,
)
from ..log.local_log import PRODUCER_ID_EXPIRATION_MS
from ..log.partition_log import PartitionLog
from ..log_config import LogConfig
from .directory_checkpoints import MakeLock
from .directory_identity import DirectoryIdentity
from .log_directory import LogDirectory
from .partition_directory import DELETE_SUFFIX, directory_name
from .replica_directories import ReplicaPlacements

MOST_FLIPPED_BITS = 12
"""Most differing bits of a damaged topic id. Two random ids differ in so few with a probability
below 10**-20.
"""


class LogDirectories:
    """All log directories; see open(). Not thread-safe, except NoteWork.run() and as noted in
    LogDirectory.
    """

    def __init__(
        self, file_system: FileSystem, directories: Sequence[LogDirectory], unusable: dict[str, str]
    ) -> None:
        self._file_system = file_system
        self._directories = tuple(directories)
        self.unusable = unusable
        """Reasons of directories that could not be opened, by path."""
        self.placements = ReplicaPlacements(
            file_system, self._directories, is_single=len(directories) + len(unusable) == 1
        )

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        paths: Sequence[str],
        *,
        directory_ids: Sequence[str],
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        make_lock: MakeLock = nullcontext,
    ) -> LogDirectories:
        """Lock the directories `paths`. One that is damaged or cannot be read is omitted.

        Args:
            file_system: the disk, or disks.
            paths: all different, at least one.
            directory_ids: one for each directory, used if it is new.
            producer_id_expiration_ms: producer.id.expiration.ms of the broker.
            make_lock: see LogDirectory.open.

        Raises:
            DataDirectoryError: one is in use or belongs to another node or cluster, or none is
                usable. All are unlocked then.
        """
        if len(set(paths)) != len(paths):
            raise DataDirectoryError("a data directory is given twice; name each one once")
        directories: list[LogDirectory] = []
        unusable: dict[str, str] = {}
        try:
            for path, directory_id in zip(paths, directory_ids, strict=True):
                try:
                    directories.append(
                        LogDirectory.open(
                            file_system,
                            path,
                            directory_id=directory_id,
                            producer_id_expiration_ms=producer_id_expiration_ms,
                            make_lock=make_lock,
                        )
                    )
                except DirectoryUnusable as error:
                    unusable[path] = str(error)
            if not directories:
                raise DirectoryUnusable("; ".join(unusable.values()))
            _check_same_owner(directories)
        except BaseException:
            for directory in directories:
                directory.close(clean=False)
            raise
        return cls(file_system, directories, unusable)

    # --- the directories -------------------------------------------------------------------------

    @property
    def all(self) -> tuple[LogDirectory, ...]:
        """Directories that could be opened, in the given order; some may be offline now."""
        return self._directories

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.health.is_online]

    @property
    def offline_count(self) -> int:
        """Number of directories that failed or could not be opened."""
        return len(self.unusable) + len(self._directories) - len(self.online)

    @property
    def short_count(self) -> int:
        """Number of directories below their minimum of free space."""
        return sum(each.health.headroom <= 0 for each in self.online)

    @property
    def is_single(self) -> bool:
        return len(self._directories) + len(self.unusable) == 1

    @property
    def path(self) -> str:
        """Path of the first usable directory: it holds the files that exist once per node."""
        return next(iter(self.online), self._directories[0]).path

    @property
    def identity(self) -> DirectoryIdentity:
        """Directory id of the directory at `path`, which identifies the node while it has no node
        id; cluster id and node id of the first directory that has one.
        """
        each_of = [each.identity for each in self._directories]
        return DirectoryIdentity(
            directory_id=next(iter(self.online), self._directories[0]).identity.directory_id,
            cluster_id=next((one.cluster_id for one in each_of if one.cluster_id), None),
            node_id=next((one.node_id for one in each_of if one.node_id is not None), None),
        )

    def assign_identity(self, *, cluster_id: str, node_id: int) -> None:
        """Assign all usable directories to the node, durably.

        Raises DataDirectoryError, and StorageFailure if none is left.
        """
        for directory in self.online:
            try:
                directory.assign_identity(cluster_id=cluster_id, node_id=node_id)
            except StorageFailure:
                if not self.online:
                    raise

    def has_all_data(self, is_intact: Callable[[str], bool]) -> bool:
        """Whether all directories have all data, see LogDirectory.has_all_data. False if one is
        unusable or offline.
        """
        return not self.unusable and all(
            each.health.is_online and each.has_all_data(is_intact) for each in self._directories
        )

    def at(self, path: str) -> LogDirectory | None:
        """The directory at `path`, if it could be opened."""
        return next((each for each in self._directories if each.path == path), None)

    def of(self, log: PartitionLog) -> LogDirectory:
        """The directory that holds an open log."""
        parent = log.directory.rpartition("/")[0]
        found = self.at(parent)
        assert found is not None, log.directory
        return found

    # --- loading ---------------------------------------------------------------------------------

    def load_logs(
        self,
        config_for: Callable[[str], LogConfig],
        *,
        now_ms: int,
        on_damaged: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Open the logs of all directories; returns messages about unexpected findings.

        `on_damaged`: called for each log that has lost more than a crash explains, or cannot be
        opened, as soon as that is known: the damage may be truncated by then, so that the next
        start does not find it.

        A directory that fails meanwhile is offline. Raises StorageFailure if all are.
        """
        said = [each.identity_flaw for each in self._directories if each.identity_flaw]
        for directory in self._directories:
            try:
                directory.load_logs(
                    config_for, now_ms=now_ms, on_damaged=on_damaged, keeps_places=True
                )
            except StorageFailure as error:
                said.append(f"{directory.path} is offline until restart: {error}")
            said += directory.checkpoints.flaws
            said += [
                f"{topic}-{partition} is offline until restart: {reason}"
                for (topic, partition), reason in directory.unopened.items()
            ]
        if not self.online:
            raise StorageFailure("; ".join(said))
        self.placements.load()
        said += self._finish_moves()
        for directory in self.online:
            for (_, partition), log in directory.logs.items():
                if log.topic_id is not None:
                    self.placements.assign((log.topic_id, partition), directory)
        return said

    def _finish_moves(self) -> list[str]:
        """Finish interrupted moves: keep the newer of two logs of one partition."""
        said = []
        for directory in self.online:
            for key, future in list(directory.future_logs.items()):
                current = self._find(key, future.topic_id, other_than=directory)
                if current is None or key in directory.logs:
                    continue  # its log is missing, or it is a leftover: see alter_log_dirs_manager
                if _progress(future) > _progress(current[1]):
                    said.append(f"{key[0]}-{key[1]} had moved to {directory.path}")
                    self._take_over(directory, key)
                    # It is unknown whether the copy had all records before the log was damaged.
                    current[0].has_dropped_damaged |= current[1].recovery.is_damaged
                    self._drop(current[0], key)
        for directory in self.online:
            for key, log in list(directory.logs.items()):
                other = self._find(key, log.topic_id, other_than=directory)
                if other is None or log.topic_id is None:
                    continue
                noted = self.placements.directory_id_of((log.topic_id, key[1]))
                mine = (_progress(log), noted == directory.identity.directory_id)
                theirs = (_progress(other[1]), noted == other[0].identity.directory_id)
                if mine >= theirs:
                    said.append(f"{key[0]}-{key[1]} had moved to {directory.path}")
                    if theirs[1]:  # it was the log, not a leftover of a move
                        other[0].has_dropped_damaged |= other[1].recovery.is_damaged
                    self._drop(other[0], key)
        return said

    def _find(
        self, key: TopicPartitionPair, topic_id: UUID | None, *, other_than: LogDirectory
    ) -> tuple[LogDirectory, PartitionLog] | None:
        for directory in self.online:
            log = directory.logs.get(key)
            if directory is not other_than and log is not None and log.topic_id == topic_id:
                return directory, log
        return None

    def _take_over(self, directory: LogDirectory, key: TopicPartitionPair) -> None:
        forgetting = directory.checkpoints.begin_forgetting([key])
        if forgetting is not None:
            forgetting.run()
        log = directory.future_logs.pop(key)
        directory.rename_log(log, directory_name(*key))
        directory.sync_names()
        directory.logs[key] = log

    def _drop(self, directory: LogDirectory, key: TopicPartitionPair) -> None:
        """Delete the log that a move left behind: the other log has all valid records."""
        log = directory.release_log(*key)
        unique_id = log.topic_id or UUID(int=0)
        path = directory.retire(log.directory, *key, suffix=DELETE_SUFFIX, unique_id=unique_id)
        directory.deletions.delete([path])

    # --- claiming --------------------------------------------------------------------------------

    def claim(
        self, key: TopicPartitionPair, topic_id: UUID, leader_epoch: int | None = None
    ) -> PartitionLog | None:
        """Loaded log of a partition with this topic id; None if there is none.

        With the partition's `leader_epoch`, also a log whose partition.metadata is lost or damaged,
        if it has no later leader epoch; the caller must then write its topic id.
        """
        found = [log for each in self.online if (log := each.logs.get(key)) is not None]
        for log in found:
            if log.topic_id == topic_id:
                return log
        for log in found:
            is_lost = log.topic_id is None or _is_damaged_copy(log.topic_id, topic_id)
            if is_lost and leader_epoch is not None and leader_epoch >= log.epochs.latest_epoch:
                return log
        return None

    # --- ending ----------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Close all directories. Raises the first StorageFailure after all are closed."""
        failure: KafkaStorageError | None = None
        for directory in self._directories:
            try:
                directory.close(clean=clean)
            except KafkaStorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def _is_damaged_copy(found: UUID, topic_id: UUID) -> bool:
    """Whether two topic ids differ by a few flipped bits only; ids of two topics differ in about
    64.
    """
    return (found.int ^ topic_id.int).bit_count() <= MOST_FLIPPED_BITS


def _progress(log: PartitionLog) -> tuple[int, int]:
    """Progress of a log: of two logs of one partition, the one with more is the newer."""
    return log.epochs.latest_epoch, log.log_end_offset


def _check_same_owner(directories: Sequence[LogDirectory]) -> None:
    """Check that all belong to one node. Raises DataDirectoryError."""
    owners = {
        (each.identity.cluster_id, each.identity.node_id)
        for each in directories
        if (each.identity.cluster_id, each.identity.node_id) != (None, None)
    }
    if len(owners) > 1:
        paths = ", ".join(each.path for each in directories)
        raise DataDirectoryError(
            f"the data directories {paths} belong to different nodes or clusters; "
            "give each node its own"
        )
