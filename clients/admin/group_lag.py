"""Lag of a group: in records, and in time.

    lag                     high watermark - committed offset, as Kafka's tools count it
    first_unread_timestamp  timestamp of the record at the committed offset, the next to be read;
                            its age is the lag in time

Invariants: committed offsets are read before the ends of the partitions, so a lag is never
negative.

Not here: positions of members, which only they know.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...protocol.errors import UnknownTopicOrPartition
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import ClusterClient
from ..wire.offset_lookup import EARLIEST, LATEST, list_offsets
from .group_admin import GroupDescription, GroupMember, describe_groups
from .group_offsets_admin import CommittedOffset, group_offsets
from .record_times import record_times


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag in a partition with a committed offset of the group, or assigned to a member.

    committed: None if no offset is; then lag is None, too, as the start depends on the members.
    log_start_offset, log_end_offset: None if the partition does not exist.
    lag: offsets, including deleted and compacted records, as in Kafka's tools.
    first_unread_timestamp: ms since 1970; None if nothing is unread, or times were not requested.
    member: member that has the partition now.
    looked_at_ms: time of the request, by the clock of this machine.
    """

    topic: str
    partition: int
    committed: CommittedOffset | None
    log_start_offset: int | None
    log_end_offset: int | None
    first_unread_timestamp: int | None = None
    member: GroupMember | None = None
    looked_at_ms: int = 0

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed.offset)

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the first unread record at `now_ms`, in ms; 0: there is none, None: not known."""
        if self.first_unread_timestamp is not None:
            return max(0, now_ms - self.first_unread_timestamp)
        return 0 if self.lag == 0 else None

    @property
    def lag_s(self) -> float | None:
        """Age of the first unread record at the request, in seconds; 0 if there is none."""
        age_ms = self.age_ms(self.looked_at_ms)
        return None if age_ms is None else age_ms / 1000


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Lag of a group, in all and by partition; iterates over PartitionLag."""

    group_id: str
    partitions: tuple[PartitionLag, ...]

    @property
    def records(self) -> int | None:
        """Lag in records: the sum over all partitions with a committed offset; None if there is
        none.
        """
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None

    @property
    def seconds(self) -> float | None:
        """Age of the oldest unread record at the request, in seconds; None if it is not known."""
        age_ms = self.age_ms(max((one.looked_at_ms for one in self.partitions), default=0))
        return None if age_ms is None else age_ms / 1000

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the oldest unread record at `now_ms`, in ms, if known."""
        ages = [one.age_ms(now_ms) for one in self.partitions]
        oldest = max((age for age in ages if age is not None), default=None)
        is_open = any(
            age is None and one.lag for one, age in zip(self.partitions, ages, strict=True)
        )
        return None if is_open and not oldest else oldest

    def __iter__(self) -> Iterator[PartitionLag]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def __getitem__(self, index: int) -> PartitionLag:
        return self.partitions[index]


def group_lag(
    client: ClusterClient, group_ids: Iterable[str], *, times: bool, timeout_ms: int
) -> Steps[dict[str, list[PartitionLag]]]:
    """Lag of each group's partitions, those with a committed offset or assigned ones, sorted.

    Costs one request per coordinator, one per group and two per leader, with `times` also a fetch
    per leader.

    Raises:
        GroupIdNotFound: there is no such group.
        RequestTimedOut: a leader or coordinator did not answer in time.
        KafkaError: a broker refuses.
    """
    described = yield from describe_groups(client, group_ids, timeout_ms=timeout_ms)
    return (yield from lag_of(client, described, times=times, timeout_ms=timeout_ms))


def lag_of(
    client: ClusterClient, described: list[GroupDescription], *, times: bool, timeout_ms: int
) -> Steps[dict[str, list[PartitionLag]]]:
    """Lag of groups that were described a moment ago."""
    names = [group.group_id for group in described]
    committed = yield from group_offsets(client, names, timeout_ms=timeout_ms)
    owners = {
        group.group_id: {key: member for member in group.members for key in member.assignment}
        for group in described
    }
    keys = {key for name in names for key in (*committed[name], *owners[name])}
    while True:
        there = yield from _existing(client, keys)
        try:
            ends = yield from list_offsets(
                client, dict.fromkeys(there, LATEST), timeout_ms=timeout_ms
            )
            starts = yield from list_offsets(
                client, dict.fromkeys(there, EARLIEST), timeout_ms=timeout_ms
            )
            looked_at_ms = round(time.time() * 1000)
            found = {
                name: [
                    PartitionLag(
                        key.topic,
                        key.partition,
                        committed[name].get(key),
                        starts[key].offset if key in starts else None,
                        ends[key].offset if key in ends else None,
                        member=owners[name].get(key),
                        looked_at_ms=looked_at_ms,
                    )
                    for key in sorted({*committed[name], *owners[name]})
                ]
                for name in names
            }
            if times:
                for name in names:
                    found[name] = yield from _with_times(client, found[name], timeout_ms=timeout_ms)
        except UnknownTopicOrPartition:
            continue  # a topic was deleted between two requests; retry with new metadata
        return found


def _existing(client: ClusterClient, keys: Iterable[TopicPartition]) -> Steps[list[TopicPartition]]:
    """Return the partitions that exist; a committed offset may be of a deleted topic."""
    client.want({key.topic for key in keys})
    view = yield from wait(client.refresh())
    there = [key for key in keys if key.partition < view.partition_count(key.topic)]
    for topic in {key.topic for key in keys} - {key.topic for key in there}:
        client.forget(topic)
    return sorted(there)


def _with_times(
    client: ClusterClient, lags: list[PartitionLag], *, timeout_ms: int
) -> Steps[list[PartitionLag]]:
    offsets = {
        TopicPartition(one.topic, one.partition): max(
            one.committed.offset, one.log_start_offset or 0
        )
        for one in lags
        if one.committed is not None and one.lag
    }
    times = yield from record_times(client, offsets, timeout_ms=timeout_ms)
    return [
        replace(one, first_unread_timestamp=times.get(TopicPartition(one.topic, one.partition)))
        for one in lags
    ]
