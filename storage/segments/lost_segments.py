"""Segments whose log file is lost: a mark takes its place, so that the gap stays visible.

    00000000000000368769.log    LOST: no batch, and too short to be one

An empty file would have this effect only in a log that may not have gaps. The mark counts as damage
for every reader, in every kind of log, in this run and in later ones, until the segment is repaired
from another replica, or the records are deleted.

Evidence that a file existed:
    its indexes      exist, and have entries. A deletion renames the log file before the indexes,
                     and a start that finishes it unlinks the indexes before the log file.
    the list         of closed segments has it (segments/closed_segments).
    the log start    in the checkpoint is below the first segment, and no file of a segment between
                     them waits for its deletion: such files are all unlinked only after the
                     checkpoint was written (replication/logs/log_maintenance).

Above the recovery point a crash may lose a file: the log is truncated there, as at any other flaw.

Not here: when this is checked (storage/log/log_leftovers, log_loader), what readers get
(log_damage).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from itertools import pairwise
from os.path import dirname

from crc32c import crc32c

from ..disk.file_system import FileSystem, sync_directory
from .batch_scan import walk_headers
from .closed_segments import (
    CLOSED_SEGMENTS,
    ClosedSegment,
    ClosedSegments,
    missing_of,
    read_closed_segments,
    read_transactions,
    remove_list,
)
from .log_segment import LogSegment
from .segment_files import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIXES,
    TIME_INDEX_SUFFIX,
)
from .transaction_index import TRANSACTION_INDEX_SUFFIX

LOST = b"lost records\n"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
LOG_SWAP_SUFFIXES = tuple(LOG_SUFFIX + suffix for suffix in SWAP_SUFFIXES.values())
WAITING_SUFFIXES = (DELETED_SUFFIX, *SWAP_SUFFIXES, *SWAP_SUFFIXES.values())


def mark_lost(file_system: FileSystem, path: str) -> None:
    """Put a mark in place of the log file `path`. Raises OSError."""
    file = file_system.open(path, create=True)
    file.truncate(0)
    file.write_at(LOST, 0)
    file.sync()
    file.close()


def mark_lost_durably(file_system: FileSystem, path: str) -> None:
    """Version of mark_lost that makes the mark's name durable. Raises OSError."""
    mark_lost(file_system, path)
    sync_directory(file_system, dirname(path))


def is_lost(file_system: FileSystem, path: str) -> bool:
    """Whether the file is only a mark. Raises OSError."""
    if file_system.size(path) != len(LOST):
        return False
    file = file_system.open(path)
    try:
        return file.read_at(len(LOST), 0) == LOST
    finally:
        file.close()


