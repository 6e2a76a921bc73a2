"""Consumer groups' offsets at the cut-over: exact, so that a group resumes where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...clients.admin.admin import Admin
from ...clients.admin.group_offsets_admin import CommittedOffset
from ...protocol.errors import NonEmptyGroup
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..mirrors.mirror_checkpoints import groups_with_offsets
from ..mirrors.mirrored_topics import NameFilter
from ..mirrors.offset_syncs import OffsetSync, OffsetSyncs
from .exact_offsets import LogSide, Twin, twin_of

EMPTY_STATES = ("empty", "dead", "")


@dataclass(frozen=True, slots=True)
class MovedGroup:
    """A group whose offsets were set in the target.

    again: partitions in which it gets some records again, as no exact offset was found.
    has_members: the group has members in the target already, so nothing was set.
    """

    group: str
    partitions: int
    again: tuple[TopicPartition, ...]
    has_members: bool = False


class GroupMover:
    """Sets groups' offsets in the target, when all records are copied and nobody produces more.

    Used by one thread. syncs: offset syncs of the copied records. skips: see RecordCopier.
    """

    def __init__(
        self,
        source: Admin,
        target: Admin,
        source_side: LogSide,
        target_side: LogSide,
        syncs: Mapping[TopicPartition, OffsetSyncs],
        skips: Mapping[TopicPartition, Sequence[OffsetSync]],
        copied: Sequence[TopicPartition],
    ) -> None:
        self._source = source
        self._target = target
        self._sides = (source_side, target_side)
        self._syncs = syncs
        self._skips = skips
        self._copied = frozenset(copied)
        keys = sorted(self._copied)
        self._starts = {key: at.offset for key, at in source.list_offsets(keys, "earliest").items()}
        self._ends = {key: at.offset for key, at in target.list_offsets(keys).items()}
        self._known: dict[tuple[TopicPartition, int], Twin] = {}

    def move(
        self, wanted: NameFilter, on_group: Callable[[str], None] = lambda group: None
    ) -> list[MovedGroup]:
        """Set the offsets of these groups as in the source, also to lower offsets.

        Raises:
            KafkaError, ConnectionFailed: as Admin; what was set stays.
        """
        moved = []
        for group in groups_with_offsets(self._source, wanted):
            on_group(group)
            committed = {
                key: one
                for key, one in self._source.group_offsets(group).items()
                if key in self._copied
            }
            if committed:
                moved.append(self._move(group, committed))
        return moved

    def _move(self, group: str, committed: Mapping[TopicPartition, CommittedOffset]) -> MovedGroup:
        twins = {key: self._twin(key, one.offset) for key, one in committed.items()}
        offsets: dict[TopicPartitionPair, int | CommittedOffset] = {
            key: CommittedOffset(twin.offset, metadata=committed[key].metadata)
            for key, twin in twins.items()
        }
        again = tuple(key for key, twin in twins.items() if not twin.is_exact)
        here = self._target.group_offsets(group)
        changed = {
            key: one
            for key, one in offsets.items()
            if key not in here or here[TopicPartition(*key)].offset != twins[key].offset
        }
        if not changed:
            return MovedGroup(group, len(offsets), again)
        try:
            self._target.alter_group_offsets(group, changed)
        except NonEmptyGroup:
            return MovedGroup(group, len(offsets), again, has_members=True)
        return MovedGroup(group, len(offsets), again)

    def _twin(self, key: TopicPartition, offset: int) -> Twin:
        """Translated offset, cached: many groups are at the same offset, most at the end."""
        twin = self._known.get((key, offset))
        if twin is None:
            syncs = self._syncs.get(key, OffsetSyncs())
            start, end = self._starts[key], self._ends[key]
            twin = twin_of(key, offset, syncs, *self._sides, start, end)
            for skip in self._skips.get(key, ()):
                # Skipped records lie earlier in the target; the group has not read all of them.
                if offset < skip.source_end and skip.target_start < twin.offset:
                    twin = Twin(skip.target_start, False)
            self._known[key, offset] = twin
        return twin
