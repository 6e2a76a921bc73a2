"""Offset index of one segment: file positions of offsets.

    00000000000000368769.index    8-byte entries  >II  (offset - base_offset, position)

An entry is the last offset of a batch and the position where that batch begins, about one per
`index.interval.bytes` of log. Both columns strictly increase.
Source: apache/kafka storage/.../internals/log/OffsetIndex.java.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ..disk.file_system import FileSystem
from .index_file import IndexFile

ENTRY: Final = Struct(">II")


class OffsetIndex(IndexFile):
    __slots__ = ("base_offset",)

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        *,
        base_offset: int,
        segment_index_bytes: int,
        stored: int,
    ) -> None:
        super().__init__(
            file_system, path, ENTRY, capacity=segment_index_bytes // ENTRY.size, stored=stored
        )
        self.base_offset = base_offset

    def add(self, last_offset: int, position: int) -> None:
        """Add the batch that begins at `position` and ends with `last_offset`."""
        self.append(ENTRY.pack(last_offset - self.base_offset, position))

    def last(self) -> tuple[int, int] | None:
        """The newest (last_offset, position)."""
        return self.get(len(self) - 1)

    def get(self, number: int) -> tuple[int, int] | None:
        if number < 0:
            return None
        relative_offset, position = self.entry(number)
        return self.base_offset + relative_offset, position

    def lookup(self, offset: int) -> tuple[int, int] | None:
        """The last entry whose batch ends at or before `offset`: begin to scan at its position."""
        return self.get(self.floor(offset - self.base_offset, column=0))

    def lookup_position(self, position: int) -> tuple[int, int] | None:
        """The last entry whose batch begins at or before `position`."""
        return self.get(self.floor(position, column=1))

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of batches that end at or after `offset`. Raises OSError."""
        self.truncate(self.floor(offset - self.base_offset, column=0, below=True) + 1)
