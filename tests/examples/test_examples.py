"""Every example does what it says when it is run as it stands.

In a process of its own; those that start a Ray follow each other in one process and one Ray (but for
the first of them), for a Ray takes longer to start than most of them to run. All these are
run by `make test-long`, those without Ray each time.
"""

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


IN_ONE_RAY = (
    "consume_with_actors.py",
    "async_actor.py",
    "at_least_once.py",
    "at_most_once.py",
    "exactly_once.py",
    "consumer_group.py",
    "exactly_once_topics.py",
)
ONE_AFTER_THE_OTHER = """
import runpy, sys, traceback
from bradbury.discovery.ray_connection import LOCAL, join_ray

join_ray(LOCAL, "bradbury")
for example in sys.argv[1:]:
    print("--- " + example, flush=True)
    try:
        runpy.run_path(example, run_name="__main__")
    except BaseException:
        traceback.print_exc(file=sys.stdout)
"""


@pytest.fixture(scope="module")
def outputs(module_environment: dict[str, str], request: pytest.FixtureRequest) -> dict[str, str]:
    """What each of those in one Ray has printed whose test is run."""
    marks = (item.get_closest_marker("prints") for item in request.session.items)
    asked = {mark.args[0] for mark in marks if mark is not None}
    names = [name for name in IN_ONE_RAY if name in asked]
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, *(str(EXAMPLES / one) for one in names)],
        cwd="/",
        env=module_environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    parts = done.stdout.split("--- " + str(EXAMPLES) + "/")[1:]
    return {name: output for name, _, output in (part.partition("\n") for part in parts)}


@pytest.fixture
def output(outputs: dict[str, str], request: pytest.FixtureRequest) -> str:
    return outputs[request.node.get_closest_marker("prints").args[0]]


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    yield from a_home()


@pytest.fixture(scope="module")
def module_environment() -> Iterator[dict[str, str]]:
    yield from a_home()


def a_home() -> Iterator[dict[str, str]]:
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


def output_of(example: str, environment: dict[str, str], timeout_s: float = 240) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long  # a million records
@pytest.mark.slow
def test_a_local_cluster_gives_back_a_million_records(environment: dict[str, str]) -> None:
    output = output_of("local_cluster.py", environment)
    assert "sent: 1,000,000" in output
    assert "received: 1,000,000" in output


@pytest.mark.long  # four sessions of Spark, and kills
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
def test_streams_that_remember_outlive_two_kills_of_their_driver(
    environment: dict[str, str],
) -> None:
    output = output_of("stateful_streams.py", environment, timeout_s=600)
    for topic in ("visits", "unpaid", "distinct", "tenths", "totals", "pages"):
        told = rf"^kill (\d): {topic}: ([\d,]+) of ([\d,]+) records read, ([\d,]+) written$"
        kills = [
            [int(figure.replace(",", "")) for figure in found]
            for found in re.findall(told, output, re.MULTILINE)
        ]
        assert [number for number, *_ in kills] == [1, 2], output
        assert all(0 < read < records and wrote > 0 for _, read, records, wrote in kills), output
        assert kills[0][1] < kills[1][1], output
        compared = rf"^{topic}: [1-9][\d,]* records, 0 missing, 0 too many$"
        assert re.search(compared, output, re.MULTILINE), output


@pytest.mark.long  # README.md has such tasks
@pytest.mark.slow
@pytest.mark.ray
def test_ray_tasks_produce_without_an_address(environment: dict[str, str]) -> None:
    output = output_of("produce_from_ray_tasks.py", environment)
    assert "acknowledged: 40,000" in output
    assert "in the log: 40,000" in output


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.prints("consume_with_actors.py")
@pytest.mark.long
def test_consumer_actors_share_a_topic(output: str) -> None:
    assert "all 100,000 records came back" in output


@pytest.mark.slow
def test_coroutines_send_read_and_are_interrupted(environment: dict[str, str]) -> None:
    output = output_of("async_pipeline.py", environment)
    assert output.splitlines() == ["sent: 5,000", "received: 5,000", "lag: 0"]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.prints("async_actor.py")
@pytest.mark.long
def test_an_asynchronous_actor_follows_a_topic_and_writes_another(output: str) -> None:
    assert "orders: 500" in output
    assert "turnover: 625.00" in output


@pytest.mark.slow
def test_the_streams_of_0_7_read_what_its_producer_sends(environment: dict[str, str]) -> None:
    output = output_of("classic_streams.py", environment)
    assert output.splitlines() == ["flights-jfk: 1,000", "flights-lga: 1,000"]


@pytest.mark.long  # killed twice
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
@pytest.mark.prints("at_least_once.py")
@pytest.mark.long
def test_at_least_once_nothing_is_missing(output: str) -> None:
    assert figure(output, "actors killed") == 4
    assert figure(output, "missing") == 0
    assert figure(output, "processed twice") > 0


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.prints("at_most_once.py")
@pytest.mark.long
def test_at_most_once_nothing_comes_twice(output: str) -> None:
    assert figure(output, "actors killed") == 4
    assert figure(output, "processed twice") == 0
    assert 0 < figure(output, "missing") <= 4 * 4 * 200


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.prints("exactly_once.py")
@pytest.mark.long
def test_exactly_once_nothing_is_missing_and_nothing_comes_twice(output: str) -> None:
    assert "database: 4 actors killed, missing: 0, twice: 0" in output
    assert "files: 4 actors killed, missing: 0, twice: 0" in output


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.prints("consumer_group.py")
@pytest.mark.long
def test_one_member_feeds_more_workers_than_there_are_partitions(output: str) -> None:
    assert "sensors: 50" in output
    assert "records: 100,000, lag: 0" in output


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.prints("exactly_once_topics.py")
@pytest.mark.long
def test_from_topic_to_topic_everything_is_there_once(output: str) -> None:
    assert "actors killed: 4" in output
    assert "missing: 0, twice: 0" in output
    assert "alarms: 1,000" in output


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.deep  # a minute of Ray Serve's own start; tests/ray/test_serve_topic.py tries it
def test_a_model_answers_each_flight_once(environment: dict[str, str]) -> None:
    output = output_of("serve_model.py", environment)
    assert "5,000 flights, 5,000 predictions" in output
    found = re.search(r"wrong by (\d+) minutes on average; always saying the mean: (\d+)", output)
    assert found, output
    assert int(found[1]) <= int(found[2]) / 2
