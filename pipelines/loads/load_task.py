"""Task of a load: reads ranges and writes their files. It can be pickled.

An engine may run a task twice, also at the same time: each attempt has files of its own, and the
commit contains those of one attempt.
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
    """Result of a task. refusal: error that a retry would raise, too; then there are no files."""

    files: list[WrittenFile]
    refusal: DataLoss | UndecodableValue | None = None


@dataclass(frozen=True)
class LoadTask:
    """Task that loads ranges of a commit. number: tasks with lower ones have earlier ranges."""

    number: int
    servers: str
    ranges: tuple[PartitionRange, ...]
    rows: LoadRows
    limits: ReadLimits
    place: FilePlace

    def run(self, client: ClusterClient) -> list[WrittenFile]:
        """Read the ranges and write their files. Raises what LoadRows.read raises, and OSError."""
        rows = self.rows.read(client, self.ranges, self.limits)
        return write_rows(self.place, self.rows.partition_by, self.number, rows)


def run_task(task: LoadTask) -> TaskResult:
    """Run a task in a process of Spark or Ray. Exceptions that a retry may avoid are raised."""
    try:
        return TaskResult(task.run(reading_client(task.servers, task.limits.fetch)))
    except (DataLoss, UndecodableValue) as error:
        return TaskResult([], error)


def share_out(ranges: Sequence[PartitionRange], count: int) -> list[tuple[PartitionRange, ...]]:
    """Split ranges into at most `count` parts of about equal size, in order; ranges may be split.

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
