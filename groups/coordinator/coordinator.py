"""One shard of the group coordinator: the groups of one partition of `__consumer_offsets`.

    request --on_...--> effects: Respond, timers, or Append(records, what waits for them)
    Append, once committed --on_committed--> apply, then Respond
    Append, not committed for long --on_late--> Respond with an error; it may yet be committed

Invariants:
    a committed offset stays until a newer one, a deletion of it, of its group or of its topic, or
    its expiry;
    a request that waits for a record is answered with success only after the record is committed.

Not here: which groups belong to this partition (handlers), files and clocks (actors); the state in
the log (coordinator_state); which offsets may be stored (committed_offsets).
Source: apache/kafka group-coordinator/.../GroupCoordinatorShard.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...coordinators.rules_effects import Append, Respond, StartTimer
from ...protocol.error_code import ErrorCode
from ...protocol.errors import error_for
from ...protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ...protocol.messages.describe_groups import DescribedGroup
from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from ...protocol.messages.list_groups import ListedGroup
from ...protocol.messages.offset_commit import OffsetCommitResponse
from ...protocol.messages.offset_delete import OffsetDeleteResponse
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..append_error import append_error
from ..classic.classic_group import ClassicGroup
from ..classic.consumer_subscription import CONSUMER
from ..classic.group_members import size_of
from ..classic.group_state import GroupState
from ..classic.group_view import described, group_record, is_subscribed, listed, refused_join
from ..classic.join import Join
from ..group_config import GroupCoordinatorConfig
from ..group_counters import GroupCounters, MemberMemory
from ..group_effects import (
    AssignmentStored,
    DeletedGroup,
    Effect,
    GroupsDeleted,
    OffsetsDeleted,
    OffsetsStored,
    StaticMemberStored,
    TimerKey,
    TimerKind,
    TransactionEnded,
)
from ..group_records import (
    NO_TIMESTAMP,
    CoordinatorRecord,
    GroupMetadataKey,
    GroupRecord,
    LogEntry,
    OffsetRecord,
)
from ..offsets.committed_offsets import fits
from ..offsets.offset_retention import Retention
from .coordinator_state import CoordinatorState, entries_of
from .offset_requests import OffsetRequests
from .tombstone_batches import in_batches, nobody_waits

RETENTION_TIMER = TimerKey(TimerKind.RETENTION)


class GroupCoordinator:
    """Rules of the group coordinator. First `apply` for each entry of the log, `on_loaded`, then
    requests and timers.
    """

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        *,
        memory: MemberMemory | None = None,
        counters: GroupCounters,
    ) -> None:
        """`memory` and `counters`: those of the node, shared with its other coordinators."""
        self._config = config
        self.memory = MemberMemory(config.bradbury_group_members_max_bytes, memory)
        """Memory held by its members."""
        self._counters = counters
        self._state = CoordinatorState(config, self.memory, self._counters)
        self.groups = self._state.groups
        """Groups by group id. Read-only for others."""
        self.offsets = self._state.offsets
        """Committed offsets. Read-only for others."""
        self._retention = Retention(config, now_ms=0)
        self.offset_requests = OffsetRequests(self._state, self._counters, self._to_write)

    def _to_write(self, wall_ms: int) -> int:
        return self._retention.to_write(wall_ms)

    # --- membership ------------------------------------------------------------------------------

    def on_join(self, group_id: str, join: Join, *, now_ms: int) -> list[Effect]:
        error = self._check_join(group_id, join)
        if error:
            return [Respond(join.request_id, refused_join(error, join.member_id))]
        effects = self._state.make_group(group_id).on_join(join, now_ms=self._to_write(now_ms))
        self._state.forget_if_nothing(group_id)
        return effects

    def _check_join(self, group_id: str, join: Join) -> ErrorCode:
        config = self._config
        if not group_id or not fits(group_id):
            return ErrorCode.INVALID_GROUP_ID
        lowest, highest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not lowest <= join.session_timeout_ms <= highest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        texts = [join.protocol_type, join.new_member_id, *(name for name, _ in join.protocols)]
        too_long = size_of(join.protocols) > config.bradbury_member_metadata_max_bytes
        if too_long or not all(map(fits, texts)):
            return ErrorCode.INVALID_REQUEST
        if join.member_id and group_id not in self.groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _group_of(self, group_id: str) -> ClassicGroup | None:
        """The group; None also for an empty id: offsets may be stored under it, but it has no
        members.
        """
        return self.groups.get(group_id) if group_id else None

    def on_sync(self, request_id: int, request: SyncGroupRequest) -> list[Effect]:
        group = self._group_of(request.group_id)
        if group is None:
            error = _missing(request.group_id)
            return [Respond(request_id, SyncGroupResponse(error_code=error))]
        return group.on_sync(request_id, request)

    def on_heartbeat(self, request_id: int, request: HeartbeatRequest) -> list[Effect]:
        group = self._group_of(request.group_id)
        if group is None:
            error = _missing(request.group_id)
            return [Respond(request_id, HeartbeatResponse(error_code=error))]
        return group.on_heartbeat(
            request_id, request.member_id, request.group_instance_id, request.generation_id
        )

    def on_leave(self, request_id: int, request: LeaveGroupRequest, *, now_ms: int) -> list[Effect]:
        """Handle a LeaveGroup; `request.members` has the leaving members in all versions."""
        group = self._group_of(request.group_id)
        if group is not None:
            effects = group.on_leave(request_id, request.members, now_ms=self._to_write(now_ms))
            self._state.forget_if_nothing(request.group_id)
            return effects
        error = _missing(request.group_id)
        if error is ErrorCode.INVALID_GROUP_ID:
            return [Respond(request_id, LeaveGroupResponse(error_code=error))]
        members = [
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=error,
            )
            for member in request.members
        ]
        return [Respond(request_id, LeaveGroupResponse(members=members))]

    # --- operators -------------------------------------------------------------------------------

    def on_delete(self, request_id: int, group_ids: Iterable[str], *, now_ms: int) -> list[Effect]:
        """Delete empty groups with their offsets. A join creates a new group from now on; answered
        once the deletion is committed.
        """
        response = DeleteGroupsResponse()
        before: list[DeletedGroup] = []
        records: list[CoordinatorRecord] = []
        effects: list[Effect] = []
        for group_id in group_ids:
            group = self.groups.get(group_id)
            error = ErrorCode.NONE
            if group is None:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif group.metadata.state is not GroupState.EMPTY:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                before.append(_deleted(group))
                records += self._delete(group, effects, now_ms)
            response.results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        if not records:
            return [*effects, Respond(request_id, response)]
        deletion = GroupsDeleted(request_id, response, tuple(before))
        return [*effects, *in_batches(records, deletion)]

    def _delete(
        self, group: ClassicGroup, effects: list[Effect], now_ms: int
    ) -> list[CoordinatorRecord]:
        group_id = group.metadata.group_id
        del self.groups[group_id]
        effects += group.on_deleted(now_ms=now_ms)
        offsets = self._state.offsets.of(group_id)
        records: list[CoordinatorRecord] = [] if offsets is None else [*offsets.tombstones()]
        if group.is_written or group.metadata.generation or records:
            # Without a generation, too: else its offsets' tombstones would leave an empty group,
            # and so would commits before them in the log that are now being appended or pending.
            records.append(GroupRecord(GroupMetadataKey(group=group_id), None))
        return records

    # --- time ------------------------------------------------------------------------------------

    def on_timer(self, key: TimerKey, *, now_ms: int) -> list[Effect]:
        if key.kind is TimerKind.RETENTION:
            return self._on_retention_timer(now_ms)
        group = self.groups.get(key.group_id)
        if group is None:
            return []
        effects = group.on_timer(key, now_ms=self._to_write(now_ms))
        self._state.forget_if_nothing(key.group_id)
        return effects

    def _on_retention_timer(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        batch: list[CoordinatorRecord] = []
        before: list[DeletedGroup] = []
        for group_id in self._retention.next_groups(
            self.groups, self._state.offsets.count_of, wall_ms=now_ms
        ):
            group = self.groups.get(group_id)
            if group is None or group.metadata.members.pending:
                continue
            expired, is_all = self._expired(group)
            self._counters.offsets_expired += len(expired)
            if is_all and group.metadata.state is GroupState.EMPTY:
                before.append(_deleted(group))
                batch += self._delete(group, effects, now_ms)
            else:
                batch += expired
        effects += in_batches(batch, nobody_waits(before))
        return [*effects, StartTimer(RETENTION_TIMER, self._retention.rest_ms)]

    def _expired(self, expiring: ClassicGroup) -> tuple[list[OffsetRecord], bool]:
        """(tombstones of expired offsets, whether the whole group expires). The retention
        of a group that had members begins when the last one left, else with each commit.

        Of a Stable group of consumers the offsets in topics without a subscription expire.
        """
        group = expiring.metadata
        offsets = self._state.offsets.of(group.group_id)
        if offsets is None:
            return [], True
        idle_since_ms: int | None = None
        subscribed: Callable[[str], bool] | None = None
        if group.state is not GroupState.EMPTY:
            if group.state is not GroupState.STABLE or group.protocol_type != CONSUMER:
                return [], False
            subscribed = is_subscribed(group)
        elif group.protocol_type is not None and group.state_timestamp_ms != NO_TIMESTAMP:
            idle_since_ms = group.state_timestamp_ms
        return offsets.expired(
            now_ms=self._retention.now_ms,
            retention_ms=self._config.offsets_retention_ms,
            idle_since_ms=idle_since_ms,
            is_subscribed=subscribed,
        )

    # --- the log ---------------------------------------------------------------------------------

    def apply(self, entry: LogEntry) -> None:
        """Apply the next entry of the log, while loading."""
        self._state.apply(entry)

    def on_loaded(self, *, now_ms: int) -> list[Effect]:
        """Called when the log is applied to its end; requests are handled from now on."""
        self._state.is_loading = False
        self._retention = Retention(self._config, now_ms=now_ms, newest_ms=self._state.newest_ms)
        effects: list[Effect] = [
            StartTimer(RETENTION_TIMER, self._config.offsets_retention_check_interval_ms)
        ]
        for group in self.groups.values():
            effects += group.on_loaded(now_ms=now_ms)
        return effects

    def close(self) -> None:
        """Called when the coordinator has ended: frees the memory of its members."""
        self.memory.give_back()

    def on_committed(self, append: Append, *, now_ms: int) -> list[Effect]:
        """Called when the records are committed, in log order."""
        self._end(append)
        for entry in entries_of(append):
            self._state.apply(entry)
        match append.completion:
            case OffsetsStored(request_id, response) if request_id is not None:
                return [Respond(request_id, response)]
            case TransactionEnded(request_id) if request_id is not None:
                return [Respond(request_id, None)]
            case AssignmentStored() | StaticMemberStored() as stored:
                group = self.groups.get(stored.group_id)
                if group is not None:
                    return group.on_stored(stored, now_ms=self._to_write(now_ms))
            case GroupsDeleted(request_id, deletion):
                self._count_deleted(append)
                if request_id is not None:
                    return [Respond(request_id, deletion)]
            case OffsetsDeleted(request_id, deleted):
                self._count_deleted(append)
                if request_id is not None:
                    return [Respond(request_id, deleted)]
        return []

    def on_failed(self, append: Append, error: ErrorCode, *, now_ms: int) -> list[Effect]:
        """Called when the append failed with `error`: nothing was appended."""
        self._end(append)
        if isinstance(append.completion, OffsetsStored):
            for record in append.records:
                self._state.forget_if_nothing(record.key.group)
        if isinstance(append.completion, GroupsDeleted):
            failed = {record.key.group for record in append.records}
            self._state.restore_deleted(
                each for each in append.completion.before if each.record.key.group in failed
            )
        return self._refuse(append, error, now_ms=now_ms)

    def on_late(self, append: Append, *, now_ms: int) -> tuple[list[Effect], Append]:
        """Called when it is not committed within offsets.commit.timeout.ms: clients get an error
        that they retry.

        Returns the effects, and the Append to continue with, for which no request waits. Its
        records may yet be committed and then take effect, as if the response had been lost.
        """
        effects: list[Effect] = []
        match append.completion:
            case StaticMemberStored(group_id) as stored:
                group = self.groups.get(group_id)
                if group is not None:
                    effects = group.on_static_member_late(stored)
                return effects, append
            case OffsetsStored() as completion:
                effects = self._refuse(append, ErrorCode.REQUEST_TIMED_OUT, now_ms=now_ms)
                return effects, replace(append, completion=replace(completion, request_id=None))
            case GroupsDeleted() | OffsetsDeleted() | TransactionEnded() as completion:
                effects = self._refuse(append, ErrorCode.REQUEST_TIMED_OUT, now_ms=now_ms)
                return effects, replace(append, completion=replace(completion, request_id=None))
            case AssignmentStored():
                effects = self._refuse(append, ErrorCode.REQUEST_TIMED_OUT, now_ms=now_ms)
        return effects, append

    def _refuse(self, append: Append, error: ErrorCode, *, now_ms: int) -> list[Effect]:
        match append.completion:
            case OffsetsStored(request_id, response):
                too_large = ErrorCode.UNKNOWN_SERVER_ERROR
                if isinstance(response, OffsetCommitResponse):
                    too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                code = append_error(error, too_large=too_large)
                for topic in response.topics:
                    for partition in topic.partitions:
                        partition.error_code = partition.error_code or code
                if request_id is not None:
                    return [Respond(request_id, response)]
            case AssignmentStored() | StaticMemberStored() as stored:
                group = self.groups.get(stored.group_id)
                if group is not None:
                    return group.on_store_failed(stored, append_error(error), now_ms=now_ms)
            case GroupsDeleted(request_id, deletion):
                for result in deletion.results:
                    result.error_code = result.error_code or append_error(error)
                if request_id is not None:
                    return [Respond(request_id, deletion)]
            case TransactionEnded(request_id) if request_id is not None:
                return [Respond(request_id, error_for(error))]
            case OffsetsDeleted(request_id, _) if request_id is not None:
                return [Respond(request_id, OffsetDeleteResponse(error_code=append_error(error)))]
        return []

    def _end(self, append: Append) -> None:
        if isinstance(append.completion, OffsetsStored):
            self._state.offsets.end(append.records)
        if append.marker is not None:
            self._state.offsets.end_marker(append.marker.producer_id)

    def _count_deleted(self, append: Append) -> None:
        count = sum(isinstance(record, OffsetRecord) for record in append.records)
        self._counters.offsets_deleted += count


def describe_group(groups: Mapping[str, ClassicGroup], group_id: str) -> DescribedGroup | None:
    """DescribeGroups answer for a group; None if there is none of this id."""
    group = groups.get(group_id)
    return None if group is None else described(group.metadata)


def list_groups(groups: Mapping[str, ClassicGroup]) -> list[ListedGroup]:
    """ListGroups answer."""
    return [listed(group.metadata) for group in groups.values()]


def _deleted(group: ClassicGroup) -> DeletedGroup:
    return DeletedGroup(group_record(group.metadata, {}), group.is_written)


def _missing(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
