"""What is written for transactions with offsets of groups, and when is it applied and answered?"""

import asyncio
import os
from typing import Any

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaStorageError,
    NotCoordinator,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from bradbury.protocol.records.record_batch import (
    CONTROL_MASK,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    RecordBatchHeader,
    walk_batches,
)
from bradbury.protocol.records.records import ControlType, control_type, iterate_records
from bradbury.tests.support.groups.led_groups import (
    commit,
    commit_in_transaction,
    end,
    error_of,
    fetched,
    led,
    loaded,
    new_host,
    offset_of,
    run,
)
from bradbury.tests.support.storage.memory_replica import MemoryReplica


def batches(replica: MemoryReplica) -> list[tuple[RecordBatchHeader, bytes]]:
    data = os.pread(replica._file.fileno(), 1 << 20, 0)
    return [
        (header, data[position : position + header.size])
        for position, header in walk_batches(memoryview(data), strict=True)
    ]


def test_each_commit_is_a_transactional_batch_of_its_own_without_a_sequence() -> None:
    """As Kafka's coordinator writes them; only the control batch has the coordinator's epoch."""

    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit(shard, 1)
        await commit_in_transaction(shard, 2)
        await end(shard)
        host.close()
        (plain, _), (transactional, _), (marker, data) = batches(replica)
        assert (plain.producer_id, plain.attributes & TRANSACTIONAL_MASK) == (-1, 0)
        for header in (transactional, marker):
            assert (header.producer_id, header.producer_epoch) == (7, 3)
            assert header.base_sequence == NO_SEQUENCE
            assert header.attributes & TRANSACTIONAL_MASK
        assert not transactional.attributes & CONTROL_MASK
        assert marker.attributes & CONTROL_MASK
        (record,) = iterate_records(data)
        assert control_type(record.key) is ControlType.COMMIT
        assert record.value == bytes.fromhex("000000000005")

    run(scene())


def test_the_guard_of_the_verification_goes_with_the_append() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        guard = object()
        await commit_in_transaction(shard, 2, guard=guard)
        await commit(shard, 2)
        assert replica.guards == [guard, None]
        host.close()

    run(scene())


def test_the_end_is_answered_when_it_is_committed_and_applied() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit_in_transaction(shard, 2)
        replica.hold()
        ended = end(shard)
        await asyncio.sleep(0)
        assert not ended.done()
        assert offset_of(shard) is None
        replica.commit()
        await ended
        assert offset_of(shard) == 2
        host.close()

    run(scene())


def test_what_is_asked_for_between_commit_and_marker_is_applied_between_them() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        replica.hold()
        answers: list[Any] = [
            commit_in_transaction(shard, 2),
            commit(shard, 3),
            end(shard),
            commit_in_transaction(shard, 4),
        ]
        while replica.waiting:  # the last one is known to be committed first
            replica.waiting.pop().set_result(None)
        await asyncio.gather(*answers)
        assert offset_of(shard) == 3
        partition = await fetched(shard)
        assert partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        host.close()

    run(scene())


def test_a_reader_waits_for_the_end_that_came_before_it() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit_in_transaction(shard, 2)
        replica.hold()
        ended, asked = end(shard), asyncio.ensure_future(fetched(shard))
        await asyncio.sleep(0)
        assert not asked.done()
        replica.commit()
        await ended
        found = await asked
        assert (found.committed_offset, found.error_code) == (2, ErrorCode.NONE)
        host.close()

    run(scene())


@pytest.mark.parametrize(
    "cause", [InvalidProducerEpoch("fenced"), NotLeaderOrFollower("moved"), InvalidTxnState("no")]
)
def test_an_end_that_is_refused_raises_what_the_log_has_said(cause: Any) -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit_in_transaction(shard, 2)
        replica.refuse_with = cause
        with pytest.raises(type(cause)):
            await end(shard)
        replica.refuse_with = None
        await end(shard)
        assert offset_of(shard) == 2
        host.close()

    run(scene())


def test_a_producer_that_is_fenced_commits_nothing() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        replica.refuse_with = InvalidProducerEpoch("fenced")
        answer = await commit_in_transaction(shard, 2)
        assert error_of(answer) == ErrorCode.INVALID_PRODUCER_EPOCH
        replica.refuse_with = None
        await end(shard)
        assert offset_of(shard) is None
        host.close()

    run(scene())


def test_an_end_in_doubt_makes_the_shard_read_its_log_again() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host()
        shard = await led(host, replica)
        await commit_in_transaction(shard, 2)
        replica.hold()
        doubtful = end(shard)
        replica.fail(KafkaStorageError("the disk"))
        with pytest.raises(NotCoordinator):
            await doubtful
        assert offset_of(await loaded(host)) == 2
        host.close()

    run(scene())


def test_an_end_that_takes_too_long_is_to_be_asked_for_again() -> None:
    async def scene() -> None:
        replica, host = MemoryReplica(), new_host(offsets_commit_timeout_ms=10)
        shard = await led(host, replica)
        await commit_in_transaction(shard, 2)
        replica.hold()
        with pytest.raises(RequestTimedOut):
            await end(shard)
        again = end(shard)
        replica.commit()
        replica.commit()
        await again
        assert offset_of(shard) == 2
        host.close()

    run(scene())
