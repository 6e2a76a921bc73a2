"""Recovery of a log's producer state: newest valid snapshot, then the batches after it.

Used when a log is opened and when it is truncated. Snapshots above the end of the log describe
records that are lost, so they are removed before other records can be appended there.

The transaction indexes are derived from the same batches: those that a scan has cleared are rebuilt
here, from a snapshot at the first of them or before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from ...protocol.records.end_transaction_marker import read_marker
from ...protocol.records.record_batch import compute_crc
from ..disk.file_system import File, FileSystem, sync_directory
from ..segments.log_segment import LogSegment
from ..segments.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX
from ..segments.segment_list import SegmentList
from ..segments.segment_runs import walk_sound
from ..segments.transaction_index import (
    TRANSACTION_INDEX_SUFFIX,
    AbortedTransaction,
    invalidate_transaction_index,
)
from .producer_snapshot import read_snapshot
from .producer_state import ProducerState


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offsets(file_system: FileSystem, directory: str) -> list[int]:
    """Offsets of all snapshot files, ascending."""
    return sorted(
        int(name.removesuffix(SNAPSHOT_SUFFIX))
        for name in file_system.list_directory(directory)
        if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdigit()
    )


def remove_snapshots(file_system: FileSystem, directory: str, offsets: Iterable[int]) -> None:
    """Remove snapshot files. Raises OSError."""
    for offset in offsets:
        file_system.unlink(snapshot_path(directory, offset))


def forget_derived(
    file_system: FileSystem, directory: str, base_offset: int, *, with_transactions: bool
) -> None:
    """Remove what was derived from a log that lacked records of the segment at `base_offset`:
    later snapshots of producers, and later indexes of aborted transactions. A start rebuilds them.

    For a repair, once its file is certain to replace the segment: until then, files that are older
    than the damage may still be needed. Durable; may be repeated. Raises OSError.
    """
    sync_directory(file_system, directory)
    if with_transactions:
        for name in sorted(file_system.list_directory(directory)):
            stem = name.removesuffix(LOG_SUFFIX)
            if stem != name and stem.isdigit() and int(stem) > base_offset:
                path = f"{directory}/{stem}{TRANSACTION_INDEX_SUFFIX}"
                invalidate_transaction_index(file_system, path)
    offsets = snapshot_offsets(file_system, directory)
    remove_snapshots(file_system, directory, [each for each in offsets if each > base_offset])
    sync_directory(file_system, directory)


class LoadedProducers(NamedTuple):
    state: ProducerState
    """Producer state at the end of the log."""
    replayed: int
    """Number of batches replayed."""
    since: int
    """Offset from which headers were read to replay."""
    lacks_some: bool
    """Whether damaged batches are missing in the state, with no snapshot behind them."""


def load_producer_state(
    file_system: FileSystem,
    directory: str,
    segments: SegmentList,
    offsets: Iterable[int],
    *,
    without_index: Collection[LogSegment] = (),
    damaged: Collection[LogSegment] = (),
) -> LoadedProducers:
    """Load the producer state of a log.

    Args:
        file_system, directory, segments: the log's.
        offsets: those of the snapshots.
        without_index: segments whose transaction indexes are forgotten, and are rebuilt in
            memory. The caller replaces their files.
        damaged: segments in which batches are used only if their CRC is valid.

    Of a damaged segment the sound batches are replayed; from its end on, the next snapshot is used
    instead, if there is one. Its transaction index keeps the entries of its file, which was written
    before the damage.

    Raises OSError, CorruptMessage: a control batch is malformed.
    """
    log_end_offset = segments.active.next_offset
    stale = [offset for offset in offsets if offset > log_end_offset]
    if stale:
        remove_snapshots(file_system, directory, stale)
        sync_directory(file_system, directory)
    latest = min((segment.base_offset for segment in without_index), default=log_end_offset)
    good = sorted(set(offsets) - set(stale))
    before = [offset for offset in reversed(good) if offset <= latest]
    state = _first_good(file_system, directory, before) or ProducerState()
    replayed, since, lacks_some = 0, state.end_offset, False
    if state.end_offset < log_end_offset:
        tail = segments.from_offset(state.end_offset)
        for segment, following in zip(tail, (*tail[1:], None), strict=True):
            end = log_end_offset if following is None else following.base_offset
            makes_index = segment in without_index
            # A snapshot from behind damage has no transactions that have ended before it.
            if makes_index and state.end_offset > segment.base_offset:
                earlier = [each for each in segments if each.base_offset < segment.base_offset]
                _make_index_apart(file_system, directory, segment, earlier, end)
                makes_index = False
            count, is_whole = _replay(
                segment,
                state,
                end_offset=end,
                makes_index=makes_index,
                checks=makes_index or segment in damaged,
            )
            replayed += count
            if is_whole:
                continue
            behind = _first_good(file_system, directory, [each for each in good if each >= end])
            lacks_some = lacks_some or behind is None
            state = behind or state
    state.end_offset = log_end_offset
    return LoadedProducers(state, replayed, since, lacks_some)


def _first_good(
    file_system: FileSystem, directory: str, offsets: Iterable[int]
) -> ProducerState | None:
    """The first of these snapshots that can be read; None: none can."""
    for offset in offsets:
        snapshot = read_snapshot(file_system, snapshot_path(directory, offset), offset)
        if snapshot is not None:
            return snapshot
    return None


def _replay(
    segment: LogSegment, state: ProducerState, *, end_offset: int, makes_index: bool, checks: bool
) -> tuple[int, bool]:
    """(batches replayed, whether nothing in the segment is damaged)."""
    start, index = state.end_offset, segment.transaction_index
    position = segment.locate(start) if start > segment.base_offset else 0
    if position >= segment.size and start < end_offset:
        position = 0  # it may be behind damage
    replay = _Replay(
        segment.file, segment.size, position, segment.base_offset, end_offset, checks=checks
    )
    for aborted in replay.run(state):
        if makes_index:
            index.add(aborted)
    if makes_index and not replay.is_whole:
        made, in_file = index.all(), index.in_file()
        index.forget()
        for aborted in merged(in_file, made, segment.base_offset, end_offset):
            index.add(aborted)
    return replay.batches, replay.is_whole


def _make_index_apart(
    file_system: FileSystem,
    directory: str,
    segment: LogSegment,
    earlier: Sequence[LogSegment],
    end_offset: int,
) -> None:
    index = segment.transaction_index
    made = aborted_in(file_system, directory, segment, earlier)
    for aborted in merged(made, index.in_file(), segment.base_offset, end_offset):
        index.add(aborted)


class _Replay:
    """Applies the undamaged batches of a file to a state that ends before or in it."""

    def __init__(
        self,
        file: File,
        size: int,
        position: int,
        base_offset: int,
        end_offset: int,
        *,
        checks: bool,
    ) -> None:
        self._file = file
        self._checks = checks
        self._size = size
        self._position = position
        self._base_offset = base_offset
        self._end_offset = end_offset
        self.batches = 0
        self.is_whole = True

    def run(self, state: ProducerState) -> Iterator[AbortedTransaction]:
        """Replay: yields the transactions that were aborted in the file."""
        position, start = self._position, state.end_offset
        for at, header in walk_sound(
            self._file,
            self._size,
            position=position,
            base_offset=self._base_offset,
            end_offset=self._end_offset,
            checks=self._checks,
        ):
            self.is_whole &= at == position
            position = at + header.size
            if header.next_offset <= start:
                continue
            self.batches += 1
            if not header.is_control:
                state.update(header, header.last_offset, header.max_timestamp)
                continue
            batch = self._file.read_at(header.size, at)
            if compute_crc(batch) != header.crc:
                self.is_whole = False
                continue
            aborted = state.end_transaction(
                header, read_marker(batch), header.last_offset, header.max_timestamp
            )
            if aborted is not None:
                yield aborted
        self.is_whole &= position == self._size


def merged(
    best: Iterable[AbortedTransaction],
    others: Iterable[AbortedTransaction],
    base_offset: int,
    end_offset: int,
) -> list[AbortedTransaction]:
    """Merge entries of a transaction index of these offsets; `best` takes precedence.

    A transaction has one marker: if that was damaged, the producer's next marker seems to end the
    transaction. Of several markers the first one is right.
    """
    by_transaction: dict[tuple[int, int], AbortedTransaction] = {}
    for each in (*best, *others):
        if not base_offset <= each.last_offset < end_offset or each.first_offset > each.last_offset:
            continue
        known = by_transaction.setdefault((each.producer_id, each.first_offset), each)
        if each.last_offset < known.last_offset:
            by_transaction[each.producer_id, each.first_offset] = each
    by_marker: dict[int, AbortedTransaction] = {}
    for each in (*others, *best):
        key = each.producer_id, each.first_offset
        if key in by_transaction and by_transaction[key].last_offset == each.last_offset:
            by_marker[each.last_offset] = each
    return [by_marker[offset] for offset in sorted(by_marker)]


def aborted_in(
    file_system: FileSystem,
    directory: str,
    segment: LogSegment,
    earlier: Sequence[LogSegment],
) -> list[AbortedTransaction]:
    """Aborted transactions whose markers are in `segment`, from its records and those of `earlier`,
    the segments before it. In any thread: the files are opened apart. Raises OSError,
    CorruptMessage.
    """
    base_offset = segment.base_offset
    offsets = [each for each in snapshot_offsets(file_system, directory) if each <= base_offset]
    state = _first_good(file_system, directory, reversed(offsets)) or ProducerState()
    found: list[AbortedTransaction] = []
    following = [*(each.base_offset for each in earlier[1:]), base_offset, segment.next_offset]
    for each, end in zip((*earlier, segment), following[-len(earlier) - 1 :], strict=True):
        if end <= state.end_offset:
            continue
        with closing(each.files.open_apart()) as file:
            replay = _Replay(file, each.size, 0, each.base_offset, end, checks=False)
            found = list(replay.run(state))
    return found
