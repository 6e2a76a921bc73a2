"""The producer state of a log as it is on disk: newest good snapshot, then the batches after it.

Used when a log is opened and when it is truncated. Snapshots above the end of the log belong to a
history that is gone, so they are removed before anything can be appended in its place.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..disk.file_system import FileSystem, sync_directory
from ..segments.batch_scan import walk_headers
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
    file_system: FileSystem, directory: str, segments: SegmentList, offsets: Iterable[int]
) -> tuple[ProducerState, int]:
    """(state at the end of the log, batches replayed). `offsets` are those of the snapshots.

    Raises OSError.
    """
    log_end_offset = segments.active.next_offset
    stale = [offset for offset in offsets if offset > log_end_offset]
    if stale:
        remove_snapshots(file_system, directory, stale)
        sync_directory(file_system, directory)
    state = ProducerState()
    for offset in sorted(set(offsets) - set(stale), reverse=True):
        snapshot = read_snapshot(file_system, snapshot_path(directory, offset), offset)
        if snapshot is not None:
            state = snapshot
            break
    start = state.end_offset
    replayed = 0
    if start < log_end_offset:
        for segment in segments.from_offset(start):
            for _, header in walk_headers(segment.file, segment.locate(start), segment.size):
                state.update(header, header.last_offset, header.max_timestamp)
                replayed += 1
    state.end_offset = log_end_offset
    return state, replayed
