"""Check of a whole metadata log before it is opened: undamaged parts and flaws.

Opening a log truncates it at the first flaw, without reading what is behind that; this check
changes nothing. A log is short (a snapshot replaces its beginning), so it is read at every start,
also after a clean stop, which does not rule out corrupted bits.

Not here: what is done about a flaw (voter_directory), the records (metadata_rebuild).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from ...cluster.metadata.metadata_records import EpochRecord
from ...cluster.quorum.voter import NO_SNAPSHOT, LogEnd
from ...protocol.records.record_batch import (
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    RecordBatchHeader,
    read_header,
)
from ...storage.disk.file_system import FileSystem, read_file
from ...storage.segments.segment_files import LOG_SUFFIX

PREFIX_BYTES = 4
"""Length of the prefix of a base offset that all batches of a log share; JSON text has no zero
bytes.
"""


class SoundRun(NamedTuple):
    """Undamaged adjacent batches in one file: offsets [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    last_epoch: int
    batches: bytes


class LogFlaw(NamedTuple):
    """A place where a log is damaged. offset: offset that was expected there."""

    path: str
    position: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path} is damaged at byte {self.position} (offset {self.offset}): {self.reason}"
        )


@dataclass(slots=True)
class MetadataLogCheck:
    """Result of the check, ascending. Memory: the log's size."""

    runs: list[SoundRun] = field(default_factory=list)
    flaws: list[LogFlaw] = field(default_factory=list)
    segments: int = 0
    obstacles: list[str] = field(default_factory=list)
    """Directories with the name of a log file."""
    last_segment: int = 0
    """Base offset of the last segment. Before it is created, all earlier ones are fsynced: a
    segment of this log is closed by a snapshot, never by its size.
    """
    is_out_of_order: bool = False
    """Whether a segment does not begin where the one before it ends, or a leader epoch is lower
    than the one before it. Opening the log does not detect either.
    """

    @property
    def end_offset(self) -> int:
        """End of the last undamaged batch, wherever that is, and at least the last segment's base
        offset.
        """
        return max((self.last_segment, *(run.next_offset for run in self.runs)))

    @property
    def last_epoch(self) -> int:
        return max((run.last_epoch for run in self.runs), default=-1)

    def whole_to(self, start: int) -> int:
        """Offset up to which the log continues from `start` without a flaw."""
        offset = start
        for run in self.runs:
            if run.base_offset <= offset < run.next_offset:
                offset = run.next_offset
        first = min((flaw.offset for flaw in self.flaws if flaw.offset >= start), default=offset)
        return min(offset, first)

    def flaw_from(self, start: int) -> LogFlaw | None:
        """First flaw that concerns offsets from `start` on; None: there is none."""
        return next((flaw for flaw in self.flaws if flaw.offset >= start), None)


def check_metadata_log(
    file_system: FileSystem, directory: str, before: LogEnd = NO_SNAPSHOT
) -> MetadataLogCheck:
    """Read all segments in `directory`, which may be absent. Raises OSError.

    before: end of the snapshot, if there is one; the log continues there in the snapshot's epoch.
    """
    check = MetadataLogCheck()
    if not file_system.is_directory(directory):
        return check
    names = sorted(file_system.list_directory(directory))
    check.obstacles = [name for name in names if file_system.is_directory(f"{directory}/{name}")]
    reader = _Reader(check, before)
    for name in names:
        stem = name.removesuffix(LOG_SUFFIX)
        if name == stem or not stem.isdigit():
            continue
        check.segments += 1
        check.last_segment = int(stem)
        path = f"{directory}/{name}"
        if name in check.obstacles:
            check.flaws.append(LogFlaw(path, 0, int(stem), "it is a directory"))
            continue
        reader.read(path, int(stem), read_file(file_system, path))
    return check


