"""Leader epochs of one partition with their start offsets (KIP-101).

    leader-epoch-checkpoint     0 / count / one line `epoch start_offset` per epoch

Invariants: epochs and start offsets both strictly increase. The file with a new epoch is
written and fsynced before the first batch of that epoch; its rename becomes durable, like the name
of a new segment, with the next flush. So a crash may restore the previous file, but that lacks no
epoch of a batch below the recovery point; and the recovery scan finds the epochs above it again.
Source: apache/kafka storage/.../internals/epoch/LeaderEpochFileCache.java.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final

from ...protocol.buffer import Buffer
from ...protocol.errors import InvalidRecord
from ...protocol.records.record_batch import RecordBatchHeader, walk_batches
from ..disk.checkpoint_file import read_checkpoint, write_checkpoint
from ..disk.file_system import FileSystem
from ..segments.batch_scan import walk_headers
from ..segments.log_segment import LogSegment
from ..segments.segment_list import SegmentList
from ..segments.segment_runs import walk_sound

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class LeaderEpochCache:
    """Leader epochs of one log. Mutators write the file at once and raise OSError."""

    __slots__ = ("_epochs", "_file_system", "_starts", "directory", "is_damaged", "latest_epoch")

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self.directory = directory
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.is_damaged = self._load()
        """Whether the file was there and invalid; then the cache is empty."""
        self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    @property
    def path(self) -> str:
        return f"{self.directory}/{FILE_NAME}"

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin `epoch` at `start_offset`, unless it has begun already."""
        if epoch == self.latest_epoch:
            return
        self.assign_all([(epoch, start_offset)])

    def assign_all(self, entries: list[tuple[int, int]]) -> None:
        """Assign several (epoch, start offset), ascending, with one write at most.

        A new entry takes precedence: entries with the same or a later epoch or start are dropped.
        """
        before = self.entries
        self._assign(entries)
        self._store_if_changed(before)

    def _assign(self, entries: list[tuple[int, int]]) -> None:
        for epoch, start_offset in entries:
            if epoch < 0 or epoch == (self._epochs[-1] if self._epochs else UNDEFINED_EPOCH):
                continue
            while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
                self._epochs.pop()
                self._starts.pop()
            self._epochs.append(epoch)
            self._starts.append(start_offset)

    def replace_all(self, entries: list[tuple[int, int]]) -> None:
        """Replace all entries by these (epoch, start offset); one write."""
        before = self.entries
        self._epochs, self._starts = [], []
        self._assign(entries)
        self._store_if_changed(before)

    def insert(self, entries: list[tuple[int, int]]) -> None:
        """Insert (epoch, start offset), ascending, that were unknown, or known to begin later."""
        if entries:
            self.replace_all(sorted([*self.entries, *entries], key=itemgetter(1, 0)))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch <= `epoch`, as OffsetForLeaderEpoch answers.

        (-1, -1) if unknown: the cache is empty, or `epoch` is undefined or above all known ones.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if higher == 0:
            return epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]

    def epoch_at(self, offset: int) -> int:
        """Leader epoch of the record at `offset`; -1: unknown."""
        number = bisect_right(self._starts, offset) - 1
        return self._epochs[number] if number >= 0 else UNDEFINED_EPOCH

    def new_epochs(self, batches: Buffer, *, up_to: int) -> list[tuple[int, int]]:
        """(epoch, first offset) of the new leader epochs in these batches of the leader.

        Raises InvalidRecord if one is greater than `up_to`, the leader's current epoch.
        """
        found: list[tuple[int, int]] = []
        latest = self.latest_epoch
        for _, header in walk_batches(batches):  # append_as_follower reports an invalid one
            if header.leader_epoch > up_to:
                raise InvalidRecord(
                    f"the leader of epoch {up_to} sent a batch of epoch {header.leader_epoch}"
                )
            if header.leader_epoch > latest:
                latest = header.leader_epoch
                found.append((latest, header.base_offset))
        return found

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after `end_offset`: their records are gone."""
        before = self.entries
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self._store_if_changed(before)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`; the one that holds it begins there.

        In memory only: the file keeps entries of deleted records, which are removed again when it
        is loaded, so retention costs no fsync here.
        """
        number = bisect_right(self._starts, start_offset) - 1
        if number >= 0:
            del self._epochs[:number], self._starts[:number]
            self._starts[0] = start_offset

    def clear(self) -> None:
        self.truncate_from_end(UNDEFINED_OFFSET)

    def _store_if_changed(self, before: list[tuple[int, int]]) -> None:
        # Set before the fsync, which may wait in a thread: no record of a former epoch may be
        # appended meanwhile, as its offset would be the start offset of the new epoch.
        self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        if self.entries == before:
            return
        lines = [f"{epoch} {start}" for epoch, start in self.entries]
        try:
            write_checkpoint(self._file_system, self.path, lines, sync_names=False)
        except OSError:  # the cache has only what is on the disk
            self._epochs = [epoch for epoch, _ in before]
            self._starts = [start for _, start in before]
            self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
            raise

    def _load(self) -> bool:
        entries = read_checkpoint(self._file_system, self.path)
        if entries is None:
            return self._file_system.exists(self.path)
        try:
            pairs = [(int(epoch), int(start)) for epoch, start in entries]
        except ValueError:
            return True
        for (epoch, start), (next_epoch, next_start) in pairwise(pairs):
            if next_epoch <= epoch or next_start <= start:
                return True
        self._epochs = [epoch for epoch, _ in pairs]
        self._starts = [start for _, start in pairs]
        return False


