"""Do streams with state outlive a kill -9 of their driver when their executors are Ray's actors?

The queries of examples/stateful_streams.py, in a process whose group is killed twice, each time while
every query is under way. Each time a new process makes a session of its own on the same checkpoints.
test_spark_raydp_state kills executors instead.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.examples import stateful_streams as streams
from bradbury.tests.pipelines.streams import driver_on_ray

pytestmark = [
    pytest.mark.spark,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.deep,  # three sessions on Ray; tests/examples kills a local one in each run
]

ROOT = Path(bradbury.__file__).resolve().parent
PATIENCE_SECONDS = 600


@pytest.fixture
def servers() -> Iterator[str]:
    """Of a cluster of this test's own: the example's topics are of it."""
    with bradbury.local() as running:
        yield running.bootstrap_servers


def test_a_driver_that_is_killed_takes_no_state_with_it(
    ray_cluster: str, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / ".path"))
    streams.fill(servers)
    command = [sys.executable, "-m", driver_on_ray.__name__, ray_cluster, servers, str(tmp_path)]
    at = dict.fromkeys(streams.INPUTS, streams.Progress(0, 0, 0))
    for _ in range(2):
        before, at = at, streams.kill_half_way(command, servers, tmp_path, before=at)
        for name, one in at.items():
            assert one.is_under_way, (name, one)
            assert one.read > before[name].read, (name, one, before[name])
    last = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    found = json.loads(last.stdout.splitlines()[-1])
    assert set(found) == set(streams.INPUTS)
    for topic, (count, missing, more) in found.items():
        assert count > 0, topic
        assert (topic, missing, more) == (topic, 0, 0)
