"""One segment of a partition log: a file of record batches and the indexes next to it.

    00000000000000368769.log        record batches, byte for byte as they travel on the wire
    00000000000000368769.index      see offset_index
    00000000000000368769.timeindex  see time_index
    00000000000000368769.txnindex   see transaction_index; most segments have none

The name is the base offset: a lower bound on every offset inside. An index has one entry per
`index.interval.bytes` of log, so a lookup is a bisection and then a short walk over headers.

Invariants:
    base_offset <= offset of every record < next_offset
    The log may be longer than the index knows, never shorter: batches are written before their
    entry. Every answer of an index is checked against the batch it points at; a wrong one rebuilds
    both indexes from the log.

Not here: the files and their names (segment_files), choosing offsets, when to roll or delete
(partition_log, retention), recovery across segments (log_loader).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from ...protocol.buffer import Buffer
from ...protocol.records.record_batch import NO_TIMESTAMP, RecordBatchHeader
from ..disk.file_system import File, FileSystem
from ..log_config import LogConfig
from .batch_scan import MAX_RELATIVE_OFFSET, BatchScan, walk_headers
from .frozen_segment import FrozenSegment
from .segment_files import SegmentFiles

BOUNDARIES: Final = 32
"""Batch starts remembered per generation; there are two generations."""


class SegmentSlice(NamedTuple):
    """Whole batches in [position, position + size) of the segment's file."""

    position: int
    size: int
    next_offset: int
    """Offset at which the reader continues; -1 if unknown."""
    is_limited: bool
    """Whether there was more that did not fit into max_bytes."""


EMPTY_SLICE: Final = SegmentSlice(0, 0, -1, False)


