"""States of a classic group and the transitions between them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """State of a group; the value is its name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    """No members; perhaps committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for the members to rejoin."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment."""
    STABLE = "Stable"
    """Every member may fetch its assignment and work."""
    DEAD = "Dead"
    """Deleted. A group that moved to another coordinator is not here at all."""


# to -> allowed from. Source: group-coordinator/.../classic/ClassicGroupState.java
PREVIOUS_STATES: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: {GroupState.EMPTY},
}
