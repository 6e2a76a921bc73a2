"""Retention: old segments that may be deleted, by age, by size, or below the log start.

Invariants, whatever the policy says: whole segments are deleted, from the oldest one up to the
first one that is kept; never a record at or above the high watermark.

The policy can be replaced, as in Kafka's first design: `bradbury.log.deletion.policy` names a class
(`package.module:Class`) that is instantiated without arguments, once a node, and called for each
segment from the oldest on. Source: UnifiedLog.deleteOldSegments in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..log_config import LogConfig
from ..segments.log_segment import LogSegment
from .partition_log import PartitionLog


class SegmentDeletion(NamedTuple):
    """A deleted segment, and the reason, for the broker's log."""

    base_offset: int
    next_offset: int
    size: int
    reason: str


class DeletionPolicy(Protocol):
    """Policy that decides which segments of logs with cleanup.policy=delete are old enough to
    delete.
    """

    def reason(
        self, segment: LogSegment, config: LogConfig, *, excess_bytes: int, now_ms: int
    ) -> str | None:
        """Reason to delete `segment`, for the broker's log; None keeps it and all that follow it.

        Args:
            segment: the oldest one that is not to be deleted yet. `newest_ms` is its largest
                timestamp, `size` its bytes, `base_offset` and `next_offset` its offsets.
            config: the topic's settings.
            excess_bytes: bytes of the log beyond retention.bytes; meaningless if that is -1.
            now_ms: the time now.

        It runs on the node's event loop. Whatever it raises is logged, and the segment kept; so
        it is if the answer is neither a text nor None.
        """
        ...


class RetentionPolicy:
    """Kafka's policy: retention.bytes and retention.ms, by the records' own timestamps."""

    def reason(
        self, segment: LogSegment, config: LogConfig, *, excess_bytes: int, now_ms: int
    ) -> str | None:
        """Reason to delete `segment`; see DeletionPolicy."""
        if config.retention_bytes >= 0 and segment.size <= excess_bytes:
            return f"retention.bytes={config.retention_bytes}"
        if 0 <= config.retention_ms < now_ms - segment.newest_ms:
            return f"retention.ms={config.retention_ms}"
        return None


RETENTION_POLICY = RetentionPolicy()


def choose_deletions(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    policy: DeletionPolicy = RETENTION_POLICY,
) -> list[SegmentDeletion]:
    """The prefix of `segments` to delete. May be all of them: then the log rolls first."""
    deletes = "delete" in config.cleanup_policies
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    deletions: list[SegmentDeletion] = []
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        next_offset = segment.next_offset if following is None else following.base_offset
        if high_watermark < next_offset or (following is None and segment.size == 0):
            break
        reason: str | None = None
        if next_offset <= log_start_offset:
            reason = "below log start offset"
        elif deletes:
            reason = policy.reason(segment, config, excess_bytes=excess, now_ms=now_ms)
        if reason is None:
            break
        excess -= segment.size
        deletions.append(SegmentDeletion(segment.base_offset, next_offset, segment.size, reason))
    return deletions


def apply_retention(
    log: PartitionLog, now_ms: int, policy: DeletionPolicy = RETENTION_POLICY
) -> list[SegmentDeletion]:
    """Delete the old segments of a log that `policy` selects, or that are below its log start.

    Call it every few minutes. Their files are renamed at once, and unlinked by
    LocalLog.delete_old_files. Raises KafkaStorageError if a roll finds the disk full,
    StorageFailure.
    """
    log.health.check()
    deletions = choose_deletions(
        tuple(log.segments),
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
        policy=policy,
    )
    if not deletions:
        return []
    if len(deletions) == len(log.segments):
        log.local.roll(now_ms=now_ms)
    # The log start offset moves first: from here on no read uses a segment about to be deleted.
    log.advance_log_start_offset(deletions[-1].next_offset)
    removed = log.segments.remove_first(len(deletions))
    log.local.mark_deleted(removed, now_ms + log.config.file_delete_delay_ms)
    return deletions
