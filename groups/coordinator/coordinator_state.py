"""State in the log of one partition of `__consumer_offsets`: its groups and their offsets.

Hard state is the committed offsets: they change only in `apply`, in log order, while loading and
live alike; `entries_of` an append are the entries that a reader of the log finds. The groups
themselves are soft state that is stored at each stable generation: `apply` of a group's record
rebuilds the group while loading, and changes only `is_written` afterwards, because the group in
memory is ahead of its log.

Invariants: a group is here exactly while it has members, pending member ids, or records in the
log that no tombstone of the group follows: a group whose last offset was deleted is still here,
empty, as in Kafka. Decides nothing; coordinator.py does.
Source: apache/kafka group-coordinator/.../GroupCoordinatorShard.java (replay).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...coordinators.rules_effects import Append
from ..classic.classic_group import ClassicGroup
from ..group_config import GroupCoordinatorConfig
from ..group_counters import GroupCounters, MemberMemory
from ..group_effects import DeletedGroup
from ..group_records import (
    GroupMetadataValue,
    GroupRecord,
    LogEntry,
    OffsetRecord,
    TransactionalOffset,
    TransactionEnd,
)
from ..offsets.committed_offsets import CommittedOffsets


class CoordinatorState:
    def __init__(
        self, config: GroupCoordinatorConfig, memory: MemberMemory, counters: GroupCounters
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = CommittedOffsets(config)
        self.is_loading = True
        self.newest_ms = 0
        """Latest timestamp in the applied entries, in ms."""
        self._config = config
        self._memory = memory
        self._counters = counters

    def make_group(self, group_id: str) -> ClassicGroup:
        """Get the group, or create it."""
        group = self.groups.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, self._config, self._memory, self._counters)
            self.groups[group_id] = group
        return group

    def apply(self, entry: LogEntry) -> None:
        """Apply the next entry of the log."""
        match entry:
            case OffsetRecord(key, value):
                self.offsets.apply(entry)
                if value is not None:
                    self.make_group(key.group).is_written = True
                    self.newest_ms = max(self.newest_ms, value.commit_timestamp)
                else:
                    self.forget_if_nothing(key.group)
            case GroupRecord(key, value):
                is_written = value is not None
                if self.is_loading:
                    value = value or GroupMetadataValue()
                    self.make_group(key.group).restore(value)
                    self.newest_ms = max(self.newest_ms, value.current_state_timestamp)
                if key.group in self.groups:
                    self.groups[key.group].is_written = is_written
                self.forget_if_nothing(key.group)
            case TransactionalOffset(_, key, value):
                self.offsets.apply(entry)
                self.make_group(key.group)
                self.newest_ms = max(self.newest_ms, value.commit_timestamp)
            case TransactionEnd():
                for group_id, counts in self.offsets.end_transaction(entry).items():
                    if counts:
                        self.make_group(group_id).is_written = True
                    self.forget_if_nothing(group_id)

    def restore_deleted(self, before: Iterable[DeletedGroup]) -> None:
        """Restore groups whose deletion failed."""
        for (key, value), is_written in before:
            assert value is not None
            group = self.groups.get(key.group)
            if group is None:
                self.make_group(key.group).restore(value)
            else:
                group.continue_from(value.generation)
            self.groups[key.group].is_written |= is_written
            self.forget_if_nothing(key.group)

    def forget_if_nothing(self, group_id: str) -> None:
        if not self.offsets.forget_if_empty(group_id):
            return
        group = self.groups.get(group_id)
        if group is not None and group.is_forgettable:
            del self.groups[group_id]


def entries_of(append: Append) -> Sequence[LogEntry]:
    """Log entries that a reader finds for this append."""
    if append.marker is not None:
        return [TransactionEnd(append.marker.producer_id, append.marker.is_commit)]
    if append.producer is None:
        return append.records
    entries: list[LogEntry] = []
    for record in append.records:
        assert isinstance(record, OffsetRecord)
        assert record.value is not None  # tombstones are of no transaction
        entries.append(TransactionalOffset(append.producer.producer_id, record.key, record.value))
    return entries
