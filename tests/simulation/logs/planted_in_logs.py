"""Planted faults for the world of one log; see log_world."""

from __future__ import annotations

from typing import Any

from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.log.log_flush import FlushWork, LogFlushing
from bradbury.storage.log.log_loader import LogLoader
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.timestamp_search import TimestampSearch
from bradbury.storage.producers import producer_recovery
from bradbury.storage.segments.log_segment import LogSegment
from bradbury.storage.segments.transaction_index import TransactionIndex

from ..planted.fault_registry import Patch, PlantedFault, fault

LOG_FAULTS: dict[str, PlantedFault] = {}


@fault(LOG_FAULTS)
def a_flaw_below_the_recovery_point_takes_what_is_behind_it(patch: Patch) -> None:
    """As once in shipped code: a process that died cut its log there."""
    patch(LogLoader, "_keep_behind", lambda loader, *arguments: [])


@fault(LOG_FAULTS)
def flushed_records_are_missing_and_nobody_says_so(patch: Patch) -> None:
    """As once in shipped code, where the file had ended within a batch."""
    original = LogLoader.load

    def load(loader: LogLoader) -> Any:
        loaded = original(loader)
        if len(loaded.report.reasons) == 1 + sum(
            "was flushed to" in each for each in loaded.report.reasons
        ):
            object.__setattr__(loaded.report, "is_damaged", False)
        return loaded

    patch(LogLoader, "load", load)


@fault(LOG_FAULTS, first_seed=660)
def a_recovery_point_beyond_the_end_stays_in_its_file(patch: Patch) -> None:
    """As once in shipped code: records that come in the place of lost ones count as flushed."""
    patch(LogDirectory, "_lower_recovery_points", lambda directory: None)


@fault(LOG_FAULTS, first_seed=100)
def an_index_of_transactions_outlives_its_records(patch: Patch) -> None:
    """As once in shipped code, where a start has cut the active segment."""
    original = TransactionIndex.replace_file

    def replace(index: TransactionIndex) -> None:
        if index.has_pending:
            original(index)

    patch(TransactionIndex, "replace_file", replace)


@fault(LOG_FAULTS, first_seed=200)
def a_snapshot_from_behind_damage_makes_an_index(patch: Patch) -> None:
    """As once in shipped code: what was aborted before it is not in the index."""
    patch(producer_recovery, "_make_index_apart", lambda *arguments: None)


@fault(LOG_FAULTS)
def segments_are_removed_after_the_file_is_cut(patch: Patch) -> None:
    """As once in shipped code: a process that dies leaves a log that was cut in its midst."""
    original = PartitionLog.truncate_to

    def truncate(log: PartitionLog, offset: int) -> int:
        local, held = log.local, list[Any]()
        mark = local.mark_deleted

        def later(removed: Any, due_ms: int) -> None:
            held.append((list(removed), due_ms))

        local.mark_deleted = later  # type: ignore[method-assign]
        try:
            dropped = original(log, offset)
        finally:
            del local.mark_deleted
        while held:
            mark(*held.pop())
        return dropped

    patch(PartitionLog, "truncate_to", truncate)


@fault(LOG_FAULTS, first_seed=270)
def what_cannot_be_read_is_not_cut_off(patch: Patch) -> None:
    """As once in shipped code: the mark of a lost file stays, and records come behind it."""

    def cut_for(segment: LogSegment, offset: int) -> tuple[int, int]:
        position = segment.locate(offset)
        return position, segment.next_offset if position == segment.size else offset

    patch(LogSegment, "_cut_for", cut_for)


@fault(LOG_FAULTS, first_seed=10)
def the_newest_record_may_be_a_deleted_one(patch: Patch) -> None:
    """As once in shipped code: then there seems to be none."""
    patch(TimestampSearch, "_largest", lambda search, segment: segment.largest())


@fault(LOG_FAULTS)
def a_flush_does_not_wait(patch: Patch) -> None:
    """The recovery point moves before anything is on the disk."""
    patch(FlushWork, "run", lambda work: None)


@fault(LOG_FAULTS, first_seed=70)
def names_are_not_flushed(patch: Patch) -> None:
    """A new segment's records are safe, and its name is not."""
    original = LogFlushing.begin_flush

    def begin(flushing: LogFlushing) -> FlushWork | None:
        flushing._local.is_directory_dirty = False
        return original(flushing)

    patch(LogFlushing, "begin_flush", begin)


@fault(LOG_FAULTS, first_seed=130)
def a_truncation_does_not_wait(patch: Patch) -> None:
    """A power loss brings back what was cut off, while others have come in its place."""
    patch(PartitionLog, "_sync_truncation", lambda log: None)
