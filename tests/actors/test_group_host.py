"""What happens around the rules of groups: loading, waiting for commits, losing the partition?"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from bradbury.actors.group_host import LINES_AT_ONCE, GroupHost
from bradbury.cluster.metadata_image import MetadataImage, TopicImage
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.groups.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    encode_group_record,
)
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    CoordinatorLoadInProgress,
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
from bradbury.protocol.records import ControlType, encode_control_batch, encode_records
from bradbury.tests.support.memory_replica import MemoryReplica

NOW_MS = 1_700_000_000_000
CONFIG = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


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


def new_host(**settings: int) -> GroupHost:
    return GroupHost(replace(CONFIG, **settings), lambda: NOW_MS)


async def fetched(shard: Any, *, require_stable: bool = True) -> Any:
    """The one partition of group g, or None."""
    asked = OffsetFetchRequestGroup("g", topics=None)
    answer = await shard.fetch_offsets(asked, require_stable=require_stable)
    return answer.topics[0].partitions[0] if answer.topics else None


def commit(shard: Any, offset: int, group_id: str = "g") -> asyncio.Future[Any]:
    partition = OffsetCommitRequestPartition(0, offset)
    request = OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )
    return shard.commit_offsets(request, api_version=9, is_known=lambda *_: True)


def error_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def offset_of(shard: Any) -> int | None:
    """What is shown now, to whoever does not wait."""
    answer = shard.coordinator.fetch_offsets(OffsetFetchRequestGroup("g", topics=None))
    return answer.topics[0].partitions[0].committed_offset if answer.topics else None


def join(
    shard: Any, member_id: str = "", *, session_ms: int = 10_000, group_id: str = "g"
) -> asyncio.Future[Any]:
    request = JoinGroupRequest(
        group_id=group_id,
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


def test_offsets_go_with_their_topic_and_a_new_topic_of_that_name_begins_anew() -> None:
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


def test_offsets_of_a_transaction_count_from_its_marker_on() -> None:
    """As another broker of Kafka's has written them; we only read such logs for now."""

    def batch(producer_id: int, partition: int, offset: int) -> memoryview:
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        value = OffsetCommitValue(offset=offset, commit_timestamp=NOW_MS)
        encoded = encode_group_record(OffsetRecord(key, value))
        return memoryview(
            encode_records(
                [(NOW_MS, *encoded, ())],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )

    def marker(kind: ControlType, producer_id: int) -> memoryview:
        return memoryview(
            encode_control_batch(
                kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
            )
        )

    async def found(replica: MemoryReplica) -> tuple[int | None, int]:
        host = new_host()
        shard = await led(host, replica)
        partition = await fetched(shard)
        shown = offset_of(shard)
        host.close()
        return shown, 0 if partition is None else partition.error_code

    async def scene() -> None:
        replica = MemoryReplica()
        replica.append(batch(7, 0, 70))
        assert await found(replica) == (None, 0)
        replica.append(marker(ControlType.COMMIT, 7))
        assert await found(replica) == (70, 0)
        replica.append(batch(8, 0, 80))
        assert await found(replica) == (70, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        replica.append(marker(ControlType.ABORT, 8))
        assert await found(replica) == (70, 0)

    run(scene())


def test_what_is_read_at_the_start_is_shown_only_when_it_is_committed() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit(shard, 1)
        host.close()
        replica.lag = 1
        host = new_host()
        host.on_leader(0, 2, replica)
        while not replica.parked:
            await asyncio.sleep(0)
        with pytest.raises(CoordinatorLoadInProgress):
            host.shard(0)
        replica.lag = 0
        for waiter in replica.parked:
            waiter.on_readable(1)
        assert offset_of(await loaded(host)) == 1
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
        host.on_leader(1, 1, MemoryReplica())
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

    caplog.set_level(logging.INFO, "bradbury.groups")
    run(scene())
    assert LINES_AT_ONCE <= len(caplog.records) < LINES_AT_ONCE + 500
