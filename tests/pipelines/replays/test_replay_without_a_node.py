"""Does a replay go on when a node is gone that any of its topics may have been on?"""

from pathlib import Path

import pytest

import bradbury
from bradbury.pipelines.replays.replay_positions import POSITIONS
from bradbury.tests.pipelines.replays.numbered_records import seen, send
from bradbury.tests.support.ray.three_nodes import ThreeNodes

pytestmark = pytest.mark.slow


def test_its_positions_have_as_many_replicas_as_the_topic(tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    with ThreeNodes(tmp_path / "data") as three:
        servers = three.servers
        for topic in ("turbines", "again"):
            three.create(topic, 2)
        send(servers, "turbines", 0, 100, 2)
        bradbury.load("turbines", table, bootstrap_servers=servers)
        options = {"bootstrap_servers": servers, "keep_partitions": True}
        assert bradbury.replay(table, "again", **options).records == 100
        assert len(three.partition(POSITIONS).replicas) == 3
        send(servers, "turbines", 100, 150, 2)
        bradbury.load("turbines", table, bootstrap_servers=servers)
        three.kill(three.leader(POSITIONS))
        assert bradbury.replay(table, "again", **options).records == 50
        assert seen(servers, "again") == seen(servers, "turbines")
