"""Does a continuous Dataset's source outlive brokers that are away for a while?"""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.pipelines.ranges.partition_range import DataLoss, PartitionRange
from bradbury.pipelines.ranges.read_arguments import read_limits
from bradbury.pipelines.ray_data.topic_follower import Followed, TopicFollower
from bradbury.protocol.errors import ConnectionFailed, KafkaError

SECONDS = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[bradbury.LocalCluster]:
    """One that keeps its port and its data when it is stopped and started."""
    with bradbury.local(str(tmp_path)) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("t", 1)
        yield cluster


def follower(
    broker: bradbury.LocalCluster, poll_timeout_ms: int, *, fail_on_data_loss: bool = True
) -> TopicFollower:
    limits = read_limits(
        "read_committed",
        f"follower-{poll_timeout_ms}",
        poll_timeout_ms=poll_timeout_ms,
        fail_on_data_loss=fail_on_data_loss,
    )
    return TopicFollower(
        Followed(
            bootstrap=broker.bootstrap_servers,
            topics=("t",),
            limits=limits,
            start_offset="earliest",
            group_id=None,
            most_records=100,
            poll_interval_ms=10,
        )
    )


def send(broker: bradbury.LocalCluster, count: int) -> None:
    with bradbury.Producer(broker.bootstrap_servers) as producer:
        producer.send_batch("t", [b"x"] * count).result(SECONDS)


def piece_of(following: TopicFollower) -> list[PartitionRange]:
    following.want()
    until(lambda: following.has_piece)
    return following.take()


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_it_goes_on_when_the_brokers_are_back(
    broker: bradbury.LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, 3)
    following = follower(broker, poll_timeout_ms=600_000)
    assert piece_of(following) == [PartitionRange("t", 0, 0, 3)]
    broker.stop_node(0)
    with caplog.at_level(logging.WARNING):
        following.want()
        until(lambda: "cannot list end offsets" in caplog.text)
    assert not following.has_piece
    broker.start_node(0)
    send(broker, 2)
    assert piece_of(following) == [PartitionRange("t", 0, 3, 5)]
    following.close()


def test_it_ends_with_the_reason_when_they_stay_away(broker: bradbury.LocalCluster) -> None:
    send(broker, 1)
    following = follower(broker, poll_timeout_ms=1)
    piece_of(following)
    broker.stop_node(0)
    with pytest.raises((ConnectionFailed, KafkaError)):
        piece_of(following)
    following.close()


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_recreated_is_not_read_on_by_its_old_offsets(
    broker: bradbury.LocalCluster, *, fails: bool
) -> None:
    send(broker, 3)
    following = follower(broker, poll_timeout_ms=600_000, fail_on_data_loss=fails)
    assert piece_of(following) == [PartitionRange("t", 0, 0, 3)]
    with broker.admin() as admin:
        admin.delete_topic("t")
        admin.create_topic("t", 1)
    send(broker, 5)
    following.want()
    if fails:
        with pytest.raises(DataLoss, match="'t' was deleted and recreated while it was read"):
            until(lambda: following.has_piece)
    else:
        assert piece_of(following) == [PartitionRange("t", 0, 0, 5)]
    following.close()
