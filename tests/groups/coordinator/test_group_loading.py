"""How does a coordinator come to know what its log says?"""

import asyncio
from typing import Any

import pytest

from bradbury.coordinators import coordinator_context
from bradbury.groups.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    encode_group_record,
)
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    CoordinatorLoadInProgress,
    CorruptMessage,
    NotCoordinator,
)
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.protocol.records.records import ControlType, encode_control_batch, encode_records
from bradbury.tests.support.groups.led_groups import (
    NOW_MS,
    commit,
    fetched,
    join,
    led,
    loaded,
    new_host,
    offset_of,
    run,
    sync,
)
from bradbury.tests.support.storage.memory_replica import MemoryReplica


def test_until_the_log_is_read_the_client_is_asked_to_wait() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        await commit(await led(host, replica), 1)
        host.on_leader(0, 2, replica)
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


def test_a_log_that_cannot_be_read_is_read_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        await commit(await led(host, replica), 7)
        read, failures = replica.read, [OSError("the disk"), CorruptMessage("damaged")]

        def fails(*args: Any, **rest: Any) -> Any:
            if failures:
                raise failures.pop()
            return read(*args, **rest)

        replica.read = fails
        host.on_leader(0, 2, replica)
        assert offset_of(await loaded(host)) == 7
        assert failures == []
        host.close()

    monkeypatch.setattr(coordinator_context, "RELOAD_MS", 10)
    run(scene())
    assert caplog.text.count("__consumer_offsets-0 cannot be read; reading it again") == 2


def test_a_log_whose_oldest_segment_goes_while_it_is_read_is_read_from_its_new_start() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        for offset in range(3):
            await commit(shard, offset)
        host.on_leader(0, 2, replica)
        replica.log_start_offset = 2
        assert offset_of(await loaded(host)) == 2
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
