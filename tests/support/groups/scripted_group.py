"""A scripted coordinator: grants one member all it asks for, until a test says otherwise.

with ScriptedGroup() as group:
    group.on(HeartbeatRequest, HeartbeatResponse(error_code=27), HeartbeatResponse())
"""

from collections.abc import Callable

from bradbury.protocol.messages.fetch import FetchRequest, FetchResponse
from bradbury.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from bradbury.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from bradbury.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from bradbury.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from bradbury.tests.support.wire.scripted_broker import SPOKEN, ScriptedBroker

GROUP_APIS = [
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
]


class ScriptedGroup(ScriptedBroker):
    """A coordinator with one member, the leader, whose every request it grants.

    Topic "t" has two partitions, both with committed offset 5 and nothing to read.
    """

    def __init__(self) -> None:
        super().__init__({"t": 2}, [*SPOKEN, *GROUP_APIS])
        self.generation = 0
        self.assignment = b""
        self.on(FindCoordinatorRequest, self.coordinator)
        self.on(JoinGroupRequest, self.join)
        self.on(SyncGroupRequest, self.sync)
        self.on(HeartbeatRequest, HeartbeatResponse())
        self.on(LeaveGroupRequest, LeaveGroupResponse())
        self.on(OffsetCommitRequest, self.commit)
        self.on(OffsetFetchRequest, self.committed)
        self.on(FetchRequest, FetchResponse())

    def coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=0, host="127.0.0.1", port=self.port)
                for key in request.coordinator_keys
            ]
        )

    def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        member_id = request.member_id or f"member-{self.generation}"
        self.generation += 1
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader=member_id,
            member_id=member_id,
            members=[
                JoinGroupResponseMember(member_id, None, bytes(request.protocols[0].metadata)),
                JoinGroupResponseMember("garbage", None, b"\x00\x03\xff"),
            ],
        )

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        own = {one.member_id: bytes(one.assignment) for one in request.assignments}
        return SyncGroupResponse(assignment=own[request.member_id])

    def commit(self, request: OffsetCommitRequest, code: int = 0) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(part.partition_index, code)
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def refuse_commit(self, code: int) -> Callable[[OffsetCommitRequest], OffsetCommitResponse]:
        return lambda request: self.commit(request, code)

    def committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        OffsetFetchResponseTopics(
                            name=topic.name,
                            partitions=[
                                OffsetFetchResponsePartitions(index, committed_offset=5)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics or []
                    ],
                )
                for group in request.groups
            ]
        )
