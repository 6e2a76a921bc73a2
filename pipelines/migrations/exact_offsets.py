"""Where exactly a record of the source is in the target, and the other way round.

What a mirror remembers (offset_syncs) says it for most offsets. For the others the records are
counted, from where both sides are known to be the same, and what is found is compared: key, value
and timestamp. Where compaction has taken other records on either side, it is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...clients.wire.cluster_client import ClusterClient
from ...clients.wire.record_metadata import TopicPartition
from ...protocol.columns.columns import DecodedBatches
from ..mirrors.offset_syncs import OffsetSync, OffsetSyncs
from ..ranges.partition_range import PartitionRange, ReadLimits
from ..ranges.range_reader import RangeReader


class LogSide(NamedTuple):
    """One of the two clusters. limits: what retention takes while it is read is passed over."""

    client: ClusterClient
    limits: ReadLimits

    def read(self, key: TopicPartition, start: int, end: int) -> Iterator[DecodedBatches]:
        """Committed records of [start, end)."""
        if start < end:
            with RangeReader(self.client, self.limits) as reader:
                yield from reader.read([PartitionRange(key.topic, key.partition, start, end)])


class Twin(NamedTuple):
    """is_exact: else it is before what is meant, with records in between."""

    offset: int
    is_exact: bool


class _Record(NamedTuple):
    offset: int
    timestamp: int
    key: pa.Scalar
    value: pa.Scalar


def twin_of(
    key: TopicPartition,
    offset: int,
    syncs: OffsetSyncs,
    source: LogSide,
    target: LogSide,
    source_start: int,
    target_end: int,
) -> Twin:
    """Where a reader goes on in the target that has come to `offset` in the source.

    Args:
        syncs: of this partition.
        source_start: where the source's log begins now.
        target_end: the target's offset behind all that was copied.
    """
    pieces = syncs.pieces
    if not pieces or offset >= pieces[-1].source_end:
        return Twin(target_end, True)
    if offset <= pieces[0].source_start:
        return Twin(pieces[0].target_start, True)
    number = max(n for n, piece in enumerate(pieces) if piece.source_start <= offset)
    piece = pieces[number]
    if offset >= piece.source_end:
        return Twin(piece.target_end, True)
    if offset == piece.source_start:
        return Twin(piece.target_start, True)
    if piece.is_exact:
        return Twin(piece.target_start + offset - piece.source_start, True)
    meant = _first(source, key, offset, piece.source_end)
    if meant is None:
        return Twin(piece.target_end, True)
    found = _by_count(key, offset, piece, source, target, source_start)
    if found is None or not _is_same(found, meant):
        found = _by_content(key, piece, meant, target)
    if found is None:
        return Twin(piece.target_start, False)
    return Twin(found.offset, True)


def _by_count(
    key: TopicPartition,
    offset: int,
    piece: OffsetSync,
    source: LogSide,
    target: LogSide,
    source_start: int,
) -> _Record | None:
    """The record with as many before it, or as many behind it if the source's first are gone."""
    if source_start <= piece.source_start:
        skip = sum(len(one) for one in source.read(key, piece.source_start, offset))
    else:
        behind = sum(len(one) for one in source.read(key, offset, piece.source_end))
        there = sum(len(one) for one in target.read(key, piece.target_start, piece.target_end))
        skip = there - behind
    if skip < 0:
        return None
    for decoded in target.read(key, piece.target_start, piece.target_end):
        if skip < len(decoded):
            return _record(decoded, skip)
        skip -= len(decoded)
    return None


def _by_content(
    key: TopicPartition, piece: OffsetSync, meant: _Record, target: LogSide
) -> _Record | None:
    """The only one that is like it; None if there are none, or several."""
    found = None
    for decoded in target.read(key, piece.target_start, piece.target_end):
        for row in np.flatnonzero(decoded.timestamps == meant.timestamp).tolist():
            one = _record(decoded, row)
            if _is_same(one, meant):
                if found is not None:
                    return None
                found = one
    return found


def _first(side: LogSide, key: TopicPartition, start: int, end: int) -> _Record | None:
    for decoded in side.read(key, start, end):
        if len(decoded):
            return _record(decoded, 0)
    return None


def _record(decoded: DecodedBatches, row: int) -> _Record:
    return _Record(
        int(decoded.offsets[row]),
        int(decoded.timestamps[row]),
        decoded.keys[row],
        decoded.values[row],
    )


def _is_same(one: _Record, other: _Record) -> bool:
    return (
        one.timestamp == other.timestamp
        and one.key.as_py() == other.key.as_py()
        and one.value.as_py() == other.value.as_py()
    )
