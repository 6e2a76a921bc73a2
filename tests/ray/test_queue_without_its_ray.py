"""A program that starts a Ray of its own, as one that was killed did, and ends it while it still has
a queue.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bradbury.tests.support.command_line import UP_TRIES
from bradbury.tests.support.ray.hand_started_ray import TOO_SLOW

PROGRAM = """
import sys, threading
import ray, bradbury
from bradbury.discovery.state_file import ClusterState, live_state, write_state
from bradbury.protocol.errors import ConnectionFailed

write_state(
    ClusterState(
        namespace="bradbury",
        ray_address="127.0.0.1:1",
        bootstrap="127.0.0.1:2",
        data_dir="/nowhere",
    )
)

ray.init("local", num_cpus=2, include_dashboard=False)
cluster = bradbury.up(sys.argv[1], port=0)
assert live_state().bootstrap == cluster.bootstrap_servers, "the killed program's is still there"
queue = bradbury.Queue()
queue.put("an item")
assert queue.get() == "an item"
cluster.down()
ray.shutdown()
for thread in threading.enumerate():
    if thread.name == "bradbury-queue":
        thread.join(60)
assert not ray.is_initialized(), "it has joined another Ray, or started one"
try:
    queue.qsize()
except ConnectionFailed as error:
    print("refused:", error)
"""


@pytest.mark.ray
@pytest.mark.slow
def test_it_joins_no_other_ray_and_ray_has_nothing_to_warn_of(tmp_path: Path) -> None:
    for _ in range(UP_TRIES):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
            check=False,
        )
        if TOO_SLOW not in done.stdout:
            break
    assert done.returncode == 0, done.stdout
    assert "refused: this process is not connected to the queue's Ray any more" in done.stdout
    warnings = [line for line in done.stdout.splitlines() if "QueueProcess" in line]
    assert warnings == []
