"""Search for the record offset of a timestamp (ListOffsets).

The time indexes and the headers narrow it down to one batch; only that batch is opened. Works on
frozen segments, so a search may run in a thread while records are appended.
Source: UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...protocol.records.record_batch import NO_TIMESTAMP, RecordBatchHeader
from ...protocol.records.record_walk import walk_records
from ..segments.frozen_segment import FrozenSegment
from .partition_log import PartitionLog


class TimestampOffset(NamedTuple):
    """A record: its timestamp in ms, its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimestampSearch:
    """Search in a log as it is at one moment. Methods run in any thread, one at a time.

    They raise OSError, and CorruptMessage or InvalidRecord if the records of the batch that is
    opened are damaged. Cost: a few reads, and up to some ms for a large compressed batch.
    """

    def __init__(
        self, segments: Sequence[FrozenSegment], *, start: int, up_to: int, limit: int
    ) -> None:
        """Search records in [start, up_to); `limit` bounds the decompressed bytes of a batch."""
        self._segments = segments
        self._start = start
        self._up_to = up_to
        self._limit = limit

    def first_at_or_after(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is >= `timestamp_ms`."""
        for segment in self._segments:
            if segment.size == 0 or segment.largest()[0] < timestamp_ms:
                continue
            for position, header in segment.headers_since(timestamp_ms, self._start):
                if header.max_timestamp < timestamp_ms:
                    continue
                found = self._search(segment, position, header, timestamp_ms)
                if found is not None:
                    return found if found.offset < self._up_to else None
        return None

    def first_with_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp of all (KIP-734).

        Unlike Kafka: deleted records in a segment that is still there do not count.
        """
        filled = [(segment, self._largest(segment)) for segment in self._segments if segment.size]
        if not filled:
            return None
        newest, (timestamp, offset) = max(filled, key=lambda each: each[1][0])
        if timestamp == NO_TIMESTAMP:
            return None
        for position, header in newest.headers_at(offset):
            found = self._search(newest, position, header, timestamp)
            return found if found is not None and found.offset < self._up_to else None
        return None

    def _largest(self, segment: FrozenSegment) -> tuple[int, int]:
        """Version of FrozenSegment.largest for the records from the log start on.

        Cost: as that; if the newest record is deleted, all headers from the log start on.
        """
        found = segment.largest()
        if segment.base_offset >= self._start:
            return found
        newest = next(segment.headers_at(found[1]), None)
        if newest is None or newest[1].base_offset >= self._start:
            return found
        found = (NO_TIMESTAMP, segment.base_offset)
        for position, header in segment.headers_at(self._start):
            timestamp = header.max_timestamp
            if header.base_offset < self._start:
                timestamp = max(self._times(segment, position, header), default=NO_TIMESTAMP)
            if timestamp > found[0]:
                found = (timestamp, header.last_offset)
        return found

    def _times(
        self, segment: FrozenSegment, position: int, header: RecordBatchHeader
    ) -> Iterator[int]:
        """Timestamps of the records of a batch that are not deleted."""
        batch = segment.file.read_at(header.size, position)
        for offset, timestamp in walk_records(batch, limit=self._limit):
            if offset >= self._start:
                yield timestamp

    def segment_times(self) -> list[tuple[int, int]]:
        """(base offset, largest timestamp) of each segment, oldest first."""
        return [(segment.base_offset, segment.largest()[0]) for segment in self._segments]

    def _search(
        self, segment: FrozenSegment, position: int, header: RecordBatchHeader, timestamp_ms: int
    ) -> TimestampOffset | None:
        if header.is_log_append_time:  # all its records have the same timestamp
            offset = max(header.base_offset, self._start)
            return TimestampOffset(header.max_timestamp, offset, header.leader_epoch)
        batch = segment.file.read_at(header.size, position)
        for offset, timestamp in walk_records(batch, limit=self._limit):
            if timestamp >= timestamp_ms and offset >= self._start:
                return TimestampOffset(timestamp, offset, header.leader_epoch)
        return None


def begin_search(log: PartitionLog, *, up_to: int) -> TimestampSearch:
    """Search in the current records below `up_to`; may run in a thread.

    Cost: about 3 us a segment. Raises StorageFailure.
    """
    log.health.check()
    start = log.log_start_offset
    return TimestampSearch(
        [segment.frozen() for segment in log.segments.from_offset(start)],
        start=start,
        up_to=up_to,
        limit=log.config.decompressed_limit,
    )
