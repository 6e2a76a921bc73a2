"""What a consumer knows of one partition it reads, and one answer that waits to be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final

from .topic_partition import TopicPartition

UNKNOWN_OFFSET: Final = -1
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
    """At the first record not before a time, or at the end if there is none.

    timestamp_ms: since 1970; or, with `ago`, before the moment when the position is looked for.
    """

    timestamp_ms: int
    ago: bool = False


StartPoint = StartAt | StartAtTime


@dataclass(slots=True, eq=False)
class FetchState:
    """One assigned partition. Guarded by the fetcher's condition.

    position: what poll hands out next; UNKNOWN_OFFSET until it is found.
    fetch_offset: what is asked of the broker next, ahead of the position.
    generation: counts seeks; what was asked before one is dropped when it comes.
    asked: the generation that is being fetched now, -1 for none.
    buffered_bytes: of answers that wait to be decoded.
    max_bytes: doubled while not even one batch fits.
    last_stable_offset, high_watermark: of the last answer, UNKNOWN_OFFSET before the first.
    replica: the node to read from until `replica_until`, as the leader has said; NO_REPLICA: from
        the leader itself.
    """

    topic_partition: TopicPartition
    max_bytes: int
    start_at: StartPoint
    position: int = UNKNOWN_OFFSET
    fetch_offset: int = UNKNOWN_OFFSET
    generation: int = 0
    asked: int = -1
    paused: bool = False
    buffered_bytes: int = 0
    retry_at: float = 0.0
    high_watermark: int = UNKNOWN_OFFSET
    last_stable_offset: int = UNKNOWN_OFFSET
    replica: int = NO_REPLICA
    replica_until: float = 0.0

    def seek(self, offset: int) -> None:
        self.generation += 1
        self.position = self.fetch_offset = offset
        self.buffered_bytes = 0
        self.retry_at = 0.0

    def is_behind(self) -> bool:
        """Whether a fetch is likely answered at once."""
        return self.high_watermark > self.fetch_offset

    def restart(self, start_at: StartPoint) -> None:
        """Forget the position; `start_at` says how to find a new one."""
        self.seek(UNKNOWN_OFFSET)
        self.start_at = start_at


@dataclass(slots=True, eq=False)
class FetchedRecords:
    """The records field of one partition in one answer, not decoded yet.

    next_offset: one past its last whole batch.
    """

    state: FetchState
    generation: int
    fetch_offset: int
    next_offset: int
    records: memoryview
    aborted: list[tuple[int, int]] | None

    @property
    def is_current(self) -> bool:
        return self.generation == self.state.generation
