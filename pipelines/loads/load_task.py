"""What one process does for a commit: it reads ranges and writes their files. It can be pickled.

Whoever runs tasks may run one twice, also at the same time: each run has files of its own, and the
commit takes those of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...clients.wire.cluster_client import ClusterClient
from ..ranges.partition_range import DataLoss, PartitionRange, ReadLimits
from ..ranges.reading_client import reading_client
from ..ranges.value_decoder import UndecodableValue
from .load_rows import LoadRows
from .table_files import FilePlace, WrittenFile, write_rows


class TaskResult(NamedTuple):
    """Of a run that would come to the same each time. refusal: why there are no files."""

    files: list[WrittenFile]
    refusal: DataLoss | UndecodableValue | None = None


@dataclass(frozen=True)
class LoadTask:
    """Ranges of one commit. Files of a lower number are those of earlier ranges."""

    number: int
    servers: str
    ranges: tuple[PartitionRange, ...]
    rows: LoadRows
    limits: ReadLimits
    place: FilePlace

    def run(self, client: ClusterClient) -> list[WrittenFile]:
        """Raises what LoadRows.read raises, and OSError."""
        rows = self.rows.read(client, self.ranges, self.limits)
        return write_rows(self.place, self.rows.partition_by, self.number, rows)


def run_task(task: LoadTask) -> TaskResult:
    """In a process of Spark's or Ray's: what it raises may be gone in the next run."""
    try:
        return TaskResult(task.run(reading_client(task.servers, task.limits.fetch)))
    except (DataLoss, UndecodableValue) as error:
        return TaskResult([], error)


def share_out(ranges: Sequence[PartitionRange], count: int) -> list[tuple[PartitionRange, ...]]:
    """At most `count` parts of about the same size, in the order of the ranges, which may be cut.

    >>> share_out([PartitionRange("t", 0, 0, 6), PartitionRange("t", 1, 0, 3)], 2)
    [(t-0 [0, 5),), (t-0 [5, 6), t-1 [0, 3))]
    """
    share = -(-sum(one.size for one in ranges) // count)
    parts: list[tuple[PartitionRange, ...]] = []
    part: list[PartitionRange] = []
    room = share
    for one in ranges:
        start = one.start
        while start < one.end:
            end = min(one.end, start + room)
            part.append(one._replace(start=start, end=end))
            room -= end - start
            start = end
            if not room:
                parts.append(tuple(part))
                part, room = [], share
    return [*parts, tuple(part)] if part else parts
