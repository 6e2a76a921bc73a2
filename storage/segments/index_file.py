"""Sorted fixed-size entries in a file: common part of the offset index and the time index.

Where the entries are: those written, in the file; the newest few (at most SPILL_ENTRIES, more only
while the disk refuses them), in memory; and the block of the file that was searched last, in
memory. No descriptor is kept. So an index that nobody reads costs no memory and no descriptor,
which is what lets a node hold many thousands of logs; one that is read in sequence answers from its
block.
Not mmap: a mapped file turns an I/O error, or a truncation by another process, into SIGBUS, which
kills the whole process; and a mapping for each index of each segment would take too much memory.

Invariants: entries are hints. They carry no checksum, may be missing at the end after a
crash, and can always be rebuilt from the log, so the segment checks every entry it uses and nothing
here is fsynced before its segment is closed.

Not here: the meaning of an entry (offset_index, time_index), rebuilding (log_segment).
"""

from __future__ import annotations

from copy import copy
from struct import Struct
from typing import Self

from ..disk.file_system import FileSystem

SPILL_ENTRIES = 512
"""Entries buffered before a write; also the entries of one block, the unit of a search."""


class IndexFile:
    """An append-only sorted array of `entry` structs. `capacity` is in entries."""

    __slots__ = (
        "_block",
        "_block_first",
        "_entry",
        "_file_system",
        "_pending",
        "_spill_at",
        "_stored",
        "capacity",
        "is_full",
        "path",
    )

    def __init__(
        self, file_system: FileSystem, path: str, entry: Struct, *, capacity: int, stored: int
    ) -> None:
        self._file_system = file_system
        self.path = path
        self._entry = entry
        self.capacity = capacity
        self._stored = stored
        self._pending = bytearray()
        self._spill_at = SPILL_ENTRIES * entry.size
        self._block = b""
        self._block_first = 0
        self.is_full = stored >= capacity
        """Whether there is no room for another entry; read for every append to the log."""

    def __len__(self) -> int:
        return self._stored + len(self._pending) // self._entry.size

    def frozen(self) -> Self:
        """A frozen copy, for lookups in another thread."""
        other = copy(self)
        other._pending = bytearray(self._pending)
        return other

    @property
    def has_pending(self) -> bool:
        """Whether there are entries that are not in the file."""
        return bool(self._pending)

    def append(self, packed: bytes) -> None:
        """Add an entry that sorts after all others. Never fails: it may stay in memory."""
        self._pending += packed
        if len(self._pending) >= self._spill_at:
            try:
                self.write_out()
            except OSError:
                # The batch behind this entry is in the log already, so its append must not fail.
                self._spill_at = len(self._pending) + SPILL_ENTRIES * self._entry.size
        self.is_full = len(self) >= self.capacity

    def write_out(self) -> None:
        """Write the buffered entries; creates the file even if there are none. Raises OSError."""
        file = self._file_system.open(self.path, create=True)
        try:
            position = self._stored * self._entry.size
            file.write_at(self._pending, position)
            file.truncate(position + len(self._pending))  # a rebuilt index may have been longer
        finally:
            file.close()
        self._stored += len(self._pending) // self._entry.size
        self._pending = bytearray()
        self._spill_at = SPILL_ENTRIES * self._entry.size

    def entry(self, number: int) -> tuple[int, ...]:
        """Entry `number`; 0 <= number < len(self)."""
        size = self._entry.size
        if number >= self._stored:
            return self._entry.unpack_from(self._pending, (number - self._stored) * size)
        if not self._is_in_block(number):
            self._load_block(number // SPILL_ENTRIES * SPILL_ENTRIES)
        return self._entry.unpack_from(self._block, (number - self._block_first) * size)

    def floor(self, target: int, *, column: int, below: bool = False) -> int:
        """Number of the last entry whose `column` is <= target (< target if `below`), or -1.

        Cost: a bisection in memory near the end or in the block read last; else about
        log2(entries / SPILL_ENTRIES) reads of one entry, and one of a block.
        """
        limit = target - 1 if below else target
        size = self._entry.size
        unpack = self._entry.unpack_from
        if self._pending and unpack(self._pending, 0)[column] <= limit:
            return self._stored + self._floor_in(self._pending, limit, column)
        if not self._stored:
            return -1
        block = self._block
        if not (
            block
            and unpack(block, 0)[column] <= limit
            and (
                self._block_first + len(block) // size == self._stored
                or limit < unpack(block, len(block) - size)[column]
            )
        ):
            self._find_block(limit, column)
        return self._block_first + self._floor_in(self._block, limit, column)

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries. Raises OSError."""
        self._block = b""
        self.is_full = min(count, len(self)) >= self.capacity
        if count >= self._stored:
            del self._pending[(count - self._stored) * self._entry.size :]
            return
        self._pending = bytearray()
        self._stored = count
        file = self._file_system.open(self.path, create=True)
        try:
            file.truncate(count * self._entry.size)
        finally:
            file.close()

    def _floor_in(self, entries: bytes | bytearray, limit: int, column: int) -> int:
        size = self._entry.size
        unpack = self._entry.unpack_from
        low, high = 0, len(entries) // size
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[column] <= limit:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _find_block(self, limit: int, column: int) -> None:
        """Load the block in whose first entry `column` is the greatest <= limit (or the first)."""
        size = self._entry.size
        file = self._file_system.open(self.path)
        try:
            low, high = 0, (self._stored - 1) // SPILL_ENTRIES
            while low < high:
                middle = (low + high + 1) // 2
                first = file.read_at(size, middle * SPILL_ENTRIES * size)
                if len(first) == size and self._entry.unpack(first)[column] <= limit:
                    low = middle
                else:
                    high = middle - 1
        finally:
            file.close()
        self._load_block(low * SPILL_ENTRIES)

    def _load_block(self, first: int) -> None:
        size = self._entry.size
        count = min(SPILL_ENTRIES, self._stored - first)
        file = self._file_system.open(self.path)
        try:
            block = file.read_at(count * size, first * size)
        finally:
            file.close()
        # A truncated file is padded with zeros: wrong hints, which the segment detects.
        self._block = block.ljust(count * size, b"\0")
        self._block_first = first

    def _is_in_block(self, number: int) -> bool:
        return 0 <= number - self._block_first < len(self._block) // self._entry.size
