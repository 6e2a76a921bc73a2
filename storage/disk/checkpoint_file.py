"""Small files that are replaced whole: checkpoints, and others that must never be half written.

    0                       version
    2                       number of entries
    flights 0 1234          entries, one a line; an offset checkpoint's are topic partition offset
    flights 1 998
    # 0 2881230912          of an offset checkpoint: the CRC of the entries before it

Invariants: after a crash the file holds the old text or the new one. The order that gives
this: write <name>.tmp, fsync it (so that the rename can never publish an empty file), rename it
over the old one, fsync the directory (so that the rename itself survives).

A file that does not parse, or an offset checkpoint with a wrong CRC, counts as absent: a checkpoint
only saves work, or its offsets are clamped to the log, so losing one is safe where trusting a wrong
one is not. Kafka reads the CRC line as the entry of a partition that does not exist; files that
Kafka wrote are accepted without a CRC line.
Source: apache/kafka server-common/.../CheckpointFile.java, OffsetCheckpointFile.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import dirname

from crc32c import crc32c

from ...protocol.topic_partition import TopicPartitionPair
from .file_system import FileSystem, read_file, sync_directory

CHECKPOINT_VERSION = 0
CHECKSUM_NAME = "#"
"""Name of the checksum line; not a valid topic name."""

OffsetsByPartition = dict[TopicPartitionPair, int]


def write_atomically(
    file_system: FileSystem,
    path: str,
    content: bytes,
    *,
    sync_names: bool = True,
    waits: bool = True,
) -> None:
    """Replace `path` by `content`, durably. Two fsyncs. Raises OSError.

    Without `sync_names` one fsync: until the caller syncs the directory, a crash may restore the
    old content. Without `waits` none: until the caller syncs the file and the directory, a crash
    may also leave an unreadable file.
    """
    temporary = path + ".tmp"
    file = file_system.open(temporary, create=True)
    try:
        file.truncate(0)  # a crash may have left a longer one
        file.write_at(content, 0)
        if waits:
            file.sync()
    finally:
        file.close()
    file_system.rename(temporary, path)
    if sync_names and waits:
        sync_directory(file_system, dirname(path))


def write_checkpoint(
    file_system: FileSystem,
    path: str,
    lines: Sequence[str],
    *,
    sync_names: bool = True,
    waits: bool = True,
) -> None:
    """Replace the checkpoint `path` by these entries; see write_atomically. Raises OSError."""
    text = "\n".join((str(CHECKPOINT_VERSION), str(len(lines)), *lines, ""))
    write_atomically(file_system, path, text.encode(), sync_names=sync_names, waits=waits)


def read_checkpoint(file_system: FileSystem, path: str) -> list[list[str]] | None:
    """Entries of a checkpoint, each split at blanks; None if the file is absent or incomplete."""
    try:
        lines = read_file(file_system, path).decode().split("\n")
        if int(lines[0]) != CHECKPOINT_VERSION:
            return None
        count = int(lines[1])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    entries = [line.split() for line in lines[2:] if line]
    return entries if len(entries) == count else None


def write_offsets(
    file_system: FileSystem, path: str, offsets: Mapping[TopicPartitionPair, int]
) -> None:
    """Replace an offset checkpoint (topic, partition) -> offset, durably. Raises OSError."""
    entries = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    write_checked_checkpoint(file_system, path, entries)


def write_checked_checkpoint(
    file_system: FileSystem, path: str, entries: Sequence[str], *, waits: bool = True
) -> None:
    """Version of write_checkpoint that adds a checksum as the last line. Raises OSError."""
    lines = [*entries, f"{CHECKSUM_NAME} 0 {_checksum(entries)}"]
    write_checkpoint(file_system, path, lines, waits=waits)


def read_checked_checkpoint(file_system: FileSystem, path: str) -> list[list[str]] | None:
    """Entries of a checkpoint; None if it is absent, damaged, or without a checksum. Raises
    OSError.
    """
    entries = read_checkpoint(file_system, path)
    if not entries or entries[-1][0] != CHECKSUM_NAME:
        return None
    *entries, checksum = entries
    is_whole = checksum[1:] == ["0", str(_checksum([" ".join(entry) for entry in entries]))]
    return entries if is_whole else None


def has_checksum(file_system: FileSystem, path: str) -> bool:
    """Whether a checkpoint is readable and has a checksum: Kafka's have none. Raises OSError."""
    entries = read_checkpoint(file_system, path)
    return CHECKSUM_NAME in [entry[0] for entry in entries or ()]


def _checksum(entries: Sequence[str]) -> int:
    return int(crc32c("\n".join(entries).encode()))


def read_offsets(file_system: FileSystem, path: str) -> OffsetsByPartition | None:
    """Read an offset checkpoint; None if it is absent or damaged."""
    entries = read_checkpoint(file_system, path)
    if entries is None:
        return None
    if entries and entries[-1][0] == CHECKSUM_NAME:
        *entries, checksum = entries
        if checksum[1:] != ["0", str(_checksum([" ".join(entry) for entry in entries]))]:
            return None
    try:
        offsets = {(topic, int(part)): int(offset) for topic, part, offset in entries}
    except ValueError:
        return None
    return offsets if all(offset >= 0 for offset in offsets.values()) else None
