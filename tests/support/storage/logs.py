"""Opening a PartitionLog in a test."""

from pathlib import Path
from typing import Any
from uuid import UUID

from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.directories.partition_directory import DELETE_SUFFIX
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.partition_log import LogSlice, PartitionLog
from bradbury.storage.log_config import LogConfig


def open_log(directory: str | Path, *, clean: bool = False, **rest: Any) -> PartitionLog:
    """An unclean open with recovery point 0 and defaults, unless told otherwise."""
    options: dict[str, Any] = {
        "topic_id": None,
        "config": LogConfig(),
        "recovery_point": 0,
        "now_ms": 1000,
        **rest,
    }
    disk = options.pop("file_system", None) or OsFileSystem()
    return PartitionLog.open(disk, str(directory), clean=clean, **options)


def remove_log(directory: LogDirectory, topic: str, partition: int, *, now_ms: int) -> None:
    """What a node does with the log of a partition that is deleted."""
    log = directory.release_log(topic, partition)
    target = directory.retire(
        log.directory, topic, partition, suffix=DELETE_SUFFIX, unique_id=UUID(int=1)
    )
    directory.deletions.schedule(target, now_ms + log.config.file_delete_delay_ms)


def read_slice(piece: LogSlice) -> bytes:
    return b"" if piece.file is None else piece.file.read_at(piece.size, piece.position)


def read_all(log: PartitionLog, start: int | None = None, *, max_bytes: int = 1 << 20) -> bytes:
    """Every batch from `start` (the log start) on, following next_offset as a consumer does."""
    offset = log.log_start_offset if start is None else start
    parts = []
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes=max_bytes, up_to=log.log_end_offset, min_one_batch=True)
        assert piece.size > 0
        assert piece.next_offset > offset
        parts.append(read_slice(piece))
        offset = piece.next_offset
    return b"".join(parts)


def open_file_count(folder: Path) -> int:
    """How many files below `folder` this process has open; other threads' files do not count."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += str(link.readlink()).startswith(f"{folder}/")
        except FileNotFoundError:
            continue  # closed meanwhile, by somebody else
    return count