class LogSegment:
    """A segment that has been loaded, or was just created. See load, create and recover."""

    __slots__ = (
        "_boundaries",
        "_bytes_since_index_entry",
        "_first_timestamp",
        "_index_interval_bytes",
        "_max_age_ms",
        "_old_boundaries",
        "_rolls_by",
        "base_offset",
        "created_ms",
        "files",
        "is_proven",
        "largest",
        "next_offset",
        "noted_size",
        "offset_index",
        "size",
        "time_index",
        "transaction_index",
        "unproven",
    )

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        now_ms: int,
        size: int,
        next_offset: int,
        index_sizes: tuple[int, int, int] = (0, 0, 0),
        suffix: str = "",
    ) -> None:
        self.files = SegmentFiles(
            file_system,
            directory,
            base_offset,
            config=config,
            index_sizes=index_sizes,
            suffix=suffix,
        )
        self.offset_index = self.files.offset_index
        self.time_index = self.files.time_index
        self.transaction_index = self.files.transaction_index
        self.base_offset = base_offset
        self.size = size
        self.next_offset = next_offset
        self.created_ms = now_ms
        self.noted_size = 0
        """Size of its file when it was closed, by closed_segments, if longer than now; else 0."""
        self.is_proven = True
        """Whether its content is proven: written by this process, or read whole since."""
        self.unproven = 0
        """Size of the unproven part: batches that begin below are checked before they are given to
        a reader.
        """
        self._index_interval_bytes = config.index_interval_bytes
        self._bytes_since_index_entry = 0
        self._first_timestamp: int | None = None
        self._rolls_by: LogConfig | None = None
        self._max_age_ms = 0
        self.largest: tuple[int, int] | None = None if size else (NO_TIMESTAMP, base_offset)
        """(timestamp, last offset) of the batch with the largest timestamp; None: unknown yet. For
        a damaged segment, of the undamaged batches: the others could keep it from ever expiring.
        """
        self._boundaries: dict[int, int] = {}
        self._old_boundaries: dict[int, int] = {}

    @property
    def file(self) -> File:
        """The log file, opened now if it was not. Raises OSError."""
        file = self.files.opened
        return self.files.file if file is None else file

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write one stamped batch behind the last one.

        Raises:
            OSError: nothing counts as appended, but bytes may be behind `size`: the caller cuts
                the file back to `size`.
        """
        files = self.files
        file = files.opened
        if file is None:
            file = files.file
        size = self.size
        file.write_at(batch, size)
        # Offset and size move at once after the write, before anything else can fail, so that no
        # offset is ever given twice.
        length = len(batch)
        self.size = size + length
        self.next_offset = last_offset + 1
        self._note(size, length, last_offset, max_timestamp)

    def append_run(self, batches: Buffer, headers: Iterable[RecordBatchHeader]) -> None:
        """Write several adjacent batches at once. Raises OSError, see append."""
        self.file.write_at(batches, self.size)
        for header in headers:
            position = self.size
            self.size = position + header.size
            self.next_offset = header.next_offset
            self._note(position, header.size, header.last_offset, header.max_timestamp)

    def _note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Index the batch at `position` and remember where the next one begins."""
        largest = self.largest
        if largest is None:
            largest = self._load_largest()
        if max_timestamp > largest[0]:
            self.largest = largest = (max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp = max_timestamp
        since = self._bytes_since_index_entry
        if since > self._index_interval_bytes:
            self.offset_index.add(last_offset, position)
            self.time_index.maybe_add(*largest)
            since = 0
        self._bytes_since_index_entry = since + size
        self._remember(last_offset + 1, position + size)

    def must_roll(
        self, size: int, last_offset: int, timestamp: int, *, config: LogConfig, now_ms: int
    ) -> bool:
        """Whether a batch of `size` bytes must be appended to a new segment.

        Age is counted from this segment's first timestamp to the batch's, so that a replayed log
        splits the same way; by the clock only where records have no timestamps.
        Source: LogSegment.shouldRoll in apache/kafka.
        """
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self.size <= 0:
            return False
        if self.size + size > config.segment_bytes:
            return True
        if config is not self._rolls_by:
            self._set_max_age(config)
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        if first == NO_TIMESTAMP or timestamp == NO_TIMESTAMP:
            age_ms = now_ms - self.created_ms
        else:
            age_ms = timestamp - first
        return age_ms > self._max_age_ms or self.offset_index.is_full or self.time_index.is_full

    def _set_max_age(self, config: LogConfig) -> None:
        """Set the age at which the segment must be closed by segment.ms, less its jitter; or by
        max.compaction.lag.ms if that is less.

        The jitter is derived from the segment's name: partitions differ, a replayed log does not.
        """
        most = config.segment_ms
        if config.is_compacted:
            most = min(most, config.max_compaction_lag_ms)
        jitter = min(config.segment_jitter_ms, most)
        if jitter:
            name = "/".join(self.files.path_prefix.rsplit("/", 2)[-2:])
            most -= int(crc32c(name.encode())) % jitter
        self._max_age_ms = most
        self._rolls_by = config

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp; NO_TIMESTAMP if there is none. Raises OSError."""
        first = self._first_timestamp
        if first is None:
            first = NO_TIMESTAMP
            for _, header in walk_headers(self.file, 0, self.size):
                first = header.max_timestamp
                break
            self._first_timestamp = first
        return first

    def locate(self, offset: int) -> int:
        """Position of the first batch whose last offset is >= `offset`; `size` if there is none.

        Cost: a dictionary lookup for a reader that continues where a slice ended, or that waits at
        the end; else an index lookup and a walk over about index.interval.bytes of headers.
        """
        if offset >= self.next_offset:
            return self.size
        position = self._boundaries.get(offset)
        if position is None:
            position = self._old_boundaries.get(offset)
            if position is None:
                position = self._walk_to(offset)
                self._remember(offset, position)
        return position

    def _walk_to(self, offset: int) -> int:
        hint = self.offset_index.lookup(offset)
        if hint is not None:
            last_offset, start = hint
            end = start
            for position, header in walk_headers(self.file, start, self.size):
                if position == start and header.last_offset != last_offset:
                    break  # the index is wrong
                if header.last_offset >= offset:
                    return position
                end = position + header.size
            if end == self.size:
                return end  # compaction has removed the batches up to the next segment
            self.rebuild_indexes()
        for position, header in walk_headers(self.file, 0, self.size):
            if header.last_offset >= offset:
                return position
        return self.size

    def read(
        self, fetch_offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool
    ) -> SegmentSlice:
        """The whole batches from `fetch_offset` on, below `up_to`, in at most `max_bytes`.

        With `min_one_batch` the first comes whole even if it alone is larger. Whole batches only,
        although clients must ignore a cut one: what is cut would be sent again.
        """
        start = self.locate(fetch_offset)
        end = self.locate(up_to)
        if end <= start:
            return EMPTY_SLICE
        if end - start <= max_bytes:
            next_offset = min(self.next_offset, up_to)
            return SegmentSlice(start, end - start, next_offset, False)
        cut, next_offset = self._cut(start, start + max_bytes, whole_first=min_one_batch)
        if cut == start:
            return SegmentSlice(start, 0, -1, True)
        self._remember(next_offset, cut)
        return SegmentSlice(start, cut - start, next_offset, cut < end)

    def _cut(self, start: int, limit: int, *, whole_first: bool) -> tuple[int, int]:
        """Last batch boundary in (start, limit], and its offset; `start` if there is none."""
        hint = self.offset_index.lookup_position(limit)
        if hint is not None and start < hint[1]:
            last_offset, position = hint
            cut, next_offset = self._cut_from(position, limit, last_offset=last_offset)
            if cut >= 0:
                return cut, next_offset
            self.rebuild_indexes()
        return self._cut_from(start, limit, whole_first=whole_first)

    def _cut_from(
        self, start: int, limit: int, *, whole_first: bool = False, last_offset: int | None = None
    ) -> tuple[int, int]:
        """Version of _cut that walks from `start`; (-1, -1) if no batch begins there that ends as
        given.
        """
        cut, next_offset = -1, -1
        for position, header in walk_headers(self.file, start, self.size):
            if cut < 0 and last_offset is not None and header.last_offset != last_offset:
                return -1, -1
            if position + header.size > limit and not (whole_first and position == start):
                return position, header.base_offset
            cut, next_offset = position + header.size, header.next_offset
            if cut >= limit:
                break
        return cut, next_offset

    def _remember(self, offset: int, position: int) -> None:
        boundaries = self._boundaries
        if len(boundaries) >= BOUNDARIES:
            self._old_boundaries = boundaries
            self._boundaries = boundaries = {}
        boundaries[offset] = position

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of all batches; NO_TIMESTAMP if there is none."""
        return (self.largest or self._load_largest())[0]

    def frozen(self) -> FrozenSegment:
        """Frozen copy of the segment, for searches in another thread."""
        return FrozenSegment(
            lambda: self.files.file,
            base_offset=self.base_offset,
            size=self.size,
            largest=self.largest,
            offset_index=self.offset_index.frozen(),
            time_index=self.time_index.frozen(),
        )

    @property
    def newest_ms(self) -> int:
        """Time in ms that retention uses: the largest timestamp, else the file's last change."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.files.modified_ms()

    def _load_largest(self) -> tuple[int, int]:
        """Read the last entry of the time index; rebuild the indexes if it is wrong."""
        self.largest = self._indexed_largest()
        if self.largest is None:
            self.rebuild_indexes()
        return self.largest or (NO_TIMESTAMP, self.base_offset)

    def _indexed_largest(self) -> tuple[int, int] | None:
        """The last entry of the time index, if the batch it points at agrees, else None."""
        last = self.time_index.last()
        if last is None:
            last, position = (NO_TIMESTAMP, self.base_offset), 0
        else:
            position = self.locate(last[1])
        for _, header in walk_headers(self.file, position, self.size):
            return last if header.max_timestamp == last[0] else None
        return last if self.size == 0 else None

    def load_tail(self) -> bool:
        """Find the end of the last batch of the active segment, whose indexes seem valid.

        Returns False if the last index entries are wrong, or the bytes behind them are not
        exactly whole batches: the segment must then be recovered.
        Cost: a walk over the headers behind the last index entry.
        """
        last = self.offset_index.last()
        start = 0 if last is None else last[1]
        if start >= self.size > 0:
            return False
        newest = (NO_TIMESTAMP, self.base_offset)
        end, next_offset = start, self.base_offset
        for position, header in walk_headers(self.file, start, self.size):
            if position == start and last is not None and header.last_offset != last[0]:
                return False
            if header.base_offset < next_offset:
                return False
            end, next_offset = position + header.size, header.next_offset
            if header.max_timestamp > newest[0]:
                newest = (header.max_timestamp, header.last_offset)
        if end != self.size:
            return False
        self.next_offset = next_offset
        largest = newest if start == 0 else self._indexed_largest()
        if largest is None:
            return False
        self.largest = newest if newest[0] > largest[0] else largest
        self._bytes_since_index_entry = end - start
        return True

    def recover(self, scan: BatchScan) -> Iterator[RecordBatchHeader]:
        """Run `scan` over this segment's file. The segment ends where the scan does, with its
        indexes rebuilt.

        Yields the valid headers; complete when the iterator is exhausted. The caller truncates the
        file. Raises OSError.
        """
        self._forget_indexes()
        for position, header in scan:
            self.size = position + header.size
            self.next_offset = header.next_offset
            self._note(position, header.size, header.last_offset, header.max_timestamp)
            yield header

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the headers of the log. Raises OSError."""
        size, next_offset = self.size, self.next_offset
        self._forget_indexes()
        for position, header in walk_headers(self.file, 0, size):
            if not 0 <= header.last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
                break  # damaged
            self._note(position, header.size, header.last_offset, header.max_timestamp)
        self.size, self.next_offset = size, next_offset
        self.close_indexes()

    def _forget_indexes(self) -> None:
        self.offset_index.truncate(0)
        self.time_index.truncate(0)
        self.size = 0
        self.next_offset = self.base_offset
        self.largest = (NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
        self._bytes_since_index_entry = 0
        self._boundaries = {}
        self._old_boundaries = {}

    def truncate_to(self, offset: int) -> int:
        """Drop every batch with records at `offset` or above; returns the bytes dropped.

        Damaged bytes that may contain such records are dropped, too. Raises OSError. The position
        is looked up before the indexes are truncated.
        """
        is_unread = self.next_offset == self.base_offset and self.size > 0
        if offset >= self.next_offset and not is_unread:
            return 0
        position, next_offset = self._cut_for(offset)
        dropped = self.size - position
        self.file.truncate(position)
        self.size, self.noted_size = position, 0
        self.unproven = min(self.unproven, position)
        self.offset_index.truncate_to(next_offset)
        self.time_index.truncate_to(next_offset)
        self.transaction_index.truncate_to(next_offset)
        self._boundaries = {}
        self._old_boundaries = {}
        self._first_timestamp = None
        self.largest = None
        if not self.load_tail():
            self.rebuild_indexes()
        self.next_offset = next_offset
        return dropped

    def _cut_for(self, offset: int) -> tuple[int, int]:
        """(file size, next offset) after truncate_to."""
        position = self.locate(offset)
        for _, header in walk_headers(self.file, position, self.size):
            return position, min(offset, header.base_offset)
        end, next_offset = 0, self.base_offset
        for position, header in walk_headers(self.file, 0, self.size):
            end, next_offset = position + header.size, header.next_offset
        # If the whole file can be read, compaction has removed the batches there.
        return end, offset if end == self.size > 0 else min(offset, next_offset)

    def close_indexes(self) -> None:
        """Write the closing time index entry and all that is buffered. Raises OSError."""
        self.time_index.maybe_add(*(self.largest or self._load_largest()))
        self.offset_index.write_out()
        self.time_index.write_out()
        self.transaction_index.write_out()
