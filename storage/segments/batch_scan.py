"""Walking the batches of a log file: headers only (trusted), or every byte (after a crash).

Not here: what is done about damage (log_segment, log_loader).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from ...protocol.records.record_batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    RecordBatchHeader,
    read_header,
)
from ..disk.file_system import File

HEADER_CHUNK_BYTES: Final = 8192
SMALL_BATCH_BYTES: Final = 2048
VERIFY_CHUNK_BYTES: Final = 1024 * 1024
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""Largest offset of a segment, relative to its base offset."""
MIN_BATCH_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
CUT_HEADER: Final = "cut header"
CUT_BATCH: Final = "cut batch"


def walk_headers(file: File, start: int, end: int) -> Iterator[tuple[int, RecordBatchHeader]]:
    """(position, header) of the batches entirely in [start, end), which the caller trusts.

    Stops at anything that is no batch. Cost: one read per batch, or per HEADER_CHUNK_BYTES when
    the batches are small.
    """
    position = start
    chunk = b""
    chunk_start = start
    chunk_bytes = HEADER_CHUNK_BYTES
    while position + HEADER_SIZE <= end:
        if position + HEADER_SIZE > chunk_start + len(chunk):
            chunk = file.read_at(min(chunk_bytes, end - position), position)
            chunk_start = position
            if len(chunk) < HEADER_SIZE:
                return
        header = read_header(chunk, position - chunk_start)
        size = header.batch_length + LOG_OVERHEAD
        if size < HEADER_SIZE or position + size > end or header.magic != MAGIC:
            return
        yield position, header
        position += size
        chunk_bytes = HEADER_CHUNK_BYTES if size <= SMALL_BATCH_BYTES else HEADER_SIZE


class BatchScan:
    """Iterates over (position, header) of the valid batches from the start of a file.

    After the iteration `position` is where the valid part ends, and `reason` says why it ended
    there, or is None at the end of the file. A batch is valid when its length fits in the file,
    its magic is 2, its CRC matches, its base offset is the expected one (or above, if compaction
    may have left gaps) and its leader epoch is at least the one before. Offset and epoch are not
    covered by the CRC, and a recycled disk block may hold a batch that was valid once.

    Cost: the file is read once, VERIFY_CHUNK_BYTES at a time; a batch larger than that is never
    held whole, so a corrupt length costs no memory.
    """

    def __init__(
        self, file: File, *, base_offset: int, leader_epoch: int, allow_gaps: bool
    ) -> None:
        self._file = file
        self._end = file.size()
        self.next_offset = base_offset
        self._highest_offset = base_offset + MAX_RELATIVE_OFFSET
        self._allow_gaps = allow_gaps
        self.leader_epoch = leader_epoch
        self.position = 0
        self.reason: str | None = None

    def __iter__(self) -> Iterator[tuple[int, RecordBatchHeader]]:
        chunk = memoryview(b"")
        chunk_start = 0
        while self.position < self._end:
            at = self.position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = self._read(), self.position, 0
            header = read_header(chunk, at) if at + HEADER_SIZE <= len(chunk) else None
            self.reason = self._implausible(header)
            if header is None or self.reason is not None:
                return
            if at + header.size > len(chunk):
                chunk, chunk_start, at = self._read(), self.position, 0
            if header.crc != self._crc(chunk[at : at + header.size], header.size):
                self.reason = "wrong CRC"
                return
            yield self.position, header
            self.position += header.size
            self.next_offset = header.next_offset
            self.leader_epoch = header.leader_epoch

    @property
    def is_cut(self) -> bool:
        """Whether the valid part ended at an incomplete batch."""
        return self.reason in (CUT_HEADER, CUT_BATCH)

    def _read(self) -> memoryview:
        return memoryview(self._file.read_at(VERIFY_CHUNK_BYTES, self.position))

    def _implausible(self, header: RecordBatchHeader | None) -> str | None:
        if header is None:
            return CUT_HEADER
        if header.batch_length < MIN_BATCH_LENGTH:
            return f"batch length {header.batch_length}"
        if self.position + header.size > self._end:
            return CUT_BATCH
        if header.magic != MAGIC:
            return f"magic {header.magic}"
        gap = header.base_offset - self.next_offset
        if gap < 0 or (gap and not self._allow_gaps):
            return f"base offset {header.base_offset} where {self.next_offset} was expected"
        if header.last_offset_delta < 0 or header.last_offset > self._highest_offset:
            return f"last offset {header.last_offset} after {header.base_offset}"
        if header.leader_epoch < self.leader_epoch:
            return f"leader epoch {header.leader_epoch} after {self.leader_epoch}"
        return None

    def _crc(self, head: memoryview, size: int) -> int:
        value: int = crc32c(head[CRC_START:])
        done = len(head)
        while done < size:
            more = self._file.read_at(min(VERIFY_CHUNK_BYTES, size - done), self.position + done)
            if not more:
                return -1
            value = crc32c(more, value)
            done += len(more)
        return value
