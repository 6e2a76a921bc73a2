"""One shard of the group coordinator: the groups of one partition of `__consumer_offsets`.

    request --on_...--> effects: Reply, timers, or Append(records, what waits for them)
    Append, once committed --on_committed--> apply, then Reply

Hard state is the committed offsets: they change only in `apply`, in log order, while loading and
live alike. The groups themselves are soft state that is written down at each stable generation:
`apply` of a group's record rebuilds the group while loading, and changes nothing afterwards,
because the living group is ahead of its log.

What always holds:
    a group is here exactly while it has members, ids given out, a generation, or offsets;
    a committed offset stays until a newer one, a deletion of its group, or its expiry;
    nothing is answered that waits for a record before that record is committed.

Not here: which groups belong to this partition (handlers), files and clocks (actors).
Source: apache/kafka group-coordinator/.../GroupCoordinatorShard.java, OffsetMetadataManager.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..protocol.error_code import ErrorCode
from ..protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ..protocol.messages.describe_groups import DescribedGroup
from ..protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ..protocol.messages.list_groups import ListedGroup
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from .classic_group import ClassicGroup
from .effects import (
    Append,
    AssignmentStored,
    Effect,
    GroupsDeleted,
    OffsetsStored,
    Reply,
    StartTimer,
    StaticMemberStored,
    TimerKey,
    TimerKind,
)
from .group_config import GroupCoordinatorConfig
from .group_records import (
    NO_TIMESTAMP,
    CoordinatorRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
)
from .group_state import GroupState
from .group_view import described, group_record, listed, refused_join
from .join import Join
from .offsets import GroupOffsets

FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND = 9
LONGEST_TEXT = 2**15 - 1
"""Bytes of a string in a record."""
MOST_TOMBSTONES = 1000
"""A batch of expired offsets ends here; about 100 bytes each, far below max.message.bytes."""
LONG_MAX = 2**63 - 1
NO_RETENTION = -1
NO_OFFSET = -1

RETENTION_TIMER = TimerKey(TimerKind.RETENTION)


class GroupCoordinator:
    """First `apply` for each record of the log, `on_loaded`, then requests and timers."""

    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self._config = config
        self._offsets: dict[str, GroupOffsets] = {}
        self._loading = True

    # --- membership ------------------------------------------------------------------------------

    def on_join(self, group_id: str, join: Join, *, now_ms: int) -> list[Effect]:
        error = self._check_join(group_id, join)
        if error:
            return [Reply(join.request_id, refused_join(error, join.member_id))]
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._config)
        effects = group.on_join(join, now_ms=now_ms)
        self._forget_if_nothing(group_id)
        return effects

    def _check_join(self, group_id: str, join: Join) -> ErrorCode:
        config = self._config
        if not group_id or not _fits(group_id):
            return ErrorCode.INVALID_GROUP_ID
        lowest, highest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not lowest <= join.session_timeout_ms <= highest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        texts = [join.protocol_type, join.new_member_id, *(name for name, _ in join.protocols)]
        if join.size > config.bradbury_member_metadata_max_bytes or not all(map(_fits, texts)):
            return ErrorCode.INVALID_REQUEST
        if join.member_id and group_id not in self.groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def on_sync(self, request_id: int, request: SyncGroupRequest) -> list[Effect]:
        group = self.groups.get(request.group_id)
        if group is None:
            error = _missing(request.group_id)
            return [Reply(request_id, SyncGroupResponse(error_code=error))]
        return group.on_sync(request_id, request)

    def on_heartbeat(self, request_id: int, request: HeartbeatRequest) -> list[Effect]:
        group = self.groups.get(request.group_id)
        if group is None:
            error = _missing(request.group_id)
            return [Reply(request_id, HeartbeatResponse(error_code=error))]
        return group.on_heartbeat(
            request_id, request.member_id, request.group_instance_id, request.generation_id
        )

    def on_leave(self, request_id: int, request: LeaveGroupRequest, *, now_ms: int) -> list[Effect]:
        """`request.members` has the leaving members, whatever the version."""
        group = self.groups.get(request.group_id)
        if group is not None:
            effects = group.on_leave(request_id, request.members, now_ms=now_ms)
            self._forget_if_nothing(request.group_id)
            return effects
        error = _missing(request.group_id)
        if error is ErrorCode.INVALID_GROUP_ID:
            return [Reply(request_id, LeaveGroupResponse(error_code=error))]
        members = [
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=error,
            )
            for member in request.members
        ]
        return [Reply(request_id, LeaveGroupResponse(members=members))]

    # --- offsets ---------------------------------------------------------------------------------

    def on_offset_commit(
        self,
        request_id: int,
        request: OffsetCommitRequest,
        *,
        api_version: int,
        is_known: Callable[[str, int], bool],
        now_ms: int,
    ) -> list[Effect]:
        """`is_known(topic, partition)`: whether it exists; others are refused one by one."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        error = self._check_commit(request, group, api_version)
        response, records = OffsetCommitResponse(), list[CoordinatorRecord]()
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                code = error or self._check_offset(topic.name, partition, is_known)
                answers.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
                if not code:
                    records.append(_offset_record(group_id, topic.name, partition, request, now_ms))
            response.topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
        effects: list[Effect] = []
        if not error and group is not None:
            effects += group.on_sign_of_life(request.member_id)
        if not records:
            return [*effects, Reply(request_id, response)]
        offsets = self._offsets.setdefault(group_id, GroupOffsets(group_id))
        for record in records:
            assert isinstance(record, OffsetRecord)
            offsets.begin(record.key.topic, record.key.partition)
        return [*effects, Append(tuple(records), OffsetsStored(request_id, response))]

    def _check_commit(
        self, request: OffsetCommitRequest, group: ClassicGroup | None, api_version: int
    ) -> ErrorCode:
        generation = request.generation_id_or_member_epoch
        if not _fits(request.group_id):
            return ErrorCode.INVALID_GROUP_ID
        if group is not None:
            return group.check_commit(request.member_id, request.group_instance_id, generation)
        if generation < 0:
            return ErrorCode.NONE  # a consumer that assigns itself: the offsets make the group
        if api_version >= FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION

    def _check_offset(
        self,
        topic: str,
        partition: OffsetCommitRequestPartition,
        is_known: Callable[[str, int], bool],
    ) -> ErrorCode:
        if not is_known(topic, partition.partition_index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(partition.committed_metadata or "") > self._config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def fetch_offsets(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """Of the topics asked for, or of all that have one (topics None). Only what is committed.

        What is unknown has offset -1 and no error: the client then resets by its own policy.
        """
        answer = OffsetFetchResponseGroup(group_id=asked.group_id)
        offsets = self._offsets.get(asked.group_id)
        if asked.topics is None:
            topics = [] if offsets is None else list(offsets.topics())
        else:
            topics = [(topic.name, topic.partition_indexes) for topic in asked.topics]
        for topic, partitions in topics:
            found = []
            for partition in partitions:
                value = None if offsets is None else offsets.get(topic, partition)
                if value is None:
                    value = OffsetCommitValue(offset=NO_OFFSET)
                found.append(
                    OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                    )
                )
            answer.topics.append(OffsetFetchResponseTopics(name=topic, partitions=found))
        return answer

    # --- operators -------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup | None:
        group = self.groups.get(group_id)
        return None if group is None else described(group)

    def list_groups(self) -> list[ListedGroup]:
        return [listed(group) for group in self.groups.values()]

    def on_delete(self, request_id: int, group_ids: Iterable[str], *, now_ms: int) -> list[Effect]:
        """Empty groups go, with their offsets. Gone at once for joins, answered once committed."""
        response = DeleteGroupsResponse()
        before: list[GroupRecord] = []
        records: list[CoordinatorRecord] = []
        effects: list[Effect] = []
        for group_id in group_ids:
            group = self.groups.get(group_id)
            error = ErrorCode.NONE
            if group is None:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif group.state is not GroupState.EMPTY:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                before.append(group_record(group, {}))
                records += self._delete(group, effects, now_ms)
            response.results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        if not records:
            return [*effects, Reply(request_id, response)]
        deletion = GroupsDeleted(request_id, response, tuple(before))
        return [*effects, Append(tuple(records), deletion)]

    def _delete(
        self, group: ClassicGroup, effects: list[Effect], now_ms: int
    ) -> list[CoordinatorRecord]:
        group_id = group.group_id
        del self.groups[group_id]
        effects += group.on_deleted(now_ms=now_ms)
        offsets = self._offsets.get(group_id)
        records: list[CoordinatorRecord] = [] if offsets is None else [*offsets.tombstones()]
        if group.generation:
            records.append(GroupRecord(GroupMetadataKey(group=group_id), None))
        return records

    # --- time ------------------------------------------------------------------------------------

    def on_timer(self, key: TimerKey, *, now_ms: int) -> list[Effect]:
        if key.kind is TimerKind.RETENTION:
            return self._on_retention_timer(now_ms)
        group = self.groups.get(key.group_id)
        if group is None:
            return []
        effects = group.on_timer(key, now_ms=now_ms)
        self._forget_if_nothing(key.group_id)
        return effects

    def _on_retention_timer(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        batch: list[CoordinatorRecord] = []
        before: list[GroupRecord] = []
        for group_id in list(self.groups):
            group = self.groups[group_id]
            if group.state is not GroupState.EMPTY or group.members.pending:
                continue
            expired = self._expired(group, now_ms)
            offsets = self._offsets.get(group_id)
            if offsets is None or len(expired) == len(offsets.tombstones()):
                before.append(group_record(group, {}))
                batch += self._delete(group, effects, now_ms)
            else:
                batch += expired
            if len(batch) >= MOST_TOMBSTONES:
                effects.append(_expiry(batch, before))
                batch, before = [], []
        if batch:
            effects.append(_expiry(batch, before))
        effects.append(
            StartTimer(RETENTION_TIMER, self._config.offsets_retention_check_interval_ms)
        )
        return effects

    def _expired(self, group: ClassicGroup, now_ms: int) -> list[OffsetRecord]:
        """A group that had members is idle since the last one left; others since each commit."""
        offsets = self._offsets.get(group.group_id)
        if offsets is None:
            return []
        idle_since_ms: int | None = None
        if group.protocol_type is not None and group.state_timestamp_ms != NO_TIMESTAMP:
            idle_since_ms = group.state_timestamp_ms
        return offsets.expired(
            now_ms=now_ms,
            retention_ms=self._config.offsets_retention_ms,
            idle_since_ms=idle_since_ms,
        )

    # --- the log ---------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord) -> None:
        """What the log says. Decides nothing."""
        group_id = record.key.group
        if isinstance(record, OffsetRecord):
            offsets = self._offsets.get(group_id)
            if record.value is not None:
                if offsets is None:
                    offsets = self._offsets[group_id] = GroupOffsets(group_id)
                if group_id not in self.groups:
                    self.groups[group_id] = ClassicGroup(group_id, self._config)
            if offsets is not None:
                offsets.apply(record)
        elif self._loading:
            group = self.groups.setdefault(group_id, ClassicGroup(group_id, self._config))
            group.restore(record.value or GroupMetadataValue())
        self._forget_if_nothing(group_id)

    def on_loaded(self, *, now_ms: int) -> list[Effect]:
        """The log is applied to its end; requests may come."""
        self._loading = False
        effects: list[Effect] = [
            StartTimer(RETENTION_TIMER, self._config.offsets_retention_check_interval_ms)
        ]
        for group in self.groups.values():
            effects += group.on_loaded(now_ms=now_ms)
        return effects

    def on_committed(self, append: Append, *, now_ms: int) -> list[Effect]:
        """The records are in the log for good. Called in log order."""
        self._end(append)
        for record in append.records:
            self.apply(record)
        match append.completion:
            case OffsetsStored(request_id, response):
                return [Reply(request_id, response)]
            case AssignmentStored(group_id, generation):
                group = self.groups.get(group_id)
                if group is not None:
                    return group.on_assignment_stored(generation, now_ms=now_ms)
            case StaticMemberStored(group_id) as stored:
                group = self.groups.get(group_id)
                if group is not None:
                    return group.on_static_member_stored(stored)
            case GroupsDeleted(request_id, deletion):
                if request_id is not None:
                    return [Reply(request_id, deletion)]
        return []

    def on_failed(self, append: Append, error: ErrorCode, *, now_ms: int) -> list[Effect]:
        """Nothing of it was appended, because of `error`."""
        self._end(append)
        match append.completion:
            case OffsetsStored(request_id, response):
                code = _append_error(error, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                for topic in response.topics:
                    for partition in topic.partitions:
                        partition.error_code = partition.error_code or code
                return [Reply(request_id, response)]
            case AssignmentStored(group_id, generation):
                group = self.groups.get(group_id)
                if group is not None:
                    return group.on_assignment_failed(
                        generation, _append_error(error), now_ms=now_ms
                    )
            case StaticMemberStored(group_id) as stored:
                group = self.groups.get(group_id)
                if group is not None:
                    return group.on_static_member_failed(stored, _append_error(error))
            case GroupsDeleted(request_id, deletion, before):
                self._restore_deleted(before)
                for result in deletion.results:
                    result.error_code = result.error_code or _append_error(error)
                if request_id is not None:
                    return [Reply(request_id, deletion)]
        return []

    def _restore_deleted(self, before: Iterable[GroupRecord]) -> None:
        for key, value in before:
            assert value is not None
            group = self.groups.get(key.group)
            if group is None:
                group = self.groups[key.group] = ClassicGroup(key.group, self._config)
                group.restore(value)
            else:
                group.continue_from(value.generation)
            self._forget_if_nothing(key.group)

    def _end(self, append: Append) -> None:
        if isinstance(append.completion, OffsetsStored):
            for record in append.records:
                assert isinstance(record, OffsetRecord)
                self._offsets[record.key.group].end(record.key.topic, record.key.partition)

    def _forget_if_nothing(self, group_id: str) -> None:
        offsets = self._offsets.get(group_id)
        if offsets is not None:
            if not offsets.is_empty:
                return
            del self._offsets[group_id]
        group = self.groups.get(group_id)
        if group is not None and group.is_forgettable:
            del self.groups[group_id]


def _offset_record(
    group_id: str,
    topic: str,
    partition: OffsetCommitRequestPartition,
    request: OffsetCommitRequest,
    now_ms: int,
) -> OffsetRecord:
    expire_timestamp = NO_TIMESTAMP
    if request.retention_time_ms != NO_RETENTION:
        expire_timestamp = min(now_ms + request.retention_time_ms, LONG_MAX)
    return OffsetRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition.partition_index),
        OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expire_timestamp,
        ),
    )


def _expiry(batch: list[CoordinatorRecord], before: list[GroupRecord]) -> Append:
    return Append(tuple(batch), GroupsDeleted(None, DeleteGroupsResponse(), tuple(before)))


def _missing(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


def _fits(text: str) -> bool:
    return len(text.encode()) <= LONGEST_TEXT


def _append_error(
    error: ErrorCode, *, too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
) -> ErrorCode:
    """What a client of the group is told of a failed append."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return too_large
    return error
