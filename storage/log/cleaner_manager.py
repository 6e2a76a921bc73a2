"""Choice of what to compact: the cleanable part of a log, and the log that needs it most.

    |  clean  |  dirty: cleanable  |  too young, undecided or active  |
    log start  first dirty offset   end offset                         log end

A log is cleaned when more than `min.cleanable.dirty.ratio` of its clean and cleanable bytes is
dirty, or when a dirty record is older than `max.compaction.lag.ms`; the one with the largest ratio
first. Never cleaned: the active segment, anything at or above the last stable offset, and the
segments from the first one on that holds a record younger than `min.compaction.lag.ms`.
Source: apache/kafka core/.../log/LogCleanerManager.scala.

Not here: who cleans, and logs set aside because they are damaged (actors/replication/log_cleaner).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..segments.log_segment import LogSegment
from .partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class LogToClean:
    """Cleanable part of a log at this moment."""

    log: PartitionLog
    first_dirty_offset: int
    end_offset: int
    """End of the cleanable part: base offset of a segment."""
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Whether a dirty record is older than max.compaction.lag.ms."""

    @property
    def cleanable_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_needed(self) -> bool:
        """Whether the log should be compacted now."""
        return self.cleanable_bytes > 0 and (
            self.is_overdue or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio
        )


def find_cleanable(log: PartitionLog, now_ms: int) -> LogToClean:
    """Cleanable part of `log`. Raises OSError: with a lag set, old segments are read.

    Cost: a few microseconds, and one more per segment.
    """
    first_dirty_offset = _first_dirty_offset(log)
    closed = log.segments[:-1]
    ends = [*(segment.base_offset for segment in closed[1:]), log.segments[-1].base_offset]
    end_offset = log.last_stable_offset
    dirty = [
        segment for segment, end in zip(closed, ends, strict=False) if end > first_dirty_offset
    ]
    if log.config.min_compaction_lag_ms > 0:
        newest_ms = now_ms - log.config.min_compaction_lag_ms
        young = (segment for segment in dirty if segment.max_timestamp > newest_ms)
        first_young = next(young, None)
        if first_young is not None:
            end_offset = min(end_offset, first_young.base_offset)
    # Whole segments only, and not the active one: rounded down to the base offset of the segment
    # that contains the bound.
    bases = [segment.base_offset for segment in log.segments if segment.base_offset <= end_offset]
    end_offset = max(bases, default=first_dirty_offset)
    cleanable = [segment for segment in dirty if segment.base_offset < end_offset]
    return LogToClean(
        log,
        first_dirty_offset,
        end_offset,
        sum(segment.size for segment in closed if segment.base_offset < first_dirty_offset),
        sum(segment.size for segment in cleanable),
        _is_overdue(cleanable, log.config.max_compaction_lag_ms, now_ms),
    )


def choose_filthiest(candidates: Iterable[LogToClean]) -> LogToClean | None:
    """The log that needs compaction most; None if none does."""
    return max(
        (candidate for candidate in candidates if candidate.is_needed),
        key=lambda candidate: candidate.cleanable_ratio,
        default=None,
    )


def _first_dirty_offset(log: PartitionLog) -> int:
    """End of the last cleaning; the log start if there was none, or its offset is invalid.

    A cleaner offset beyond the log end offset comes from records that were lost.
    """
    offset = log.compaction.cleaner_offset
    if offset is None or not log.log_start_offset <= offset <= log.log_end_offset:
        return log.log_start_offset
    return offset


def _is_overdue(dirty: Iterable[LogSegment], max_compaction_lag_ms: int, now_ms: int) -> bool:
    oldest_ms = now_ms - max_compaction_lag_ms
    if oldest_ms < 0:
        return False  # the default: never overdue
    return any(0 < segment.first_timestamp < oldest_ms for segment in dirty)
