"""Sync of the source's consumer group offsets to the target, so that a group can continue there.

    <alias>.checkpoints.internal    each translated offset, as MirrorMaker 2 writes it: its
                                    RemoteClusterUtils reads them
    the group's own offsets         if the target's group has no members; only to higher offsets

Like MirrorMaker 2's emit.checkpoints and sync.group.offsets, and its exclusions.

Translated offsets are never ahead of what the group has read (offset_syncs).
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Mapping
from typing import Final

from ...clients.admin.admin import Admin
from ...clients.admin.group_offsets_admin import CommittedOffset
from ...clients.producer.producer import Producer
from ...protocol.errors import NonEmptyGroup, TopicAlreadyExists
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from .mirrored_topics import NameFilter
from .offset_syncs import OffsetSyncs

logger = logging.getLogger(__name__)

EXCLUDED_GROUPS: Final = ("console-consumer-.*", "connect-.*", "__.*")
_VERSION: Final = 0
_WITHOUT_MEMBERS: Final = ("empty", "dead", "")


def groups_with_offsets(admin: Admin, wanted: NameFilter) -> list[str]:
    """Wanted groups that commit offsets: all but share groups, which keep another kind of state."""
    listed = admin.list_groups()
    return wanted.of(each.group_id for each in listed if each.type.lower() != "share")


class MirrorCheckpoints:
    """Syncs group offsets. Used by one thread. With an empty filter it does nothing."""

    def __init__(
        self, wanted: NameFilter, source: Admin, target: Admin, producer: Producer, alias: str
    ) -> None:
        self._wanted = wanted
        self._source = source
        self._target = target
        self._producer = producer
        self._topic = f"{alias}.checkpoints.internal"
        self._has_topic = False
        self._written: dict[tuple[str, TopicPartition], tuple[int, int]] = {}

    def sync(
        self,
        syncs: Mapping[TopicPartition, OffsetSyncs],
        targets: Mapping[str, str],
        replication_factor: int,
    ) -> None:
        """Sync the groups' committed offsets from the source to the target.

        Raises:
            KafkaError, ConnectionFailed: as Admin and Producer.
        """
        if not self._wanted:
            return
        groups = groups_with_offsets(self._source, self._wanted)
        translated = {group: self._translated(group, syncs, targets) for group in groups}
        self._write_checkpoints(translated, replication_factor)
        states = {each.group_id: each.state.lower() for each in self._target.list_groups()}
        for group, offsets in translated.items():
            if offsets and states.get(group, "") in _WITHOUT_MEMBERS:
                self._advance_offsets(
                    group, {key: downstream for key, (_, downstream) in offsets.items()}
                )

    def _translated(
        self,
        group: str,
        syncs: Mapping[TopicPartition, OffsetSyncs],
        targets: Mapping[str, str],
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offsets (source, target) of a group, by partition of the target."""
        found = {}
        for key, committed in self._source.group_offsets(group).items():
            offset = syncs.get(key, OffsetSyncs()).translate(committed.offset)
            if offset is not None and key.topic in targets:
                mirrored = TopicPartition(targets[key.topic], key.partition)
                found[mirrored] = (committed.offset, offset)
        return found

    def _write_checkpoints(
        self,
        translated: Mapping[str, Mapping[TopicPartition, tuple[int, int]]],
        replication_factor: int,
    ) -> None:
        changed = {
            (group, key): pair
            for group, offsets in translated.items()
            for key, pair in offsets.items()
            if self._written.get((group, key)) != pair
        }
        if not changed:
            return
        if not self._has_topic:
            with contextlib.suppress(TopicAlreadyExists):
                self._target.create_topic(
                    self._topic, 1, replication_factor, configs={"cleanup.policy": "compact"}
                )
            self._has_topic = True
        with self._producer.transaction():
            for (group, key), pair in changed.items():
                self._producer.send(
                    self._topic, key=_key(group, key), value=_value(*pair), partition=0
                )
        self._written |= changed

    def _advance_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Advance the group's offsets in the target; offsets that are higher there are kept."""
        here = self._target.group_offsets(group)
        ahead: dict[TopicPartitionPair, int | CommittedOffset] = {
            key: offset
            for key, offset in offsets.items()
            if key not in here or here[key].offset < offset
        }
        if not ahead:
            return
        try:
            self._target.alter_group_offsets(group, ahead)
        except NonEmptyGroup:
            logger.info("group %s has members in the target: its offsets are not changed", group)


def _key(group: str, partition: TopicPartition) -> bytes:
    """Key of a checkpoint: group, topic, partition (Checkpoint.serializeKey in apache/kafka)."""
    return _text(group) + _text(partition.topic) + struct.pack(">i", partition.partition)


def _value(upstream: int, downstream: int) -> bytes:
    """Value of a checkpoint: version, offset in the source, offset in the target, metadata.

    Source: Checkpoint.serializeValue in apache/kafka.
    """
    return struct.pack(">hqq", _VERSION, upstream, downstream) + _text("")


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
