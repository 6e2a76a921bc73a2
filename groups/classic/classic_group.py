"""One classic consumer group (the join/sync protocol), as a value: events in, effects out.

    Empty --join--> PreparingRebalance --all rejoined, or time is over--> CompletingRebalance
    CompletingRebalance --the leader's assignment is committed--> Stable
    Stable, CompletingRebalance --join, leave, expiry--> PreparingRebalance
    PreparingRebalance --nobody is left--> Empty

All of it is soft state: a coordinator that takes over finds the last generation that became
Stable (or Empty) in the log, gives every member a full session and continues. Committed offsets are
hard state and not here (groups/offsets).

Invariants:
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

from ...coordinators.rules_effects import Respond
from ...protocol.error_code import ErrorCode
from ...protocol.messages.heartbeat import HeartbeatResponse
from ...protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..group_config import GroupCoordinatorConfig
from ..group_counters import GroupCounters, MemberMemory
from ..group_effects import AssignmentStored, Effect, StaticMemberStored, TimerKey, TimerKind
from ..group_records import GroupMetadataValue
from .event_effects import GroupEffects
from .group_members import ClassicGroupMember
from .group_metadata import GroupMetadata
from .group_rebalance import NOBODY, GroupRebalance
from .group_state import GroupState
from .group_view import assigned_response, joined_response
from .join import FIRST_WITH_MEMBER_ID_REQUIRED, Join
from .static_rejoin import StaticRejoin

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Session timeout of a new member until it has joined: one whose client has disconnected must not
stay forever.
"""

NO_TIMEOUT = -1


