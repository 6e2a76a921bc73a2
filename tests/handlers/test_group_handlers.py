"""Does every version of every group API get an answer that its version can carry?

Requests go in as frames and answers are read back from bytes, so a null where a version has none,
or a field in the wrong place, shows here.
"""

import asyncio
import inspect
import struct
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Self
from uuid import UUID, uuid4

import pytest

from bradbury.actors.coordinators.group_host import GroupHost
from bradbury.cluster.metadata.metadata_image import (
    MetadataImage,
    NodeImage,
    PartitionImage,
    TopicImage,
)
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.handlers.ports.request_metrics import RequestMetrics
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.handlers.server.dispatch import dispatch
from bradbury.handlers.server.table import APIS
from bradbury.protocol.codec import read_message, write_message
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from bradbury.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
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
from bradbury.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from bradbury.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from bradbury.protocol.schema import Message
from bradbury.tests.support.storage.memory_replica import MemoryReplica

WIDE = 2_600
PARTITION = PartitionImage((1,), (1,), 1, 0, 0)
NODE = NodeImage(1, "directory", "life", ("group",), "host-1", 9093, None, 5)
IMAGE = MetadataImage(
    nodes={1: NODE},
    topics={
        "__consumer_offsets": TopicImage(UUID(int=1), "__consumer_offsets", (PARTITION,)),
        "__transaction_state": TopicImage(UUID(int=4), "__transaction_state", (PARTITION,)),
        "t": TopicImage(UUID(int=2), "t", (PARTITION, PARTITION)),
        "wide": TopicImage(UUID(int=3), "wide", (PARTITION,) * WIDE),
    },
)
CONFIG = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0)

MESSAGES: dict[type[Message], type[Message]] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    OffsetCommitRequest: OffsetCommitResponse,
    OffsetFetchRequest: OffsetFetchResponse,
    OffsetDeleteRequest: OffsetDeleteResponse,
    DescribeGroupsRequest: DescribeGroupsResponse,
    ListGroupsRequest: ListGroupsResponse,
    DeleteGroupsRequest: DeleteGroupsResponse,
}


def versions(request: type[Message]) -> list[int]:
    api = APIS[request.API_KEY]
    return list(range(api.lowest, api.highest + 1))


class Broker:
    """A node with the one partition of a small offsets topic; or one without groups."""

    def __init__(self, *, leads: bool = True, has_groups: bool = True) -> None:
        self.groups = GroupHost(CONFIG, lambda: 1_700_000_000_000, uuid4) if has_groups else None
        self.node: Any = SimpleNamespace(
            groups=self.groups,
            image=IMAGE,
            metrics=RequestMetrics(),
            quotas=None,
            run_in_thread=asyncio.to_thread,
            server_config=ServerConfig(),
        )
        self.replica = MemoryReplica()
        if leads and self.groups is not None:
            self.groups.on_leader(0, 1, self.replica)

    async def __aenter__(self) -> Self:
        for _ in range(100):
            await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.groups is not None:
            self.groups.close()

    async def ask(self, request: Message, version: int) -> Any:
        flexible = version >= request.FLEXIBLE
        frame = bytearray(struct.pack(">hhih", request.API_KEY, version, 7, 4) + b"test")
        if flexible:
            frame.append(0)
        write_message(request, version, frame)
        answer = dispatch(memoryview(frame), self.node, "127.0.0.1:5000")
        chunks = await answer if inspect.isawaitable(answer) else answer
        body = b"".join(bytes(chunk) for chunk in chunks)
        assert struct.unpack_from(">ii", body) == (len(body) - 4, 7)
        answers = {**MESSAGES, FindCoordinatorRequest: FindCoordinatorResponse}
        return read_message(answers[type(request)], version, body, 9 if flexible else 8)

    async def member(self, *, instance_id: str | None = None) -> str:
        """A member of group g in a stable generation 1."""
        version = 3 if instance_id is None else 9
        joined = await self.ask(join_request(instance_id=instance_id), version)
        given = [SyncGroupRequestAssignment(joined.member_id, b"share")]
        await self.ask(SyncGroupRequest("g", 1, joined.member_id, assignments=given), 3)
        return str(joined.member_id)


def join_request(member_id: str = "", *, instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"topics")],
    )


def commit_request(group_id: str = "g", offset: int = 5) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(0, offset), OffsetCommitRequestPartition(9, offset)]
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )


def fetch_request(version: int, *, everything: bool = False) -> OffsetFetchRequest:
    if version >= 8:
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        topics = None if everything else [topic]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
    old = None if everything else [OffsetFetchRequestTopic("t", [0])]
    return OffsetFetchRequest(group_id="g", topics=old)


