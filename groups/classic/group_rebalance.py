"""Rebalance of a classic group: gather the members, then wait for their SyncGroups.

Rules for the start of a rebalance, the end of its join phase and the members that are removed then,
the stored assignment, and the removal of a member. Requests are handled by classic_group, which has
the state diagram and the invariants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...coordinators.rules_effects import Append
from ...protocol.error_code import ErrorCode
from ...protocol.messages.sync_group import SyncGroupRequestAssignment
from ..group_config import GroupCoordinatorConfig
from ..group_counters import GroupCounters
from ..group_effects import AssignmentStored, TimerKind
from .event_effects import GroupEffects
from .group_members import ClassicGroupMember
from .group_metadata import GroupMetadata
from .group_state import PREVIOUS_STATES, GroupState
from .group_view import assigned_response, group_record, joined_response
from .join import Join

NOBODY = ""


@dataclass(frozen=True, slots=True)
class _InitialDelay:
    """Initial rebalance delay: the current step, and the time that may be waited after it."""

    step_ms: int
    remaining_ms: int


def _is_late(member: ClassicGroupMember) -> bool:
    """Whether a member has not rejoined when the join phase ends. Static ones may come later."""
    return member.parked_join is None and not member.is_static


class GroupRebalance:
    def __init__(
        self,
        group: GroupMetadata,
        effects: GroupEffects,
        config: GroupCoordinatorConfig,
        counters: GroupCounters,
    ) -> None:
        self._group = group
        self._members = group.members
        self._effects = effects
        self._config = config
        self._counters = counters
        self._initial_delay: _InitialDelay | None = None
        self._joined_during_delay = False
        self._yet_to_sync: set[str] = set()
        self._storing: dict[str, bytes] | None = None
        """Assignment of this generation while it is being stored."""

    # --- the join phase --------------------------------------------------------------------------

    def prepare_or_complete_join(self, reason: str) -> None:
        """Prepare a rebalance, or complete the join phase: a member came, changed, or left."""
        if self._group.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]:
            self.prepare(reason)
        else:
            self.maybe_complete_join()

    def prepare(self, reason: str) -> None:
        """Prepare a rebalance from any state."""
        group = self._group
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._storing = None
        self._yet_to_sync.clear()
        self._effects.cancel_timer(TimerKind.SYNC)
        is_initial = group.state is GroupState.EMPTY
        before = group.state.value
        group.become(GroupState.PREPARING_REBALANCE)
        self._effects.report(
            f"Preparing to rebalance group {group.group_id} in state {before} "
            f"with old generation {group.generation} (reason: {reason})."
        )
        if is_initial:
            step_ms = self._config.group_initial_rebalance_delay_ms
            remaining_ms = max(self._members.rebalance_timeout_ms - step_ms, 0)
            self._initial_delay = _InitialDelay(step_ms, remaining_ms)
            self._joined_during_delay = False
            self._effects.start_timer(TimerKind.JOIN, step_ms)
        elif self._members.all_joined:
            self._complete_join()
        else:
            self._effects.start_timer(TimerKind.JOIN, self._members.rebalance_timeout_ms)

    def on_new_member(self) -> None:
        """Called when a new member joins: the initial delay, if it has not ended, is extended."""
        if self._initial_delay is not None:
            self._joined_during_delay = True

    def rejoin(self, member: ClassicGroupMember, join: Join) -> None:
        """Let a member rejoin for the next generation, with the protocols it supports now."""
        self._members.set_protocols(member, join.protocols)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        older = self._members.park_join(member, join.request_id)
        if older is not None:
            self._effects.refuse_join(older, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)

    def maybe_complete_join(self) -> None:
        if (
            self._group.state is GroupState.PREPARING_REBALANCE
            and self._initial_delay is None
            and self._members.all_joined
        ):
            self._complete_join()

    def on_join_timer(self) -> None:
        if self._group.state is not GroupState.PREPARING_REBALANCE:
            return
        delay = self._initial_delay
        if delay is not None and self._joined_during_delay and delay.remaining_ms:
            self._joined_during_delay = False
            step_ms = min(self._config.group_initial_rebalance_delay_ms, delay.remaining_ms)
            self._initial_delay = _InitialDelay(step_ms, max(delay.remaining_ms - delay.step_ms, 0))
            self._effects.start_timer(TimerKind.JOIN, step_ms)
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        """Complete the join phase: members that have rejoined are the next generation; static ones
        may be late.
        """
        group, members, effects = self._group, self._members, self._effects
        effects.cancel_timer(TimerKind.JOIN)
        self._initial_delay = None
        late = [one.member_id for one in members if _is_late(one)]
        if late:
            effects.report(
                f"Group {group.group_id} removed dynamic members who haven't joined: "
                f"{', '.join(late)}"
            )
        for member_id in late:
            self._counters.members_removed += 1
            self.remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if len(members) and not members.elect_joined_leader():
            # Only silent static members: wait until one rejoins or their sessions end.
            effects.start_timer(TimerKind.JOIN, members.rebalance_timeout_ms)
            return
        group.generation += 1
        self._counters.completed_rebalances += 1
        if not len(members):
            group.protocol = None
            group.become(GroupState.EMPTY)
            effects.append(Append((group_record(group, {}),)))
            effects.report(
                f"Group {group.group_id} with generation {group.generation} is now empty."
            )
            return
        group.protocol = members.protocols.select(members)
        group.become(GroupState.COMPLETING_REBALANCE)
        for member in members:
            request_id = members.take_join(member)
            if request_id is not None:
                effects.reply(request_id, joined_response(group, member))
            member.is_new = False
            self._yet_to_sync.add(member.member_id)
            effects.start_session(member.member_id, member.session_timeout_ms)
        effects.start_timer(TimerKind.SYNC, members.rebalance_timeout_ms)
        effects.report(
            f"Stabilized group {group.group_id} generation {group.generation} with "
            f"{len(members)} members: {group.protocol} by {members.leader_id}."
        )

    # --- the sync phase --------------------------------------------------------------------------

    def on_synced(self, member_id: str) -> None:
        """Note that the member has sent SyncGroup."""
        self._yet_to_sync.discard(member_id)
        if not self._yet_to_sync:
            self._effects.cancel_timer(TimerKind.SYNC)

    def store_assignment(
        self, leader_id: str, assignments: Iterable[SyncGroupRequestAssignment]
    ) -> None:
        """Store the leader's first assignment of this generation; later ones are ignored."""
        if self._storing is not None:
            return
        group = self._group
        given = {one.member_id: bytes(one.assignment) for one in assignments}
        self._storing = {one.member_id: given.get(one.member_id, b"") for one in self._members}
        static = sum(one.is_static for one in self._members)
        self._effects.report(
            f"Assignment received from leader {leader_id} for group {group.group_id} for "
            f"generation {group.generation}. The group has {len(self._members)} members, "
            f"{static} of which are static."
        )
        self._effects.append(
            Append(
                (group_record(group, self._storing),),
                AssignmentStored(group.group_id, group.generation),
            )
        )

    def on_assignment_stored(self, generation: int) -> None:
        if not self._is_storing(generation):
            return  # a rebalance began meanwhile, which voids the assignment
        assert self._storing is not None
        for member in self._members:
            self._members.assign(member, self._storing[member.member_id])
        self._storing = None
        self._group.become(GroupState.STABLE)
        self._answer_syncs(ErrorCode.NONE)

    def on_assignment_failed(self, generation: int, error: ErrorCode) -> None:
        if self._is_storing(generation):
            self._answer_syncs(error)
            self.prepare(f"Error {error.name} when storing group assignment")

    def _is_storing(self, generation: int) -> bool:
        return (
            self._group.state is GroupState.COMPLETING_REBALANCE
            and self._group.generation == generation
            and self._storing is not None
        )

    def _answer_syncs(self, error: ErrorCode) -> None:
        for member in self._members:
            request_id, member.parked_sync = member.parked_sync, None
            if error:
                self._members.assign(member, b"")
            if request_id is None:
                continue
            if error:
                self._effects.refuse_sync(request_id, error)
            else:
                self._effects.reply(request_id, assigned_response(self._group, member))
            self._effects.start_session(member.member_id, member.session_timeout_ms)

    def on_sync_timer(self) -> None:
        if self._group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE):
            return
        late = sorted(self._yet_to_sync)
        if late:
            self._counters.members_removed += len(late)
            for member_id in late:
                self.remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            self.prepare(f"Removing {', '.join(late)} on pending sync request expiration")

    # --- removal of a member ---------------------------------------------------------------------

    def remove(self, member_id: str, error: ErrorCode) -> None:
        """Remove a member, and answer its parked requests with `error`."""
        self._yet_to_sync.discard(member_id)
        member = self._members.get(member_id)
        if member is not None:
            self.answer_parked(member, error, NOBODY)
        if member is not None or member_id in self._members.pending:
            self._effects.end_session(member_id)
        self._members.remove(member_id)

    def answer_parked(self, member: ClassicGroupMember, error: ErrorCode, member_id: str) -> None:
        """Answer the parked requests of a member with an error."""
        join_id = self._members.take_join(member)
        if join_id is not None:
            self._effects.refuse_join(join_id, error, member_id)
        sync_id, member.parked_sync = member.parked_sync, None
        if sync_id is not None:
            self._effects.refuse_sync(sync_id, error)

    def rename(self, member: ClassicGroupMember, member_id: str) -> None:
        """Continue a static member under another member id."""
        self._effects.end_session(member.member_id)
        if member.member_id in self._yet_to_sync:
            self._yet_to_sync.remove(member.member_id)
            self._yet_to_sync.add(member_id)
        self._members.rename(member, member_id)
