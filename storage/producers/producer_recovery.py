"""The producer state of a log as it is on disk: newest good snapshot, then the batches after it.

Used when a log is opened and when it is truncated. Snapshots above the end of the log belong to a
history that is gone, so they are removed before anything can be appended in its place.

The indexes of aborted transactions follow from the same batches: those that a scan has emptied are
filled again here, from a snapshot at the first of them or before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...protocol.records.end_transaction_marker import read_marker
from ..disk.file_system import FileSystem, sync_directory
from ..segments.batch_scan import walk_headers
from ..segments.log_segment import LogSegment
from ..segments.segment_files import SNAPSHOT_SUFFIX
from ..segments.segment_list import SegmentList
from .producer_snapshot import read_snapshot
from .producer_state import ProducerState


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offsets(file_system: FileSystem, directory: str) -> list[int]:
    """The offsets of all snapshot files, ascending."""
    return sorted(
        int(name.removesuffix(SNAPSHOT_SUFFIX))
        for name in file_system.list_directory(directory)
        if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdigit()
    )


def remove_snapshots(file_system: FileSystem, directory: str, offsets: Iterable[int]) -> None:
    """Raises OSError."""
    for offset in offsets:
        file_system.unlink(snapshot_path(directory, offset))


def load_producer_state(
    file_system: FileSystem,
    directory: str,
    segments: SegmentList,
    offsets: Iterable[int],
    *,
    without_index: Collection[LogSegment] = (),
) -> tuple[ProducerState, int]:
    """(state at the end of the log, batches replayed).

    Args:
        file_system, directory, segments: the log's.
        offsets: those of the snapshots.
        without_index: segments whose transaction indexes are forgotten, and are made again in
            memory. The caller replaces their files.

    Raises OSError, CorruptMessage: a control batch that is no such thing.
    """
    log_end_offset = segments.active.next_offset
    stale = [offset for offset in offsets if offset > log_end_offset]
    if stale:
        remove_snapshots(file_system, directory, stale)
        sync_directory(file_system, directory)
    latest = min((segment.base_offset for segment in without_index), default=log_end_offset)
    state = ProducerState()
    for offset in sorted(set(offsets) - set(stale), reverse=True):
        if offset > latest:
            continue
        snapshot = read_snapshot(file_system, snapshot_path(directory, offset), offset)
        if snapshot is not None:
            state = snapshot
            break
    start = state.end_offset
    replayed = 0
    if start < log_end_offset:
        for segment in segments.from_offset(start):
            replayed += _replay(segment, start, state, makes_index=segment in without_index)
    state.end_offset = log_end_offset
    return state, replayed


def _replay(segment: LogSegment, start: int, state: ProducerState, *, makes_index: bool) -> int:
    replayed = 0
    for position, header in walk_headers(segment.file, segment.locate(start), segment.size):
        replayed += 1
        if not header.is_control:
            state.update(header, header.last_offset, header.max_timestamp)
            continue
        marker = read_marker(segment.file.read_at(header.size, position))
        aborted = state.end_transaction(header, marker, header.last_offset, header.max_timestamp)
        if aborted is not None and makes_index:
            segment.transaction_index.add(aborted)
    return replayed
