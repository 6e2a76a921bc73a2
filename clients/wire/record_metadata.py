"""What the clients hand out: where a record is, and where records went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...protocol import topic_partition


class TopicPartition(NamedTuple):
    """One partition of a topic. A plain (topic, partition) pair equals it and does as well."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


TopicPartitionLike = topic_partition.TopicPartition
"""What the clients take: a TopicPartition, or a plain pair."""


class OffsetAndMetadata(NamedTuple):
    """What a group stores for a partition.

    offset: of the next record to be read. metadata: text of the application's, up to 4096
    characters. leader_epoch: of the record before, -1 if it is not known (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """A record found by its time. timestamp: milliseconds since 1970."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is.

    offset: -1 with acks=0, where the broker says nothing.
    timestamp: milliseconds since 1970; the broker's on a LogAppendTime topic, else the record's.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class OffsetRange(NamedTuple):
    """Records [start, end) of one partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Where the records of one `send_batch` are.

    ranges: ascending, neighbours merged; several per partition when other producers wrote between
        or when the log was split into batches. Empty with acks=0.
    """

    topic: str
    count: int
    ranges: tuple[OffsetRange, ...]
