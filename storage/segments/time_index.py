"""Time index of one segment: offsets from which timestamps can be found.

    00000000000000368769.timeindex    12-byte entries  >qI  (timestamp, offset - base_offset)

An entry says: the largest timestamp so far is `timestamp`, and the batch that brought it ends with
`offset`. So nothing before that batch is later than `timestamp`. Timestamps strictly increase; an
entry that would not is omitted. A closed segment's last entry holds its largest timestamp.
Source: apache/kafka storage/.../internals/log/TimeIndex.java.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ...protocol.records.record_batch import NO_TIMESTAMP
from ..disk.file_system import FileSystem
from .index_file import IndexFile

ENTRY: Final = Struct(">qI")


class TimeIndex(IndexFile):
    __slots__ = ("_last_timestamp", "base_offset")

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        *,
        base_offset: int,
        segment_index_bytes: int,
        stored: int,
    ) -> None:
        # One slot is reserved for the entry that closes the segment.
        capacity = segment_index_bytes // ENTRY.size - 1
        super().__init__(file_system, path, ENTRY, capacity=capacity, stored=stored)
        self.base_offset = base_offset
        self._last_timestamp: int | None = NO_TIMESTAMP if stored == 0 else None

    def maybe_add(self, timestamp: int, last_offset: int) -> None:
        """Add the largest timestamp so far, unless the last entry has it already."""
        if self._last_timestamp is None:
            last = self.last()
            self._last_timestamp = NO_TIMESTAMP if last is None else last[0]
        if timestamp > self._last_timestamp:
            self._last_timestamp = timestamp
            self.append(ENTRY.pack(timestamp, last_offset - self.base_offset))

    def last(self) -> tuple[int, int] | None:
        """The newest (timestamp, last_offset)."""
        return self._get(len(self) - 1)

    def lookup_before(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry that is earlier than `timestamp`: search from its offset on."""
        return self._get(self.floor(timestamp, column=0, below=True))

    def truncate(self, count: int) -> None:
        self._last_timestamp = None
        super().truncate(count)

    def truncate_to(self, offset: int) -> None:
        """Forget every batch that ends at or after `offset`. Raises OSError."""
        self.truncate(self.floor(offset - self.base_offset, column=1, below=True) + 1)

    def _get(self, number: int) -> tuple[int, int] | None:
        if number < 0:
            return None
        timestamp, relative_offset = self.entry(number)
        return timestamp, self.base_offset + relative_offset
