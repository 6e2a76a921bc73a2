"""Clusters and users on one machine that do not meet, and one that commands and Python share.

Each user has a home of his own; the ports and the process table are everybody's.
"""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bradbury.discovery.ray_connection import RAY_TOO_SLOW
from bradbury.discovery.state_file import read_state, state_path
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.command_line import UP_TRIES, Command, Outcome
from bradbury.tests.support.ray.hand_started_ray import hand_started_ray

pytestmark = [pytest.mark.ray, pytest.mark.slow]

Python = Callable[[str], str]


@pytest.fixture
def python(environment: dict[str, str]) -> Python:
    """What a program prints, in a process of its own that has set nothing."""

    def call(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=environment["HOME"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return call


@pytest.fixture
def another_user(environment: dict[str, str]) -> Iterator[Command]:
    """The same command line from another home."""
    with tempfile.TemporaryDirectory(prefix="bc-", dir="/tmp") as folder:
        theirs = {**environment, "HOME": folder, "RAY_TMPDIR": f"{folder}/ray"}

        def call(*arguments: str) -> Outcome:
            done = subprocess.run(
                [sys.executable, "-m", "bradbury.cli", *arguments],
                cwd=folder,
                env=theirs,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            return Outcome(done.returncode, done.stdout, done.stderr)

        yield call
        call("down")


@pytest.fixture
def down_in_the_end(process: Command) -> Iterator[None]:
    yield
    process("down")
    process("down", "--namespace", "second")


def bootstrap_of(up: Outcome) -> str:
    found = re.search(r"Bradbury is up: (\S+)", up.out)
    assert found is not None, up
    return found[1]


def topics(command: Command) -> list[str]:
    return [topic["topic"] for topic in json.loads(command("topics", "list", "--json").out)]


@pytest.mark.deep
@pytest.mark.usefixtures("down_in_the_end")
def test_two_users_and_two_names_are_three_clusters(
    process: Command, another_user: Command, environment: dict[str, str], home: Path
) -> None:
    mine = bootstrap_of(process("up", "--detach"))
    second = bootstrap_of(process("up", "--detach", "--namespace", "second"))
    theirs = bootstrap_of(another_user("up", "--detach"))
    assert len({mine, second, theirs}) == 3
    assert process("topics", "create", "mine").code == 0
    assert another_user("topics", "create", "theirs").code == 0
    environment["BRADBURY_NAMESPACE"] = "second"
    assert process("topics", "create", "of-the-second").code == 0
    assert topics(process) == ["of-the-second"]
    assert "healthy" in process("status").out
    assert process("down").code == 0
    del environment["BRADBURY_NAMESPACE"]
    assert topics(process) == ["mine"]
    assert topics(another_user) == ["theirs"]
    assert (home / ".local" / "share" / "bradbury-second").is_dir()
    assert another_user("down").code == 0
    assert "healthy" in process("status").out


# README.md's programs find it so, too (tests/docs); test_authentication.py sees that a producer joins
# no Ray, in one that was started by hand.
@pytest.mark.deep
@pytest.mark.usefixtures("down_in_the_end")
def test_python_finds_the_cluster_of_the_commands_and_starts_no_ray_beside_it(
    process: Command, python: Python
) -> None:
    assert process("up", "--detach", "--port", "0").code == 0
    assert process("topics", "create", "flights", "--partitions", "4").code == 0
    state = read_state()
    assert state is not None
    said = python("""
import bradbury, ray
with bradbury.Producer() as producer:
    producer.send("flights", b"one").result(60)
with bradbury.Consumer("flights", auto_offset_reset="earliest") as consumer:
    print(consumer.poll(60_000)["value"].to_pylist())
assert not ray.is_initialized()
consumer = bradbury.ConsumerActor.remote("flights", group="g", auto_offset_reset="earliest")
while not (table := ray.get(consumer.poll.remote(timeout_ms=1000))).num_rows:
    pass
print(table["value"].to_pylist())
print(ray.get_runtime_context().gcs_address)
print(bradbury.connect().bootstrap_servers)
""")
    one = str([b"one"])
    assert said.splitlines() == [one, one, state.ray_address, state.bootstrap]
    said = python("""
import bradbury, ray
flights = bradbury.read_topic("flights")
print(ray.get_runtime_context().gcs_address)
print(flights.count())
""")
    assert said.splitlines() == [state.ray_address, "1"]


@pytest.mark.long  # examples bring one up in Python; README.md and `status` see one
def test_status_sees_what_python_brought_up_and_down_ends_it(
    process: Command, environment: dict[str, str], home: Path
) -> None:
    program = "import bradbury, sys; c = bradbury.up(port=0); print('up', flush=True); input()"
    with ChildProcess(
        [sys.executable, "-c", program],
        cwd=home,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        assert "healthy" in process("status").out
        assert process("topics", "create", "flights").code == 0
        assert "is up already" in process("up").error
        ended = process("down")
        assert ended.code == 0, ended.err
        assert f"process {running.pid}" in ended.err
        assert running.poll() is None  # the program is not ours to end
        assert process("status").code == 1
        running.communicate("\n", timeout=60)
    assert not state_path().exists()


@pytest.mark.long  # three Rays; test_authentication.py joins one that it is told of
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param("y", True, id="yes"),
        pytest.param("n", False, id="no", marks=pytest.mark.deep),  # the first `up` says no, too
    ],
)
@pytest.mark.usefixtures("down_in_the_end")
def test_a_ray_that_happens_to_run_is_left_alone_unless_the_user_says_yes_on_a_terminal(
    process: Command, environment: dict[str, str], answer: str, expected: bool
) -> None:
    with hand_started_ray(environment) as address:

        def joins() -> bool:
            state = read_state()
            assert state is not None
            joined = state.ray_address.split(":")[1] == address.split(":")[1]
            assert process("down").code == 0
            return joined

        begun = process("up", "--detach", "--port", "0")
        assert begun.code == 0, begun.err
        assert "(embedded;" in begun.out
        assert not joins()
        for _ in range(UP_TRIES):
            code, printed = on_a_terminal(environment, ("up", "--detach", "--port", "0"), answer)
            if RAY_TOO_SLOW not in " ".join(printed.split()):
                break
        assert code == 0, printed
        assert "Join it?" in printed
        assert joins() == expected


def on_a_terminal(
    environment: dict[str, str], arguments: tuple[str, ...], answer: str
) -> tuple[int, str]:
    """The exit code of a command, and what it printed to whoever typed `answer`."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "bradbury.cli", *arguments]
        os.execve(sys.executable, command, environment)
    printed = b""
    with suppress(OSError):  # EIO: the other side has gone
        while part := os.read(terminal, 4096):
            printed += part
            if b"[y/N]" in part or (b"[y/N]" in printed and answer):
                os.write(terminal, answer.encode() + b"\n")
                answer = ""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), printed.decode(errors="replace")


@pytest.mark.long  # a Ray more
def test_a_ray_that_the_environment_names_is_not_mistaken_for_the_one_with_a_cluster(
    process: Command, environment: dict[str, str]
) -> None:
    with hand_started_ray(environment) as address:
        assert process("up", "--detach", "--address", "local", "--port", "0").code == 0
        state = read_state()
        assert state is not None
        assert process("topics", "create", "numbers").code == 0
        environment["RAY_ADDRESS"] = address
        for command in (("topics", "list"), ("produce", "numbers")):
            error = process(*command, stdin=b"meant for a cluster there\n").error
            assert f"of the Ray cluster at {address}" in error
            assert "unset RAY_ADDRESS" in error
        assert process("topics", "list", "--bootstrap", state.bootstrap).code == 0
        del environment["RAY_ADDRESS"]
        assert process("topics", "list").code == 0
        assert process("down").code == 0
