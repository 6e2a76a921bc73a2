"""Batches of tombstones for groups and offsets: a group may have any number of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...coordinators.rules_effects import Append
from ...protocol.messages.delete_groups import DeleteGroupsResponse
from ..group_effects import DeletedGroup, Effect, GroupsDeleted, OffsetsDeleted
from ..group_records import CoordinatorRecord, OffsetRecord

MOST_TOMBSTONE_BYTES = 256 * 1024
"""Most bytes of a batch of tombstones, far below max.message.bytes."""
TOMBSTONE_BYTES = 60
"""Size of one tombstone, without its names."""


def in_batches(
    records: Sequence[CoordinatorRecord], completion: GroupsDeleted | OffsetsDeleted
) -> list[Effect]:
    """Split records into as many appends as they need. The completion is in the last one."""
    before = completion.before if isinstance(completion, GroupsDeleted) else ()
    appends: list[Effect] = []
    batch: list[CoordinatorRecord] = []
    size = 0
    for record in records:
        names = record.key.group + (record.key.topic if isinstance(record, OffsetRecord) else "")
        added = TOMBSTONE_BYTES + len(names.encode())
        if batch and size + added > MOST_TOMBSTONE_BYTES:
            appends.append(Append(tuple(batch), nobody_waits(before)))
            batch, size = [], 0
        batch.append(record)
        size += added
    if batch:
        appends.append(Append(tuple(batch), completion))
    return appends


def nobody_waits(before: Iterable[DeletedGroup] = ()) -> GroupsDeleted:
    return GroupsDeleted(None, DeleteGroupsResponse(), tuple(before))
