"""Is what a worker has committed found again, whatever others do in the same topic?"""

from collections.abc import Iterator

import pytest

import bradbury
from bradbury.pipelines.mirrors import mirror_positions
from bradbury.pipelines.mirrors.mirror_positions import Notes
from bradbury.pipelines.ranges.read_arguments import read_limits

TOPIC = mirror_positions.positions_topic("a")


@pytest.fixture
def cluster() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local() as cluster:
        with cluster.admin() as admin:
            mirror_positions.make_positions_topic(admin, TOPIC, 1)
        yield cluster


def producer(cluster: bradbury.LocalCluster, name: str) -> bradbury.Producer:
    return bradbury.Producer(cluster.bootstrap_servers, transactional_id=name)


def note(writer: bradbury.Producer, name: str, epoch: int) -> None:
    mirror_positions.write_note(writer, TOPIC, "source", name, {"epoch": epoch})
    writer.flush()


def read(cluster: bradbury.LocalCluster) -> Notes:
    limits = read_limits("read_committed", "test", poll_timeout_ms=30_000, fail_on_data_loss=True)
    with cluster.admin() as admin:
        return mirror_positions.read_state(admin, TOPIC, limits).notes("source")


def test_a_position_behind_an_open_transaction_is_found(cluster: bradbury.LocalCluster) -> None:
    with producer(cluster, "other") as other, producer(cluster, "own") as own:
        other.begin()
        note(other, "of the other", 1)
        with own.transaction():
            note(own, "its own", 7)
        assert read(cluster) == {"its own": {"epoch": 7}}
        other.commit()
        assert read(cluster) == {"its own": {"epoch": 7}, "of the other": {"epoch": 1}}


def test_what_was_aborted_is_found_on_neither_side_of_it(cluster: bradbury.LocalCluster) -> None:
    with (
        producer(cluster, "other") as other,
        producer(cluster, "own") as own,
        producer(cluster, "third") as third,
    ):
        with own.transaction():
            note(own, "its own", 1)
        third.begin()
        note(third, "of the third", 1)  # before the open one, its end behind
        other.begin()
        note(other, "of the other", 1)
        note(third, "of the third", 2)
        own.begin()
        note(own, "its own", 2)
        own.abort()
        third.abort()
        assert read(cluster) == {"its own": {"epoch": 1}}
        with own.transaction():
            note(own, "its own", 3)
        third.begin()
        note(third, "of the third", 3)
        assert read(cluster) == {"its own": {"epoch": 3}}
        third.commit()
        assert read(cluster) == {"its own": {"epoch": 3}, "of the third": {"epoch": 3}}
        other.abort()
        assert read(cluster) == {"its own": {"epoch": 3}, "of the third": {"epoch": 3}}