def begins_before(segments: Sequence[LogSegment], start: int, offset: int) -> bool:
    """Whether the first record from `start` on comes before `offset`, and has a leader epoch."""
    if start >= offset:
        return False
    for header in _sound_headers(segments):
        if header.next_offset > start:
            return header.base_offset < offset and header.leader_epoch >= 0
    return False


def contradicts(
    segments: SegmentList, entries: Sequence[tuple[int, int]], log_start_offset: int
) -> bool:
    """Whether the entries contradict the log: a batch at an epoch's start, or the one before it,
    has another epoch. The file has no checksum, as in Kafka. Cost: two look-ups an epoch, one for
    the first.
    """
    before = UNDEFINED_EPOCH
    for epoch, start in entries:
        expected = {max(start, log_start_offset): epoch}
        if before != UNDEFINED_EPOCH and start > log_start_offset:
            expected[start - 1] = before
        if any(
            _epoch_of(segments, offset) not in (None, each) for offset, each in expected.items()
        ):
            return True
        before = epoch
    return False


def _epoch_of(segments: SegmentList, offset: int) -> int | None:
    """Leader epoch of the batch that holds `offset`; None: there is none, or it cannot be read."""
    segment = segments.from_offset(offset)[0]
    for _, header in walk_headers(segment.file, segment.locate(offset), segment.size):
        return header.leader_epoch if header.base_offset <= offset <= header.last_offset else None
    return None


def epochs_in(segments: Sequence[LogSegment]) -> list[tuple[int, int]]:
    """(epoch, start offset) of every epoch in the log, read from all headers."""
    found: list[tuple[int, int]] = []
    for header in _sound_headers(segments):
        if not found or header.leader_epoch != found[-1][0]:
            found.append((header.leader_epoch, header.base_offset))
    return found


def _sound_headers(segments: Sequence[LogSegment]) -> Iterator[RecordBatchHeader]:
    """Headers of all undamaged batches, those behind damage included."""
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        for _, header in walk_sound(
            segment.file,
            segment.size,
            position=0,
            base_offset=segment.base_offset,
            end_offset=segment.next_offset if following is None else following.base_offset,
            checks=False,
        ):
            yield header
