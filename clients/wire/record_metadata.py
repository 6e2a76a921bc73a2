"""Results of the clients: partitions, offsets and metadata of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class OffsetAndMetadata(NamedTuple):
    """Committed offset of a group in a partition.

    offset: that of the next record to read. metadata: text of the application, up to 4096
    characters. leader_epoch: that of the record before, -1 if it is not known (KIP-320).
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
    """Metadata of an acknowledged record.

    offset: -1 with acks=0, which has no answer.
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
    """Metadata of the records of one `send_batch`.

    ranges: ascending, neighbours merged; several per partition when other producers wrote between
        or when the log was split into batches. Empty with acks=0.
    """

    topic: str
    count: int
    ranges: tuple[OffsetRange, ...]