def fetched(answer: OffsetFetchResponse) -> Any:
    topics = answer.groups[0].topics if answer.groups else answer.topics
    return topics[0].partitions[0]


@pytest.mark.parametrize("version", versions(JoinGroupRequest))
def test_join(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            answer = await broker.ask(join_request(), version)
            if version >= 4:
                assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
                answer = await broker.ask(join_request(answer.member_id), version)
            assert (answer.error_code, answer.generation_id) == (0, 1)
            assert answer.members[0].metadata == b"topics"
            refused = await broker.ask(join_request("ghost"), version)
            assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert refused.protocol_name == (None if version >= 7 else "")

    asyncio.run(scene())


@pytest.mark.parametrize("version", versions(SyncGroupRequest))
def test_sync(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            member = await broker.member()
            named = {"protocol_type": "consumer", "protocol_name": "range"}
            answer = await broker.ask(SyncGroupRequest("g", 1, member, **named), version)
            assert (answer.error_code, bytes(answer.assignment)) == (0, b"share")
            refused = await broker.ask(SyncGroupRequest("g", 1, "ghost", **named), version)
            assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            unnamed = await broker.ask(SyncGroupRequest("g", 1, member), version)
            expected = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else 0
            assert unnamed.error_code == expected

    asyncio.run(scene())


@pytest.mark.parametrize("version", versions(HeartbeatRequest))
def test_heartbeat(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            member = await broker.member()
            assert (await broker.ask(HeartbeatRequest("g", 1, member), version)).error_code == 0
            refused = await broker.ask(HeartbeatRequest("g", 3, member), version)
            assert refused.error_code == ErrorCode.ILLEGAL_GENERATION

    asyncio.run(scene())


@pytest.mark.parametrize("version", versions(LeaveGroupRequest))
def test_leave(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            member = await broker.member()
            for name, error in [("ghost", ErrorCode.UNKNOWN_MEMBER_ID), (member, ErrorCode.NONE)]:
                request = LeaveGroupRequest("g", [MemberIdentity(name)], name)
                answer = await broker.ask(request, version)
                if version >= 3:
                    assert answer.error_code == 0
                    assert answer.members[0].error_code == error
                else:
                    assert answer.error_code == error

    asyncio.run(scene())


@pytest.mark.parametrize("version", versions(OffsetCommitRequest))
def test_offset_commit(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            answer = await broker.ask(commit_request(), version)
            codes = [partition.error_code for partition in answer.topics[0].partitions]
            assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert fetched(await broker.ask(fetch_request(7), 7)).committed_offset == 5

    asyncio.run(scene())


def wide_commit(member_id: str = "", generation: int = -1) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(number, number) for number in range(WIDE)]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="wide", partitions=partitions)],
    )


def test_between_the_parts_of_a_long_commit_every_other_group_has_its_turn() -> None:
    async def scene() -> None:
        async with Broker() as broker:
            long = asyncio.create_task(broker.ask(wide_commit(), 9))
            while not long.done():
                await broker.ask(commit_request("other"), 9)
                await asyncio.sleep(0)
            answer = await long
            assert [len(topic.partitions) for topic in answer.topics] == [WIDE]
            assert {partition.error_code for partition in answer.topics[0].partitions} == {0}
            counts = broker.replica.record_counts
            assert [count for count in counts if count > 1] == [500] * 5 + [100]
            assert all(1 in pair for pair in pairwise(counts))  # never two parts in a row
            topic = OffsetFetchRequestTopics(name="wide", partition_indexes=list(range(WIDE)))
            everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[topic])])
            found = (await broker.ask(everything, 8)).groups[0].topics[0].partitions
            assert [partition.committed_offset for partition in found] == list(range(WIDE))

    asyncio.run(scene())


def test_all_parts_of_a_long_commit_are_under_way_before_the_first_is_replicated() -> None:
    async def scene() -> None:
        async with Broker() as broker:
            broker.replica.hold()
            long = asyncio.create_task(broker.ask(wide_commit(), 9))
            async with asyncio.timeout(20):
                while len(broker.replica.record_counts) < 6:
                    await asyncio.sleep(0)
            assert not long.done()
            while broker.replica.waiting:
                broker.replica.commit()
                await asyncio.sleep(0)
            answer = await long
            assert {partition.error_code for partition in answer.topics[0].partitions} == {0}

    asyncio.run(scene())