class _Reader:
    """Reads the segments in order; each batch is expected where the last one ended."""

    def __init__(self, check: MetadataLogCheck, before: LogEnd) -> None:
        self._check = check
        self._before = before
        self._expected: int | None = None
        self._epoch = -1

    def read(self, path: str, base_offset: int, data: bytes) -> None:
        expected = base_offset if self._expected is None else self._expected
        if expected != base_offset:
            self._check.is_out_of_order = True
            self._flaw(path, 0, expected, f"the segment begins at offset {base_offset}")
            expected = max(expected, base_offset)
        position = begin = 0
        base = expected
        while position < len(data):
            if 0 < self._before.offset == expected:
                self._epoch, self._before = self._before.epoch, NO_SNAPSHOT
            header, reason = self._check_batch(data, position, expected)
            if header is not None and not reason:
                position += header.size
                expected, self._epoch = header.next_offset, header.leader_epoch
                continue
            self._add(data, begin, position, base, expected)
            self._flaw(path, position, expected, reason)
            # The CRC does not cover the epoch: an intact batch with a wrong one begins a new run.
            self._check.is_out_of_order |= header is not None
            begin = position if header is not None else _resume(data, position + 1, expected)
            if begin < 0:
                break
            position, self._epoch = begin, -1
            base = expected = read_header(data, begin).base_offset
        else:
            self._add(data, begin, position, base, expected)
        self._expected = expected

    def _check_batch(
        self, data: bytes, position: int, expected: int
    ) -> tuple[RecordBatchHeader | None, str]:
        header, reason = sound_batch(data, position)
        if header is None:
            return None, reason
        if header.base_offset != expected:
            return None, f"base offset {header.base_offset} where {expected} was expected"
        epoch, last = header.leader_epoch, self._epoch
        if epoch < last:
            return header, f"leader epoch {epoch} after {last}"
        batch = data[position : position + header.size]
        if epoch > last >= 0 and not begins_epoch(batch, epoch):
            return header, f"leader epoch {epoch} after {last}, without the record that begins it"
        return header, ""

    def _add(self, data: bytes, begin: int, end: int, base: int, expected: int) -> None:
        if end > begin:
            self._check.runs.append(SoundRun(base, expected, self._epoch, data[begin:end]))

    def _flaw(self, path: str, position: int, offset: int, reason: str) -> None:
        self._check.flaws.append(LogFlaw(path, position, offset, reason))


def begins_epoch(batch: bytes, epoch: int) -> bool:
    """Whether a batch begins with its epoch's record; every epoch does, and the CRC covers it."""
    return f'"type":"{EpochRecord.__name__}","epoch":{epoch},'.encode() in batch


def sound_batch(data: bytes, position: int) -> tuple[RecordBatchHeader | None, str]:
    """(header of the undamaged batch at `position`, "") or (None, the flaw there).

    Not record_batch's walk_batches, which stops at a damaged batch without an error: a report needs
    each flaw, and the check resumes behind it.
    """
    if position + HEADER_SIZE > len(data):
        return None, "a cut header"
    header = read_header(data, position)
    if header.size < HEADER_SIZE:
        return None, f"batch length {header.batch_length}"
    if header.magic != MAGIC:
        return None, f"magic {header.magic}"
    if position + header.size > len(data):
        return None, "a cut batch, or a wrong length"
    if header.crc != crc32c(memoryview(data)[position + CRC_START : position + header.size]):
        return None, "wrong CRC"
    if header.last_offset_delta < 0 or header.base_offset < 0:
        return None, "offsets below zero"
    return header, ""


def _resume(data: bytes, position: int, expected: int) -> int:
    """Position of the next undamaged batch behind a flaw; -1 if there is none."""
    for at in _candidates(data, position, expected):
        header, _ = sound_batch(data, at)
        if header is not None and header.base_offset >= expected:
            return at
    return -1


def _candidates(data: bytes, position: int, expected: int) -> Iterator[int]:
    prefix = expected.to_bytes(8)[:PREFIX_BYTES]
    while (position := data.find(prefix, position)) >= 0:
        yield position
        position += 1
