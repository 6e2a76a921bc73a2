"""A segment frozen at one moment, to be searched in another thread while the log continues.

A LogSegment belongs to the thread that appends: lookups change its index blocks and its remembered
positions, and rebuild a wrong index, so a second thread would race with it, and a rebuild during an
append would make the log write at the wrong position. A frozen segment has copies of what is in
memory (a few KiB) and shares the files, of which it reads only the bytes that existed when it was
made. It never repairs anything: if an index is missing, truncated or wrong, it reads the headers
from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...protocol.records.record_batch import NO_TIMESTAMP, RecordBatchHeader
from ..disk.file_system import File
from .batch_scan import walk_headers
from .offset_index import OffsetIndex
from .time_index import TimeIndex


class FrozenSegment:
    """Made by LogSegment.frozen(). For one thread at a time. Methods raise OSError."""

    __slots__ = ("_largest", "_offset_index", "_open", "_time_index", "base_offset", "size")

    def __init__(
        self,
        open_file: Callable[[], File],
        *,
        base_offset: int,
        size: int,
        largest: tuple[int, int] | None,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
    ) -> None:
        """`largest`: (timestamp, last offset of its batch) if known already."""
        self._open = open_file
        self.base_offset = base_offset
        self.size = size
        self._largest = largest
        self._offset_index = offset_index
        self._time_index = time_index

    @property
    def file(self) -> File:
        return self._open()

    def largest(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the first batch that has it).

        NO_TIMESTAMP if there is none. Cost: an index entry and a header; where the index is wrong,
        all headers.
        """
        if self._largest is None:
            self._largest = self._indexed_largest() or self._scanned_largest()
        return self._largest

    def headers_at(self, offset: int) -> Iterator[tuple[int, RecordBatchHeader]]:
        """(position, header) of every batch from the one that holds `offset` on, in order."""
        for position, header in walk_headers(self.file, self._position_of(offset), self.size):
            if header.last_offset >= offset:
                yield position, header

    def headers_since(
        self, timestamp: int, start_offset: int
    ) -> Iterator[tuple[int, RecordBatchHeader]]:
        """(position, header) of batches from `start_offset` on, starting near the first one that
        reaches `timestamp`.
        """
        try:
            hint = self._time_index.lookup_before(timestamp)
        except FileNotFoundError:
            hint = None
        if hint is not None and hint[1] > start_offset and self._agrees(hint):
            start_offset = hint[1]
        return self.headers_at(start_offset)

    def _agrees(self, hint: tuple[int, int]) -> bool:
        timestamp, last_offset = hint
        for _, header in self.headers_at(last_offset):
            return header.last_offset == last_offset and header.max_timestamp == timestamp
        return False

    def _position_of(self, offset: int) -> int:
        try:
            hint = self._offset_index.lookup(offset)
        except FileNotFoundError:
            return 0
        if hint is not None and hint[1] < self.size:
            for _, header in walk_headers(self.file, hint[1], self.size):
                return hint[1] if header.last_offset == hint[0] else 0
        return 0

    def _indexed_largest(self) -> tuple[int, int] | None:
        try:
            last = self._time_index.last()
        except FileNotFoundError:
            return None
        return last if last is not None and self._agrees(last) else None

    def _scanned_largest(self) -> tuple[int, int]:
        largest = (NO_TIMESTAMP, self.base_offset)
        for _, header in walk_headers(self.file, 0, self.size):
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
        return largest
