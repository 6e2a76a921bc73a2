"""Every example does what it says when it is run as it stands, in a process of its own."""

import os
import re
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
def test_ray_tasks_produce_without_an_address(environment: dict[str, str]) -> None:
    output = output_of("produce_from_ray_tasks.py", environment)
    assert "acknowledged: 40,000" in output
    assert "in the log: 40,000" in output


@pytest.mark.slow
@pytest.mark.ray
def test_consumer_actors_share_a_topic(environment: dict[str, str]) -> None:
    assert "all 100,000 records came back" in output_of("consume_with_actors.py", environment)


@pytest.mark.slow
def test_coroutines_send_read_and_are_interrupted(environment: dict[str, str]) -> None:
    output = output_of("async_pipeline.py", environment)
    assert output.splitlines() == ["sent: 5,000", "received: 5,000", "lag: 0"]


@pytest.mark.slow
@pytest.mark.ray
def test_an_asynchronous_actor_follows_a_topic_and_writes_another(
    environment: dict[str, str],
) -> None:
    output = output_of("async_actor.py", environment)
    assert "orders: 500" in output
    assert "turnover: 625.00" in output


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


def figure(output: str, name: str) -> int:
    found = re.search(rf"{name}: ([\d,]+)", output)
    assert found, output
    return int(found[1].replace(",", ""))


@pytest.mark.slow
@pytest.mark.ray
def test_at_least_once_nothing_is_missing(environment: dict[str, str]) -> None:
    output = output_of("at_least_once.py", environment)
    assert figure(output, "actors killed") == 4
    assert figure(output, "missing") == 0
    assert figure(output, "processed twice") > 0


@pytest.mark.slow
@pytest.mark.ray
def test_at_most_once_nothing_comes_twice(environment: dict[str, str]) -> None:
    output = output_of("at_most_once.py", environment)
    assert figure(output, "actors killed") == 4
    assert figure(output, "processed twice") == 0
    assert 0 < figure(output, "missing") <= 4 * 4 * 200


@pytest.mark.slow
@pytest.mark.ray
def test_exactly_once_nothing_is_missing_and_nothing_comes_twice(
    environment: dict[str, str],
) -> None:
    output = output_of("exactly_once.py", environment)
    assert "database: 4 actors killed, missing: 0, twice: 0" in output
    assert "files: 4 actors killed, missing: 0, twice: 0" in output


@pytest.mark.slow
@pytest.mark.ray
def test_one_member_feeds_more_workers_than_there_are_partitions(
    environment: dict[str, str],
) -> None:
    output = output_of("consumer_group.py", environment)
    assert "sensors: 50" in output
    assert "records: 100,000, lag: 0" in output
