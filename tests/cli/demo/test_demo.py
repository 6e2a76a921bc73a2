"""bradbury demo, as a process: what it shows, and that it leaves nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.command_line import Command

pytestmark = [pytest.mark.ray, pytest.mark.slow]

MARK = "BRADBURY_DEMO_TEST"


@pytest.fixture
def no_java(environment: dict[str, str]) -> None:
    environment.pop("JAVA_HOME", None)
    environment["PATH"] = str(Path(sys.executable).parent)


@pytest.fixture(autouse=True)
def leaves_nothing(environment: dict[str, str], tmp_path: Path):
    """No process that inherited our mark, and no temporary file."""
    environment[MARK] = str(tmp_path)
    yield
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(tmp_path):
                left.append(process)
        except (psutil.Error, OSError):
            continue
    _, alive = psutil.wait_procs(left, timeout=30)
    assert alive == []
    assert os.listdir(environment["TMPDIR"]) == []


@pytest.mark.long  # the demo with Spark is run; that one is told that Java is missing, too
@pytest.mark.usefixtures("no_java")
def test_without_java_spark_is_skipped_in_one_line_and_what_is_kept_can_be_brought_up_again(
    process: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    plot = tmp_path / "delays.png"
    words = ("--rows", "5000", "--plot", str(plot), "--keep", "--json")
    outcome = process("demo", *words, timeout=540)
    assert outcome.code == 0, outcome.err
    summary = json.loads(outcome.out)
    kept = Path(summary["kept"])
    try:
        assert summary["rows"] == 5000
        assert sum(one["flights"] for one in summary["carriers"].values()) == 5000
        assert "Java" in summary["spark"]["skipped"]
        assert [step["step"][1] for step in summary["steps"]] == ["1", "2", "3", "4", "4", "6"]
        assert sum("Spark is skipped" in line for line in outcome.err.splitlines()) == 1
        assert "each exactly once, in order per key" in outcome.err
        assert "Starting execution of Dataset" not in outcome.err  # Ray Data's own words
        assert plot.read_bytes().startswith(b"\x89PNG")

        assert f"--data-dir {kept / 'data'}" in outcome.err
        begun = process(
            "up", "--detach", "--address", "local", "--port", "0", "--data-dir", str(kept / "data")
        )
        assert begun.code == 0, begun.err
        try:
            read = process("consume", "flights", "--from-beginning", "--until-end")
        finally:
            process("down")
        assert len(read.out.splitlines()) == 5000
    finally:
        shutil.rmtree(kept)
        shutil.rmtree(environment["RAY_TMPDIR"], ignore_errors=True)  # Ray keeps its session logs


@pytest.mark.usefixtures("no_java")
def test_without_java_a_required_spark_is_an_error_before_anything_starts(
    process: Command,
) -> None:
    error = process("demo", "--require-spark", timeout=30).error
    assert "Java" in error
    assert "install" in error


def test_a_picture_that_cannot_be_written_is_refused_before_anything_starts(
    process: Command,
) -> None:
    assert "folder does not exist" in process("demo", "--plot", "absent/x.png", timeout=30).usage


@pytest.mark.long  # cluster/test_up_and_down.py interrupts an `up`
@pytest.mark.usefixtures("no_java")
def test_ctrl_c_in_the_middle_leaves_nothing_and_no_traceback(environment: dict[str, str]) -> None:
    with ChildProcess(
        [sys.executable, "-m", "bradbury.cli", "demo"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert any(line.startswith("[1] up") for line in iter(running.stdout.readline, ""))
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(60) == 130
        assert "Traceback" not in running.stderr.read()


@pytest.mark.long  # the whole demo; the README's page has its parts
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java 17 or later")
def test_spark_agrees_with_the_actors(process: Command) -> None:
    outcome = process("demo", "--rows", "4000", "--require-spark", "--json", timeout=540)
    assert outcome.code == 0, outcome.err
    summary = json.loads(outcome.out)
    assert summary["spark"]["groups"] == 3  # three airports, all in January
    assert summary["spark"]["micro_batches"] == 1  # three, where the demo has all rows
    assert summary["spark"]["late"] > 0
    (host,) = summary["spark"]["tasks_by_executor"]  # one node, and so one executor beside it
    assert host == summary["spark"]["driver"]
    assert sum(summary["spark"]["rows_by_leader"].values()) == 4000
    assert "Spark agrees with itself and with the actors" in outcome.err
