"""Rules of a follower of one partition: how it reacts to a leader's answer. Pure functions.

A follower fetches from its log end offset on and sends the epoch of its last record. A leader whose
log diverges from ours before that answers with the diverging epoch (KIP-595); the follower
truncates its log there and fetches again, each time dropping at least one epoch, until the logs are
equal up to its end (KIP-101, KIP-279). It drops records for two other reasons only: the leader's
log ends below ours, which happens after an unclean election, or starts behind all of our records.

Invariants: the fetch offset is an acknowledgement, so it covers only records that are as durable
as the topic requires; the high watermark is the lesser of the leader's and our own end.
Source: AbstractFetcherThread.getOffsetTruncationState, fetchOffsetAndTruncate in apache/kafka.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

UNKNOWN: Final = -1


class ReplicaLog(Protocol):
    """Log as the rules of leaders and followers need it."""

    log_start_offset: int

    @property
    def log_end_offset(self) -> int: ...
    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(greatest epoch up to `leader_epoch`, its end offset); (-1, -1): none."""
        ...


class FetchPosition(NamedTuple):
    """Position that a fetch sends for a partition; if it has changed the response is not used."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class Truncate(NamedTuple):
    """Decision to truncate the log to `offset`, then fetch again."""

    offset: int


class TruncateFullyAndStartAt(NamedTuple):
    """Decision to drop the whole log, which has no common part with the leader's; the next record
    gets `offset`.
    """

    offset: int


def on_diverging(log: ReplicaLog, epoch: int, end_offset: int) -> Truncate:
    """Truncation after the leader found a diverging epoch: `epoch` is the last that both may have,
    and it ends at `end_offset` in the leader's log.
    """
    own_epoch, own_end = log.end_offset_for_epoch(epoch)
    end = min(end_offset, log.log_end_offset)
    if own_epoch == UNKNOWN:
        return Truncate(end)  # all that we have is of later epochs
    return Truncate(min(end, own_end))


def on_out_of_range(
    log: ReplicaLog, leader_start: int, leader_end: int
) -> Truncate | TruncateFullyAndStartAt | None:
    """Reaction to OFFSET_OUT_OF_RANGE: our end is outside of the leader's log, [`leader_start`,
    `leader_end`].

    None: it is inside by now; fetch again.
    """
    end = log.log_end_offset
    if leader_end < end:
        return Truncate(leader_end)
    if leader_start > end:
        return TruncateFullyAndStartAt(leader_start)
    return None


def on_first_batch(
    log: ReplicaLog, first_offset: int, leader_start: int
) -> TruncateFullyAndStartAt | None:
    """Reaction to a batch that starts before our log's end: if the leader's log starts within it,
    drop the log.

    The leader has deleted all our records, and an empty log can take that batch as a whole. None:
    that is not the case; append the batch.
    """
    end = log.log_end_offset
    if first_offset < end <= leader_start and log.log_start_offset < end:
        return TruncateFullyAndStartAt(end)
    return None


def next_high_watermark(log: ReplicaLog, leader_high_watermark: int) -> int:
    return min(leader_high_watermark, log.log_end_offset)