def missing_segments(file_system: FileSystem, directory: str, names: Collection[str]) -> list[int]:
    """Base offsets of segments with index entries whose log file is lost, or empty though it is not
    the last one. Raises OSError.
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


class ListedSegments:
    """Content of the list of closed segments while a log is loaded. Methods raise OSError."""

    def __init__(
        self, file_system: FileSystem, directory: str, *, counts: bool, safe_end: int
    ) -> None:
        """`counts`: whether the list is used; otherwise it is removed. `safe_end`: offset below
        which everything was durable.
        """
        self._file_system = file_system
        self._directory = directory
        self._counts = counts
        self._safe_end = safe_end
        self._lines = read_closed_segments(file_system, directory) if counts else {}
        if not counts:
            remove_list(file_system, directory)

    def missing(self, names: Collection[str], start: int) -> list[int]:
        """Base offsets of listed segments that are lost."""
        return missing_of(
            self._lines.values(),
            present=_bases(names, LOG_SUFFIX),
            waiting=_bases(names, *(LOG_SUFFIX + suffix for suffix in WAITING_SUFFIXES)),
            start=start,
            safe_end=self._safe_end,
        )

    def forget_leftovers(self, names: Collection[str]) -> None:
        """Remove lines of segments that deletions and swaps, about to be finished, replace."""
        replaced = _bases(names, *(LOG_SUFFIX + suffix for suffix in WAITING_SUFFIXES))
        swapped = min(_bases(names, *LOG_SWAP_SUFFIXES), default=None)
        present = _bases(names, LOG_SUFFIX) - replaced
        self._withdraw(
            base
            for base in self._lines
            if base not in present or (swapped is not None and base >= swapped)
        )

    def forget_from(self, offset: int) -> None:
        """Remove lines of segments from `offset` on, which are about to be removed."""
        self._withdraw(base for base in self._lines if base >= offset)

    def _withdraw(self, bases: Iterable[int]) -> None:
        """Remove lines before the files are unlinked. A list of the others is written later."""
        withdrawn = list(bases)
        if withdrawn:
            remove_list(self._file_system, self._directory)
        for base in withdrawn:
            del self._lines[base]

    def line(self, base_offset: int, next_offset: int | None) -> ClosedSegment | None:
        """Line of a segment that ends at `next_offset`; None: unknown."""
        line = self._lines.get(base_offset)
        if line is None or line.next_offset != next_offset or line.next_offset > self._safe_end:
            return None
        return line

    def has_other_transactions(self, segment: LogSegment) -> bool:
        """Whether its transaction index differs from the one at the time it was closed."""
        line = self.line(segment.base_offset, segment.next_offset)
        if line is None:
            return False
        content = read_transactions(self._file_system, segment)
        return (len(content), int(crc32c(content))) != line[3:5]

    def closed(
        self, segments: Sequence[LogSegment], made_again: Collection[LogSegment]
    ) -> ClosedSegments:
        """List of the loaded log; `made_again`: segments with rebuilt transaction indexes. Notes
        the former size of a segment that is shorter now.
        """
        known: dict[LogSegment, ClosedSegment] = {}
        for segment, following in pairwise(segments):
            line = self.line(segment.base_offset, following.base_offset)
            if line is not None and segment not in made_again:
                known[segment] = line
            if line is not None and segment.size < line.size:
                segment.noted_size = line.size
        path = f"{self._directory}/{CLOSED_SEGMENTS}"
        closed = ClosedSegments(self._file_system, known, is_listed=self._file_system.exists(path))
        if self._counts and len(known) < len(segments) - 1:
            closed.maybe_write(self._directory, segments)
        return closed


def _bases(names: Iterable[str], *suffixes: str) -> set[int]:
    return {offset_of(name) for name in names if name.endswith(suffixes)} - {-1}


def first_segment(names: Iterable[str]) -> int | None:
    """Base offset of the first segment, unfinished swaps included; None: there is none."""
    ends = (LOG_SUFFIX, *LOG_SWAP_SUFFIXES)
    return min((offset_of(name) for name in names if name.endswith(ends)), default=None)


def deleted_between(
    file_system: FileSystem, directory: str, names: Collection[str], start: int, end: int
) -> list[str]:
    """Deleted, not yet unlinked files of segments with offsets in [start, end). The log may have
    begun within one. Raises OSError.
    """
    deleted = {offset_of(name) for name in names if name.endswith(DELETED_SUFFIX)}
    first = max((base for base in deleted if 0 <= base < start), default=start)
    # If the log file is unlinked already, the segment's other files are left, as marks.
    if first < start and f"{first:020d}{LOG_SUFFIX}{DELETED_SUFFIX}" in names:
        path = f"{directory}/{first:020d}{LOG_SUFFIX}{DELETED_SUFFIX}"
        size = file_system.size(path)
        with closing(file_system.open(path)) as file:
            following = [header.next_offset for _, header in walk_headers(file, 0, size)]
        first = first if following and following[-1] > start else start
    return [
        name for name in names if name.endswith(DELETED_SUFFIX) and first <= offset_of(name) < end
    ]


def offset_of(name: str) -> int:
    """Offset in a file name; -1 if it is not one of ours."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isdigit() else -1
