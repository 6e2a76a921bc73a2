"""Backlogs (unread records) of a group by partition, which decide its size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...protocol.errors import GroupIdNotFound
from ...protocol.topic_partition import TopicPartition
from .lag_scaling import Backlog

if TYPE_CHECKING:
    from ..admin.admin import Admin
    from ..admin.group_lag import PartitionLag


def read_backlogs(
    admin: Admin,
    group: str,
    keys: list[TopicPartition],
    *,
    with_times: bool,
    starts_at_end: bool,
) -> list[Backlog]:
    """Backlogs of all `keys`, also of those that are not assigned during a rebalance.

    Args:
        with_times: also find the age of the first unread records, with a fetch per leader.
        starts_at_end: partitions without a committed offset have no backlog.
    """
    try:
        found: Iterable[PartitionLag] = admin.lag(group, times=with_times)
    except GroupIdNotFound:
        found = ()  # no member has joined yet
    known = {
        TopicPartition(one.topic, one.partition): Backlog(one.lag, one.lag_s)
        for one in found
        if one.lag is not None
    }
    rest = [] if starts_at_end else [key for key in keys if key not in known]
    if rest:  # nothing is committed: the group starts at the beginning
        starts, ends = admin.list_offsets(rest, "earliest"), admin.list_offsets(rest)
        for key in rest:
            known[key] = Backlog(ends[key].offset - starts[key].offset, None)
    return [known[key] for key in keys if key in known]
