"""Status of a group: members, partitions and lag; also as a table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...protocol.topic_partition import TopicPartition
from .lag_scaling import ScaleEvent

UNLIMITED = 100_000
FOLDED = 24
"""Minimum width of a column of partitions; longer text is folded."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Status of a partition. position: next offset to read, -1 if not known yet.

    committed: committed offset, or None. end: log end offset; -1 if not requested.
    """

    topic_partition: TopicPartition
    position: int
    committed: int | None
    end: int = -1

    @property
    def lag(self) -> int | None:
        """Number of records that are not committed; None if it is not known."""
        start = self.position if self.committed is None else self.committed
        return None if self.end < 0 or start < 0 else max(0, self.end - start)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """Status of a member, since the last start of its process.

    state: "running", "restarting" (by Ray), "away" (for too long: others have its partitions),
        "stopping".
    workers: 0 if it processes by itself. waiting, running, to_be_taken: numbers of batches.
    records, failed: records processed, batches failed. records_per_second: over the last 10 s.
    generation: that of the group at the last assignment; it grows with each rebalance.
    resumed_after_s: seconds from the process start to its first partitions. restarts: number.
    """

    instance_id: str
    state: str
    pid: int = 0
    node_id: str = ""
    workers: int = 0
    waiting: int = 0
    running: int = 0
    to_be_taken: int = 0
    records: int = 0
    records_per_second: float = 0.0
    failed: int = 0
    lost_workers: int = 0
    restarts: int = 0
    resumed_after_s: float | None = None
    generation: int = -1
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Status of a group, with its members in order. `rich.print` shows a table.

    scale_events: changes of the number of members by lag, the latest last.
    """

    group: str
    members: tuple[MemberStatus, ...] = field(default=())
    scale_events: tuple[ScaleEvent, ...] = field(default=())

    @property
    def lag(self) -> int:
        """Number of uncommitted records in the partitions of all members."""
        return sum(member.lag for member in self.members)

    @property
    def records_per_second(self) -> float:
        return sum(member.records_per_second for member in self.members)

    def with_ends(self, ends: dict[TopicPartition, int]) -> GroupStatus:
        return replace(
            self,
            members=tuple(
                replace(
                    member,
                    partitions=tuple(
                        replace(one, end=ends.get(one.topic_partition, -1))
                        for one in member.partitions
                    ),
                )
                for member in self.members
            ),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render a table or, if the terminal is too narrow for it, a paragraph per member."""
        yield Text(
            f"group {self.group}: {self.records_per_second:,.0f} records/s, lag {self.lag:,}",
            style="bold",
        )
        if self.scale_events:
            event = self.scale_events[-1]
            yield Text(f"scaled at {event.at.astimezone():%H:%M:%S}: {event}")
        table = self._table()
        unlimited = options.update(
            width=UNLIMITED
        )  # else the measure would be limited to the width
        if Measurement.get(console, unlimited, table).minimum <= options.max_width:
            yield table
        else:
            yield from map(_paragraph, self.members)

    def _table(self) -> Table:
        table = Table()
        table.add_column("member", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("partitions", min_width=FOLDED)
        for name in ("records", "records/s", "lag", "workers", "running", "waiting", "failed"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("restarts", justify="right", no_wrap=True)
        for member in self.members:
            table.add_row(
                member.instance_id,
                member.state,
                _partitions_text(member.partitions),
                f"{member.records:,}",
                f"{member.records_per_second:,.0f}",
                f"{member.lag:,}",
                str(member.workers or "-"),
                str(member.running),
                str(member.waiting + member.to_be_taken),
                str(member.failed),
                str(member.restarts),
            )
        return table


def _paragraph(member: MemberStatus) -> Padding:
    """Render a member as a paragraph, for a terminal that is too narrow for the table."""
    workers = f"{member.workers} workers; " if member.workers else ""
    text = Text(f"{member.instance_id}: {member.state}, ")
    text.append(f"{member.records:,} records, {member.records_per_second:,.0f} records/s, ")
    text.append(f"lag {member.lag:,}\n{workers}batches: {member.running} running, ")
    text.append(f"{member.waiting + member.to_be_taken} waiting, {member.failed} failed; ")
    text.append(
        f"{member.restarts} restarts\n{_partitions_text(member.partitions) or 'no partitions'}"
    )
    return Padding(text, (0, 0, 0, 2))


def _partitions_text(partitions: tuple[PartitionStatus, ...]) -> str:
    """Format partitions by topic, such as "flights 0 1 2, gates 0"."""
    by_topic: dict[str, list[str]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic_partition.topic, []).append(
            str(one.topic_partition.partition)
        )
    return ", ".join(f"{topic} {' '.join(numbers)}" for topic, numbers in by_topic.items())
