"""Planted faults of compaction; see planted_faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bradbury.replication.logs import log_compactor
from bradbury.replication.logs.log_flusher import LogFlusher
from bradbury.storage.cleaner import cleaner
from bradbury.storage.cleaner.cleaner import Cleaning
from bradbury.storage.cleaner.cleaner_plain import PlainOffsetMap
from bradbury.storage.log import cleaner_manager
from bradbury.storage.log.cleaner_manager import LogToClean
from bradbury.storage.log.log_compaction import LogCompaction
from bradbury.storage.log.partition_log import PartitionLog

from ..fault_registry import Patch, fault

COMPACTED = {"compacts": True, "segment_bytes": 600}
IN_TRANSACTIONS = {
    "groups": 0,
    "transactional_ids": 2,
    "offsets_in_transactions": True,
    "kinds": ("kill producer",),
    "fault_every_ms": 150,
}
GROUPS = {**COMPACTED, "groups": 1, "group_members": 3, "transactional_ids": 0}


@fault(**GROUPS, kinds=("disk", "kill"), fault_every_ms=150, outage_ms=100, checkpoint_ms=900)
def a_copy_of_a_compacted_log_is_cut_at_its_gaps(patch: Patch) -> None:
    """As this node once did: a follower notes gaps with the next checkpoint, and dies before."""

    def check_gap(compaction: LogCompaction) -> None:
        compaction.note_gaps(0)

    patch(LogCompaction, "check_gap", check_gap)


@fault(**GROUPS, kinds=("kill", "power"), fault_every_ms=150, outage_ms=100, checkpoint_ms=900)
def gaps_are_noted_when_they_are_there(patch: Patch) -> None:
    """A cleaning begins without a word on the disk that its log may have gaps."""
    original = LogFlusher.note_gaps

    def note_gaps(flusher: LogFlusher, log: PartitionLog) -> Any:
        if log.config.is_compacted:
            log.compaction.note_gaps(log.log_start_offset)
            return
        yield from original(flusher, log)

    patch(LogFlusher, "note_gaps", note_gaps)


@fault(**GROUPS, kinds=("power",), fault_every_ms=150, outage_ms=100)
def a_cleaned_segment_is_not_synced(patch: Patch) -> None:
    """It takes the place of what was safe on the disk."""
    patch(Cleaning, "_make_durable", lambda cleaning, target, aborted: target.close_indexes())


@fault(**GROUPS, kinds=("cut", "kill", "pause"), fault_every_ms=300, outage_ms=1_200)
def what_is_not_committed_is_cleaned(patch: Patch) -> None:
    """A record that is truncated later has taken the place of one that was committed."""

    def find_cleanable(log: PartitionLog, now_ms: int) -> LogToClean:
        found = cleaner_manager.find_cleanable(log, now_ms)
        closed = log.segments[:-1]
        dirty = [each for each in closed if each.base_offset >= found.first_dirty_offset]
        return replace(
            found,
            end_offset=log.segments.active.base_offset,
            cleanable_bytes=sum(each.size for each in dirty),
        )

    patch(log_compactor, "find_cleanable", find_cleanable)


@fault(**GROUPS)
def the_last_record_of_a_key_goes(patch: Patch) -> None:
    """Only what is later than the last one stays."""

    def is_last(offsets: PlainOffsetMap, record: Any, batch: Any) -> bool:
        return record.offset > offsets._offsets.get(offsets._hash(record.key), -1)

    def plain(limit: int, seed: bytes, *, record_count: int) -> PlainOffsetMap:
        return PlainOffsetMap(limit, seed)  # also where another test has loaded the compiled one

    patch(PlainOffsetMap, "_is_last", is_last)
    patch(cleaner, "make_offset_map", plain)


@fault(**COMPACTED, **IN_TRANSACTIONS)
def an_aborted_record_counts_as_the_last_of_its_key(patch: Patch) -> None:
    """It takes the place of the one before, which was committed."""
    patch(Cleaning, "_aborted", lambda cleaning: [])
