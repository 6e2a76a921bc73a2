"""What a log directory remembers of its logs' offsets between two runs.

    recovery-point-offset-checkpoint     per partition: all records below are fsynced
    replication-offset-checkpoint        per partition: the high watermark
    log-start-offset-checkpoint          per partition, where records were deleted: the log start
    cleaner-offset-checkpoint            per partition that was ever compacted: up to where

What always holds: a recovery point in its file was true when it was written. A file that could not
be written keeps its old text, which is as true as before: recovery only reads more. So a full disk
is refused and tried again; any other failure takes the directory offline.
Source: apache/kafka storage/.../checkpoint/OffsetCheckpointFile.java.

Not here: when to write them (actors/partition_upkeep), the format (checkpoint_file).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .checkpoint_file import read_offsets, write_offsets
from .file_system import FileSystem
from .storage_failure import DirectoryHealth, refused_or_failed

if TYPE_CHECKING:
    from .partition_log import PartitionLog

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]


class CheckpointWork:
    """Checkpoint files to write. run() touches only them: in any thread, but one at a time."""

    __slots__ = ("_file_system", "_health", "_path", "_written", "checkpoints")

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        health: DirectoryHealth,
        checkpoints: Mapping[str, Offsets],
        written: dict[str, Offsets],
    ) -> None:
        self._file_system = file_system
        self._path = path
        self._health = health
        self._written = written
        self.checkpoints = checkpoints

    def run(self) -> None:
        """Two fsyncs per file. Raises KafkaStorageError if the disk is full, StorageFailure."""
        self._health.check()
        try:
            for name, offsets in self.checkpoints.items():
                write_offsets(self._file_system, f"{self._path}/{name}", offsets)
                self._written[name] = offsets
        except OSError as error:
            raise refused_or_failed(self._health, f"checkpoint in {self._path}", error) from error


class DirectoryCheckpoints:
    """The files of one directory. Not thread-safe, but for CheckpointWork.run()."""

    def __init__(self, file_system: FileSystem, path: str, health: DirectoryHealth) -> None:
        self._file_system = file_system
        self._path = path
        self._health = health
        self._written: dict[str, Offsets] = {}

    def read(self) -> tuple[Offsets, Offsets, Offsets]:
        """Recovery points, high watermarks, log starts; an absent or damaged file says nothing.

        Raises OSError.
        """
        recovery_points, high_watermarks, log_starts = (
            read_offsets(self._file_system, f"{self._path}/{name}") or {}
            for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS)
        )
        return recovery_points, high_watermarks, log_starts

    def read_cleaner_offsets(self) -> Offsets | None:
        """Up to where each log that ever was compacted is clean.

        None if the file is there and damaged: then any log may have gaps. Raises OSError.
        """
        path = f"{self._path}/{CLEANER_OFFSETS}"
        if not self._file_system.exists(path):
            return {}
        return read_offsets(self._file_system, path)

    def begin(self, logs: Mapping[TopicPartition, PartitionLog]) -> CheckpointWork | None:
        """The files that are not what they should be; None if all are."""
        checkpoints: dict[str, Offsets] = {
            RECOVERY_POINTS: {key: log.recovery_point for key, log in logs.items()},
            HIGH_WATERMARKS: {key: log.high_watermark for key, log in logs.items()},
            LOG_STARTS: {
                key: log.log_start_offset
                for key, log in logs.items()
                if log.log_start_offset > log.segments[0].base_offset
            },
            CLEANER_OFFSETS: {
                key: log.cleaner_offset
                for key, log in logs.items()
                if log.cleaner_offset is not None
            },
        }
        changed = {
            name: offsets
            for name, offsets in checkpoints.items()
            if self._written.get(name) != offsets
        }
        if not changed:
            return None
        return CheckpointWork(self._file_system, self._path, self._health, changed, self._written)
