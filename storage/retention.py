"""Which old segments may go: by age, by size, or because nobody can read them any more.

Pure: it only decides. Whole segments from the old end, and never one with a record at or above the
high watermark. Source: UnifiedLog.deleteOldSegments in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .log_config import LogConfig
from .log_segment import LogSegment


class SegmentDeletion(NamedTuple):
    """A segment that was deleted, and why, for the broker's log."""

    base_offset: int
    next_offset: int
    size: int
    reason: str


def choose_deletions(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[SegmentDeletion]:
    """The prefix of `segments` to delete. May be all of them: then the log rolls first."""
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    deletions: list[SegmentDeletion] = []
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        next_offset = segment.next_offset if following is None else following.base_offset
        if high_watermark < next_offset or (following is None and segment.size == 0):
            break
        reason = _reason(segment, next_offset, config, log_start_offset, excess, now_ms)
        if reason is None:
            break
        excess -= segment.size
        deletions.append(SegmentDeletion(segment.base_offset, next_offset, segment.size, reason))
    return deletions


def _reason(
    segment: LogSegment,
    next_offset: int,
    config: LogConfig,
    log_start_offset: int,
    excess: int,
    now_ms: int,
) -> str | None:
    if next_offset <= log_start_offset:
        return "below log start offset"
    if "delete" not in config.cleanup_policies:
        return None
    if config.retention_bytes >= 0 and segment.size <= excess:
        return f"retention.bytes={config.retention_bytes}"
    if 0 <= config.retention_ms < now_ms - segment.newest_ms:
        return f"retention.ms={config.retention_ms}"
    return None
