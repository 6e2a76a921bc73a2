"""Rejoin of a restarted static member, which takes its place in the group under a new member id.

    on_rejoin    its former process is fenced; in a Stable group the new id is written to the log
    on_stored    ... and only then answered to the member, without a rebalance
    on_late, on_failed    it retries: it keeps the new id, or gets the former one back

Source: KIP-345, KIP-814 (skip_assignment);
apache/kafka group-coordinator/.../GroupMetadataManager.java (updateStaticMember...).
"""

from __future__ import annotations

from dataclasses import replace

from ...coordinators.rules_effects import Append
from ...protocol.error_code import ErrorCode
from ..group_effects import StaticMemberStored
from .event_effects import GroupEffects
from .group_members import ClassicGroupMember
from .group_metadata import GroupMetadata
from .group_rebalance import NOBODY, GroupRebalance
from .group_state import GroupState
from .group_view import group_record, joined_response
from .join import FIRST_WITH_SKIP_ASSIGNMENT, Join


class StaticRejoin:
    def __init__(
        self, group: GroupMetadata, effects: GroupEffects, rebalance: GroupRebalance
    ) -> None:
        self._group = group
        self._members = group.members
        self._effects = effects
        self._rebalance = rebalance
        self._before: dict[str, ClassicGroupMember] = {}
        """Former state of the member until its new id is stored, by new member id."""

    def on_rejoin(self, join: Join, old_member_id: str) -> None:
        group = self._group
        member = self._members.get(old_member_id)
        assert member is not None
        self._rebalance.answer_parked(member, ErrorCode.FENCED_INSTANCE_ID, old_member_id)
        before, previous_leader = replace(member), self._members.leader_id
        self._rebalance.rename(member, join.new_member_id)
        self._rebalance.rejoin(member, join)
        self._effects.start_session(member.member_id, member.session_timeout_ms)
        text = f"static member {member.member_id} with instance id {join.instance_id}"
        if group.state is GroupState.STABLE:
            if self._members.protocols.select(self._members) != group.protocol:
                self._rebalance.prepare(
                    f"Group's selectedProtocol will change because {text} joined with change of "
                    f"protocol; client reason: {join.reason}"
                )
                return
            self._effects.report(
                f"Static member {member.member_id} which joins group {group.group_id} during "
                "Stable stage and doesn't affect the selected protocol will not trigger a "
                "rebalance."
            )
            # The new id must not be lost, or a new coordinator would not know the member.
            self._before[member.member_id] = before
            self._effects.append(
                Append(
                    (
                        group_record(
                            group, {one.member_id: one.assignment for one in self._members}
                        ),
                    ),
                    StaticMemberStored(
                        group.group_id,
                        member.member_id,
                        join.request_id,
                        previous_leader or NOBODY,
                        join.api_version >= FIRST_WITH_SKIP_ASSIGNMENT,
                    ),
                )
            )
        elif group.state is GroupState.COMPLETING_REBALANCE:
            # The leader assigns to the old id: without a rebalance the new one would get nothing.
            self._rebalance.prepare(f"Updating metadata for {text}; client reason: {join.reason}")
        else:
            self._rebalance.maybe_complete_join()

    def on_stored(self, stored: StaticMemberStored) -> None:
        self._before.pop(stored.member_id, None)
        member = self._waiting_member(stored)
        if member is None or self._group.state is not GroupState.STABLE:
            return  # a rebalance began: the parked request is part of it
        self._members.take_join(member)
        answer = joined_response(self._group, member)
        if stored.may_skip_assignment:
            answer.skip_assignment = self._members.leader_id == member.member_id
        else:
            # Such a client would assign again if it saw that it leads.
            answer.leader, answer.members = stored.previous_leader, []
        self._effects.reply(stored.request_id, answer)
        self._effects.start_session(member.member_id, member.session_timeout_ms)

    def on_late(self, stored: StaticMemberStored) -> None:
        """Called when storing the new id takes too long. The member keeps it, and retries."""
        member = self._waiting_member(stored)
        if member is None or self._group.state is not GroupState.STABLE:
            return  # a rebalance began: the parked request is part of it
        self._members.take_join(member)
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._effects.refuse_join(stored.request_id, error, NOBODY)
        self._effects.start_session(member.member_id, member.session_timeout_ms)

    def on_failed(self, stored: StaticMemberStored, error: ErrorCode) -> None:
        """Called when storing the new id failed: the member gets its former state back."""
        before = self._before.pop(stored.member_id, None)
        member = self._waiting_member(stored)
        if before is None or member is None:
            return
        self._members.take_join(member)
        self._effects.refuse_join(stored.request_id, error, NOBODY)
        self._rebalance.rename(member, before.member_id)
        self._members.set_protocols(member, before.protocols)
        member.session_timeout_ms = before.session_timeout_ms
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        self._effects.start_session(member.member_id, member.session_timeout_ms)

    def _waiting_member(self, stored: StaticMemberStored) -> ClassicGroupMember | None:
        """Member whose join waits for its id; None: it has left, has retried, or was answered."""
        member = self._members.get(stored.member_id)
        if member is None or member.parked_join != stored.request_id:
            return None
        return member
