"""How does a coordinator come to know what its log says?"""

import asyncio
from typing import Any

import pytest

from bradbury.coordinators import coordinator_context
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    CoordinatorLoadInProgress,
    CorruptMessage,
    NotCoordinator,
)
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.tests.support.groups.led_groups import (
    commit,
    commit_in_transaction,
    end,
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
    assert caplog.text.count("loading __consumer_offsets-0 failed; retrying") == 2


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


def test_open_transactions_and_their_ends_are_found_in_the_log() -> None:
    async def found(replica: MemoryReplica) -> tuple[int | None, int]:
        host = new_host()
        shard = await led(host, replica)
        partition = await fetched(shard)
        shown = offset_of(shard)
        host.close()
        return shown, 0 if partition is None else partition.error_code

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit_in_transaction(shard, 70)
        assert await found(replica) == (None, 0)
        await end(shard)
        assert await found(replica) == (70, 0)
        await commit_in_transaction(shard, 80)
        assert await found(replica) == (70, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await end(shard, is_commit=False)
        assert await found(replica) == (70, 0)
        host.close()

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
