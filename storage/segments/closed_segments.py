"""List of a log's closed segments, in a file next to them, so that lost ones are detected.

    closed-segments-checkpoint     0 / count / one line per closed segment, oldest first:
        base_offset next_offset size transaction_index_size transaction_index_crc time_index_entries
        # 0 <checksum of the lines>

The names of the existing files do not show which ones are missing: in a compacted log gaps between
offsets are normal, retention decides where a log begins, and most segments have no .txnindex. A
clean stop lists the active segment, too. Kafka ignores a file of this name.

Invariants: no version of the list that a power loss may restore has a segment whose files were
unlinked on purpose. So a segment is added without waiting for the disk (the flush that makes its
records durable makes the list durable, too); but before deleted files are unlinked, the list
without them is on the disk (ListSync), or there is no list.
A line is used only below the recovery point, and only if no file contradicts it: one that waits to
be unlinked, or another segment that begins within its offsets.

Unlike Kafka, which has no such file, and continues without the missing segments.

Not here: what is made of a missing file (lost_segments, storage/log/log_loader).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from ..disk.checkpoint_file import read_checked_checkpoint, write_checked_checkpoint
from ..disk.file_system import FileSystem, read_file, sync_directory
from .log_segment import LogSegment
from .segment_list import SegmentList

CLOSED_SEGMENTS: Final = "closed-segments-checkpoint"


class ClosedSegment(NamedTuple):
    """A segment as it was when it was closed. `next_offset`: offset of the next segment."""

    base_offset: int
    next_offset: int
    size: int
    transactions_size: int
    transactions_crc: int
    times: int
    """Number of time index entries: without the last ones retention would consider the segment
    older.
    """


def read_closed_segments(file_system: FileSystem, directory: str) -> dict[int, ClosedSegment]:
    """Read the list, by base offset; empty if the file is absent, damaged or unreadable."""
    try:
        entries = read_checked_checkpoint(file_system, f"{directory}/{CLOSED_SEGMENTS}")
        lines = [ClosedSegment(*map(int, entry)) for entry in entries or ()]
    except (OSError, ValueError, TypeError):
        return {}
    return {line.base_offset: line for line in lines}


def remove_list(file_system: FileSystem, directory: str) -> None:
    """Remove the list, durably. Raises OSError."""
    path = f"{directory}/{CLOSED_SEGMENTS}"
    if file_system.exists(path) and not file_system.is_directory(path):
        file_system.unlink(path)
        sync_directory(file_system, directory)


def missing_of(
    listed: Iterable[ClosedSegment],
    *,
    present: Collection[int],
    waiting: Collection[int],
    start: int,
    safe_end: int,
) -> list[int]:
    """Base offsets of segments that should exist and do not.

    Args:
        listed: from the file.
        present: base offsets of the log's files.
        waiting: of those that wait to be unlinked, or to be swapped in.
        start: the log start; segments that end at or below it may be deleted.
        safe_end: segments that end above it may have been lost in a crash.
    """
    return [
        line.base_offset
        for line in listed
        if line.base_offset not in present
        and line.base_offset not in waiting
        and start < line.next_offset <= safe_end
        and not any(line.base_offset < other < line.next_offset for other in present)
    ]


class ListSync:
    """Makes the current list durable; `run` in any thread."""

    __slots__ = ("_directory", "_file_system", "_owner", "_removals")

    def __init__(
        self, owner: ClosedSegments, file_system: FileSystem, directory: str, removals: int
    ) -> None:
        self._owner = owner
        self._file_system = file_system
        self._directory = directory
        self._removals = removals

    def run(self) -> None:
        """Sync with two fsyncs. If it fails the deleted files stay until it succeeds."""
        path = f"{self._directory}/{CLOSED_SEGMENTS}"
        with contextlib.suppress(OSError):
            self.sync(path)

    def sync(self, path: str) -> None:
        """Sync the list. Raises OSError."""
        if self._file_system.exists(path) and not self._file_system.is_directory(path):
            file = self._file_system.open(path)
            try:
                file.sync()
            finally:
                file.close()
        sync_directory(self._file_system, self._directory)
        self._owner.synced_removals = max(self._owner.synced_removals, self._removals)


class ClosedSegments:
    """List of one log, on the loop of its owner."""

    __slots__ = ("_file_system", "_lines", "is_listed", "is_unsynced", "synced_removals")

    def __init__(
        self,
        file_system: FileSystem,
        known: Mapping[LogSegment, ClosedSegment],
        *,
        is_listed: bool,
    ) -> None:
        """`known`: lines of segments of this log. `is_listed`: a file may exist."""
        self._file_system = file_system
        self._lines = {segment: (line.next_offset, _text(line)) for segment, line in known.items()}
        self.is_listed = is_listed
        self.is_unsynced = False
        """Whether it was written since the last sync, which clears this."""
        self.synced_removals = 0
        """Number of the log's removals that the durable list reflects."""

    def write(
        self, directory: str, segments: Sequence[LogSegment], *, with_active: bool = False
    ) -> None:
        """List the closed ones of `segments`, without waiting for the disk. Raises OSError.

        Cost: a file of 50 bytes per segment; below a millisecond with a thousand of them.
        """
        lines: dict[LogSegment, tuple[int, str]] = {}
        for segment, following in pairwise(segments):
            line = self._lines.get(segment)
            if line is None or line[0] != following.base_offset:
                line = self._describe(segment, following.base_offset)
            lines[segment] = line
        self._lines = lines
        entries = [text for _, text in lines.values()]
        if with_active:
            entries.append(self._describe(segments[-1], segments[-1].next_offset)[1])
        self.is_listed = True
        write_checked_checkpoint(
            self._file_system,
            f"{directory}/{CLOSED_SEGMENTS}",
            entries,
            waits=False,
        )
        self.is_unsynced = True

    def _describe(self, segment: LogSegment, next_offset: int) -> tuple[int, str]:
        content = read_transactions(self._file_system, segment)
        size = max(segment.size, segment.noted_size)
        crc = int(crc32c(content))
        times = len(segment.time_index)
        line = ClosedSegment(segment.base_offset, next_offset, size, len(content), crc, times)
        return next_offset, _text(line)

    def maybe_write(self, directory: str, segments: Sequence[LogSegment]) -> None:
        """Version of write that tolerates errors: then the list lacks the newest segments until the
        next write.
        """
        with contextlib.suppress(OSError):
            self.write(directory, segments)

    def begin_deletion(self, directory: str, segments: SegmentList, now_ms: int) -> ListSync | None:
        """Update the list, so that deleted files that are due may be unlinked after ListSync.run;
        None: they may at once. Raises OSError.
        """
        removals = segments.removals
        if not segments.has_due(now_ms):
            return None
        if not self.is_listed or self.synced_removals == removals:
            return None
        try:
            self.write(directory, segments.segments)
        except OSError:  # the disk may be full; the deletion is to free some of it
            remove_list(self._file_system, directory)
        return ListSync(self, self._file_system, directory, removals)


def _text(line: ClosedSegment) -> str:
    return " ".join(map(str, line))


def read_transactions(file_system: FileSystem, segment: LogSegment) -> bytes:
    """Content of the transaction index file. Raises OSError."""
    path = segment.transaction_index.path
    is_there = len(segment.transaction_index) and file_system.exists(path)
    return read_file(file_system, path) if is_there else b""
