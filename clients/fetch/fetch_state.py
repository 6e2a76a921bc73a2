"""What a consumer knows of one partition it reads, and one answer that waits to be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from ...protocol.columns.columns_decode import AbortedProducers
from ..wire.record_metadata import TopicPartition

UNKNOWN_OFFSET: Final = -1
UNKNOWN_EPOCH: Final = -1
NO_REPLICA: Final = -1
NEVER: Final = inf
"""As `retry_at`: not before the next seek or assignment."""


class StartAt(Enum):
    """Where a partition is read from when it has no position yet."""

    COMMITTED = "committed"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class StartAtTime:
    """The start at the first record not before a time, or at the end if there is none.

    timestamp_ms: since 1970; or, with `ago`, before the moment when the position is looked for.
    """

    timestamp_ms: int
    ago: bool = False


StartPoint = StartAt | StartAtTime


class Position(NamedTuple):
    """The next offset, and the leader epoch of the record before it if that is known."""

    offset: int
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(slots=True, eq=False)
class FetchState:
    """One assigned partition. Guarded by the fetcher's condition.

    position: what poll hands out next; UNKNOWN_OFFSET until it is found.
    fetch_offset: what is asked of the broker next, ahead of the position.
    generation: counts seeks; what was asked before one is dropped when it comes.
    fetch_epoch: the leader epoch of the record before it, -1 where that is not known: by it the
        leader sees whether its log still has what was read (KIP-320, KIP-595).
    position_epoch: the same for the position, as far as it is known.
    asked: the generation that is being fetched now, -1 for none.
    buffered_bytes: of answers that wait to be decoded.
    max_bytes: doubled while not even one batch fits.
    last_stable_offset, high_watermark, log_start_offset: of the last answer, UNKNOWN_OFFSET before
        the first.
    replica: the node to read from until `replica_until`, as the leader has said; NO_REPLICA: from
        the leader itself.
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

    def seek(self, offset: int, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        """`leader_epoch`: of the record before `offset`, if it is known."""
        self.generation += 1
        self.position = self.fetch_offset = offset
        self.fetch_epoch = self.position_epoch = leader_epoch
        self.buffered_bytes = 0
        self.retry_at = 0.0

    def is_behind(self, *, committed_only: bool) -> bool:
        """Whether a fetch is likely answered at once."""
        end = self.last_stable_offset if committed_only else self.high_watermark
        return end > self.fetch_offset

    def restart(self, start_at: StartPoint) -> None:
        """Forget the position; `start_at` says how to find a new one."""
        self.seek(UNKNOWN_OFFSET)
        self.start_at = start_at


@dataclass(slots=True, eq=False)
class FetchedRecords:
    """The records field of one partition in one answer, not decoded yet.

    next_offset: one past its last whole batch. last_epoch: that batch's leader epoch.
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
