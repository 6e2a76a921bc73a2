"""Copies of one metadata log, of several voters and of several times: what they have together.

    copy      a voter's log and snapshot as far as they are sound; also a log that a start has set
              aside as damaged (`__cluster_metadata-0.<id>-damaged`)
    leading   the copy that was furthest, by Raft's order (last epoch, then end): where a majority
              of the voters has a copy among these, it had everything that was committed

What always holds: a batch of another copy takes a place of the leading one's only if both logs are
equal up to there. Two logs that have an entry of one epoch are equal up to the lesser of the last
ones that they have of it (cluster/quorum/voter), so it is enough to know some of their entries.

The epoch of a batch is not in its CRC. One that does not fit between those of its neighbours says
nothing here; its records count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...cluster.metadata.metadata_records import ClusterRecord, decode_metadata_record
from ...cluster.quorum.metadata_snapshot import decode_snapshot
from ...cluster.quorum.voter import LogEnd
from ...cluster.topic_name import METADATA_TOPIC
from ...protocol.records.record_batch import walk_batches
from ...protocol.records.records import iterate_records
from ...storage.disk.file_system import FileSystem
from .metadata_log_check import MetadataLogCheck, check_metadata_log
from .replicated_log import FoundSnapshot, find_snapshot
from .voter_condition import VoterFiles

UNKNOWN_EPOCH = -2
_CLUSTER_MARK = f'"type":"{ClusterRecord.__name__}"'.encode()
ASIDE_PREFIX = f"{METADATA_TOPIC}-0."
ASIDE_SUFFIX = "-damaged"


class SoundBatch(NamedTuple):
    """Offsets [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    epoch: int
    data: bytes


@dataclass(slots=True)
class MetadataCopy:
    """batches: ascending. end: how far the log had come. flaws: in words."""

    log_path: str
    snapshot: FoundSnapshot
    batches: list[SoundBatch]
    end: LogEnd
    flaws: list[str] = field(default_factory=list)

    @property
    def last_of_epochs(self) -> dict[int, int]:
        """By epoch: behind the last entry of it that the log is known to have, or to have had."""
        last: dict[int, int] = {}
        ends = [LogEnd(each.epoch, each.next_offset) for each in self.batches]
        for epoch, offset in (*ends, self.snapshot.end, self.end):
            if epoch >= 0:
                last[epoch] = max(last.get(epoch, 0), offset)
        return last

    @property
    def cluster_id(self) -> str:
        """By the newest word of it; "": it does not say."""
        for batch in reversed(self.batches):
            if _CLUSTER_MARK in batch.data:
                for record in iterate_records(memoryview(batch.data)):
                    fact = decode_metadata_record(record.value or b"")
                    if isinstance(fact, ClusterRecord):
                        return fact.cluster_id
        return decode_snapshot(self.snapshot.data).cluster_id if self.snapshot.data else ""


class UnitedLog(NamedTuple):
    """What all copies have together: the snapshot, and batches behind it.

    end: how far the leading copy had come. gaps: offsets [from, to) behind the snapshot that none
    of them has.
    """

    snapshot: FoundSnapshot
    batches: list[SoundBatch]
    end: LogEnd
    gaps: list[tuple[int, int]]


def copy_in_place(files: VoterFiles) -> MetadataCopy:
    """Of the log that a voter's directory has."""
    return _copy(files.log_path, files.check, files.snapshot, files.mark)


def copies_set_aside(file_system: FileSystem, path: str) -> list[MetadataCopy]:
    """Of logs that a start has set aside in a voter's directory, `<data dir>/metadata`."""
    if not file_system.is_directory(path):
        return []
    found = []
    for name in sorted(file_system.list_directory(path)):
        log_path = f"{path}/{name}"
        is_aside = name.startswith(ASIDE_PREFIX) and name.endswith(ASIDE_SUFFIX)
        if is_aside and file_system.is_directory(log_path):
            check = check_metadata_log(file_system, log_path)
            found.append(_copy(log_path, check, find_snapshot(file_system, log_path), None))
    return found


def _copy(
    log_path: str, check: MetadataLogCheck, snapshot: FoundSnapshot, mark: LogEnd | None
) -> MetadataCopy:
    batches = [
        SoundBatch(
            header.base_offset,
            header.next_offset,
            header.leader_epoch,
            run.batches[position : position + header.size],
        )
        for run in check.runs
        for position, header in walk_batches(memoryview(run.batches))
    ]
    batches = _with_fitting_epochs(batches)
    last = max(
        (LogEnd(each.epoch, each.next_offset) for each in batches if each.epoch >= 0),
        default=snapshot.end,
    )
    end = max(last, snapshot.end, mark or snapshot.end)
    # An epoch that is known goes with an end that is: a batch without one may be the last.
    end = LogEnd(end.epoch, max(end.offset, check.end_offset, mark.offset if mark else 0))
    flaws = [*snapshot.flaws, *(str(flaw) for flaw in check.flaws)]
    return MetadataCopy(log_path, snapshot, batches, end, flaws)


def _with_fitting_epochs(batches: Sequence[SoundBatch]) -> list[SoundBatch]:
    """Epochs never fall in a log: as few as possible are taken for wrong."""
    tails: list[int] = []  # the least last epoch of a series of each length
    lengths = []
    for each in batches:
        length = bisect_right(tails, each.epoch)
        tails[length : length + 1] = [each.epoch]
        lengths.append(length)
    fitting, length = set(), len(tails) - 1
    bound = None
    for at in range(len(batches) - 1, -1, -1):
        if lengths[at] == length and (bound is None or batches[at].epoch <= bound):
            fitting.add(at)
            bound, length = batches[at].epoch, length - 1
    return [
        each if at in fitting else each._replace(epoch=UNKNOWN_EPOCH)
        for at, each in enumerate(batches)
    ]


def unite(copies: Sequence[MetadataCopy]) -> UnitedLog:
    """See the module; at least one copy, all of one cluster."""
    leading = max(copies, key=lambda each: (each.end, not each.flaws))
    snapshot = max((each.snapshot for each in copies), key=lambda each: each.end.offset)
    start = snapshot.end.offset
    batches = {each.base_offset: each for each in leading.batches}
    for copy in copies:
        equal_to = equal_up_to(copy, leading)
        for each in copy.batches:
            if each.next_offset <= equal_to:
                batches.setdefault(each.base_offset, each)
    taken = [batches[at] for at in sorted(batches) if batches[at].next_offset > start]
    return UnitedLog(snapshot, taken, leading.end, _gaps(taken, start, leading.end.offset))


def equal_up_to(copy: MetadataCopy, other: MetadataCopy) -> int:
    """The offset up to which both logs have, or had, the same entries, as far as that is known."""
    others = other.last_of_epochs
    return max(
        (
            min(offset, others[epoch])
            for epoch, offset in copy.last_of_epochs.items()
            if epoch in others
        ),
        default=0,
    )


def _gaps(batches: Iterable[SoundBatch], start: int, end: int) -> list[tuple[int, int]]:
    gaps = []
    expected = start
    for each in batches:
        if each.base_offset > expected:
            gaps.append((expected, each.base_offset))
        expected = max(expected, each.next_offset)
    return gaps if expected >= end else [*gaps, (expected, end)]
