"""Every example does what it says when it is run as it stands, in a process of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury

ROOT = Path(bradbury.__file__).resolve().parent
EXAMPLES = ROOT / "examples"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A home of its own, and a short folder for Ray; nothing of the test's own process."""
    folder = tempfile.mkdtemp(prefix="be-", dir="/tmp")
    inherited = ("PATH", "LANG", "LC_ALL", "JAVA_HOME", "LD_LIBRARY_PATH")
    yield {
        **{name: os.environ[name] for name in inherited if name in os.environ},
        "HOME": folder,
        "RAY_TMPDIR": f"{folder}/ray",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT / ".path"),
        "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"),
    }
    shutil.rmtree(folder, ignore_errors=True)


def output_of(example: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_local_cluster_gives_back_a_million_records(environment: dict[str, str]) -> None:
    output = output_of("local_cluster.py", environment)
    assert "sent: 1,000,000" in output
    assert "received: 1,000,000" in output


@pytest.mark.slow
@pytest.mark.ray
def test_ray_tasks_produce_without_being_told_an_address(environment: dict[str, str]) -> None:
    output = output_of("produce_from_ray_tasks.py", environment)
    assert "acknowledged: 40,000" in output
    assert "in the log: 40,000" in output


@pytest.mark.slow
@pytest.mark.ray
def test_consumer_actors_share_a_topic(environment: dict[str, str]) -> None:
    assert "all 100,000 records came back" in output_of("consume_with_actors.py", environment)


@pytest.mark.slow
def test_the_streams_of_0_7_read_what_its_producer_sends(environment: dict[str, str]) -> None:
    output = output_of("classic_streams.py", environment)
    assert output.splitlines() == ["flights-jfk: 1,000", "flights-lga: 1,000"]


@pytest.mark.slow
def test_a_reader_of_0_7_that_is_killed_twice_copies_exactly_once(
    environment: dict[str, str],
) -> None:
    output = output_of("classic_exactly_once.py", environment)
    assert output.count("reader ended with -9") == 2
    assert "sum: 49,995,000, expected 49,995,000" in output
