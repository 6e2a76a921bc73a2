"""State of a partition that a consumer reads, and fetched records that are not decoded yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from ...protocol.columns.columns_decode import AbortedProducers
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from ..wire.cluster_view import ClusterView

UNKNOWN_OFFSET: Final = -1
UNKNOWN_EPOCH: Final = -1
NO_REPLICA: Final = -1
NEVER: Final = inf
"""Value of `retry_at`: not before the next seek or assignment."""


class StartAt(Enum):
    """Start of a partition that has no position yet."""

    COMMITTED = "committed"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class StartAtTime:
    """Start at the first record from a time on, or at the end if there is none.

    timestamp_ms: since 1970; or, with `ago`, before the time of the position lookup.
    """

    timestamp_ms: int
    ago: bool = False


StartPoint = StartAt | StartAtTime


class Position(NamedTuple):
    """Next offset, and the leader epoch of the record before it if that is known."""

    offset: int
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(slots=True, eq=False)
class FetchState:
    """State of one assigned partition. Guarded by the fetcher's condition.

    position: next offset that poll returns; UNKNOWN_OFFSET until it is found.
    fetch_offset: next offset to fetch, ahead of the position.
    generation: number of seeks; answers to earlier requests are dropped.
    fetch_epoch: leader epoch of the record before fetch_offset, -1 if not known, by which the
        leader detects that its log was truncated (KIP-320, KIP-595).
    position_epoch: leader epoch of the record before the position, if known.
    asked: generation that is being fetched now, -1 for none.
    buffered_bytes: bytes of answers that wait to be decoded.
    max_bytes: byte limit of a fetch, doubled while not even one batch fits.
    last_stable_offset, high_watermark, log_start_offset: those of the last answer, UNKNOWN_OFFSET
        before the first.
    replica: preferred read replica of the leader until `replica_until`; NO_REPLICA: the leader.
    topic_id: of the topic whose records came since the last seek, as the metadata had it; zero: not
        known.
    truncated_in: metadata at the time of an answer that says that the log was truncated; by newer
        metadata it is looked up whether the topic is still the same.
    """

    topic_partition: TopicPartition
    max_bytes: int
    start_at: StartPoint
    position: int = UNKNOWN_OFFSET
    fetch_offset: int = UNKNOWN_OFFSET
    fetch_epoch: int = UNKNOWN_EPOCH
    position_epoch: int = UNKNOWN_EPOCH
    generation: int = 0
    asked: int = -1
    paused: bool = False
    buffered_bytes: int = 0
    retry_at: float = 0.0
    high_watermark: int = UNKNOWN_OFFSET
    last_stable_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    replica: int = NO_REPLICA
    replica_until: float = 0.0
    topic_id: UUID = ZERO_UUID
    truncated_in: ClusterView | None = None

    def seek(self, offset: int, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        """Set the position. leader_epoch: that of the record before `offset`, if known."""
        self.generation += 1
        self.position = self.fetch_offset = offset
        self.fetch_epoch = self.position_epoch = leader_epoch
        self.buffered_bytes = 0
        self.retry_at = 0.0
        self.topic_id, self.truncated_in = ZERO_UUID, None

    def is_behind(self, *, committed_only: bool) -> bool:
        """Whether a fetch will probably be answered at once, as there are more records."""
        end = self.last_stable_offset if committed_only else self.high_watermark
        return end > self.fetch_offset

    def restart(self, start_at: StartPoint) -> None:
        """Forget the position; a new one is found by `start_at`."""
        self.seek(UNKNOWN_OFFSET)
        self.start_at = start_at


@dataclass(slots=True, eq=False)
class FetchedRecords:
    """Records field of one partition in one answer, not decoded yet.

    next_offset: offset after its last complete batch. last_epoch: that batch's leader epoch.
    """

    state: FetchState
    generation: int
    fetch_offset: int
    next_offset: int
    records: memoryview
    aborted: list[tuple[int, int]] | AbortedProducers | None
    last_epoch: int = UNKNOWN_EPOCH

    @property
    def is_current(self) -> bool:
        return self.generation == self.state.generation
