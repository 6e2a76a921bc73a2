"""From a timestamp to a record offset (ListOffsets).

The time indexes and the headers narrow it down to one batch; only that batch is opened.
Source: UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..protocol.record_batch import NO_TIMESTAMP, RecordBatchHeader
from ..protocol.record_walk import walk_records
from .batch_scan import walk_headers
from .log_segment import LogSegment


class TimestampOffset(NamedTuple):
    """A record: its timestamp in ms, its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: Sequence[LogSegment], timestamp_ms: int, *, start: int, limit: int
) -> TimestampOffset | None:
    """The first record with offset >= `start` whose timestamp is >= `timestamp_ms`.

    `limit` bounds the decompressed bytes of a batch.
    """
    for segment in segments:
        if segment.size == 0 or segment.max_timestamp < timestamp_ms:
            continue
        position = max(segment.locate(start), segment.locate_timestamp(timestamp_ms))
        for at, header in walk_headers(segment.file, position, segment.size):
            if header.max_timestamp < timestamp_ms:
                continue
            found = _search(segment, at, header, timestamp_ms, start, limit)
            if found is not None:
                return found
    return None


def first_with_max_timestamp(
    segments: Sequence[LogSegment], *, start: int, limit: int
) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all (KIP-734)."""
    filled = [segment for segment in segments if segment.size]
    if not filled:
        return None
    newest = max(filled, key=lambda segment: segment.max_timestamp)
    if newest.max_timestamp == NO_TIMESTAMP:
        return None
    position = newest.locate(newest.max_timestamp_offset)
    for at, header in walk_headers(newest.file, position, newest.size):
        return _search(newest, at, header, newest.max_timestamp, start, limit)
    return None


def _search(
    segment: LogSegment,
    position: int,
    header: RecordBatchHeader,
    timestamp_ms: int,
    start: int,
    limit: int,
) -> TimestampOffset | None:
    if header.is_log_append_time:  # all its records have the same timestamp
        offset = max(header.base_offset, start)
        return TimestampOffset(header.max_timestamp, offset, header.leader_epoch)
    batch = segment.file.read_at(header.size, position)
    for offset, timestamp in walk_records(batch, limit=limit):
        if timestamp >= timestamp_ms and offset >= start:
            return TimestampOffset(timestamp, offset, header.leader_epoch)
    return None
