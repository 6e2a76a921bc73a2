"""Undamaged parts of a damaged segment's file: its runs of whole batches.

A batch is sound when its length fits, its magic is 2, its CRC matches and its offsets are between
those before it and those that the next segment begins with. Behind one that is not, the next sound
one is searched for: first where the damaged one ends by its length, then byte by byte, so a wrong
length hides no more than its own batch.

A record's value may contain whole batches, which are not batches of this log. So a batch that the
search finds is accepted only if it is followed by the end of the file, or by another batch of the
log, damaged or not; inside a value the rest of the record would follow. And a damaged batch is
assumed to have had at least one offset.

Cost: the file is read once, CHUNK_BYTES at a time, in a thread. Nothing here writes.

Not here: what is done about missing records (storage/log/log_damage, storage/log/segment_patch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    RecordBatchHeader,
    compute_crc,
    read_header,
)
from ..disk.file_system import File
from .batch_scan import walk_headers

CHUNK_BYTES = 1024 * 1024
PAGE_BYTES = 4096
MAGIC_POSITION = 16
OFFSET_BYTES = 8
_MAGIC = bytes([MAGIC])


class SegmentRun(NamedTuple):
    """Adjacent sound batches, [position, position + size) of the file."""

    position: int
    size: int
    first_offset: int
    next_offset: int
    largest: tuple[int, int]
    """(timestamp, last offset) of the batch with the largest timestamp."""


class SegmentReader:
    """Reads checked batches of one segment's file. `size`: bytes of the file that belong to it."""

    def __init__(
        self,
        file: File,
        size: int,
        *,
        end_offset: int,
        has_gaps: bool,
        chunk_bytes: int = CHUNK_BYTES,
        most_bytes: int | None = None,
        progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`end_offset`: offset behind the segment. `chunk_bytes`: bytes read at once, if no more
        are needed. `most_bytes`: largest batch; a larger one counts as damaged. `progress`: called
        with the bytes read.
        """
        self._file = file
        self._size = min(size, file.size())
        self._end_offset = end_offset
        self._has_gaps = has_gaps
        self._chunk_bytes = chunk_bytes
        self._most_bytes = self._size if most_bytes is None else most_bytes
        self._progress = progress
        self._chunk = b""
        self._chunk_start = 0

    def batches(self, position: int, expected: int) -> Iterator[tuple[RecordBatchHeader, bytes]]:
        """(header, bytes) of undamaged batches from `position` on, up to the first damaged one."""
        while (found := self.batch_at(position, expected, has_gap=False)) is not None:
            yield found
            position += found[0].size
            expected = found[0].next_offset

    def batch_at(
        self, position: int, expected: int, *, has_gap: bool
    ) -> tuple[RecordBatchHeader, bytes] | None:
        """The batch at `position` if it is undamaged, and begins at `expected` (or, with `has_gap`,
        behind it).
        """
        header = self._header_at(position)
        if header is None or not self._is_plausible(header, position, expected):
            return None
        if header.base_offset > expected and not (has_gap or self._has_gaps):
            return None
        data = self._read(position, header.size)
        return (header, data) if compute_crc(data) == header.crc else None

    def run_at(self, position: int, expected: int, *, has_gap: bool) -> SegmentRun | None:
        """Undamaged batches from `position` on; None if batch_at finds none there."""
        found = self.batch_at(position, expected, has_gap=has_gap)
        if found is None:
            return None
        first = found[0]
        end, next_offset = position + first.size, first.next_offset
        largest = (first.max_timestamp, first.last_offset)
        for header, _ in self.batches(end, next_offset):
            end, next_offset = end + header.size, header.next_offset
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
        return SegmentRun(position, end - position, first.base_offset, next_offset, largest)

    def run_behind(self, position: int, expected: int) -> SegmentRun | None:
        """Next run of this log behind the damage at `position`, where offset `expected` was due."""
        least = expected + 1
        here = self.run_at(position, least, has_gap=True)
        if here is not None and self._goes_on(here):
            return here  # no bytes are damaged: only offsets are missing
        end = position
        header = self._header_at(end)
        while header is not None and self._fits(header, end):
            end += header.size
            if end == self._size:
                return None
            behind = self.run_at(end, least, has_gap=True)
            if behind is not None and (self._goes_on(behind) or self._is_before_damage(behind)):
                return behind
            least += 1
            header = self._header_at(end)  # apparently of another damaged batch
            if header is None or header.magic != MAGIC or header.base_offset < least:
                break
        least = expected + 1
        start = self.find_next(position + 1, least)
        while start is not None:
            run = self.run_at(start, least, has_gap=True)
            assert run is not None
            if self._goes_on(run) or self._is_before_damage(run):
                return run
            start = self.find_next(run.position + run.size, least)
        return None

    def _goes_on(self, run: SegmentRun) -> bool:
        """Whether the file ends behind `run`, or the next batch begins at its end offset."""
        end = run.position + run.size
        following = self._read(end, min(OFFSET_BYTES, self._size - end))
        return not following or int.from_bytes(following, "big") == run.next_offset

    def _is_before_damage(self, run: SegmentRun) -> bool:
        """Whether there is damage behind `run`: a batch of this log, by its length and what
        follows, or zeros, as of a lost page.
        """
        end = run.position + run.size
        header = self._header_at(end)
        if header is None:
            return False
        if not any(self._read(end, HEADER_SIZE)):
            return True
        if not self._fits(header, end) or self.batch_at(end, 0, has_gap=True) is not None:
            return False
        behind = end + header.size
        if behind == self._size:
            return True
        return self.batch_at(behind, run.next_offset + 1, has_gap=True) is not None

    def find_next(self, position: int, expected: int) -> int | None:
        """First position from `position` on where an undamaged batch begins; None: none."""
        while position + HEADER_SIZE <= self._size:
            chunk = self._read(position, min(CHUNK_BYTES, self._size - position))
            hit = chunk.find(_MAGIC, MAGIC_POSITION)
            while hit >= 0:
                candidate = position + hit - MAGIC_POSITION
                if self.batch_at(candidate, expected, has_gap=True) is not None:
                    return candidate
                hit = chunk.find(_MAGIC, hit + 1)
            if len(chunk) <= MAGIC_POSITION:
                return None
            position += len(chunk) - MAGIC_POSITION
        return None

    @property
    def size(self) -> int:
        return self._size

    def _header_at(self, position: int) -> RecordBatchHeader | None:
        if position + HEADER_SIZE > self._size:
            return None
        data = self._read(position, HEADER_SIZE)
        return read_header(data) if len(data) == HEADER_SIZE else None

    def _fits(self, header: RecordBatchHeader, position: int) -> bool:
        size = header.batch_length + LOG_OVERHEAD
        return HEADER_SIZE <= size <= min(self._size - position, self._most_bytes)

    def _is_plausible(self, header: RecordBatchHeader, position: int, expected: int) -> bool:
        return (
            header.magic == MAGIC
            and self._fits(header, position)
            and header.base_offset >= expected
            and header.last_offset_delta >= 0
            and header.last_offset < self._end_offset
        )

    def _read(self, position: int, size: int) -> bytes:
        start = position - self._chunk_start
        if start < 0 or start + size > len(self._chunk):
            wanted = max(size, min(self._chunk_bytes, self._size - position))
            self._chunk = self._read_at(wanted, position)
            self._chunk_start = position
            self._progress(len(self._chunk))
            start = 0
        return self._chunk[start : start + size]

    def _read_at(self, size: int, position: int) -> bytes:
        """Read bytes; zeros, which are not a batch, where the disk refuses."""
        try:
            return self._file.read_at(size, position)
        except OSError:
            if size <= PAGE_BYTES:
                return bytes(size)
        end = position + size
        starts = range(position, end, PAGE_BYTES)
        return b"".join(self._read_at(min(PAGE_BYTES, end - start), start) for start in starts)


def find_runs(
    reader: SegmentReader, base_offset: int, log_start_offset: int = 0
) -> list[SegmentRun]:
    """All undamaged runs, ascending. One run over the whole file: nothing is damaged.

    Deleted records, before `log_start_offset`, may be missing in a segment that was healed.
    """
    runs: list[SegmentRun] = []
    position, expected = 0, base_offset
    run = reader.run_at(position, expected, has_gap=base_offset < log_start_offset)
    if run is not None and run.first_offset > max(base_offset, log_start_offset):
        run = None
    while True:
        if run is not None:
            runs.append(run)
            position, expected = run.position + run.size, run.next_offset
        if position >= reader.size:
            return runs
        run = reader.run_behind(position, expected)
        if run is None:
            return runs


def walk_sound(
    file: File, size: int, *, position: int, base_offset: int, end_offset: int, checks: bool
) -> Iterator[tuple[int, RecordBatchHeader]]:
    """Version of walk_headers from `position` on that continues behind damage with the next
    undamaged batch. With `checks`, batches with a wrong CRC are skipped, too.

    Cost: as walk_headers; with damage, or `checks`, the file is read whole.
    """
    if not checks:
        for at, header in walk_headers(file, position, size):
            yield at, header
            position = at + header.size
        if position >= size:
            return
    for run in find_runs(
        SegmentReader(file, size, end_offset=end_offset, has_gaps=True), base_offset
    ):
        for at, header in walk_headers(file, run.position, run.position + run.size):
            if at >= position:
                yield at, header
