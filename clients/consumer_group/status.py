"""How a group is doing: its members, their partitions, how far behind it is; as a table, too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rich.table import Table

from ..wire.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """position: the next offset to be read, -1 if not known yet. committed: None for nothing.

    end: one past the last record there is; -1 if not asked for.
    """

    topic_partition: TopicPartition
    position: int
    committed: int | None
    end: int = -1

    @property
    def lag(self) -> int | None:
        """Records that are not committed; None as long as that cannot be said."""
        start = self.position if self.committed is None else self.committed
        return None if self.end < 0 or start < 0 else max(0, self.end - start)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """One member, since the last start of its process.

    state: "running", "restarting" (Ray is at it), "away" (too long: others have its partitions),
        "stopping".
    workers: 0 if it processes by itself. waiting, running, to_be_taken: batches.
    records, failed: records processed, batches that failed. records_per_second: of the last 10 s.
    generation: of the group, at the last assignment: it grows with each rebalance.
    resumed_after_s: from the start of the process to its first partitions. restarts: so far.
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
    """The members in order. `print` with rich shows a table."""

    group: str
    members: tuple[MemberStatus, ...] = field(default=())

    @property
    def lag(self) -> int:
        """Records that the partitions of all members have and that are not committed."""
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

    def __rich__(self) -> Table:
        table = Table(
            title=f"group {self.group}: {self.records_per_second:,.0f} records/s, lag {self.lag:,}"
        )
        for name in ("member", "state", "partitions"):
            table.add_column(name)
        for name in ("records", "records/s", "lag", "workers", "batches", "failed", "restarts"):
            table.add_column(name, justify="right")
        for member in self.members:
            table.add_row(
                member.instance_id,
                member.state,
                _partitions_text(member.partitions),
                f"{member.records:,}",
                f"{member.records_per_second:,.0f}",
                f"{member.lag:,}",
                str(member.workers or "-"),
                f"{member.running} running, {member.waiting + member.to_be_taken} waiting",
                str(member.failed),
                str(member.restarts),
            )
        return table


def _partitions_text(partitions: tuple[PartitionStatus, ...]) -> str:
    """Such as: flights 0 1 2, gates 0."""
    by_topic: dict[str, list[str]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic_partition.topic, []).append(
            str(one.topic_partition.partition)
        )
    return ", ".join(f"{topic} {' '.join(numbers)}" for topic, numbers in by_topic.items())
