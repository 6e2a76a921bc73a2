"""One classic consumer group (the join/sync protocol), as a value: events in, effects out.

    Empty --join--> PreparingRebalance --all rejoined, or time is over--> CompletingRebalance
    CompletingRebalance --the leader's assignment is committed--> Stable
    Stable, CompletingRebalance --join, leave, expiry--> PreparingRebalance
    PreparingRebalance --nobody is left--> Empty

All of it is soft state: a coordinator that takes over finds the last generation that became
Stable (or Empty) in the log, gives every member a full session and goes on. Committed offsets are
hard state and not here (offsets.py).

What always holds:
    generations only grow, and every generation has one leader, whose first assignment is the only
    one handed out, after it is committed;
    a parked JoinGroup or SyncGroup is answered exactly once: when the phase ends, when the member
    is removed or fenced, or when the same member asks again;
    a member whose request is parked does not expire, unless it is new and waits for five minutes.

Source: apache/kafka group-coordinator/.../GroupMetadataManager.java (classicGroup...),
KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member ids),
KIP-814 (skip_assignment).
"""

from __future__ import annotations

from dataclasses import replace

from ..protocol.error_code import ErrorCode
from ..protocol.messages.heartbeat import HeartbeatResponse
from ..protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from .effects import (
    Append,
    AssignmentStored,
    CancelTimer,
    Effect,
    Reply,
    StaticMemberStored,
    TimerKey,
    TimerKind,
)
from .group_config import GroupCoordinatorConfig
from .group_counters import GroupCounters, MemberMemory
from .group_members import Member
from .group_records import GroupMetadataValue
from .group_state import GroupState
from .group_view import assigned_response, group_record, joined_response
from .join import FIRST_WITH_MEMBER_ID_REQUIRED, FIRST_WITH_SKIP_ASSIGNMENT, Join
from .rebalance import NOBODY, Rebalance

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member whose client has given up must not hold a place for ever."""

NO_TIMEOUT = -1


class ClassicGroup(Rebalance):
    """Each on_... method is one event and returns all its effects, in order."""

    def __init__(
        self,
        group_id: str,
        config: GroupCoordinatorConfig,
        memory: MemberMemory,
        counters: GroupCounters,
    ) -> None:
        super().__init__(group_id, config, memory, counters)
        self._before_rename: dict[str, Member] = {}
        self.is_written = False
        """The log has a commit or a generation of it, and no deletion behind that."""

    # --- JoinGroup -------------------------------------------------------------------------------

    def on_join(self, join: Join, *, now_ms: int) -> list[Effect]:
        """A member comes (back). Group id and session timeout are checked already."""
        self._now_ms = now_ms
        if not self._has_room_for(join.member_id):
            self._remove(join.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._refuse(join, ErrorCode.GROUP_MAX_SIZE_REACHED, NOBODY)
            self._maybe_complete_join()
        elif not self._is_consistent(join):
            self._refuse(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
        elif not self._memory.has_room(self._more_memory_for(join)):
            # A code that every client retries: members leave, and there is room again.
            self._refuse(join, ErrorCode.COORDINATOR_NOT_AVAILABLE, join.member_id)
        elif not join.member_id:
            self._on_new_member(join)
        elif join.member_id in self.members.pending and join.instance_id is None:
            self._admit(join, join.member_id)
        else:
            self._on_known_member(join)
        return self._take_effects()

    def _has_room_for(self, member_id: str) -> bool:
        """A full group keeps those who are in; of those who rejoin, the first ones stay."""
        member = self.members.get(member_id)
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            if member is not None and member.parked_join is not None:
                return True
            return self.members.joined_count < self._config.group_max_size
        return member is not None or len(self.members) < self._config.group_max_size

    def _is_consistent(self, join: Join) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(join.protocol_type and join.protocols)
        return join.protocol_type == self.protocol_type and self.members.supports_any(
            name for name, _ in join.protocols
        )

    def _more_memory_for(self, join: Join) -> int:
        member = self.members.get(join.member_id)
        return join.size if member is None else join.size - member.size

    def _on_new_member(self, join: Join) -> None:
        if join.instance_id is not None:
            said = (
                f"Static member with groupInstanceId={join.instance_id} and unknown member id "
                f"joins group {self.group_id} in {self.state.value} state."
            )
            holder = self.members.static_member_id(join.instance_id)
            if holder is None:
                self._report(
                    f"{said} Created a new member id {join.new_member_id} for this member and "
                    "added to the group."
                )
                self._admit(join, join.new_member_id)
            else:
                self._report(
                    f"{said} Replacing previously mapped member {holder} with this "
                    f"groupInstanceId; its member id is {join.new_member_id}."
                )
                self._on_static_rejoin(join, holder)
        elif join.api_version < FIRST_WITH_MEMBER_ID_REQUIRED:
            self._report(
                f"Dynamic member with unknown member id joins group {self.group_id} in state "
                f"{self.state.value}. Created a new member id {join.new_member_id} and added the "
                "member to the group."
            )
            self._admit(join, join.new_member_id)
        elif len(self.members.pending) >= self._config.bradbury_group_max_pending_members:
            self._refuse(join, ErrorCode.GROUP_MAX_SIZE_REACHED, NOBODY)
        else:
            self._report(
                f"Dynamic member with unknown member id joins group {self.group_id} in "
                f"{self.state.value} state. Created a new member id {join.new_member_id} and "
                "requesting the member to rejoin with this id."
            )
            self.members.give_out(join.new_member_id)
            self._start_session(join.new_member_id, join.session_timeout_ms)
            self._refuse(join, ErrorCode.MEMBER_ID_REQUIRED, join.new_member_id)

    def _on_known_member(self, join: Join) -> None:
        error = self.members.check(join.member_id, join.instance_id)
        member = self.members.get(join.member_id)
        if error or member is None:
            self._refuse(join, error, join.member_id)
            return
        changed = member.protocols != join.protocols
        leads_again = self.state is GroupState.STABLE and self.members.is_leader(member.member_id)
        if self.state is GroupState.PREPARING_REBALANCE or changed or leads_again:
            # A leader's rejoin is how a changed topic reaches the assignment.
            self._update(member, join)
            what = (
                f"Leader {member.member_id} re-joining group"
                if leads_again and not changed
                else f"Updating metadata for member {member.member_id}"
            )
            self._rebalance_or_complete_join(
                f"{what} during {self.state.value}; client reason: {join.reason}"
            )
        else:
            # It missed the answer to its former JoinGroup, or follows up after a SyncGroup error.
            self._start_session(member.member_id, member.session_timeout_ms)
            self._effects.append(Reply(join.request_id, joined_response(self, member)))

    def _admit(self, join: Join, member_id: str) -> None:
        if not len(self.members):
            self.protocol_type = join.protocol_type
        if self._initial_delay is not None:
            self._joined_during_delay = True
        self.members.add(join.new_member(member_id))
        # It cannot send heartbeats before it has its answer, so this bounds a client that is gone.
        self._start_session(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete_join(
            f"Adding new member {member_id} with group instance id {join.instance_id}; "
            f"client reason: {join.reason}"
        )

    def _update(self, member: Member, join: Join) -> None:
        self.members.set_protocols(member, join.protocols)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        older = self.members.park_join(member, join.request_id)
        if older is not None:
            self._refuse_id(older, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)

    def _on_static_rejoin(self, join: Join, old_member_id: str) -> None:
        """A restarted static member takes its place under a new member id (KIP-345)."""
        member = self.members.get(old_member_id)
        assert member is not None
        self._answer_parked(member, ErrorCode.FENCED_INSTANCE_ID, old_member_id)
        before, previous_leader = replace(member), self.members.leader_id
        self._rename(member, join.new_member_id)
        self._update(member, join)
        self._start_session(member.member_id, member.session_timeout_ms)
        text = f"static member {member.member_id} with instance id {join.instance_id}"
        if self.state is GroupState.STABLE:
            if self.members.select_protocol() != self.protocol:
                self._prepare_rebalance(
                    f"Group's selectedProtocol will change because {text} joined with change of "
                    f"protocol; client reason: {join.reason}"
                )
                return
            self._report(
                f"Static member {member.member_id} which joins group {self.group_id} during Stable "
                "stage and doesn't affect the selected protocol will not trigger a rebalance."
            )
            # The new id must not be lost, or a new coordinator would not know the member.
            self._before_rename[member.member_id] = before
            self._effects.append(
                Append(
                    (group_record(self, {m.member_id: m.assignment for m in self.members}),),
                    StaticMemberStored(
                        self.group_id,
                        member.member_id,
                        join.request_id,
                        previous_leader or NOBODY,
                        join.api_version >= FIRST_WITH_SKIP_ASSIGNMENT,
                    ),
                )
            )
        elif self.state is GroupState.COMPLETING_REBALANCE:
            # The leader assigns to the old id: without a rebalance the new one would get nothing.
            self._prepare_rebalance(f"Updating metadata for {text}; client reason: {join.reason}")
        else:
            self._maybe_complete_join()

    def _rename(self, member: Member, member_id: str) -> None:
        self._effects.append(CancelTimer(self._session(member.member_id)))
        if member.member_id in self._yet_to_sync:
            self._yet_to_sync.remove(member.member_id)
            self._yet_to_sync.add(member_id)
        self.members.rename(member, member_id)

    def on_static_member_stored(self, stored: StaticMemberStored) -> list[Effect]:
        self._before_rename.pop(stored.member_id, None)
        member = self.members.get(stored.member_id)
        if (
            member is None
            or member.parked_join != stored.request_id
            or self.state is not GroupState.STABLE
        ):
            return []  # a rebalance began: the parked request is part of it
        self.members.take_join(member)
        if stored.may_skip_assignment:
            answer = joined_response(self, member)
            answer.skip_assignment = self.members.is_leader(member.member_id)
        else:
            # Such a client would assign anew if it saw that it leads.
            answer = joined_response(self, member)
            answer.leader, answer.members = stored.previous_leader, []
        self._effects.append(Reply(stored.request_id, answer))
        self._start_session(member.member_id, member.session_timeout_ms)
        return self._take_effects()

    def on_static_member_late(self, stored: StaticMemberStored) -> list[Effect]:
        """It takes too long to store the new id. The member keeps it, and asks for the next one."""
        member = self.members.get(stored.member_id)
        if member is None or member.parked_join != stored.request_id:
            return []
        if self.state is not GroupState.STABLE:
            return []  # a rebalance began: the parked request is part of it
        self.members.take_join(member)
        self._refuse_id(stored.request_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)
        self._start_session(member.member_id, member.session_timeout_ms)
        return self._take_effects()

    def on_static_member_failed(self, stored: StaticMemberStored, error: ErrorCode) -> list[Effect]:
        before = self._before_rename.pop(stored.member_id, None)
        member = self.members.get(stored.member_id)
        if before is None or member is None or member.parked_join != stored.request_id:
            return []
        self.members.take_join(member)
        self._refuse_id(stored.request_id, error, NOBODY)
        self._rename(member, before.member_id)
        self.members.set_protocols(member, before.protocols)
        member.session_timeout_ms = before.session_timeout_ms
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        self._start_session(member.member_id, member.session_timeout_ms)
        return self._take_effects()

    # --- SyncGroup -------------------------------------------------------------------------------

    def on_sync(self, request_id: int, request: SyncGroupRequest) -> list[Effect]:
        member = self.members.get(request.member_id)
        error = self._check_sync(request)
        if error or member is None:
            return [Reply(request_id, SyncGroupResponse(error_code=error))]
        self._yet_to_sync.discard(member.member_id)
        if not self._yet_to_sync:
            self._effects.append(CancelTimer(self._key(TimerKind.SYNC)))
        if self.state is GroupState.STABLE:
            self._start_session(member.member_id, member.session_timeout_ms)
            self._effects.append(Reply(request_id, assigned_response(self, member)))
            return self._take_effects()
        older, member.parked_sync = member.parked_sync, request_id
        if older is not None:
            self._effects.append(
                Reply(older, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            )
        if self.members.is_leader(member.member_id) and self._storing is None:
            given = {a.member_id: bytes(a.assignment) for a in request.assignments}
            self._storing = {m.member_id: given.get(m.member_id, b"") for m in self.members}
            static = sum(one.is_static for one in self.members)
            self._report(
                f"Assignment received from leader {member.member_id} for group {self.group_id} for "
                f"generation {self.generation}. The group has {len(self.members)} members, "
                f"{static} of which are static."
            )
            self._effects.append(
                Append(
                    (group_record(self, self._storing),),
                    AssignmentStored(self.group_id, self.generation),
                )
            )
        return self._take_effects()

    def _check_sync(self, request: SyncGroupRequest) -> ErrorCode:
        error = self.members.check(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def on_assignment_stored(self, generation: int, *, now_ms: int) -> list[Effect]:
        if not self._is_storing(generation):
            return []  # a rebalance began meanwhile, and with it the assignment is void
        self._now_ms = now_ms
        assert self._storing is not None
        for member in self.members:
            self.members.assign(member, self._storing[member.member_id])
        self._storing = None
        self._become(GroupState.STABLE)
        self._answer_syncs(ErrorCode.NONE)
        return self._take_effects()

    def on_assignment_failed(
        self, generation: int, error: ErrorCode, *, now_ms: int
    ) -> list[Effect]:
        if not self._is_storing(generation):
            return []
        self._now_ms = now_ms
        self._answer_syncs(error)
        self._prepare_rebalance(f"Error {error.name} when storing group assignment")
        return self._take_effects()

    def _is_storing(self, generation: int) -> bool:
        return (
            self.state is GroupState.COMPLETING_REBALANCE
            and self.generation == generation
            and self._storing is not None
        )

    # --- Heartbeat, LeaveGroup, expiry -----------------------------------------------------------

    def on_heartbeat(
        self, request_id: int, member_id: str, instance_id: str | None, generation: int
    ) -> list[Effect]:
        error = self.members.check(member_id, instance_id)
        member = self.members.get(member_id)
        if error or member is None:
            return [Reply(request_id, HeartbeatResponse(error_code=error))]
        if generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
            return [Reply(request_id, HeartbeatResponse(error_code=error))]
        if self.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        self._start_session(member_id, member.session_timeout_ms)
        self._effects.append(Reply(request_id, HeartbeatResponse(error_code=error)))
        return self._take_effects()

    def on_leave(
        self, request_id: int, identities: list[MemberIdentity], *, now_ms: int
    ) -> list[Effect]:
        """Members go, or an administrator sends static ones away by instance id alone."""
        self._now_ms = now_ms
        answers: list[MemberResponse] = []
        left: list[str] = []
        for identity in identities:
            member_id, instance_id = identity.member_id, identity.group_instance_id
            if not member_id and instance_id is not None:
                member_id = self.members.static_member_id(instance_id) or NOBODY
            if member_id in self.members.pending:
                error = ErrorCode.NONE
            else:
                error = self.members.check(member_id, instance_id)
            if not error:
                kind = "Pending member"
                if member_id in self.members:
                    left.append(member_id)
                    kind = "Member"
                self._report(
                    f"[Group {self.group_id}] {kind} {member_id} has left group through explicit "
                    f"`LeaveGroup` request; client reason: {identity.reason or 'not provided'}"
                )
                self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            answers.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=instance_id,
                    error_code=error,
                )
            )
        self._effects.append(Reply(request_id, LeaveGroupResponse(members=answers)))
        if left:
            self._rebalance_or_complete_join(
                f"explicit `LeaveGroup` request for ({', '.join(left)}) members."
            )
        else:
            self._maybe_complete_join()  # a member id that was given out may have been the last
        return self._take_effects()

    def on_timer(self, key: TimerKey, *, now_ms: int) -> list[Effect]:
        self._now_ms = now_ms
        match key.kind:
            case TimerKind.SESSION:
                self._on_session_timer(key.member_id)
            case TimerKind.JOIN:
                self._on_join_timer()
            case TimerKind.SYNC:
                self._on_sync_timer()
        return self._take_effects()

    def _on_session_timer(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            if member_id not in self.members.pending:
                return
        elif not member.is_new and (
            member.parked_join is not None or member.parked_sync is not None
        ):
            return  # it waits for us; its session begins again with the answer
        else:
            self._counters.members_removed += 1
        if member is None:
            self._report(
                f"Pending member {member_id} in group {self.group_id} has been removed after "
                "session timeout expiration."
            )
        else:
            self._report(
                f"Member {member_id} in group {self.group_id} has failed, removing it from the "
                "group."
            )
        self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if member is None:
            self._maybe_complete_join()
        else:
            self._rebalance_or_complete_join(
                f"removing member {member_id} on heartbeat expiration."
            )

    # --- OffsetCommit ----------------------------------------------------------------------------

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this one may commit offsets now.

        Without a generation only while nobody is in the group. A member may while the group
        prepares to rebalance (that is when it commits what it has done), but not afterwards until
        the assignment is there: its partitions may be another's already.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self.members.check(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def on_sign_of_life(self, member_id: str) -> list[Effect]:
        """A request that is no heartbeat shows as well that the member lives."""
        member = self.members.get(member_id)
        if member is not None:
            self._start_session(member_id, member.session_timeout_ms)
        return self._take_effects()

    # --- its life in a coordinator ---------------------------------------------------------------

    @property
    def is_forgettable(self) -> bool:
        """Nothing about it was ever written, and nobody has a member id of it."""
        return (
            self.state is GroupState.EMPTY
            and self.generation == 0
            and not self.is_written
            and not self.members.pending
        )

    def restore(self, value: GroupMetadataValue) -> None:
        """Become what the log says, whatever it was: only while a coordinator loads."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.state_timestamp_ms = value.current_state_timestamp
        self.members.clear()
        for stored in value.members:
            rebalance_timeout_ms = stored.rebalance_timeout
            if rebalance_timeout_ms == NO_TIMEOUT:
                rebalance_timeout_ms = stored.session_timeout
            self.members.add(
                Member(
                    stored.member_id,
                    stored.group_instance_id,
                    stored.client_id,
                    stored.client_host,
                    stored.session_timeout,
                    rebalance_timeout_ms,
                    ((value.protocol or "", bytes(stored.subscription)),),
                    bytes(stored.assignment),
                )
            )
        if value.leader is not None and value.leader in self.members:
            self.members.leader_id = value.leader
        self.state = GroupState.STABLE if len(self.members) else GroupState.EMPTY

    def continue_from(self, generation: int) -> None:
        """A former group of this name is in the log after all: count on from its generation."""
        if not self.generation:
            self.generation = generation

    def on_loaded(self, *, now_ms: int) -> list[Effect]:
        """Everyone gets a full session. A group that has become too large must rebalance."""
        self._now_ms = now_ms
        for member in self.members:
            self._start_session(member.member_id, member.session_timeout_ms)
        if len(self.members) > self._config.group_max_size:
            self._prepare_rebalance(
                f"Freshly-loaded group {self.group_id} (size {len(self.members)}) is over capacity "
                f"{self._config.group_max_size}. Rebalancing in order to give a chance for "
                "consumers to commit offsets"
            )
        return self._take_effects()

    def on_deleted(self, *, now_ms: int) -> list[Effect]:
        """The group is empty and goes. Ids that were given out are void."""
        self._now_ms = now_ms
        for member_id in sorted(self.members.pending):
            self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._become(GroupState.DEAD)
        return self._take_effects()
