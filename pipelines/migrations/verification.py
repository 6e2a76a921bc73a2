"""Comparison of the records of source and target: counts and checksums, by partition.

    records           all records, in order, from the first that both logs still have
    latest per key    for compacted topics: each side removes older records at its own time

A range starts where the last verified one ended; compacted topics are always compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from ...protocol.topic_partition import TopicPartition
from ..mirrors.offset_syncs import OffsetSync, OffsetSyncs
from .exact_offsets import LogSide, Twin, twin_of
from .migration_notes import turned
from .record_checksums import Checksum, LatestPerKey, RecordChecksum

Kind = Literal["records", "latest per key"]
_NOTHING: Final = RecordChecksum().result()


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """Result of comparing one partition.

    source, target: compared ranges [start, end). remark: what could not be compared, and why.
    """

    partition: TopicPartition
    kind: Kind
    source: tuple[int, int]
    target: tuple[int, int]
    source_sum: Checksum
    target_sum: Checksum
    remark: str = ""

    @property
    def is_same(self) -> bool:
        return self.source_sum == self.target_sum


class PartitionToCheck(NamedTuple):
    """A partition to compare.

    base: start offsets (source, target); None: the start of what was copied. end: end offsets
    (source, target). source_start, target_start: log start offsets. skips: see RecordCopier.
    """

    partition: TopicPartition
    is_compacted: bool
    syncs: OffsetSyncs
    base: tuple[int, int] | None
    end: tuple[int, int]
    source_start: int
    target_start: int
    skips: Sequence[OffsetSync] = ()


def verify_partition(
    asked: PartitionToCheck,
    source: LogSide,
    target: LogSide,
    on_records: Callable[[int], None] = lambda records: None,
) -> PartitionCheck:
    """Read both sides and compare.

    Raises:
        KafkaError, ConnectionFailed, RequestTimedOut: reading failed.
    """
    key = asked.partition
    kind: Kind = "latest per key" if asked.is_compacted else "records"
    starts, remark = _starts(asked, source, target)
    if starts is None:
        ends = asked.end
        return PartitionCheck(key, kind, (ends[0],) * 2, (ends[1],) * 2, _NOTHING, _NOTHING, remark)
    in_source, in_target = (starts[0], asked.end[0]), (starts[1], asked.end[1])
    return PartitionCheck(
        key,
        kind,
        in_source,
        in_target,
        _sum(source, key, _without(in_source, asked.skips), kind, on_records),
        _sum(target, key, [in_target], kind, on_records),
        remark,
    )


def _starts(
    asked: PartitionToCheck, source: LogSide, target: LogSide
) -> tuple[tuple[int, int] | None, str]:
    """Offsets (source, target) of the first common record, or None; a remark on those before."""
    pieces = asked.syncs.pieces
    base = asked.base
    if base is None:
        if not pieces:
            return asked.end, ""
        base = pieces[0].source_start, pieces[0].target_start
    first, remark = base, ""
    if asked.source_start > first[0]:
        twin = _twin(asked, asked.source_start, source, target)
        first = asked.source_start, twin.offset
        remark = f"retention deleted the source's records below {asked.source_start}"
        if not twin.is_exact:
            return None, f"{remark}, and the offset of the rest in the target is unknown"
    if asked.target_start > first[1]:
        turned_syncs = OffsetSyncs(tuple(sorted(turned(one) for one in pieces)))
        twin = twin_of(
            asked.partition,
            asked.target_start,
            turned_syncs,
            target,
            source,
            asked.target_start,
            asked.end[0],
        )
        first = twin.offset, asked.target_start
        remark = f"retention deleted the target's records below {asked.target_start}"
        if not twin.is_exact:
            return None, f"{remark}, and the offset of the rest in the source is unknown"
    return (min(first[0], asked.end[0]), min(first[1], asked.end[1])), remark


def _twin(asked: PartitionToCheck, offset: int, source: LogSide, target: LogSide) -> Twin:
    return twin_of(
        asked.partition,
        offset,
        asked.syncs,
        source,
        target,
        asked.source_start,
        asked.end[1],
    )


def _without(whole: tuple[int, int], skips: Sequence[OffsetSync]) -> list[tuple[int, int]]:
    start, end = whole
    parts = []
    for skip in sorted(skips):
        if start <= skip.source_start < end:
            parts.append((start, skip.source_start))
            start = skip.source_end
    return [*parts, (start, end)]


def _sum(
    side: LogSide,
    key: TopicPartition,
    ranges: Sequence[tuple[int, int]],
    kind: Kind,
    on_records: Callable[[int], None],
) -> Checksum:
    total = LatestPerKey() if kind == "latest per key" else RecordChecksum()
    for start, end in ranges:
        for decoded in side.read(key, start, end):
            total.add(decoded)
            on_records(len(decoded))
    return total.result()


def is_compacted(configs: Mapping[str, str]) -> bool:
    """Whether cleanup.policy, which may list several policies, includes compact."""
    return "compact" in configs.get("cleanup.policy", "")
