"""Progress of a migration, read without changing anything and without disturbing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...clients.admin.admin import Admin
from ...protocol.errors import UnknownTopicOrPartition
from ...protocol.topic_partition import TopicPartition
from ..mirrors.mirror_checkpoints import groups_with_offsets
from ..mirrors.mirrored_topics import NameFilter
from .migration_notes import MigrationNote, cut_over_ends, late_records
from .migration_session import BothWays
from .moved_groups import EMPTY_STATES


@dataclass(frozen=True, slots=True)
class MigratedTopic:
    """Progress of one topic.

    behind: offsets of the source that are not copied. late: offsets added after the cut-over.
    open_transactions: partitions with an open transaction; records after it are not copied.
    """

    topic: str
    partitions: int
    behind: int
    late: int
    open_transactions: int


@dataclass(frozen=True, slots=True)
class MigratedGroup:
    """Progress of one consumer group.

    state: in the source. partitions: of migrated topics, those with a committed offset in the
    source. set: how many of them have one in the target. unread: offsets not consumed in the
    source. left: partitions with a committed offset of topics that are not migrated.
    """

    group: str
    state: str
    partitions: int
    set: int
    unread: int
    left: int

    @property
    def has_members(self) -> bool:
        return self.state.lower() not in EMPTY_STATES


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Progress of a migration.

    note: None before it has begun, or after a migration in the other direction began. left_out:
    topics of the source that are not migrated. going_back: the other direction is being followed.
    """

    source: str
    target: str
    note: MigrationNote | None
    topics: tuple[MigratedTopic, ...]
    groups: tuple[MigratedGroup, ...]
    left_out: tuple[str, ...]
    going_back: bool

    @property
    def behind(self) -> int:
        return sum(one.behind for one in self.topics)

    @property
    def late(self) -> int:
        return sum(one.late for one in self.topics)

    @property
    def state(self) -> str:
        """One of: not begun, copying, in step, cutting over, cut over, going back."""
        if self.going_back:
            return "going back"
        if self.note is None:
            return "not begun"
        if self.note.is_cut_over:
            return "cut over"
        if not self.note.is_following:
            return "cutting over"
        return "copying" if self.behind else "in step"

    @property
    def next_step(self) -> str:
        """Instruction for the operator: what to do next."""
        where = f"--from {self.source} --bootstrap {self.target}"
        if self.state == "going back":
            back = f"--from {self.target} --bootstrap {self.source}"
            return f"cut over: bradbury migrate cut-over {back}"
        if self.state == "not begun":
            return f"begin: bradbury migrate {where}"
        if self.state == "copying":
            return f"keep `bradbury migrate {where}` running until this says 0 behind"
        if self.state == "in step":
            return (
                "stop the producers; stop the consumers, at the end or before it; then: "
                f"bradbury migrate cut-over {where}"
            )
        if self.state == "cutting over":
            return f"wait for its end; if it was killed: bradbury migrate cut-over {where}"
        if self.late:
            return (
                f"stop the producers that still write to {self.source} ({self.late:,} late "
                "records), then: "
                f"bradbury migrate cut-over {where}"
            )
        return f"start producers and consumers with bootstrap.servers={self.target}"


def read_status(
    ways: BothWays,
    source: Admin,
    target: Admin,
    topics: NameFilter,
    groups: NameFilter,
) -> MigrationStatus:
    note, back = ways.note, ways.back_note
    if ways.is_turned_back:
        note = None
    described = {each.name: each for each in source.describe_topics()}
    names = topics.of(described)
    keys = [
        TopicPartition(name, one.partition) for name in names for one in described[name].partitions
    ]
    begins = {key: at.offset for key, at in source.list_offsets(keys, "earliest").items()}
    stable = source.list_offsets(keys, isolation_level="read_committed")
    ends = {key: at.offset for key, at in source.list_offsets(keys).items()}
    at = {each.source: each.offset for each in ways.state.positions if each.cluster == ways.cluster}
    behind = {key: max(0, ends[key] - max(at.get(key, 0), begins[key])) for key in keys}
    for key, skips in ways.base.late.items():
        for skip in skips:
            if key in behind and at.get(key, 0) <= skip.source_start:
                behind[key] -= skip.source_end - skip.source_start
    late: Mapping[TopicPartition, tuple[int, int]] = {}
    if note is not None and note.is_cut_over:
        late = late_records(cut_over_ends(ways.state.notes(ways.cluster), note.number).ends, ends)
        behind = dict.fromkeys(behind, 0)
    counted = [
        MigratedTopic(
            name,
            len(described[name].partitions),
            sum(count for key, count in behind.items() if key.topic == name),
            sum(end - start for key, (start, end) in late.items() if key.topic == name),
            sum(stable[key].offset < ends[key] for key in keys if key.topic == name),
        )
        for name in names
    ]
    return MigrationStatus(
        source.bootstrap_servers,
        target.bootstrap_servers,
        note,
        tuple(counted),
        tuple(_groups(source, target, groups, ends)),
        tuple(sorted(name for name in described if name not in names)),
        ways.is_turned_back and back is not None and not back.is_cut_over,
    )


def _groups(
    source: Admin, target: Admin, wanted: NameFilter, ends: Mapping[TopicPartition, int]
) -> list[MigratedGroup]:
    states = {each.group_id: each.state for each in source.list_groups()}
    found = []
    for group in groups_with_offsets(source, wanted):
        committed = source.group_offsets(group)
        mine = {key: one.offset for key, one in committed.items() if key in ends}
        here = target.group_offsets(group)
        found.append(
            MigratedGroup(
                group,
                states.get(group, ""),
                len(mine),
                sum(key in here for key in mine),
                sum(max(0, ends[key] - offset) for key, offset in mine.items()),
                len(committed) - len(mine),
            )
        )
    return found


def source_ends(source: Admin, topics: NameFilter) -> dict[TopicPartition, tuple[int, int]]:
    """(last stable offset, log end offset) by partition; empty if a topic is just being deleted."""
    described = {each.name: each for each in source.describe_topics()}
    keys: list[Any] = [
        (name, one.partition) for name in topics.of(described) for one in described[name].partitions
    ]
    try:
        stable = source.list_offsets(keys, isolation_level="read_committed")
        ends = source.list_offsets(keys)
    except UnknownTopicOrPartition:
        return {}
    return {key: (stable[key].offset, ends[key].offset) for key in ends}