def test_a_member_that_goes_in_the_middle_of_a_long_commit_has_the_rest_refused() -> None:
    async def scene() -> None:
        async with Broker() as broker:
            member_id = await broker.member()
            before = len(broker.replica.record_counts)
            long = asyncio.create_task(broker.ask(wide_commit(member_id, 1), 9))
            async with asyncio.timeout(20):
                while len(broker.replica.record_counts) < before + 2:
                    await asyncio.sleep(0)
            await broker.ask(LeaveGroupRequest("g", [MemberIdentity(member_id)]), 3)
            answer = await long
            codes = [partition.error_code for partition in answer.topics[0].partitions]
            assert codes == [0] * 1000 + [ErrorCode.UNKNOWN_MEMBER_ID] * (WIDE - 1000)

    asyncio.run(scene())


@pytest.mark.parametrize("version", versions(OffsetFetchRequest))
def test_offset_fetch(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            never = fetched(await broker.ask(fetch_request(version), version))
            assert (never.committed_offset, never.metadata, never.error_code) == (-1, "", 0)
            await broker.ask(commit_request(), 9)
            found = fetched(await broker.ask(fetch_request(version), version))
            assert found.committed_offset == 5
            if version >= 2:
                everything = fetch_request(version, everything=True)
                assert fetched(await broker.ask(everything, version)).committed_offset == 5

    asyncio.run(scene())


@pytest.mark.parametrize("version", [8, 9])
def test_many_groups_are_asked_for_at_once_and_each_has_an_error_of_its_own(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            await broker.ask(commit_request(), 9)
            groups = [OffsetFetchRequestGroup(name, topics=None) for name in ("g", "ghost")]
            answer = await broker.ask(OffsetFetchRequest(groups=groups), version)
            assert [(group.group_id, group.error_code) for group in answer.groups] == [
                ("g", 0),
                ("ghost", 0),
            ]
            assert [len(group.topics) for group in answer.groups] == [1, 0]

    asyncio.run(scene())


def delete_offset_request(group_id: str = "g") -> OffsetDeleteRequest:
    topics = [
        OffsetDeleteRequestTopic(
            name, [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
        )
        for name in ("t", "gone")
    ]
    return OffsetDeleteRequest(group_id, topics)


@pytest.mark.parametrize("version", versions(OffsetDeleteRequest))
def test_offset_delete(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            await broker.ask(commit_request("simple"), 9)
            ghost = await broker.ask(delete_offset_request("ghost"), version)
            assert ghost.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            answer = await broker.ask(delete_offset_request("simple"), version)
            codes = [[p.error_code for p in topic.partitions] for topic in answer.topics]
            assert codes == [
                [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
                [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
            ]
            again = await broker.ask(delete_offset_request("simple"), version)
            assert again == answer  # the group stays

    asyncio.run(scene())


@pytest.mark.parametrize("version", versions(DescribeGroupsRequest))
def test_describe(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            member = await broker.member(instance_id="one")
            answer = await broker.ask(DescribeGroupsRequest(["g", "ghost"], True), version)
            group, ghost = answer.groups
            assert (group.group_state, group.protocol_data) == ("Stable", "range")
            (described,) = group.members
            assert (described.member_id, described.client_id) == (member, "test")
            assert described.client_host == "/127.0.0.1"
            assert bytes(described.member_assignment) == b"share"
            assert ghost.group_state == "Dead"
            assert ghost.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
            if version >= 3:
                assert group.authorized_operations == 3400  # as of Kafka 4.1

    asyncio.run(scene())


@pytest.mark.parametrize("version", versions(ListGroupsRequest))
def test_list(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            await broker.member()
            await broker.ask(commit_request("simple"), 9)
            answer = await broker.ask(ListGroupsRequest(), version)
            assert {(g.group_id, g.protocol_type) for g in answer.groups} == {
                ("g", "consumer"),
                ("simple", ""),
            }
            if version >= 4:
                asked = ListGroupsRequest(states_filter=["stable"])
                assert [g.group_id for g in (await broker.ask(asked, version)).groups] == ["g"]
            if version >= 5:
                asked = ListGroupsRequest(types_filter=["consumer"])
                assert (await broker.ask(asked, version)).groups == []
                asked = ListGroupsRequest(types_filter=["Classic"])
                assert len((await broker.ask(asked, version)).groups) == 2

    asyncio.run(scene())


@pytest.mark.parametrize("version", versions(DeleteGroupsRequest))
def test_delete(version: int) -> None:
    async def scene() -> None:
        async with Broker() as broker:
            await broker.member()
            await broker.ask(commit_request("simple"), 9)
            asked = DeleteGroupsRequest(["simple", "g", "ghost", "simple"])
            answer = await broker.ask(asked, version)
            assert {result.group_id: result.error_code for result in answer.results} == {
                "simple": 0,
                "g": ErrorCode.NON_EMPTY_GROUP,
                "ghost": ErrorCode.GROUP_ID_NOT_FOUND,
            }

    asyncio.run(scene())


GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.mark.parametrize("version", versions(FindCoordinatorRequest))
def test_find_coordinator(version: int) -> None:
    async def find(broker: Broker, key_type: int) -> list[tuple[str | None, int, str, int, int]]:
        """The coordinators of two groups, and of the one without a name; before v4 one at a time."""
        keys = ["g", "other", ""]
        if version >= 4:
            asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
            answers = (await broker.ask(asked, version)).coordinators
            return [(one.key, one.node_id, one.host, one.port, one.error_code) for one in answers]
        found = []
        for key in keys:
            asked = FindCoordinatorRequest(key=key, key_type=key_type)
            one = await broker.ask(asked, version)
            found.append((key, one.node_id, one.host, one.port, one.error_code))
        return found

    async def scene() -> None:
        async with Broker() as broker:
            here = [(key, 1, "host-1", 9093, 0) for key in ("g", "other", "")]
            assert await find(broker, GROUP) == here
            if version >= 1:
                assert await find(broker, TRANSACTION) == here
                assert {one[4] for one in await find(broker, SHARE)} == {ErrorCode.INVALID_REQUEST}
            broker.node.image = replace(IMAGE, nodes={1: replace(NODE, fenced=True)})
            gone = await find(broker, GROUP)
            assert {one[1:] for one in gone} == {(-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)}

    asyncio.run(scene())


def requests(version: int, kind: type[Message]) -> Message:
    match kind.__name__:
        case "JoinGroupRequest":
            return join_request()
        case "OffsetCommitRequest":
            return commit_request()
        case "OffsetDeleteRequest":
            return delete_offset_request()
        case "OffsetFetchRequest":
            return fetch_request(version)
        case "DescribeGroupsRequest":
            return DescribeGroupsRequest(["g"])
        case "DeleteGroupsRequest":
            return DeleteGroupsRequest(["g"])
        case "LeaveGroupRequest":
            return LeaveGroupRequest("g", [MemberIdentity("m")], "m")
        case "SyncGroupRequest":
            return SyncGroupRequest("g", protocol_type="consumer", protocol_name="range")
        case _:
            return kind(group_id="g")  # type: ignore[call-arg]


def error_codes(value: Any) -> set[int]:
    """Every error code anywhere in a response."""
    if isinstance(value, list):
        return set().union(*(error_codes(item) for item in value))
    if not hasattr(value, "__slots__") or isinstance(value, bytes | str | int | memoryview):
        return set()
    found = {value.error_code} if hasattr(value, "error_code") else set()
    return found.union(*(error_codes(getattr(value, name)) for name in value.__slots__))


CASES = [
    pytest.param(kind, version, id=f"{kind.__name__}-v{version}")
    for kind in MESSAGES
    if kind is not ListGroupsRequest
    for version in versions(kind)
]


@pytest.mark.parametrize(("kind", "version"), CASES)
@pytest.mark.parametrize("has_groups", [True, False])
def test_a_group_of_another_node_moves_the_client_on(
    kind: type[Message], version: int, has_groups: bool
) -> None:
    async def scene() -> None:
        async with Broker(leads=False, has_groups=has_groups) as broker:
            answer = await broker.ask(requests(version, kind), version)
            assert error_codes(answer) - {0} == {ErrorCode.NOT_COORDINATOR}

    asyncio.run(scene())


@pytest.mark.parametrize(("kind", "version"), CASES)
def test_while_its_log_is_read_the_client_is_asked_to_wait(
    kind: type[Message], version: int
) -> None:
    async def scene() -> None:
        broker = Broker()
        await broker.ask(commit_request("another"), 9)
        broker.groups.on_leader(0, 2, broker.replica)
        answer = await broker.ask(requests(version, kind), version)
        waits = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        if kind is HeartbeatRequest:
            waits = set()  # the group will be there, with a full session for everybody
        assert error_codes(answer) - {0} == waits
        await broker.__aexit__()

    asyncio.run(scene())


def test_a_node_without_groups_lists_none() -> None:
    async def scene() -> None:
        async with Broker(has_groups=False) as broker:
            answer = await broker.ask(ListGroupsRequest(), 5)
            assert (answer.error_code, answer.groups) == (0, [])

    asyncio.run(scene())