class ClassicGroup:
    """One classic group. Each on_... method handles one event and returns all its effects, in
    order.
    """

    def __init__(
        self,
        group_id: str,
        config: GroupCoordinatorConfig,
        memory: MemberMemory,
        counters: GroupCounters,
    ) -> None:
        self.is_written = False
        """Whether the log has a commit or a generation of the group, and no later deletion."""
        self.metadata = self._group = GroupMetadata(group_id, memory)
        """Metadata of the group; read-only for others."""
        self._members = self._group.members
        self._config = config
        self._memory = memory
        self._counters = counters
        self._effects = GroupEffects(group_id)
        self._rebalance = GroupRebalance(self._group, self._effects, config, counters)
        self._static = StaticRejoin(self._group, self._effects, self._rebalance)

    # --- JoinGroup -------------------------------------------------------------------------------

    def on_join(self, join: Join, *, now_ms: int) -> list[Effect]:
        """Handle a JoinGroup. Group id and session timeout are checked already."""
        self._group.now_ms = now_ms
        if not self._has_room_for(join.member_id):
            self._rebalance.remove(join.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._effects.refuse_join(join.request_id, ErrorCode.GROUP_MAX_SIZE_REACHED, NOBODY)
            self._rebalance.maybe_complete_join()
        elif not self._is_consistent(join):
            self._effects.refuse_join(
                join.request_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id
            )
        elif not self._memory.has_room(self._more_memory_for(join)):
            # Every client retries this code: there is room again when members have left.
            self._effects.refuse_join(
                join.request_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, join.member_id
            )
        elif not join.member_id:
            self._on_new_member(join)
        elif join.member_id in self._members.pending and join.instance_id is None:
            self._admit(join, join.member_id)
        else:
            self._on_known_member(join)
        return self._effects.take()

    def _has_room_for(self, member_id: str) -> bool:
        """Whether the member may join: a full group keeps its members; of rejoining members, the
        first stay.
        """
        member = self._members.get(member_id)
        if self._group.state is GroupState.EMPTY:
            return True
        if self._group.state is GroupState.PREPARING_REBALANCE:
            if member is not None and member.parked_join is not None:
                return True
            return self._members.joined_count < self._config.group_max_size
        return member is not None or len(self._members) < self._config.group_max_size

    def _is_consistent(self, join: Join) -> bool:
        if self._group.state is GroupState.EMPTY:
            return bool(join.protocol_type and join.protocols)
        return (
            join.protocol_type == self._group.protocol_type
            and self._members.protocols.supports_any(name for name, _ in join.protocols)
        )

    def _more_memory_for(self, join: Join) -> int:
        member = self._members.get(join.member_id)
        return join.size if member is None else join.size - member.size

    def _on_new_member(self, join: Join) -> None:
        if join.instance_id is not None:
            said = (
                f"Static member with groupInstanceId={join.instance_id} and unknown member id "
                f"joins group {self._group.group_id} in {self._group.state.value} state."
            )
            holder = self._members.static_member_id(join.instance_id)
            if holder is None:
                self._effects.report(
                    f"{said} Created a new member id {join.new_member_id} for this member and "
                    "added to the group."
                )
                self._admit(join, join.new_member_id)
            else:
                self._effects.report(
                    f"{said} Replacing previously mapped member {holder} with this "
                    f"groupInstanceId; its member id is {join.new_member_id}."
                )
                self._static.on_rejoin(join, holder)
        elif join.api_version < FIRST_WITH_MEMBER_ID_REQUIRED:
            self._effects.report(
                f"Dynamic member with unknown member id joins group {self._group.group_id} in "
                f"state {self._group.state.value}. Created a new member id {join.new_member_id} "
                "and added the member to the group."
            )
            self._admit(join, join.new_member_id)
        elif len(self._members.pending) >= self._config.bradbury_group_max_pending_members:
            self._effects.refuse_join(join.request_id, ErrorCode.GROUP_MAX_SIZE_REACHED, NOBODY)
        else:
            self._effects.report(
                f"Dynamic member with unknown member id joins group {self._group.group_id} in "
                f"{self._group.state.value} state. Created a new member id {join.new_member_id} "
                "and requesting the member to rejoin with this id."
            )
            self._members.give_out(join.new_member_id)
            self._effects.start_session(join.new_member_id, join.session_timeout_ms)
            self._effects.refuse_join(
                join.request_id, ErrorCode.MEMBER_ID_REQUIRED, join.new_member_id
            )

    def _on_known_member(self, join: Join) -> None:
        error = self._members.check(join.member_id, join.instance_id)
        member = self._members.get(join.member_id)
        if error or member is None:
            self._effects.refuse_join(join.request_id, error, join.member_id)
            return
        changed = member.protocols != join.protocols
        leads_again = self._group.state is GroupState.STABLE and (
            self._members.leader_id == member.member_id
        )
        if self._group.state is GroupState.PREPARING_REBALANCE or changed or leads_again:
            # A leader's rejoin is how a changed topic reaches the assignment.
            self._rebalance.rejoin(member, join)
            what = (
                f"Leader {member.member_id} re-joining group"
                if leads_again and not changed
                else f"Updating metadata for member {member.member_id}"
            )
            self._rebalance.prepare_or_complete_join(
                f"{what} during {self._group.state.value}; client reason: {join.reason}"
            )
        else:
            # It missed the answer to its former JoinGroup, or rejoins after a SyncGroup error.
            self._effects.start_session(member.member_id, member.session_timeout_ms)
            self._effects.reply(join.request_id, joined_response(self._group, member))

    def _admit(self, join: Join, member_id: str) -> None:
        if not len(self._members):
            self._group.protocol_type = join.protocol_type
        self._rebalance.on_new_member()
        self._members.add(join.new_member(member_id))
        # It sends no heartbeats before it has its answer, so this removes it if its client is gone.
        self._effects.start_session(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_or_complete_join(
            f"Adding new member {member_id} with group instance id {join.instance_id}; "
            f"client reason: {join.reason}"
        )

    # --- SyncGroup -------------------------------------------------------------------------------

    def on_sync(self, request_id: int, request: SyncGroupRequest) -> list[Effect]:
        member = self._members.get(request.member_id)
        error = self._check_sync(request)
        if error or member is None:
            return [Respond(request_id, SyncGroupResponse(error_code=error))]
        self._rebalance.on_synced(member.member_id)
        if self._group.state is GroupState.STABLE:
            self._effects.start_session(member.member_id, member.session_timeout_ms)
            self._effects.reply(request_id, assigned_response(self._group, member))
            return self._effects.take()
        older, member.parked_sync = member.parked_sync, request_id
        if older is not None:
            self._effects.refuse_sync(older, ErrorCode.REBALANCE_IN_PROGRESS)
        if self._members.leader_id == member.member_id:
            self._rebalance.store_assignment(member.member_id, request.assignments)
        return self._effects.take()

    def _check_sync(self, request: SyncGroupRequest) -> ErrorCode:
        error = self._members.check(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != self._group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self._group.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self._group.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # --- results of appends ----------------------------------------------------------------------

    def on_stored(
        self, stored: AssignmentStored | StaticMemberStored, *, now_ms: int
    ) -> list[Effect]:
        """Called when the assignment, or the static member's new member id, is committed."""
        self._group.now_ms = now_ms
        if isinstance(stored, AssignmentStored):
            self._rebalance.on_assignment_stored(stored.generation)
        else:
            self._static.on_stored(stored)
        return self._effects.take()

    def on_store_failed(
        self, stored: AssignmentStored | StaticMemberStored, error: ErrorCode, *, now_ms: int
    ) -> list[Effect]:
        """Called when the assignment or the new member id was not appended, or storing the
        assignment takes too long.
        """
        self._group.now_ms = now_ms
        if isinstance(stored, AssignmentStored):
            self._rebalance.on_assignment_failed(stored.generation, error)
        else:
            self._static.on_failed(stored, error)
        return self._effects.take()

    def on_static_member_late(self, stored: StaticMemberStored) -> list[Effect]:
        """Called when storing the new member id takes too long."""
        self._static.on_late(stored)
        return self._effects.take()

    # --- Heartbeat, LeaveGroup, expiry -----------------------------------------------------------

    def on_heartbeat(
        self, request_id: int, member_id: str, instance_id: str | None, generation: int
    ) -> list[Effect]:
        error = self._members.check(member_id, instance_id)
        member = self._members.get(member_id)
        if error or member is None:
            return [Respond(request_id, HeartbeatResponse(error_code=error))]
        if generation != self._group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
            return [Respond(request_id, HeartbeatResponse(error_code=error))]
        if self._group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        self._effects.start_session(member_id, member.session_timeout_ms)
        self._effects.reply(request_id, HeartbeatResponse(error_code=error))
        return self._effects.take()

    def on_leave(
        self, request_id: int, identities: list[MemberIdentity], *, now_ms: int
    ) -> list[Effect]:
        """Handle a LeaveGroup: members leave, or an administrator removes static ones by instance
        id alone.
        """
        self._group.now_ms = now_ms
        answers: list[MemberResponse] = []
        left: list[str] = []
        for identity in identities:
            member_id, instance_id = identity.member_id, identity.group_instance_id
            if not member_id and instance_id is not None:
                member_id = self._members.static_member_id(instance_id) or NOBODY
            if member_id in self._members.pending:
                error = ErrorCode.NONE
            else:
                error = self._members.check(member_id, instance_id)
            if not error:
                kind = "Pending member"
                if member_id in self._members:
                    left.append(member_id)
                    kind = "Member"
                self._effects.report(
                    f"[Group {self._group.group_id}] {kind} {member_id} has left group through "
                    "explicit `LeaveGroup` request; client reason: "
                    f"{identity.reason or 'not provided'}"
                )
                self._rebalance.remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            answers.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=instance_id,
                    error_code=error,
                )
            )
        self._effects.reply(request_id, LeaveGroupResponse(members=answers))
        if left:
            self._rebalance.prepare_or_complete_join(
                f"explicit `LeaveGroup` request for ({', '.join(left)}) members."
            )
        else:
            # A pending member id may have been the last one to wait for.
            self._rebalance.maybe_complete_join()
        return self._effects.take()

    def on_timer(self, key: TimerKey, *, now_ms: int) -> list[Effect]:
        self._group.now_ms = now_ms
        match key.kind:
            case TimerKind.SESSION:
                self._on_session_timer(key.member_id)
            case TimerKind.JOIN:
                self._rebalance.on_join_timer()
            case TimerKind.SYNC:
                self._rebalance.on_sync_timer()
        return self._effects.take()

    def _on_session_timer(self, member_id: str) -> None:
        member = self._members.get(member_id)
        if member is None:
            if member_id not in self._members.pending:
                return
        elif not member.is_new and (
            member.parked_join is not None or member.parked_sync is not None
        ):
            return  # its request is parked; its session begins again with the answer
        else:
            self._counters.members_removed += 1
        if member is None:
            self._effects.report(
                f"Pending member {member_id} in group {self._group.group_id} has been removed "
                "after session timeout expiration."
            )
        else:
            self._effects.report(
                f"Member {member_id} in group {self._group.group_id} has failed, removing it "
                "from the group."
            )
        self._rebalance.remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if member is None:
            self._rebalance.maybe_complete_join()
        else:
            self._rebalance.prepare_or_complete_join(
                f"removing member {member_id} on heartbeat expiration."
            )

    # --- OffsetCommit ----------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        in_transaction: bool = False,
    ) -> ErrorCode:
        """NONE if this member may commit offsets now, otherwise the error.

        Without a generation only while the group is empty. A member may commit while the group is
        in PreparingRebalance (to commit what it has processed), but not in CompletingRebalance:
        its partitions may already be another member's.

        In a transaction a member may commit at any time in its generation, for its producer has to
        end the transaction; and a client that sends no member id (versions 0-2, before KIP-447)
        always may: it is fenced by its transactional id alone.
        """
        if generation < 0:
            is_nobody = not member_id and instance_id is None
            if self._group.state is GroupState.EMPTY or (in_transaction and is_nobody):
                return ErrorCode.NONE
        error = self._members.check(member_id, instance_id)
        if error:
            return error
        if generation != self._group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self._group.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def on_sign_of_life(self, member_id: str) -> list[Effect]:
        """Note that the member is alive, because of a request other than a heartbeat."""
        member = self._members.get(member_id)
        if member is not None:
            self._effects.start_session(member_id, member.session_timeout_ms)
        return self._effects.take()

    # --- loading and deletion --------------------------------------------------------------------

    @property
    def is_forgettable(self) -> bool:
        """Whether the group is empty, with nothing in the log and no pending member id."""
        return (
            self._group.state is GroupState.EMPTY
            and self._group.generation == 0
            and not self.is_written
            and not self._members.pending
        )

    def restore(self, value: GroupMetadataValue) -> None:
        """Replace the state by that of a record: while a coordinator loads, or when the deletion of
        the group has failed.
        """
        self._group.generation = value.generation
        self._group.protocol_type = value.protocol_type or None
        self._group.protocol = value.protocol
        self._group.state_timestamp_ms = value.current_state_timestamp
        self._members.clear()
        for stored in value.members:
            rebalance_timeout_ms = stored.rebalance_timeout
            if rebalance_timeout_ms == NO_TIMEOUT:
                rebalance_timeout_ms = stored.session_timeout
            self._members.add(
                ClassicGroupMember(
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
        if value.leader is not None and value.leader in self._members:
            self._members.leader_id = value.leader
        self._group.state = GroupState.STABLE if len(self._members) else GroupState.EMPTY

    def continue_from(self, generation: int) -> None:
        """Continue from a generation: a former group of this name is still in the log."""
        if not self._group.generation:
            self._group.generation = generation

    def on_loaded(self, *, now_ms: int) -> list[Effect]:
        """Called when loading has ended: all members get a full session. A group that is too large
        must rebalance.
        """
        self._group.now_ms = now_ms
        for member in self._members:
            self._effects.start_session(member.member_id, member.session_timeout_ms)
        if len(self._members) > self._config.group_max_size:
            self._rebalance.prepare(
                f"Freshly-loaded group {self._group.group_id} (size {len(self._members)}) is over "
                f"capacity {self._config.group_max_size}. Rebalancing in order to give a chance "
                "for consumers to commit offsets"
            )
        return self._effects.take()

    def on_deleted(self, *, now_ms: int) -> list[Effect]:
        """Called when the empty group is deleted. Pending member ids become invalid."""
        self._group.now_ms = now_ms
        for member_id in sorted(self._members.pending):
            self._rebalance.remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._group.become(GroupState.DEAD)
        return self._effects.take()
