"""Metadata of a classic group: the state that its requests and rebalances share.

Passive: classic_group and its parts decide.
"""

from __future__ import annotations

from ..group_counters import MemberMemory
from ..group_records import NO_TIMESTAMP
from .group_members import GroupMembers
from .group_state import PREVIOUS_STATES, GroupState


class GroupMetadata:
    def __init__(self, group_id: str, memory: MemberMemory) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = GroupMembers(memory)
        self.state_timestamp_ms = NO_TIMESTAMP
        self.now_ms = 0
        """Time of the event that is being handled."""

    def become(self, state: GroupState) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.state.name} -> {state.name}"
        self.state = state
        self.state_timestamp_ms = self.now_ms
