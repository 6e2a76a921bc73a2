"""Activity and memory of the groups of a node, for metrics and the bound on memory.

One GroupCounters for a node; one MemberMemory for the node and one under it for each coordinator,
so that a coordinator which ends releases all of its bytes at once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounters:
    """Counters, which only grow."""

    completed_rebalances: int = 0
    """Generations that have begun, empty ones included."""
    offset_commits: int = 0
    offsets_expired: int = 0
    offsets_deleted: int = 0
    """Offsets deleted by OffsetDelete and with deleted groups and topics."""
    members_removed: int = 0
    """Members that were silent for their session, did not rejoin, or did not sync in time."""


class MemberMemory:
    """Bytes that members and given-out member ids hold, and the most they may.

    An estimate: what clients sent, and a fixed sum for our own objects around it.
    """

    MEMBER_BYTES = 2_000
    PROTOCOL_BYTES = 250
    PENDING_BYTES = 1_000

    def __init__(self, limit: int, whole: MemberMemory | None = None) -> None:
        """`whole`: memory of the node, whose limit applies then."""
        self.limit = limit
        self.used = 0
        self._whole = whole

    def has_room(self, size: int) -> bool:
        memory = self if self._whole is None else self._whole
        return memory.used + size <= memory.limit

    def add(self, size: int) -> None:
        """Add bytes, also negative ones, and also beyond the limit: members in the log are
        always loaded.
        """
        self.used += size
        if self._whole is not None:
            self._whole.add(size)

    def give_back(self) -> None:
        """Release everything: the coordinator has ended."""
        self.add(-self.used)
