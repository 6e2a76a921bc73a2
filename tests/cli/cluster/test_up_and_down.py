"""A cluster's life from the command line, as processes: up, status, down, and what stands in the way.

Every test has a home, a state directory and a folder for Ray of its own.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

import bradbury
from bradbury.discovery.state_file import ClusterState, read_state, state_path
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.command_line import Command
from bradbury.tests.support.free_ports import UP_PORTS, free_ports

pytestmark = [pytest.mark.ray, pytest.mark.slow]

deep = pytest.mark.deep  # tests/ray/nodes/test_up_and_down.py has the same by the Python API
LOCAL = ("--address", "local", "--port", "0")
READ = ("consume", "numbers", "--from-beginning", "--until-end")


def family(state: ClusterState) -> list[psutil.Process]:
    """The process that keeps a cluster up, and all it started."""
    keeper = psutil.Process(state.pid)
    return [keeper, *keeper.children(recursive=True)]


def known_state() -> ClusterState:
    state = read_state()
    assert state is not None
    return state


def assert_all_end(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    left = [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    assert left == []


@pytest.fixture
def data_dir(home: Path) -> str:
    return str(home / "data")


@pytest.fixture
def ends_what_it_starts(process: Command) -> Iterator[None]:
    """Also when a test fails half-way."""
    yield
    process("down")


@pytest.mark.long  # a whole cluster comes and goes; the README's page does so in make test
@pytest.mark.usefixtures("ends_what_it_starts")
def test_what_was_produced_outlives_down(process: Command, data_dir: str) -> None:
    begun = process("up", "--detach", *LOCAL, "--data-dir", data_dir)
    assert begun.code == 0, begun.err
    state = known_state()
    assert f"Bradbury is up: {state.bootstrap}" in begun.out
    status = process("status", "--json")
    assert status.code == 0, status.err
    described = json.loads(status.out)
    assert (described["healthy"], described["problems"]) == (True, [])
    roles = {role for actor in described["actors"] for role in actor["roles"]}
    assert roles == {"broker", "partition", "group"}
    assert "healthy" in process("status").out

    assert process("topics", "create", "numbers", "-p", "3").code == 0  # found by the state file
    assert process("produce", "numbers", stdin=b"1\n2\n3\n").code == 0
    assert "bradbury down" in process("up", *LOCAL).error
    again = process("up", "--detach", *LOCAL, "--data-dir", data_dir)
    assert (again.code, "is up already" in again.err) == (0, True)
    for option, value in (
        ("--data-dir", f"{data_dir}2"),
        ("--config", "num.partitions=7"),
        ("--host", "127.0.0.77"),
        ("--port", "1"),
        ("--address", "127.0.0.1:1"),
    ):
        refused = process("up", "--detach", option, value)
        assert refused.code == 1
        assert f"with another {option}; use it, run `bradbury down` first" in refused.error

    processes = family(state)
    ended = process("down")
    assert (ended.code, ended.out) == (0, "")
    assert data_dir in ended.err
    assert_all_end(processes)
    assert not state_path().exists()
    assert "bradbury up" in process("status").error

    assert process("up", "--detach", *LOCAL, "--data-dir", data_dir).code == 0
    assert sorted(process(*READ).out.split()) == ["1", "2", "3"]


# tests/ray/nodes/test_crash.py kills actors; here it is the process that keeps Ray.
@pytest.mark.long
@pytest.mark.usefixtures("ends_what_it_starts")
def test_what_was_produced_outlives_a_kill(process: Command, data_dir: str) -> None:
    assert process("up", "--detach", *LOCAL, "--data-dir", data_dir).code == 0
    assert process("topics", "create", "numbers", "-p", "3").code == 0
    assert process("produce", "numbers", stdin=b"1\n2\n3\n").code == 0
    processes = family(known_state())
    processes[0].kill()
    assert_all_end(processes[:1])
    assert f"bradbury up --data-dir {data_dir}" in process("status").error

    assert process("up", "--detach", *LOCAL, "--data-dir", data_dir).code == 0
    assert_all_end(processes)  # the agents of the killed Ray, too, which outlive it
    assert sorted(process(*READ).out.split()) == ["1", "2", "3"]


@pytest.mark.long  # a whole cluster comes and goes; the README's page does so in make test
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 0, marks=pytest.mark.deep)],
)
def test_a_cluster_in_the_foreground_ends_with_its_command(
    environment: dict[str, str], data_dir: str, number: int, code: int
) -> None:
    with ChildProcess(
        [sys.executable, "-m", "bradbury.cli", "up", *LOCAL, "--data-dir", data_dir],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith("Bradbury is up: ")
        assert any("Ctrl-C" in line for line in iter(running.stdout.readline, "") if "stop" in line)
        processes = family(known_state())
        os.kill(running.pid, number)
        assert running.wait(60) == code
        error = running.stderr.read()
    assert f"stopped; the data is in {data_dir}" in error
    assert "Traceback" not in error
    assert_all_end(processes)
    assert not state_path().exists()


@pytest.mark.long  # test_authentication.py has a whole life in such a Ray
def test_in_a_ray_cluster_detached_actors_are_left_and_found_again(
    process: Command, joined_ray: str, data_dir: str
) -> None:
    mine = ("--namespace", "cli-detached")
    begun = process(
        *("up", "--detach", "--address", joined_ray, "--port", "0", "--data-dir", data_dir),
        *("--config", "num.partitions=2", *mine),
    )
    assert begun.code == 0, begun.err
    assert "  stop      bradbury down --namespace cli-detached (" in begun.out
    try:
        state = read_state("cli-detached")
        assert state is not None
        assert (state.pid, state.data_dir) == (None, data_dir)
        assert process("topics", "create", "kept", "--bootstrap", state.bootstrap).code == 0
        again = process(
            "up", "-d", "--address", joined_ray, "--port", "0", "--data-dir", data_dir, *mine
        )
        assert again.code == 0, again.err
        assert state.bootstrap in again.out
        config = ("--config", "num.partitions=3")
        other = process("up", "-d", "--address", joined_ray, *config, *mine).error
        assert "already up" in other
        assert process("status", *mine).code == 0
        in_the_way = process("up", "--address", joined_ray, *mine).error
        assert "`bradbury down --namespace cli-detached`" in in_the_way
        other = process(
            "up", "-d", "--address", joined_ray, "--data-dir", data_dir + "2", *mine
        ).error
        assert "already up" in other
    finally:
        ended = process("down", *mine)
    assert ended.code == 0
    assert data_dir in ended.err
    assert process("status", *mine).code == 1
    assert process("status", "--address", joined_ray, *mine).code == 1


@pytest.fixture
def up_fails(process: Command, joined_ray: str):
    """The one line of an `up` that cannot be; afterwards nothing of it is there."""

    def call(*arguments: str) -> str:
        mine = ("--namespace", "cli-failing")
        error = process("up", "--detach", "--address", joined_ray, *mine, *arguments).error
        assert process("status", "--address", joined_ray, *mine).code == 1
        assert not state_path("cli-failing").exists()
        return error

    return call


@pytest.mark.long  # tests/ray/nodes/test_up_and_down.py has the same by the Python API
def test_a_port_in_use_is_named(up_fails, data_dir: str) -> None:
    port = free_ports(UP_PORTS)  # else another of them may be in use, and be named
    with socket.create_server(("127.0.0.1", port)):
        error = up_fails("--port", str(port), "--data-dir", data_dir)
    assert f":{port}" in error
    assert "--port" in error


@deep
def test_a_data_directory_of_a_live_broker_is_refused_and_untouched(
    up_fails, data_dir: str
) -> None:
    with bradbury.local(data_dir=data_dir) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("mine")
        error = up_fails("--port", "0", "--data-dir", data_dir)
        assert "in use by a running broker" in error
        with cluster.admin() as admin:
            assert admin.list_topics() == ["mine"]


@deep
def test_a_data_directory_that_cannot_be_written_is_refused(up_fails, home: Path) -> None:
    # A file where the directory should be: not even root can write into that.
    (home / "file").write_text("not a directory")
    error = up_fails("--port", "0", "--data-dir", str(home / "file" / "data"))
    assert str(home / "file") in error
    assert (home / "file").read_text() == "not a directory"


@deep
def test_a_data_directory_of_another_cluster_is_refused_and_untouched(up_fails, home: Path) -> None:
    for name in ("a", "b"):
        with bradbury.local(data_dir=str(home / name)) as cluster, cluster.admin() as admin:
            admin.create_topic(f"of-{name}")
    shutil.rmtree(home / "a" / "partitions-0")
    shutil.copytree(home / "b" / "partitions-0", home / "a" / "partitions-0")
    error = up_fails("--port", "0", "--data-dir", str(home / "a"))
    assert "cluster" in error
    assert ";" in error  # and what to do
    assert (home / "a" / "partitions-0" / "of-b-0").is_dir()


@pytest.mark.long
def test_nodes_that_do_not_fit_are_named(up_fails) -> None:
    assert "label" in up_fails("--node-label", "zone=moon", "--port", "0")


def test_a_ray_that_is_not_there_is_named(process: Command) -> None:
    away = process("status", "--address", "127.0.0.1:1").error  # as it was given
    assert away.startswith("no Ray cluster answers at '127.0.0.1:1' (Connection refused)")
    assert "ray start --head" in away
    with ThreadingHTTPServer(("", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{other.server_port}"
        error = process("status", "--address", address, timeout=60).error
        other.shutdown()
    assert error.startswith(f"what listens at '{address}' is not Ray")
    assert "'nonsense' is not the address" in process("status", "--address", "nonsense").error
    line = ("up", "--detach", "--address", "local", "--config", "no.such.setting=1")
    refused = process(*line).usage
    assert (
        refused == "unknown broker config 'no.such.setting'; docs/configs.md lists those there are"
    )
