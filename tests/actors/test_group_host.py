"""What happens around the rules of groups: loading, waiting for commits, losing the partition?"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from bradbury.actors.group_host import GroupHost
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    CoordinatorLoadInProgress,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
)
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from bradbury.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from bradbury.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from bradbury.tests.support.memory_replica import MemoryReplica

NOW_MS = 1_700_000_000_000
CONFIG = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 10))


async def led(host: GroupHost, replica: MemoryReplica, *, epoch: int = 1) -> Any:
    """The shard of partition 0, once it is loaded."""
    host.on_leader(0, epoch, replica)
    return await loaded(host)


async def loaded(host: GroupHost) -> Any:
    while True:
        try:
            return host.shard(0)
        except CoordinatorLoadInProgress:
            await asyncio.sleep(0)


def new_host() -> GroupHost:
    return GroupHost(CONFIG, lambda: NOW_MS)


def commit(shard: Any, offset: int) -> asyncio.Future[Any]:
    partition = OffsetCommitRequestPartition(0, offset)
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )
    return shard.commit_offsets(request, api_version=9, is_known=lambda *_: True)


def error_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def offset_of(shard: Any) -> int | None:
    answer = shard.fetch_offsets(OffsetFetchRequestGroup("g", topics=None))
    return answer.topics[0].partitions[0].committed_offset if answer.topics else None


def join(shard: Any, member_id: str = "", *, session_ms: int = 10_000) -> asyncio.Future[Any]:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", memoryview(b"topics"))],
    )
    return shard.join(request, api_version=3, client_id="c", client_host="/127.0.0.1")


def sync(shard: Any, member_id: str, share: bytes) -> asyncio.Future[Any]:
    given = [SyncGroupRequestAssignment(member_id, share)]
    return shard.sync(SyncGroupRequest("g", 1, member_id, assignments=given))


def test_a_partition_that_is_not_led_here_has_another_coordinator() -> None:
    host = new_host()
    with pytest.raises(NotCoordinator):
        host.shard(0)
    assert host.shards() == []


def test_until_the_log_is_read_the_client_is_asked_to_wait() -> None:
    async def scene() -> None:
        host = new_host()
        host.on_leader(0, 1, MemoryReplica())
        with pytest.raises(CoordinatorLoadInProgress):
            host.shard(0)
        with pytest.raises(CoordinatorLoadInProgress):
            host.shards()
        await loaded(host)
        assert len(host.shards()) == 1
        host.close()

    run(scene())


def test_the_next_coordinator_finds_members_assignments_and_offsets_in_the_log() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        for offset in range(20):
            await commit(shard, offset)
        member = (await join(shard)).member_id
        assert (await sync(shard, member, b"mine")).assignment == b"mine"
        host.close()

        other = new_host()
        shard = await led(other, replica, epoch=2)
        assert offset_of(shard) == 19
        assert (await sync(shard, member, b"ignored")).assignment == b"mine"
        assert (await shard.heartbeat(HeartbeatRequest("g", 1, member))).error_code == 0
        other.close()

    run(scene())


def test_nothing_is_answered_or_shown_before_it_is_committed() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        replica.hold()
        first, second = commit(shard, 1), commit(shard, 2)
        await asyncio.sleep(0)
        assert not first.done()
        assert offset_of(shard) is None
        replica.commit()
        assert error_of(await first) == ErrorCode.NONE
        assert offset_of(shard) == 1
        assert not second.done()
        replica.commit()
        assert error_of(await second) == ErrorCode.NONE
        assert offset_of(shard) == 2
        host.close()

    run(scene())


def test_commits_that_end_out_of_order_are_applied_in_log_order() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        replica.hold()
        first, second = commit(shard, 1), commit(shard, 2)
        replica.waiting.pop().set_result(None)
        await asyncio.sleep(0)
        assert not second.done()
        replica.commit()
        await asyncio.gather(first, second)
        assert offset_of(shard) == 2
        host.close()

    run(scene())


def test_whoever_waits_is_sent_away_when_the_partition_moves() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        replica.hold()
        waiting = [commit(shard, 1), join(shard)]
        host.on_resigned(0)
        for answer in waiting:
            with pytest.raises(NotCoordinator):
                await answer
        with pytest.raises(NotCoordinator):
            host.shard(0)

    run(scene())


def test_a_newer_epoch_reads_the_log_again_and_an_older_one_is_ignored() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        first = await led(host, replica, epoch=5)
        await commit(first, 7)
        parked = join(first)
        host.on_leader(0, 4, replica)
        host.on_leader(0, 5, replica)
        assert host.shard(0) is first
        host.on_leader(0, 6, replica)
        with pytest.raises(NotCoordinator):
            await parked
        second = await loaded(host)
        assert second is not first
        assert offset_of(second) == 7
        host.close()

    run(scene())


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (NotLeaderOrFollower("moved"), ErrorCode.NOT_COORDINATOR),
        (NotEnoughReplicas("alone"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_append_that_is_refused_changes_nothing(cause: Any, code: ErrorCode) -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit(shard, 1)
        replica.refuse_with = cause
        assert error_of(await commit(shard, 2)) == code
        replica.refuse_with = None
        assert offset_of(shard) == 1
        host.close()

    run(scene())


def test_a_commit_in_doubt_makes_the_shard_read_its_log_again() -> None:
    """The record may be in the log or not; only the log knows."""

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        replica.hold()
        doubtful, behind = commit(shard, 1), commit(shard, 2)
        replica.fail(KafkaStorageError("the disk"))
        for answer in (doubtful, behind):
            with pytest.raises(NotCoordinator):
                await answer
        shard = await loaded(host)
        assert offset_of(shard) == 2
        host.close()

    run(scene())


def test_a_silent_member_is_out_after_its_session_in_real_time() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        first = await join(shard, session_ms=60)
        assert first.error_code == 0
        while shard.describe("g").group_state != "Empty":
            await asyncio.sleep(0.005)
        heartbeat = await shard.heartbeat(HeartbeatRequest("g", 1, first.member_id))
        assert heartbeat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        host.close()

    run(scene())


def test_a_request_does_not_point_into_the_receive_buffer_once_it_is_taken() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        buffer = bytearray(b"topics")
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", memoryview(buffer))],
        )
        answer = shard.join(request, api_version=3, client_id="c", client_host="/h")
        buffer[:] = b"XXXXXX"
        assert (await answer).members[0].metadata == b"topics"
        share = bytearray(b"mine")
        member_id = (await answer).member_id
        given = [SyncGroupRequestAssignment(member_id, memoryview(share))]
        replica.hold()
        synced = shard.sync(SyncGroupRequest("g", 1, member_id, assignments=given))
        share[:] = b"XXXX"
        replica.commit()
        assert (await synced).assignment == b"mine"
        host.close()

    run(scene())
