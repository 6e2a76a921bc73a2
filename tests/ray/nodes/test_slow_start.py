"""An embedded Ray that takes longer than the 30 s that Ray waits for its own node."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bradbury.discovery.ray_connection import RAY_TOO_SLOW
from bradbury.tests.support.ray.ray_settings import RAY_ENVIRONMENT

pytestmark = [pytest.mark.ray, pytest.mark.long]

# Everything is Ray's own, and runs, but for its look at whether the node has registered.
PROGRAM = """
import json, sys
import psutil
import ray._private.services as services
from bradbury.discovery.ray_connection import LOCAL, join_ray
from bradbury.discovery.ray_errors import UpError

too_slow, look = int(sys.argv[1]), services.get_node
begun = []

def get_node(*arguments):
    if len(begun) < too_slow:
        begun.append({each.pid: each.create_time() for each in psutil.Process().children()})
        raise Exception("The current node timed out during startup. This could happen because ...")
    return look(*arguments)

def runs(pid, created):
    try:
        found = psutil.Process(pid)
        return found.create_time() == created and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

services.get_node = get_node
said, failure, nodes = [], "", 0
try:
    join_ray(LOCAL, "slow", said.append)
except UpError as error:
    failure = str(error)
else:
    import ray
    nodes = len(ray.nodes())
left = sum(runs(*each) for started in begun for each in started.items())
print(json.dumps([[len(each) for each in begun], left, said, failure, nodes]))
"""


def start(too_slow: int, home: Path) -> Any:
    """Processes of each start that was too slow, those that still run, and what was said."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(too_slow)],
        env={**os.environ, **RAY_ENVIRONMENT, "HOME": str(home), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_started_once_more_and_nothing_of_the_first_start_is_left(tmp_path: Path) -> None:
    (first,), left, said, failure, nodes = start(1, tmp_path)
    assert first >= 2, "the GCS and the raylet"
    assert (left, failure, nodes) == (0, "", 1)
    assert said == [
        "starting an embedded Ray",
        "starting an embedded Ray again: 30 s were not enough",
    ]


def test_a_second_slow_start_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    starts, left, said, failure, nodes = start(2, tmp_path)
    assert len(starts) == len(said) == 2
    assert (left, failure, nodes) == (0, RAY_TOO_SLOW, 0)
