"""What happens around the rules of groups: waiting for commits, losing the partition, timers?"""

import asyncio
import logging
from typing import Any
from uuid import UUID

import pytest
import uvloop

from bradbury.actors.coordinators.group_host import LINES_AT_ONCE
from bradbury.cluster.metadata.metadata_image import MetadataImage, TopicImage
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
)
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from bradbury.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from bradbury.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from bradbury.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from bradbury.tests.support.groups.led_groups import (
    commit,
    error_of,
    fetched,
    join,
    led,
    loaded,
    new_host,
    offset_of,
    run,
    stand_still,
    sync,
)
from bradbury.tests.support.storage.memory_replica import MemoryReplica


def test_a_partition_that_is_not_led_here_has_another_coordinator() -> None:
    host = new_host()
    with pytest.raises(NotCoordinator):
        host.shard(0)
    assert host.shards() == []


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


def test_waiting_requests_fail_when_the_partition_moves() -> None:
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


@pytest.mark.parametrize("error", [KafkaStorageError("the disk"), OSError("a fault of ours")])
def test_a_commit_in_doubt_makes_the_shard_read_its_log_again(error: Exception) -> None:
    """The record may be in the log or not; only the log knows."""

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        replica.hold()
        doubtful, behind = commit(shard, 1), commit(shard, 2)
        replica.fail(error)
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


def test_a_member_that_sends_after_the_process_was_stopped_is_still_a_member() -> None:
    """Nothing could be read meanwhile, so nobody was silent. uvloop, as in a broker."""

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        member = (await join(shard, session_ms=300)).member_id
        await sync(shard, member, b"mine")
        stand_still(0.6)
        await asyncio.sleep(0.01)
        heartbeat = await shard.heartbeat(HeartbeatRequest("g", 1, member))
        assert heartbeat.error_code == ErrorCode.NONE
        host.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scene(), 60))


def test_a_fault_of_the_log_itself_leaves_the_record_in_doubt() -> None:
    """Whether it was written is not known: the log is read, and the client comes again."""

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit(shard, 1)
        replica.refuse_with = OSError("the disk")
        with pytest.raises(NotCoordinator):
            await commit(shard, 2)
        replica.refuse_with = None
        assert offset_of(await loaded(host)) == 1
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


def test_a_fetch_that_comes_behind_a_commit_of_its_group_sees_it() -> None:
    """A client may send both at once, and gets both answers in their order."""

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit(shard, 1)
        replica.hold()
        written = commit(shard, 2)
        read = asyncio.ensure_future(fetched(shard))
        await asyncio.sleep(0)
        assert not read.done()
        other = await shard.fetch_offsets(
            OffsetFetchRequestGroup("another", topics=None), require_stable=True
        )
        assert other.topics == []
        replica.commit()
        await written
        assert (await read).committed_offset == 2
        host.close()

    run(scene())


def test_a_commit_that_takes_too_long_is_refused_and_may_yet_count() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host(offsets_commit_timeout_ms=20)
        shard = await led(host, replica)
        await commit(shard, 1)
        replica.hold()
        slow = commit(shard, 2)
        read = asyncio.ensure_future(fetched(shard))
        assert error_of(await slow) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(CoordinatorNotAvailable):
            await read
        assert offset_of(shard) == 1
        behind = commit(shard, 3)
        replica.commit()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert offset_of(shard) == 2
        replica.commit()
        assert error_of(await behind) == ErrorCode.NONE
        assert offset_of(shard) == 3
        host.close()

    run(scene())


def test_an_assignment_that_takes_too_long_makes_the_group_begin_again() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host(offsets_commit_timeout_ms=20)
        shard = await led(host, replica)
        member = (await join(shard)).member_id
        replica.hold()
        answer = await sync(shard, member, b"mine")
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert shard.describe("g").group_state == "PreparingRebalance"
        again = await join(shard, member)
        assert (again.error_code, again.generation_id) == (0, 2)
        host.close()

    run(scene())


