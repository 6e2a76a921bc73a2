"""A group coordinator with a virtual clock and a list for a log: performs effects, checks nothing lost.

Every answer is checked to be the first one of its request. Appends commit at once unless
`hold_commits` is set; then `commit_next`, `fail_next` and `be_late` decide. Timers go by `now_ms`,
which only grows; the wall clock is `leap_ms` beside it.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

from bradbury.coordinators.rules_effects import (
    Append,
    CancelTimer,
    Respond,
    StartTimer,
    TransactionMarker,
)
from bradbury.groups.classic.join import Join
from bradbury.groups.coordinator.coordinator import GroupCoordinator, describe_group
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.groups.group_counters import GroupCounters
from bradbury.groups.group_effects import Effect, Report, TimerKey
from bradbury.groups.group_records import (
    LogEntry,
    encode_group_record,
    entries_in,
)
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.delete_groups import DeleteGroupsResponse
from bradbury.protocol.messages.describe_groups import DescribedGroup
from bradbury.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from bradbury.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from bradbury.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from bradbury.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from bradbury.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from bradbury.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from bradbury.protocol.records.records import ControlType, encode_control_batch, encode_records
from bradbury.protocol.topic_partition import TopicPartitionPair


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer, version 1, that owns nothing."""
    names = [topic.encode() for topic in topics]
    listed = b"".join(struct.pack(">h", len(name)) + name for name in names)
    return struct.pack(">hi", 1, len(names)) + listed + struct.pack(">ii", -1, 0)


G = "orders"
START_MS = 1_700_000_000_000
RANGE = (("range", b"topics"),)
Protocols = Sequence[tuple[str, bytes]]


def written(append: Append) -> bytearray:
    """The batch in the log."""
    if append.marker is not None:
        return encode_control_batch(
            ControlType.COMMIT if append.marker.is_commit else ControlType.ABORT,
            producer_id=append.marker.producer_id,
            producer_epoch=append.marker.producer_epoch,
            coordinator_epoch=append.marker.coordinator_epoch,
            timestamp=START_MS,
        )
    records = [(START_MS, *encode_group_record(record), ()) for record in append.records]
    if append.producer is None:
        return encode_records(records)
    return encode_records(
        records,
        producer_id=append.producer.producer_id,
        producer_epoch=append.producer.producer_epoch,
        transactional=True,
    )


