"""Does the state file name the cluster that is up here, and when is it not believed?"""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from bradbury.cli.cluster.background import stop_process
from bradbury.cli.terminal.bootstrap_address import bootstrap_servers
from bradbury.clients.wire.bootstrap_servers import find_bootstrap
from bradbury.discovery.processes import descendants_of, start_time
from bradbury.discovery.ray_connection import running_address
from bradbury.discovery.ray_errors import UpError
from bradbury.discovery.state_file import (
    DEFAULT_NAMESPACE,
    ClusterState,
    live_state,
    read_state,
    remove_state,
    state_path,
    write_state,
)
from bradbury.protocol.errors import ConnectionFailed
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.command_line import Command


def state(pid: int | None = None, started: int | None = None, **changes: str) -> ClusterState:
    values = {
        "namespace": "bradbury",
        "ray_address": "127.0.0.1:6379",
        "bootstrap": "127.0.0.1:7777",
        "data_dir": "/data",
        **changes,
    }
    return ClusterState(pid=pid, started=started, **values)


@pytest.fixture
def mine() -> ClusterState:
    return state(os.getpid(), start_time(os.getpid()))


@pytest.fixture(autouse=True)
def outside_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not imported Ray; the test run's may be connected to one."""
    monkeypatch.delitem(sys.modules, "ray", raising=False)


def test_what_was_written_is_read_and_nothing_else_is_left(mine: ClusterState) -> None:
    write_state(mine)
    assert read_state() == live_state() == mine
    assert [path.name for path in state_path().parent.iterdir()] == ["cluster.json"]
    remove_state()
    assert read_state() is None
    remove_state()


def test_two_namespaces_are_two_files(mine: ClusterState) -> None:
    other = state(namespace="other")
    write_state(mine)
    write_state(other)
    assert (read_state(), read_state("other")) == (mine, other)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"namespace": 1}'])
def test_a_damaged_file_is_no_state(content: str) -> None:
    state_path().parent.mkdir(parents=True)
    state_path().write_text(content)
    assert read_state() is None


def test_a_later_version_may_add_fields(mine: ClusterState) -> None:
    write_state(mine)
    state_path().write_text(state_path().read_text().replace("{", '{"later": 1,', 1))
    assert read_state() == mine


def test_a_process_that_is_gone_or_another_with_its_id_is_stale(mine: ClusterState) -> None:
    with ChildProcess([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = start_time(child.pid)
        assert started is not None
        assert not state(child.pid, started).is_stale
        assert state(child.pid, started - 1).is_stale
    assert state(child.pid, started).is_stale
    assert not mine.is_stale
    assert not state().is_stale  # detached actors: no process to ask


def test_a_process_is_stopped_only_if_it_is_the_one_that_was_meant() -> None:
    with ChildProcess(["sleep", "60"]) as child:
        started = start_time(child.pid)
        assert started is not None
        assert not stop_process(child.pid, started + 1, DEFAULT_NAMESPACE)
        assert child.poll() is None
        assert stop_process(child.pid, started, DEFAULT_NAMESPACE)
        assert child.wait(60) == -15
        assert not stop_process(child.pid, started, DEFAULT_NAMESPACE)


def test_what_a_killed_cluster_left_running_is_ended_and_nothing_else(command: Command) -> None:
    with ChildProcess(["sleep", "60"]) as left, ChildProcess(["sleep", "60"]) as other:
        below = dict(descendants_of(os.getpid()))
        assert {left.pid, other.pid} <= set(below)
        mine = (left.pid, below[left.pid]), (other.pid, below[other.pid] - 1)
        write_state(replace(state(os.getpid(), 1), descendants=mine))
        assert "has ended unexpectedly" in command("down").err
        assert left.wait(60) == -9
        assert other.poll() is None
        other.kill()


def test_clients_ask_option_then_environment_then_state(
    mine: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConnectionFailed, match=r"bradbury up --detach.*--bootstrap host:port"):
        bootstrap_servers(None)
    write_state(mine)
    assert bootstrap_servers(None) == "127.0.0.1:7777"
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", "there:1")
    assert bootstrap_servers(None) == "there:1"
    assert bootstrap_servers("here:2,here:3") == "here:2,here:3"


def test_a_stale_cluster_is_not_asked(mine: ClusterState) -> None:
    write_state(state(mine.pid, (mine.started or 0) + 1))
    with pytest.raises(ConnectionFailed, match="no cluster found"):
        bootstrap_servers(None)


def test_another_cluster_is_named_and_not_taken(
    mine: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(replace(mine, namespace="other"))
    with pytest.raises(ConnectionFailed, match="BRADBURY_NAMESPACE=other"):
        bootstrap_servers(None)
    monkeypatch.setenv("BRADBURY_NAMESPACE", "other")
    assert bootstrap_servers(None) == "127.0.0.1:7777"


def test_nothing_to_stop_is_said_with_the_command_that_stops_another_cluster(
    command: Command, mine: ClusterState
) -> None:
    nothing = command("down").error
    assert nothing.startswith("nothing to stop: no cluster is up in namespace 'bradbury' here")
    assert "--address HOST:PORT" in nothing
    write_state(replace(mine, namespace="other"))
    assert "`bradbury down --namespace other` stops 'other'" in command("down").error
    with pytest.raises(UpError, match="only in 'other'; name it by BRADBURY_NAMESPACE=other"):
        running_address(DEFAULT_NAMESPACE)  # what `status` and `bradbury.connect` ask


def test_a_ray_that_is_gone_is_said_with_the_command_that_starts_the_cluster_again(
    environment: dict[str, str],
) -> None:
    """As a program leaves it that had started a Ray of its own, and was killed."""
    write_state(state(ray_address="127.0.0.1:1"))
    done = subprocess.run(
        [sys.executable, "-m", "bradbury.cli", "status"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: no cluster is up: the Ray cluster at 127.0.0.1:1, where it was, does not answer; "
        "start that again, or `bradbury up --data-dir /data` starts it again with its data\n"
    )


def test_python_finds_what_the_commands_find(mine: ClusterState) -> None:
    write_state(mine)
    assert [str(one) for one in find_bootstrap(None)] == ["127.0.0.1:7777"]


def test_addresses_that_are_none_are_said(command: Command) -> None:
    outcome = command("topics", "list", "--bootstrap", "a:b:c")
    assert outcome.code == 2
    assert "--bootstrap host:port" in outcome.err
