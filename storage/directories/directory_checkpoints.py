"""Checkpoint files of a log directory: offsets of its logs, stored between two runs.

    recovery-point-offset-checkpoint     per partition: all records below are fsynced
    replication-offset-checkpoint        per partition: the high watermark
    log-start-offset-checkpoint          per partition: the log start offset, at least its first
                                         segment's base offset; Kafka stores only those above that
    cleaner-offset-checkpoint            per partition that was ever compacted: the cleaner offset

Invariants: a recovery point in its file was true when it was written. A file that could not
be written keeps its old content, which is still valid: recovery only reads more. So on a full disk,
or without descriptors or memory, the write is refused and retried later; any other failure takes
the directory offline.
Source: apache/kafka storage/.../checkpoint/OffsetCheckpointFile.java.

Not here: when to write them (replication/logs/log_maintenance), the format (checkpoint_file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ...protocol.topic_partition import TopicPartitionPair
from ..disk.checkpoint_file import has_checksum, read_offsets, write_offsets
from ..disk.file_system import FileSystem
from ..disk.storage_failure import SET_ASIDE_SUFFIX, DirectoryHealth, refused_or_failed

if TYPE_CHECKING:
    from ..log.partition_log import PartitionLog

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINT_FILES = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)

MakeLock = Callable[[], AbstractContextManager[object]]
Offsets = dict[TopicPartitionPair, int]


class CheckpointWork:
    """Write of the checkpoint files. run() touches only them: in any thread."""

    __slots__ = ("_checkpoints", "_number", "_owner")

    def __init__(
        self, owner: DirectoryCheckpoints, checkpoints: Mapping[str, Offsets], number: int
    ) -> None:
        self._owner = owner
        self._checkpoints = checkpoints
        self._number = number

    def run(self) -> None:
        """Write the files that change, with two fsyncs each. Does nothing if a later one is done.

        Raises KafkaStorageError if the disk is full, StorageFailure.
        """
        self._owner.write(self._checkpoints, self._number)


class DirectoryCheckpoints:
    """Checkpoint files of one directory. Not thread-safe, but for CheckpointWork.run().

    Each CheckpointWork is written alone, and never an earlier one after a later one: the earlier
    one may have offsets of records that were truncated since, or of a log that was deleted.
    `writing` is the lock for that, if they run in several threads.
    """

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        health: DirectoryHealth,
        writing: AbstractContextManager[object],
    ) -> None:
        self._file_system = file_system
        self._path = path
        self._health = health
        self._on_disk: dict[str, Offsets] = {}
        """Content of each file, by name; a file with unknown content is absent."""
        self._writing = writing
        self.flaws: list[str] = []
        """Messages about damage of the files, one each."""
        self._begun = 0
        self._done = 0
        self._logs: Mapping[TopicPartitionPair, PartitionLog] | None = None
        self._expected_gaps: set[TopicPartitionPair] = set()
        self._expected_starts: Offsets = {}

    def read(self) -> tuple[Offsets, Offsets, Offsets]:
        """Recovery points, high watermarks, log starts; empty for a file that is absent, damaged or
        unreadable.

        Raises OSError.
        """
        return (
            self._read(RECOVERY_POINTS) or {},
            self._read(HIGH_WATERMARKS) or {},
            self._read(LOG_STARTS) or {},
        )

    def are_foreign(self) -> bool:
        """Whether another program, such as Kafka, has written the files since we did. Raises
        OSError.
        """
        path = f"{self._path}/{RECOVERY_POINTS}"
        is_readable = self._on_disk.get(RECOVERY_POINTS) is not None
        return is_readable and not has_checksum(self._file_system, path)

    def read_cleaner_offsets(self) -> Offsets | None:
        """Cleaner offset of each log that was ever compacted.

        None if the file is there and damaged: then any log may have gaps. Raises OSError.
        """
        path = f"{self._path}/{CLEANER_OFFSETS}"
        if not self._file_system.exists(path):
            return {}
        return self._read(CLEANER_OFFSETS)

    def _read(self, name: str) -> Offsets | None:
        path = f"{self._path}/{name}"
        try:
            found = read_offsets(self._file_system, path)
        except OSError as error:
            self._set_aside(path, error)
            return None
        if found is None and self._file_system.exists(path):
            self.flaws.append(f"{path} was damaged; rewriting it")
        if found is not None:
            self._on_disk[name] = found
        return found

    def _set_aside(self, path: str, error: OSError) -> None:
        """Treat an unreadable file as absent; a directory in its place is renamed. Raises OSError:
        it cannot be renamed.
        """
        if not self._file_system.is_directory(path):
            self.flaws.append(f"{path} cannot be read; rewriting it: {error.strerror}")
            return
        target = path + SET_ASIDE_SUFFIX
        while self._file_system.exists(target):
            target += SET_ASIDE_SUFFIX
        self._file_system.rename(path, target)
        self.flaws.append(f"{path} was a directory; renamed it to {target}")

    def follow(self, logs: Mapping[TopicPartitionPair, PartitionLog]) -> None:
        """Use these, all logs of the directory, as the source of the checkpoints from now on."""
        self._logs = logs

    def begin(self) -> CheckpointWork | None:
        """Work that updates the files; None if they are up to date, or the logs are not loaded."""
        logs = self._logs
        if logs is None:
            return None
        checkpoints: dict[str, Offsets] = {
            RECOVERY_POINTS: {key: log.flushing.recovery_point for key, log in logs.items()},
            HIGH_WATERMARKS: {key: log.high_watermark for key, log in logs.items()},
            LOG_STARTS: self._expected_starts
            | {
                key: max(log.log_start_offset, log.segments[0].base_offset)
                for key, log in logs.items()
            },
            CLEANER_OFFSETS: dict.fromkeys(self._expected_gaps, 0)
            | {
                key: log.compaction.cleaner_offset
                for key, log in logs.items()
                if log.compaction.cleaner_offset is not None
            },
        }
        is_settled = self._done == self._begun
        if is_settled and all(self._on_disk.get(name) == o for name, o in checkpoints.items()):
            return None
        self._begun += 1
        return CheckpointWork(self, checkpoints, self._begun)

    def begin_forgetting(self, keys: Iterable[TopicPartitionPair]) -> CheckpointWork | None:
        """Work that removes deleted logs of these names from the checkpoints; None if they contain
        none of them.

        It must have run before new logs of these names are created. Otherwise a start after a crash
        would use the recovery point of the deleted log, and not scan torn records of the new one;
        or its log start offset, and drop records of the new one below that.
        """
        logs = self._logs or {}
        return self.begin() if self._may_name([key for key in keys if key not in logs]) else None

    def _may_name(self, keys: Iterable[TopicPartitionPair]) -> bool:
        """Whether a file names one of these, or may when all CheckpointWork under way is done."""
        if self._done < self._begun:
            return True
        return any(key in offsets for key in keys for offsets in self._on_disk.values())

    def expect_gaps(self, key: TopicPartitionPair, is_expected: bool) -> None:
        """Note whether a copy that may have gaps is about to become this log."""
        if is_expected:
            self._expected_gaps.add(key)
        else:
            self._expected_gaps.discard(key)

    def has_noted_gaps(self, key: TopicPartitionPair) -> bool:
        """Whether the file on the disk says that this log may have gaps."""
        return key in self._on_disk.get(CLEANER_OFFSETS, {})

    def expect_start(self, key: TopicPartitionPair, offset: int | None) -> None:
        """Note the log start of a copy that is about to become this log; None: there is no copy."""
        if offset is None:
            self._expected_starts.pop(key, None)
        else:
            self._expected_starts[key] = offset

    def noted_start(self, key: TopicPartitionPair) -> int:
        """Log start of this log in the file on the disk."""
        return self._on_disk.get(LOG_STARTS, {}).get(key, 0)

    def bring_up_to_date(self) -> None:
        """Write the files, waiting for the disk. Raises what CheckpointWork.run raises."""
        work = self.begin()
        if work is not None:
            work.run()

    def write(self, checkpoints: Mapping[str, Offsets], number: int) -> None:
        """Write checkpoints; see CheckpointWork.run."""
        self._health.check()
        with self._writing:
            if number < self._done:
                return
            try:
                for name, offsets in checkpoints.items():
                    if self._on_disk.pop(name, None) != offsets:
                        write_offsets(self._file_system, f"{self._path}/{name}", offsets)
                    self._on_disk[name] = offsets
            except OSError as error:
                where = f"checkpoint in {self._path}"
                raise refused_or_failed(self._health, where, error) from error
            self._done = number
