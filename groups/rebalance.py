"""The phases of a classic group's rebalance: gather the members, wait for their SyncGroups.

The part of a classic group that no request owns: what starts a rebalance, when its join phase
ends, who is dropped then, and how a member that goes is let go. The requests are in classic_group,
which has the state diagram and the invariants.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.error_code import ErrorCode
from ..protocol.messages.sync_group import SyncGroupResponse
from .effects import (
    Append,
    CancelTimer,
    Effect,
    Reply,
    Report,
    StartTimer,
    TimerKey,
    TimerKind,
)
from .group_config import GroupCoordinatorConfig
from .group_counters import GroupCounters, MemberMemory
from .group_members import GroupMembers, Member
from .group_records import NO_TIMESTAMP
from .group_state import PREVIOUS_STATES, GroupState
from .group_view import assigned_response, group_record, joined_response, refused_join
from .join import Join

NOBODY = ""


@dataclass(frozen=True, slots=True)
class _InitialDelay:
    """The wait for the first members: this step of it, and what may be waited after it."""

    step_ms: int
    remaining_ms: int


def _is_late(member: Member) -> bool:
    """When the time to rejoin is over. Static members may come later."""
    return member.parked_join is None and not member.is_static


class Rebalance:
    """State and timers. Effects gather in `_effects` until the event's method takes them."""

    def __init__(
        self,
        group_id: str,
        config: GroupCoordinatorConfig,
        memory: MemberMemory,
        counters: GroupCounters,
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = GroupMembers(memory)
        self.state_timestamp_ms = NO_TIMESTAMP
        self._config = config
        self._memory = memory
        self._counters = counters
        self._initial_delay: _InitialDelay | None = None
        self._joined_during_delay = False
        self._yet_to_sync: set[str] = set()
        self._storing: dict[str, bytes] | None = None
        self._effects: list[Effect] = []
        self._now_ms = 0

    # --- the join phase --------------------------------------------------------------------------

    def _rebalance_or_complete_join(self, reason: str) -> None:
        if self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]:
            self._prepare_rebalance(reason)
        else:
            self._maybe_complete_join()

    def _prepare_rebalance(self, reason: str) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._storing = None
        self._yet_to_sync.clear()
        self._effects.append(CancelTimer(self._key(TimerKind.SYNC)))
        is_initial = self.state is GroupState.EMPTY
        before = self.state.value
        self._become(GroupState.PREPARING_REBALANCE)
        self._report(
            f"Preparing to rebalance group {self.group_id} in state {before} "
            f"with old generation {self.generation} (reason: {reason})."
        )
        if is_initial:
            step_ms = self._config.group_initial_rebalance_delay_ms
            remaining_ms = max(self.members.rebalance_timeout_ms - step_ms, 0)
            self._initial_delay = _InitialDelay(step_ms, remaining_ms)
            self._joined_during_delay = False
            self._start_join_timer(step_ms)
        elif self.members.all_joined:
            self._complete_join()
        else:
            self._start_join_timer(self.members.rebalance_timeout_ms)

    def _maybe_complete_join(self) -> None:
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and self._initial_delay is None
            and self.members.all_joined
        ):
            self._complete_join()

    def _on_join_timer(self) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        delay = self._initial_delay
        if delay is not None and self._joined_during_delay and delay.remaining_ms:
            self._joined_during_delay = False
            step_ms = min(self._config.group_initial_rebalance_delay_ms, delay.remaining_ms)
            self._initial_delay = _InitialDelay(step_ms, max(delay.remaining_ms - delay.step_ms, 0))
            self._start_join_timer(step_ms)
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        """The members that have rejoined are the next generation; static ones may be late."""
        self._effects.append(CancelTimer(self._key(TimerKind.JOIN)))
        self._initial_delay = None
        late = [one.member_id for one in self.members if _is_late(one)]
        if late:
            self._report(
                f"Group {self.group_id} removed dynamic members who haven't joined: "
                f"{', '.join(late)}"
            )
        for member_id in late:
            self._counters.members_removed += 1
            self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if len(self.members) and not self.members.elect_joined_leader():
            # Only silent static members: wait until one rejoins or their sessions end.
            self._start_join_timer(self.members.rebalance_timeout_ms)
            return
        self.generation += 1
        self._counters.completed_rebalances += 1
        if not len(self.members):
            self.protocol = None
            self._become(GroupState.EMPTY)
            self._effects.append(Append((group_record(self, {}),)))
            self._report(f"Group {self.group_id} with generation {self.generation} is now empty.")
            return
        self.protocol = self.members.select_protocol()
        self._become(GroupState.COMPLETING_REBALANCE)
        for member in self.members:
            request_id = self.members.take_join(member)
            if request_id is not None:
                self._effects.append(Reply(request_id, joined_response(self, member)))
            member.is_new = False
            self._yet_to_sync.add(member.member_id)
            self._start_session(member.member_id, member.session_timeout_ms)
        self._effects.append(
            StartTimer(self._key(TimerKind.SYNC), self.members.rebalance_timeout_ms)
        )
        self._report(
            f"Stabilized group {self.group_id} generation {self.generation} with "
            f"{len(self.members)} members: {self.protocol} by {self.members.leader_id}."
        )

    # --- the sync phase --------------------------------------------------------------------------

    def _answer_syncs(self, error: ErrorCode) -> None:
        for member in self.members:
            request_id, member.parked_sync = member.parked_sync, None
            if error:
                self.members.assign(member, b"")
            if request_id is not None:
                answer = (
                    SyncGroupResponse(error_code=error)
                    if error
                    else assigned_response(self, member)
                )
                self._effects.append(Reply(request_id, answer))
                self._start_session(member.member_id, member.session_timeout_ms)

    def _on_sync_timer(self) -> None:
        if self.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE):
            return
        late = sorted(self._yet_to_sync)
        if late:
            self._counters.members_removed += len(late)
            for member_id in late:
                self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            self._prepare_rebalance(
                f"Removing {', '.join(late)} on pending sync request expiration"
            )

    # --- letting a member go ---------------------------------------------------------------------

    def _remove(self, member_id: str, error: ErrorCode) -> None:
        """Out, and whatever it waits for is answered with `error`."""
        self._yet_to_sync.discard(member_id)
        member = self.members.get(member_id)
        if member is not None:
            self._answer_parked(member, error, NOBODY)
        if member is not None or member_id in self.members.pending:
            self._effects.append(CancelTimer(self._session(member_id)))
        self.members.remove(member_id)

    def _answer_parked(self, member: Member, error: ErrorCode, member_id: str) -> None:
        join_id = self.members.take_join(member)
        if join_id is not None:
            self._refuse_id(join_id, error, member_id)
        sync_id, member.parked_sync = member.parked_sync, None
        if sync_id is not None:
            self._effects.append(Reply(sync_id, SyncGroupResponse(error_code=error)))

    # --- small things ----------------------------------------------------------------------------

    def _become(self, state: GroupState) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.state.name} -> {state.name}"
        self.state = state
        self.state_timestamp_ms = self._now_ms

    def _refuse(self, join: Join, error: ErrorCode, member_id: str) -> None:
        self._refuse_id(join.request_id, error, member_id)

    def _refuse_id(self, request_id: int, error: ErrorCode, member_id: str) -> None:
        self._effects.append(Reply(request_id, refused_join(error, member_id)))

    def _report(self, text: str) -> None:
        self._effects.append(Report(self.group_id, text))

    def _start_session(self, member_id: str, timeout_ms: int) -> None:
        self._effects.append(StartTimer(self._session(member_id), timeout_ms))

    def _start_join_timer(self, after_ms: int) -> None:
        self._effects.append(StartTimer(self._key(TimerKind.JOIN), after_ms))

    def _session(self, member_id: str) -> TimerKey:
        return TimerKey(TimerKind.SESSION, self.group_id, member_id)

    def _key(self, kind: TimerKind) -> TimerKey:
        return TimerKey(kind, self.group_id)

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
