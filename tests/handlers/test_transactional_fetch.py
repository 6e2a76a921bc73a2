"""What is a consumer shown of transactions, and when is it woken?"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from bradbury.handlers.ports.fetch_answer import FetchAnswer
from bradbury.handlers.records import fetch, list_offsets
from bradbury.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from bradbury.protocol.records.fetch_response import FetchedPartition
from bradbury.replication.partition.replica import Replica
from bradbury.tests.support.storage.led_partition import LedPartition, run
from bradbury.tests.support.storage.logs import open_log, read_all
from bradbury.tests.support.storage.transactions import send, transactional_batch

COMMITTED = 1
READS_BOTH = pytest.mark.parametrize("isolation", [0, COMMITTED])


def ask(
    node: LedPartition,
    *,
    offset: int = 0,
    isolation: int = COMMITTED,
    session: tuple[int, int] = (0, -1),
    min_bytes: int = 1,
    max_wait_ms: int = 60_000,
    version: int = 11,
) -> FetchAnswer | Awaitable[FetchAnswer]:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic="t", partitions=[wanted])] if session[1] <= 0 else [],
        session_id=session[0],
        session_epoch=session[1],
    )
    return fetch.handle(request, node.context(version))


def at_once(node: LedPartition, **wanted: int) -> FetchedPartition:
    answer = ask(node, max_wait_ms=0, **wanted)  # type: ignore[arg-type]
    assert isinstance(answer, FetchAnswer)
    return answer.topics[0].partitions[0]


def end(node: LedPartition, *, is_commit: bool, producer_id: int = 7) -> None:
    node.replica.append_marker(
        producer_id, 0, is_commit=is_commit, coordinator_epoch=0, transaction_version=0
    )


def produce(node: LedPartition, sequence: int, count: int = 1, *, producer_id: int = 7) -> None:
    guard = node.replica.begin_verification(producer_id, 0, sequence=sequence)
    node.replica.produce(
        memoryview(transactional_batch(count, producer_id=producer_id, sequence=sequence)),
        is_message_set=False,
        acks_all=True,
        guard=guard,
    )


def test_only_what_is_stable_is_shown_with_what_to_leave_out(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        produce(node, 0, 2)
        end(node, is_commit=False)
        produce(node, 2)
        produce(node, 0, producer_id=8)
        stable = at_once(node)
        size = len(transactional_batch(2)) + 78
        assert (stable.high_watermark, stable.last_stable_offset) == (5, 3)
        assert (stable.records_size, stable.aborted) == (size, [(7, 0)])
        everything = at_once(node, isolation=0)
        assert everything.aborted is None
        assert everything.records_size == size + 2 * len(transactional_batch())
        behind = at_once(node, offset=3)
        assert (behind.records_size, behind.aborted) == (0, [])
        end(node, is_commit=True)
        end(node, is_commit=True, producer_id=8)
        assert at_once(node, offset=3).aborted == []
        assert at_once(node).aborted == [(7, 0)]

    run(tmp_path, scenario)


def test_consumers_before_transactions_are_given_everything_but_markers(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        produce(node, 0, 2)
        end(node, is_commit=False)
        produce(node, 2)
        answer = ask(node, version=3, isolation=0, max_wait_ms=0)
        assert not isinstance(answer, FetchAnswer)
        records = (await answer).topics[0].partitions[0].records
        assert bytes(records).count(b"value") == 3  # type: ignore[arg-type]

    run(tmp_path, scenario)


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
def test_a_fetch_of_committed_records_is_woken_by_the_marker(
    tmp_path: Path, session: tuple[int, int]
) -> None:
    """Also if it wants more bytes than a marker has: the transaction's records count, too."""

    async def scenario(node: LedPartition) -> None:
        produce(node, 0, 50)
        waiting = asyncio.ensure_future(ask(node, session=session, min_bytes=400))  # type: ignore[arg-type]
        produce(node, 50, 50)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        end(node, is_commit=True)
        answer = await waiting
        assert answer.topics[0].partitions[0].records_size > 400

    run(tmp_path, scenario)


def test_an_incremental_fetch_is_woken_by_the_marker(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        produce(node, 0)
        answer = ask(node, session=(0, 0), max_wait_ms=0)
        assert isinstance(answer, FetchAnswer)
        waiting = asyncio.ensure_future(ask(node, session=(answer.session_id, 1)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        produce(node, 1)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        end(node, is_commit=False)
        found = (await waiting).topics[0].partitions[0]
        assert found.aborted == [(7, 0)]

    run(tmp_path, scenario)


@READS_BOTH
def test_a_fetch_is_woken_when_the_marker_is_committed_and_not_before(
    tmp_path: Path, isolation: int
) -> None:
    async def scenario(node: LedPartition) -> None:
        produce(node, 0)
        node.copy_to(2, 3)
        waiting = asyncio.ensure_future(ask(node, offset=isolation ^ 1, isolation=isolation))  # type: ignore[arg-type]
        end(node, is_commit=True)
        node.copy_to(2)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        node.copy_to(3)
        assert (await waiting).topics[0].partitions[0].records_size

    run(tmp_path, scenario, replicas=(1, 2, 3))


def test_a_fetch_that_is_given_up_leaves_nothing_at_the_replica(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        waiting = asyncio.ensure_future(ask(node))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert len(node.step.fetches._stable_consumers) == 1
        waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not node.step.fetches._stable_consumers

    run(tmp_path, scenario)


async def listed(node: LedPartition, timestamp: int, isolation: int) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name="t", partitions=[wanted])],
    )
    response = await list_offsets.handle(request, node.context(7))
    found = response.topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset


def test_offsets_are_listed_as_far_as_the_reader_is_shown(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        produce(node, 0)
        end(node, is_commit=True)
        produce(node, 1)
        assert await listed(node, -1, 0) == 3
        assert await listed(node, -1, COMMITTED) == 2
        assert await listed(node, -2, COMMITTED) == 0
        assert await listed(node, 1000, COMMITTED) == 0

    run(tmp_path, scenario)


def test_a_transaction_older_than_the_leader_does_not_keep_offsets_from_being_listed(
    tmp_path: Path,
) -> None:
    async def scenario(node: LedPartition) -> None:
        send(node.log, 0)
        node.log.high_watermark = 1
        node.log.local.assign_epoch(1)
        assert await listed(node, -1, COMMITTED) == 0

    run(tmp_path, scenario)


class Reader:
    """A consumer's fetch that waits at a follower."""

    def __init__(self) -> None:
        self.woken: list[int] = []

    def on_readable(self, size: int) -> None:
        self.woken.append(size)

    def on_changed(self) -> None: ...


def test_a_consumer_at_a_follower_is_woken_when_the_marker_is_committed(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        produce(node, 0)
        end(node, is_commit=True)
        copy = Replica("t", 0, open_log(tmp_path / "copy"), node)
        committed, everything = Reader(), Reader()
        copy.fetches.park(committed, is_committed=True)
        copy.fetches.park(everything)
        records = read_all(node.log)
        copy.append_as_follower(records, 1000)
        copy.update_watermarks(1, 0)
        assert (bool(everything.woken), bool(committed.woken)) == (True, False)
        assert copy.log.last_stable_offset == 0
        copy.update_watermarks(2, 0)
        assert committed.woken
        assert copy.log.last_stable_offset == 2

    run(tmp_path / "node", scenario)
