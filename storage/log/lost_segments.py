"""Segments whose log file is gone: a mark takes its place, so that the gap is seen for ever.

    00000000000000368769.log    LOST: no batch, and too short to be one

An empty file would say the same only where offsets have no gaps by right. The mark is damage to
every reader, in every kind of log, in this run and in later ones, until another replica has healed
it, or the records are deleted.

How it is known that a file was there:
    its indexes      are there, and say something. Who deletes a segment renames its log first, and
                     unlinks that last.
    the log start    in the checkpoint is below the first segment, and no file of what would be
                     between waits for its deletion: such files go only after the checkpoint was
                     written (replication/logs/log_maintenance).

Above the recovery point, after a crash, a file that is gone is no news: the log is cut there, as at
any other flaw.

Not here: when this is asked (log_loader), who is told (log_damage).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..disk.file_system import FileSystem
from ..segments.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from ..segments.transaction_index import TRANSACTION_INDEX_SUFFIX

LOST = b"lost records\n"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
WAITING_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


def mark_lost(file_system: FileSystem, path: str) -> None:
    """Leave the mark in the place of the log file `path`. Raises OSError."""
    file = file_system.open(path, create=True)
    file.truncate(0)
    file.write_at(LOST, 0)
    file.sync()
    file.close()


def is_lost(file_system: FileSystem, path: str) -> bool:
    """Whether there is nothing but the mark. Raises OSError."""
    if file_system.size(path) != len(LOST):
        return False
    file = file_system.open(path)
    try:
        return file.read_at(len(LOST), 0) == LOST
    finally:
        file.close()


def missing_segments(file_system: FileSystem, directory: str, names: Collection[str]) -> list[int]:
    """The base offsets of those whose indexes say something, while their log file is gone; or
    empty, though it is not the last one. Raises OSError.
    """
    bases = {offset_of(name) for name in names if name.endswith(LOG_SUFFIX)}
    waiting = {
        offset_of(name)
        for name in names
        if name.endswith(tuple(LOG_SUFFIX + suffix for suffix in WAITING_SUFFIXES))
    }
    said = {
        offset_of(name)
        for name in names
        if name.endswith(INDEX_SUFFIXES)
        and offset_of(name) >= 0
        and file_system.size(f"{directory}/{name}")
    }
    last = max(bases, default=-1)
    return sorted(
        base
        for base in said - waiting
        if base not in bases
        or (base < last and not file_system.size(f"{directory}/{base:020d}{LOG_SUFFIX}"))
    )


def first_segment(names: Iterable[str]) -> int | None:
    """Where the log's files begin, after what a start finishes."""
    ends = (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX)
    return min((offset_of(name) for name in names if name.endswith(ends)), default=None)


def deleted_between(names: Iterable[str], start: int, end: int) -> list[str]:
    """Files in [start, end) that are deleted, and not yet unlinked."""
    return [
        name for name in names if name.endswith(DELETED_SUFFIX) and start <= offset_of(name) < end
    ]


def offset_of(name: str) -> int:
    """The offset in a file name; -1 if it is not one of ours."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isdigit() else -1
