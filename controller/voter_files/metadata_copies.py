"""Copies of one metadata log, of several voters and of several times, combined into one log.

    copy      a voter's log and snapshot as far as they are sound; also a log that a start has set
              aside as damaged (`__cluster_metadata-0.<id>-damaged`)
    leading   the copy that was furthest, by Raft's order (last epoch, then end): where a majority
              of the voters has a copy among these, it had everything that was committed

Invariants: a batch of another copy is used only if that copy is equal to the leading one up to
there, or if no such batch exists; then it is reported as doubtful. Two logs that have entries of
one epoch are equal up to the lower of their last entries of it (cluster/quorum/voter), so it is
enough to know some of their entries.

The epoch of a batch is not covered by its CRC. An epoch that does not fit between those of its
neighbours is ignored here; the batch's records are used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...cluster.metadata.metadata_records import ClusterRecord, decode_metadata_record
from ...cluster.quorum.metadata_snapshot import decode_snapshot
from ...cluster.quorum.voter import NO_SNAPSHOT, LogEnd
from ...protocol.records.record_batch import walk_batches
from ...protocol.records.records import iterate_records
from ...protocol.topic_name import METADATA_TOPIC
from ...storage.disk.file_system import FileSystem
from .acknowledged_offset import AcknowledgedOffset
from .metadata_log_check import MetadataLogCheck, begins_epoch, check_metadata_log
from .replicated_log import FoundSnapshot, find_snapshot
from .voter_condition import DAMAGED_SUFFIX, VoterFiles

UNKNOWN_EPOCH = -2
_CLUSTER_MARK = f'"type":"{ClusterRecord.__name__}"'.encode()
ASIDE_PREFIX = f"{METADATA_TOPIC}-0."


class SoundBatch(NamedTuple):
    """An undamaged batch with offsets [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    epoch: int
    data: bytes


@dataclass(slots=True)
class MetadataCopy:
    """One copy of a metadata log. batches: ascending. mark: see acknowledged_offset. end_offset:
    end of the log at its longest, even if its last entries are missing now. flaws: messages about
    damage.
    """

    log_path: str
    snapshot: FoundSnapshot
    batches: list[SoundBatch]
    mark: LogEnd
    end_offset: int
    flaws: list[str] = field(default_factory=list)

    @property
    def end(self) -> LogEnd:
        """End of the log, with the last known epoch."""
        return LogEnd(max(self.last_of_epochs, default=-1), self.end_offset)

    @property
    def last_of_epochs(self) -> dict[int, int]:
        """End of the last entry of each epoch that the log is known to have, or to have had, by
        epoch.
        """
        last: dict[int, int] = {}
        ends = [LogEnd(each.epoch, each.next_offset) for each in self.batches]
        for epoch, offset in (*ends, self.snapshot.end, self.mark):
            if epoch >= 0:
                last[epoch] = max(last.get(epoch, 0), offset)
        return last

    @property
    def has_known_end(self) -> bool:
        return self.end_offset in self.last_of_epochs.values()

    @property
    def cluster_id(self) -> str:
        """Cluster id by the newest record of it; "": none."""
        for batch in reversed(self.batches):
            if _CLUSTER_MARK in batch.data:
                for record in iterate_records(memoryview(batch.data)):
                    fact = decode_metadata_record(record.value or b"")
                    if isinstance(fact, ClusterRecord):
                        return fact.cluster_id
        return decode_snapshot(self.snapshot.data).cluster_id if self.snapshot.data else ""


class UnitedLog(NamedTuple):
    """All copies combined: the snapshot, and batches behind it.

    end: end of the leading copy, or of one whose last entries are missing, if that is higher. gaps:
    offsets [from, to) behind the snapshot that no copy has. doubtful: offsets that only a copy has
    that is not known to be equal to the leading one there.
    """

    snapshot: FoundSnapshot
    batches: list[SoundBatch]
    end: LogEnd
    gaps: list[tuple[int, int]]
    doubtful: list[tuple[int, int]]


def copy_in_place(files: VoterFiles) -> MetadataCopy:
    """Copy made of the log in a voter's directory."""
    return _copy(files.log_path, files.check, files.snapshot, files.mark)


def copies_set_aside(file_system: FileSystem, path: str) -> list[MetadataCopy]:
    """Copies of the logs that earlier starts set aside in a voter's directory, `<data
    dir>/metadata`.
    """
    if not file_system.is_directory(path):
        return []
    found = []
    for name in sorted(file_system.list_directory(path)):
        log_path = f"{path}/{name}"
        is_aside = name.startswith(ASIDE_PREFIX) and name.endswith(DAMAGED_SUFFIX)
        if is_aside and file_system.is_directory(log_path):
            snapshot = find_snapshot(file_system, log_path)
            check = check_metadata_log(file_system, log_path, snapshot.end)
            mark = AcknowledgedOffset(file_system, log_path).read()
            found.append(_copy(log_path, check, snapshot, mark))
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
    mark = mark or NO_SNAPSHOT
    end_offset = max(snapshot.end.offset, mark.offset, check.end_offset)
    flaws = [*snapshot.flaws, *(str(flaw) for flaw in check.flaws)]
    batches = _with_fitting_epochs(batches)
    return MetadataCopy(log_path, snapshot, batches, mark, end_offset, flaws)


def confirm_epochs(copies: Sequence[MetadataCopy]) -> list[MetadataCopy]:
    """Copies with only those epochs that a second source confirms, in the same copy or another."""
    alone = [_confirmed(each, {each.snapshot.end.epoch, each.mark.epoch}) for each in copies]
    return [_confirmed(each, {e for copy in alone for e in copy.last_of_epochs}) for each in copies]


def _confirmed(copy: MetadataCopy, said: set[int]) -> MetadataCopy:
    """Copy whose epochs are confirmed by a neighbour of the same epoch, the record that begins it,
    or `said`.
    """
    epochs = [UNKNOWN_EPOCH, *(each.epoch for each in copy.batches), UNKNOWN_EPOCH]
    batches = [
        each
        if each.epoch in said | {before, after} or begins_epoch(each.data, each.epoch)
        else each._replace(epoch=UNKNOWN_EPOCH)
        for each, before, after in zip(copy.batches, epochs, epochs[2:], strict=False)
    ]
    return replace(copy, batches=batches)


def _with_fitting_epochs(batches: Sequence[SoundBatch]) -> list[SoundBatch]:
    """Batches with ascending epochs: the fewest possible are considered wrong."""
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
    """Combine copies, see the module; one or more, all of one cluster, with confirmed epochs."""
    leading = max(copies, key=lambda each: (each.end, len(each.batches)))
    snapshot = max((each.snapshot for each in copies), key=lambda each: each.end.offset)
    start = snapshot.end.offset
    batches: dict[int, SoundBatch] = {}
    last_of_epochs = leading.last_of_epochs
    equal_to = dict.fromkeys(range(len(copies)), -1)
    grows = True
    while grows:  # entries of one copy may show that another one is equal, too
        grows = False
        for number, copy in enumerate(copies):
            end = copy.end_offset if copy is leading else equal_up_to(copy, last_of_epochs)
            if end > equal_to[number]:
                equal_to[number], grows = end, True
                for each in copy.batches:
                    if each.next_offset > end:
                        continue
                    batches.setdefault(each.base_offset, each)
                    if each.epoch != UNKNOWN_EPOCH:
                        last = last_of_epochs.get(each.epoch, 0)
                        last_of_epochs[each.epoch] = max(last, each.next_offset)
    offset = max(each.end_offset for each in copies if each is leading or not each.has_known_end)
    certain = [batches[at] for at in sorted(batches) if batches[at].next_offset > start]
    doubtful = [
        batch
        for gap in _gaps(certain, start, offset)
        for batch in _fitting(gap, certain, (each for copy in copies for each in copy.batches))
    ]
    taken = sorted([*certain, *doubtful])
    return UnitedLog(
        snapshot,
        taken,
        LogEnd(leading.end.epoch, offset),
        _gaps(taken, start, offset),
        [(each.base_offset, each.next_offset) for each in doubtful],
    )


def equal_up_to(copy: MetadataCopy, last_of_epochs: Mapping[int, int]) -> int:
    """Offset up to which a log with these epoch ends has, or had, the entries of `copy`; 0:
    unknown.
    """
    return max(
        (
            min(offset, last_of_epochs[epoch])
            for epoch, offset in copy.last_of_epochs.items()
            if epoch in last_of_epochs
        ),
        default=0,
    )


def _fitting(
    gap: tuple[int, int], certain: Sequence[SoundBatch], others: Iterable[SoundBatch]
) -> list[SoundBatch]:
    """Batches of `others` that may have been in the gap, by their offsets and epochs."""
    start, end = gap
    lowest = max((each.epoch for each in certain if each.next_offset <= start), default=0)
    later = (each.epoch for each in certain if each.base_offset >= end and each.epoch >= 0)
    highest = next(later, None)
    found: list[SoundBatch] = []
    for each in sorted(others, key=lambda each: (each.base_offset, -each.epoch)):
        is_inside = start <= each.base_offset and each.next_offset <= end
        if is_inside and lowest <= each.epoch and (highest is None or each.epoch <= highest):
            found.append(each)
            start, lowest = each.next_offset, each.epoch
    return found


def _gaps(batches: Iterable[SoundBatch], start: int, end: int) -> list[tuple[int, int]]:
    gaps = []
    expected = start
    for each in batches:
        if each.base_offset > expected:
            gaps.append((expected, each.base_offset))
        expected = max(expected, each.next_offset)
    return gaps if expected >= end else [*gaps, (expected, end)]
