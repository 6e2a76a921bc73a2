"""Exact translation of offsets between the source and the target, in both directions.

For most offsets the mirror's offset syncs give it. For the others, records are counted from a known
pair of offsets, and the record found is compared: key, value and timestamp. If compaction removed
different records on the two sides, the record is searched for by content.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...clients.wire.cluster_client import ClusterClient
from ...protocol.columns.columns import DecodedBatches
from ...protocol.topic_partition import TopicPartition
from ..mirrors.offset_syncs import OffsetSync, OffsetSyncs
from ..ranges.partition_range import PartitionRange, ReadLimits
from ..ranges.range_reader import RangeReader


class LogSide(NamedTuple):
    """One of the two clusters, for reading. limits: records deleted while reading are skipped."""

    client: ClusterClient
    limits: ReadLimits

    def read(self, key: TopicPartition, start: int, end: int) -> Iterator[DecodedBatches]:
        """Read the committed records of [start, end)."""
        if start < end:
            with RangeReader(self.client, self.limits) as reader:
                yield from reader.read([PartitionRange(key.topic, key.partition, start, end)])


class Twin(NamedTuple):
    """Translated offset. is_exact: False: it lies before the record meant, with others between."""

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
    """Offset in the target from which a reader continues that is at `offset` in the source.

    Args:
        syncs: offset syncs of this partition.
        source_start: current log start offset in the source.
        target_end: offset in the target after the last copied record.
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
    """Record in the target by count: as many records before it or, if those were deleted, after."""
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
    """The only record in the target with the same content; None: there is none, or several."""
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
