"""What becomes of the markers of one request, and what DescribeProducers says afterwards?"""

import asyncio
from pathlib import Path

import pytest

from bradbury.handlers.records import describe_producers, write_txn_markers
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import NotCoordinator
from bradbury.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from bradbury.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from bradbury.tests.support.storage.led_partition import LedPartition, run
from bradbury.tests.support.storage.transactions import read_committed, send


def marker(
    producer_id: int = 7,
    *,
    epoch: int = 0,
    is_commit: bool = True,
    topics: tuple[tuple[str, list[int]], ...] = (("t", [0]),),
    coordinator_epoch: int = 3,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


async def write(node: LedPartition, *markers: WritableTxnMarker) -> dict[int, dict[str, int]]:
    request = WriteTxnMarkersRequest(markers=list(markers))
    response = await write_txn_markers.handle(request, node.context(2))
    return {
        each.producer_id: {
            f"{topic.name}-{one.partition_index}": one.error_code
            for topic in each.topics
            for one in topic.partitions
        }
        for each in response.markers
    }


def test_each_marker_ends_its_transaction(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        send(node.log, 0, producer_id=7)
        send(node.log, 0, producer_id=8)
        assert await write(node, marker(7), marker(8, is_commit=False)) == {
            7: {"t-0": 0},
            8: {"t-0": 0},
        }
        assert node.log.last_stable_offset == 4
        assert read_committed(node.log) == [0]

    run(tmp_path, scenario)


def test_a_marker_is_answered_when_the_replicas_in_sync_have_it(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        send(node.log, 0)
        writing = asyncio.ensure_future(write(node, marker()))
        await asyncio.sleep(0)
        node.copy_to(2)
        await asyncio.sleep(0)
        assert not writing.done()
        assert node.log.last_stable_offset == 0
        node.copy_to(3)
        assert await writing == {7: {"t-0": 0}}
        assert node.log.last_stable_offset == 2

    run(tmp_path, scenario, replicas=(1, 2, 3))


def test_what_is_refused_says_why_and_the_others_are_written(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        send(node.log, 0, producer_id=7, epoch=4)
        send(node.log, 0, producer_id=8)
        await write(node, marker(9, coordinator_epoch=5))
        found = await write(
            node,
            marker(7, epoch=3, topics=(("t", [0, 1]), ("u", [0]))),
            marker(8),
            marker(9, coordinator_epoch=4),
        )
        assert found == {
            7: {
                "t-0": ErrorCode.INVALID_PRODUCER_EPOCH,
                "t-1": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "u-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
            8: {"t-0": 0},
            9: {"t-0": ErrorCode.TRANSACTION_COORDINATOR_FENCED},
        }
        assert node.log.local.producers.open_transactions == {7: 0}

    run(tmp_path, scenario)


def test_a_late_marker_is_told_from_one_that_comes_again(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        again = marker(epoch=1, version=2)
        send(node.log, 0)
        for _ in range(2):
            assert await write(node, again) == {7: {"t-0": 0}}
        send(node.log, 0, epoch=1)
        assert await write(node, again) == {7: {"t-0": ErrorCode.INVALID_PRODUCER_EPOCH}}

    run(tmp_path, scenario)


class Groups:
    """The coordinators of groups, of which one has moved away."""

    def __init__(self) -> None:
        self.completed: list[tuple[object, ...]] = []

    def shard(self, partition: int) -> "Groups":
        if partition == 9:
            raise NotCoordinator("moved")
        return self

    async def complete_transaction(self, *producer: int, **end: object) -> None:
        self.completed.append((*producer, *end.values()))


def test_the_partitions_of_groups_are_their_coordinators(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        topics = (("__consumer_offsets", [4, 9]),)
        node.groups = Groups()
        found = await write(node, marker(epoch=2, is_commit=False, topics=topics, version=2))
        assert found == {
            7: {
                "__consumer_offsets-4": 0,
                "__consumer_offsets-9": ErrorCode.NOT_LEADER_OR_FOLLOWER,
            }
        }
        assert node.groups.completed == [(7, 2, 3, False, 2)]
        node.groups = None
        assert await write(node, marker(topics=topics[:1])) == {
            7: {
                "__consumer_offsets-4": ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "__consumer_offsets-9": ErrorCode.NOT_LEADER_OR_FOLLOWER,
            }
        }

    run(tmp_path, scenario)


@pytest.mark.parametrize("replicas", [(1, 2)])
def test_without_enough_replicas_in_sync_no_marker_is_written(
    tmp_path: Path, replicas: tuple[int, ...]
) -> None:
    async def scenario(node: LedPartition) -> None:
        leader = node.step.leader
        assert leader is not None
        leader.min_insync_replicas = 2
        leader.on_isr((1,), 1)
        assert await write(node, marker()) == {7: {"t-0": ErrorCode.NOT_ENOUGH_REPLICAS}}
        assert node.log.log_end_offset == 0

    run(tmp_path, scenario, replicas=replicas)


def test_producers_are_described_with_their_transactions(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        send(node.log, 0, 2, producer_id=7)
        send(node.log, 5, 2, producer_id=8, epoch=1)
        await write(node, marker(7, epoch=1, coordinator_epoch=6))
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        response = describe_producers.handle(request, node.context(0))
        found = {
            each.producer_id: (
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in response.topics[0].partitions[0].active_producers
        }
        assert found == {7: (1, -1, 1000, 6, -1), 8: (1, 6, 1000, -1, 2)}

    run(tmp_path, scenario)