def test_one_slow_group_never_delays_another() -> None:
    """Its members do not come back; the others of the same shard join, sync, work and commit."""

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        slow = (await join(shard, group_id="slow")).member_id
        await shard.sync(SyncGroupRequest("slow", 1, slow))
        waits = join(shard, group_id="slow")
        for number in range(20):
            group_id = f"quick-{number}"
            answer = await asyncio.wait_for(join(shard, group_id=group_id), 1)
            await asyncio.wait_for(shard.sync(SyncGroupRequest(group_id, 1, answer.member_id)), 1)
            heartbeat = shard.heartbeat(HeartbeatRequest(group_id, 1, answer.member_id))
            assert heartbeat.done()
        assert not waits.done()
        assert shard.describe("slow").group_state == "PreparingRebalance"
        host.close()

    run(scene())


def test_offsets_go_with_their_topic_and_a_new_topic_of_that_name_starts_empty() -> None:
    def image(**topics: int) -> MetadataImage:
        return MetadataImage(
            topics={name: TopicImage(UUID(int=number), name) for name, number in topics.items()}
        )

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit(shard, 1)
        host.on_metadata(image(t=1), image(t=1, other=2))
        assert offset_of(shard) == 1
        host.on_metadata(image(t=1, other=2), image(t=3))
        assert offset_of(shard) is None
        await commit(shard, 2)
        host.on_leader(0, 2, replica)  # loads, and hears of it meanwhile
        host.on_metadata(image(t=3), image())
        shard = await loaded(host)
        assert offset_of(shard) is None
        host.close()

    run(scene())


def test_a_coordinator_that_ends_gives_back_the_memory_of_its_members() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host(bradbury_group_members_max_bytes=5_000)
        shard = await led(host, replica)
        first, second = await asyncio.gather(*(join(shard, group_id=name) for name in "ab"))
        assert (first.error_code, second.error_code) == (0, 0)
        refused = await join(shard, group_id="c")
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert shard.describe("c") is None
        assert host.numbers().memory_bytes == host.memory.used > 4_000
        host.close()
        assert host.memory.used == 0

    run(scene())


def test_the_numbers_of_a_node_are_those_of_its_groups() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        member = (await join(shard)).member_id
        await sync(shard, member, b"mine")
        await commit(shard, 5, "simple")
        host.on_leader(1, 1, replica)
        numbers = host.numbers()
        assert {state: count for state, count in numbers.states.items() if count} == {
            "Stable": 1,
            "Empty": 1,
        }
        assert (numbers.members, numbers.offsets) == (1, 1)
        assert (numbers.partitions, numbers.partitions_loading) == (1, 1)
        assert (host.counters.completed_rebalances, host.counters.offset_commits) == (1, 1)
        host.close()

    run(scene())


def test_many_expired_groups_go_in_several_turns_of_the_loop() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host(offsets_retention_check_interval_ms=5)
        shard = await led(host, replica)
        for number in range(450):
            partition = OffsetCommitRequestPartition(0, 1)
            request = OffsetCommitRequest(
                group_id=f"group-{number}",
                retention_time_ms=0,
                topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
            )
            await shard.commit_offsets(request, api_version=4, is_known=lambda *_: True)
        while host.numbers().offsets:
            await asyncio.sleep(0.001)
        assert host.counters.offsets_expired == 450
        assert host.shards()[0].list_groups() == []
        host.close()

    run(scene())


def test_a_flood_of_rebalances_is_no_flood_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        for number in range(LINES_AT_ONCE // 3):  # more than four lines each
            await shard.leave(
                LeaveGroupRequest("g", [MemberIdentity((await join(shard)).member_id)])
            )
            if number == 0:
                assert (
                    "Preparing to rebalance group g in state Empty with old generation 0"
                    in caplog.text
                )
        host.close()

    caplog.set_level(logging.INFO, "bradbury.actors.coordinators")
    run(scene())
    assert LINES_AT_ONCE <= len(caplog.records) < LINES_AT_ONCE + 500
