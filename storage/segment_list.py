"""The segments of one log in order, and the files of those that were taken out of it.

What always holds: at least one segment; base offsets strictly increase; the last is the active
one. The list is replaced, never changed, so whoever iterates over it sees one moment.

A deleted segment's files get the suffix .deleted at once, so that a crash cannot bring them back,
and are unlinked `file.delete.delay.ms` later. Open slices of them stay readable all the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from .file_system import FileSystem
from .log_segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    LogSegment,
)

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)


class SegmentList:
    __slots__ = ("_base_offsets", "_deleted", "_file_system", "active", "segments")

    def __init__(self, file_system: FileSystem, segments: Iterable[LogSegment]) -> None:
        self._file_system = file_system
        self._deleted: list[tuple[int, str]] = []
        self._replace(tuple(segments))

    def _replace(self, segments: tuple[LogSegment, ...]) -> None:
        self.segments = segments
        self.active = segments[-1]
        self._base_offsets = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """The segment that holds `offset` (the first one if none does), and all after it."""
        return self.segments[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    def add(self, segment: LogSegment) -> None:
        self._replace((*self.segments, segment))

    def replace_last(self, segment: LogSegment) -> tuple[LogSegment, ...]:
        """Put `segment` in the place of the active one; returns that."""
        removed = (self.active,)
        self._replace((*self.segments[:-1], segment))
        return removed

    def replace_all(self, segment: LogSegment) -> tuple[LogSegment, ...]:
        """Make `segment` the only one; returns those that were there."""
        removed = self.segments
        self._replace((segment,))
        return removed

    def remove_first(self, count: int) -> tuple[LogSegment, ...]:
        removed = self.segments[:count]
        self._replace(self.segments[count:])
        return removed

    def remove_after(self, offset: int) -> tuple[LogSegment, ...]:
        """Take out the segments whose base offset is above `offset`, but never the first."""
        count = max(bisect_right(self._base_offsets, offset), 1)
        removed = self.segments[count:]
        self._replace(self.segments[:count])
        return removed

    def relocate(self, directory: str) -> None:
        """All files are in `directory` now."""
        for segment in self.segments:
            segment.relocate(directory)
        self._deleted = [
            (due_ms, f"{directory}/{path.rpartition('/')[2]}") for due_ms, path in self._deleted
        ]

    def mark_deleted(self, removed: Iterable[LogSegment], due_ms: int) -> None:
        """Rename the files of `removed`, to be unlinked at `due_ms`. Raises OSError.

        From the last on: a crash in between must not leave a hole in the log.
        """
        for segment in reversed(list(removed)):
            segment.release_file()
            for suffix in SEGMENT_SUFFIXES:
                path = segment.path_prefix + suffix
                if self._file_system.exists(path):
                    self._file_system.rename(path, path + DELETED_SUFFIX)
                    self._deleted.append((due_ms, path + DELETED_SUFFIX))

    def unlink_deleted(self, now_ms: int) -> int:
        """Unlink what is due; returns the number of files. Raises OSError."""
        due = [path for due_ms, path in self._deleted if due_ms <= now_ms]
        self._deleted = [entry for entry in self._deleted if entry[0] > now_ms]
        for path in due:
            if self._file_system.exists(path):
                self._file_system.unlink(path)
        return len(due)