class GroupDriver:
    def __init__(self, *, now_ms: int = START_MS, **config: int) -> None:
        self.config = GroupCoordinatorConfig(**config)
        self.now_ms = now_ms
        self.leap_ms = 0
        self.counters = GroupCounters()
        self.coordinator = GroupCoordinator(self.config, counters=self.counters)
        self.log: list[bytearray] = []
        self.answers: dict[int, Any] = {}
        self.asked: set[int] = set()
        self.timers: dict[TimerKey, int] = {}
        self.uncommitted: deque[Append] = deque()
        self.late: list[Append] = []
        self.hold_commits = False
        self.reports: list[str] = []
        self._unique = 0
        self.perform(self.coordinator.on_loaded(now_ms=now_ms))

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.leap_ms

    # --- effects ---------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Respond(request_id, response):
                    assert request_id in self.asked, (
                        f"{request_id} was not asked, or answered twice"
                    )
                    self.asked.discard(request_id)
                    self.answers[request_id] = response
                case StartTimer(key, after_ms):
                    self.timers[key] = self.now_ms + after_ms
                case CancelTimer(key):
                    self.timers.pop(key, None)
                case Append():
                    self.uncommitted.append(effect)
                    if not self.hold_commits:
                        self.commit_next()
                case Report(_, text):
                    self.reports.append(text)

    def commit_next(self) -> None:
        append = self.uncommitted.popleft()
        self.log.append(written(append))
        self.perform(self.coordinator.on_committed(append, now_ms=self.wall_ms))

    @property
    def is_next_late(self) -> bool:
        """Then it is in the log already, and can be in doubt, but not fail."""
        return any(append is self.uncommitted[0] for append in self.late)

    def fail_next(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        append = self.uncommitted.popleft()
        self.perform(self.coordinator.on_failed(append, error, now_ms=self.wall_ms))

    def be_late(self, index: int = 0) -> None:
        """This one is not committed for offsets.commit.timeout.ms."""
        effects, append = self.coordinator.on_late(self.uncommitted[index], now_ms=self.wall_ms)
        self.uncommitted[index] = append
        self.late.append(append)
        self.perform(effects)

    def advance(self, ms: int) -> None:
        """Time passes; what is due on the way happens in order."""
        end_ms = self.now_ms + ms
        while self.timers and (due_ms := min(self.timers.values())) <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            for key in [key for key, at_ms in self.timers.items() if at_ms == due_ms]:
                if self.timers.get(key) == due_ms:
                    del self.timers[key]
                    self.perform(self.coordinator.on_timer(key, now_ms=self.wall_ms))
        self.now_ms = end_ms

    def records(self) -> list[LogEntry]:
        return [entry for batch in self.log for entry in entries_in(batch, 0)[0]]

    def failed_over(self, in_doubt: int = 0) -> "GroupDriver":
        """The next coordinator, which has read the log.

        in_doubt: of the appends that were not committed, how many are in the log all the same.
        """
        other = GroupDriver.__new__(GroupDriver)
        other.__dict__.update(GroupDriver(now_ms=self.now_ms).__dict__)
        other.config = self.config
        other.coordinator = GroupCoordinator(self.config, counters=other.counters)
        other.timers.clear()
        other._unique = self._unique
        other.leap_ms = self.leap_ms
        other.log = list(self.log)
        for append in list(self.uncommitted)[:in_doubt]:
            other.log.append(written(append))
        for record in other.records():
            other.coordinator.apply(record)
        other.perform(other.coordinator.on_loaded(now_ms=self.wall_ms))
        return other

    # --- requests --------------------------------------------------------------------------------

    def _request(self) -> int:
        self._unique += 1
        self.asked.add(self._unique)
        return self._unique

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        version: int = 9,
        client_id: str = "client",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        group: str = G,
    ) -> int:
        request_id = self._request()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, data) for name, data in protocols],
        )
        join = Join.of(
            request_id,
            request,
            api_version=version,
            client_id=client_id,
            client_host="/127.0.0.1",
            unique=str(request_id),
        )
        self.perform(self.coordinator.on_join(group, join, now_ms=self.wall_ms))
        return request_id

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        request_id = self._request()
        given = [SyncGroupRequestAssignment(*item) for item in (assignments or {}).items()]
        request = SyncGroupRequest(
            G, generation, member_id, instance_id, protocol_type, protocol_name, given
        )
        self.perform(self.coordinator.on_sync(request_id, request))
        return request_id

    def heartbeat(
        self, member_id: str, generation: int, *, instance_id: str | None = None, group: str = G
    ) -> ErrorCode:
        request_id = self._request()
        request = HeartbeatRequest(group, generation, member_id, instance_id)
        self.perform(self.coordinator.on_heartbeat(request_id, request))
        answer: HeartbeatResponse = self.answers[request_id]
        return ErrorCode(answer.error_code)

    def leave(self, *members: tuple[str, str | None], group: str = G) -> LeaveGroupResponse:
        request_id = self._request()
        request = LeaveGroupRequest(group, [MemberIdentity(*member) for member in members])
        self.perform(self.coordinator.on_leave(request_id, request, now_ms=self.wall_ms))
        return self.answers[request_id]

    def commit(
        self,
        offsets: dict[TopicPartitionPair, int],
        member_id: str = "",
        generation: int = -1,
        *,
        instance_id: str | None = None,
        metadata: str | None = "",
        version: int = 9,
        retention_ms: int = -1,
        unknown: frozenset[str] = frozenset(),
        group: str = G,
    ) -> int:
        request_id = self._request()
        request = OffsetCommitRequest(
            group,
            generation,
            member_id,
            instance_id,
            retention_ms,
            [
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=3,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        self.perform(
            self.coordinator.offset_requests.commit(
                request_id,
                request,
                api_version=version,
                is_known=lambda topic, _: topic not in unknown,
                now_ms=self.wall_ms,
            )
        )
        return request_id

    def commit_in_transaction(
        self,
        offsets: dict[TopicPartitionPair, int],
        member_id: str = "",
        generation: int = -1,
        *,
        producer_id: int = 7,
        instance_id: str | None = None,
        metadata: str | None = "",
        unknown: frozenset[str] = frozenset(),
        group: str = G,
    ) -> int:
        request_id = self._request()
        topics = [
            TxnOffsetCommitRequestTopic(
                topic, [TxnOffsetCommitRequestPartition(partition, offset, 3, metadata)]
            )
            for (topic, partition), offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            "payments", group, producer_id, 0, generation, member_id, instance_id, topics
        )
        self.perform(
            self.coordinator.offset_requests.commit_in_transaction(
                request_id,
                request,
                is_known=lambda topic, _: topic not in unknown,
                guard=None,
                now_ms=self.wall_ms,
            )
        )
        return request_id

    def end_transaction(self, producer_id: int = 7, *, is_commit: bool = True) -> int:
        request_id = self._request()
        marker = TransactionMarker(producer_id, 0, 0, is_commit, 2)
        self.perform(self.coordinator.offset_requests.end_transaction(request_id, marker))
        return request_id

    def delete(self, *group_ids: str) -> int:
        request_id = self._request()
        self.perform(self.coordinator.on_delete(request_id, group_ids, now_ms=self.wall_ms))
        return request_id

    def delete_offsets(
        self,
        *partitions: TopicPartitionPair,
        unknown: frozenset[str] = frozenset(),
        group: str = G,
    ) -> int:
        request_id = self._request()
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])
            for topic, partition in partitions
        ]
        effects = self.coordinator.offset_requests.delete(
            request_id,
            OffsetDeleteRequest(group, topics),
            is_known=lambda topic, _: topic not in unknown,
        )
        self.perform(effects)
        return request_id

    def delete_topics(self, *topics: str) -> None:
        self.perform(self.coordinator.offset_requests.forget_topics(set(topics)))

    # --- answers ---------------------------------------------------------------------------------

    def joined(self, request_id: int) -> JoinGroupResponse:
        return self.answers[request_id]

    def synced(self, request_id: int) -> SyncGroupResponse:
        return self.answers[request_id]

    def is_parked(self, request_id: int) -> bool:
        return request_id in self.asked

    def error(self, request_id: int) -> ErrorCode:
        return ErrorCode(self.answers[request_id].error_code)

    def committed(self, request_id: int) -> list[ErrorCode]:
        response: OffsetCommitResponse | TxnOffsetCommitResponse = self.answers[request_id]
        return [ErrorCode(p.error_code) for topic in response.topics for p in topic.partitions]

    def deleted(self, request_id: int) -> list[ErrorCode]:
        response: DeleteGroupsResponse = self.answers[request_id]
        return [ErrorCode(result.error_code) for result in response.results]

    def offsets_deleted(self, request_id: int) -> list[ErrorCode]:
        """The error of the request, or of each partition."""
        response: OffsetDeleteResponse = self.answers[request_id]
        if response.error_code:
            return [ErrorCode(response.error_code)]
        return [ErrorCode(p.error_code) for topic in response.topics for p in topic.partitions]

    def fetch(
        self, topic: str, partition: int, group: str = G, *, require_stable: bool = False
    ) -> OffsetFetchResponsePartitions:
        asked = OffsetFetchRequestGroup(
            group_id=group,
            topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
        )
        answer = self.coordinator.offsets.fetch(asked, require_stable=require_stable)
        return answer.topics[0].partitions[0]

    def all_offsets(self, group: str = G) -> dict[TopicPartitionPair, int]:
        answer = self.coordinator.offsets.fetch(OffsetFetchRequestGroup(group, topics=None))
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in answer.topics
            for partition in topic.partitions
        }

    def describe(self, group: str = G) -> DescribedGroup:
        found = describe_group(self.coordinator.groups, group)
        assert found is not None
        return found

    @property
    def state(self) -> str:
        found = describe_group(self.coordinator.groups, G)
        return "none" if found is None else found.group_state

    # --- whole scenes ----------------------------------------------------------------------------

    def enter(self, count: int = 1, **options: Any) -> list[str]:
        """`count` new dynamic members are in, in one generation, and wait for its SyncGroups.

        The first one is the leader of a group that was empty.
        """
        first = [self.joined(self.join(**options)).member_id for _ in range(count)]
        requests = [self.join(member_id, **options) for member_id in first]
        if self.state == "PreparingRebalance":
            self.advance(self.config.group_initial_rebalance_delay_ms * 2)
        assert [self.error(request) for request in requests] == [ErrorCode.NONE] * count
        return first

    def stabilise(self, members: Sequence[str], generation: int) -> None:
        """All sync; the first one leads. Each is assigned its own id as bytes."""
        shares = {member_id: member_id.encode() for member_id in members}
        for member_id in members:
            self.sync(member_id, generation, shares if member_id == members[0] else None)

    def stable(self, count: int = 1, **options: Any) -> list[str]:
        """A stable group of `count` dynamic members in generation 1; the first one leads."""
        members = self.enter(count, **options)
        self.stabilise(members, 1)
        assert self.state == "Stable"
        return members
