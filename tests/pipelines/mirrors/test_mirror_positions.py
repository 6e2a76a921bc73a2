"""Is what a worker has committed found again while others are in the middle of a transaction?"""

from concurrent.futures import ThreadPoolExecutor

import pytest

import bradbury
from bradbury.pipelines.mirrors import mirror_positions
from bradbury.pipelines.ranges.read_arguments import read_limits


def test_a_position_behind_an_open_transaction_is_waited_for() -> None:
    topic = mirror_positions.positions_topic("a")
    limits = read_limits("read_committed", "test", poll_timeout_ms=30_000, fail_on_data_loss=True)
    with (
        bradbury.local() as cluster,
        cluster.admin() as admin,
        bradbury.Producer(cluster.bootstrap_servers, transactional_id="other") as other,
        bradbury.Producer(cluster.bootstrap_servers, transactional_id="own") as own,
        ThreadPoolExecutor(1) as threads,
    ):
        mirror_positions.make_positions_topic(admin, topic, 1)
        other.begin()
        mirror_positions.write_note(other, topic, "source", "of the other", {"epoch": 1})
        other.flush()
        with own.transaction():
            mirror_positions.write_note(own, topic, "source", "its own", {"epoch": 7})
        reading = threads.submit(mirror_positions.read_state, admin, topic, limits)
        with pytest.raises(TimeoutError):
            reading.result(1)
        other.abort()
        assert reading.result(60).notes("source") == {"its own": {"epoch": 7}}
