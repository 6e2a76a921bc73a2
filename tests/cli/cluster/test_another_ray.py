"""Another Ray cluster has taken the address that the state file names: who notices, and what then?

Most tests need a Ray that answers, and no node of it.
"""

import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_server

import pytest

from bradbury.discovery.state_file import ClusterState, read_state, state_path, write_state
from bradbury.tests.support.command_line import Command
from bradbury.tests.support.free_ports import free_ports
from bradbury.tests.support.ray.hand_started_ray import hand_started_ray
from bradbury.tests.support.ray.lone_gcs import lone_gcs

pytestmark = [pytest.mark.ray, pytest.mark.slow]

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
ANOTHERS = "another Ray cluster than the one where it was answers at "

Python = Callable[..., str]


def state_of(address: str, cluster_id: str, bootstrap: str = "127.0.0.1:1") -> ClusterState:
    """As `up --detach` leaves it in a Ray that was started by hand."""
    return ClusterState(
        namespace="bradbury",
        ray_address=address,
        ray_cluster_id=cluster_id,
        bootstrap=bootstrap,
        data_dir="/data",
    )


@pytest.fixture
def port() -> int:
    return free_ports(1)


@pytest.fixture
def python(environment: dict[str, str]) -> Python:
    """What a program prints, in a process of its own, which no other test has connected to Ray."""

    def call(program: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=environment["HOME"],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return call


@pytest.fixture
def id_of(python: Python) -> Callable[..., str]:
    def call(address: str, **variables: str) -> str:
        program = "import ray._raylet; print(ray._raylet.GcsClient({!r}).cluster_id.hex())"
        return python(program.format(address), **variables)

    return call


WHY_GONE = """
import os
from bradbury.discovery import ray_connection, state_file
ray_connection.PROBE_SECONDS = 2
mode = os.environ.get("RAY_AUTH_MODE")
try:
    print(ray_connection.why_gone(state_file.read_state()))
except ray_connection.UpError as error:
    print("unknown:", error)
assert os.environ.get("RAY_AUTH_MODE") == mode, "for the processes that are started next"
"""


def test_commands_and_python_say_so_and_touch_nothing(
    process: Command,
    python: Python,
    environment: dict[str, str],
    port: int,
    id_of: Callable[..., str],
) -> None:
    with lone_gcs(environment, port) as address:
        mine = state_of(address, id_of(address))
    write_state(mine)
    with lone_gcs(environment, port):
        for command in ("status", "down", "rebalance"):
            error = process(command).error
            assert f"no cluster is up: {ANOTHERS}{address}" in error
            assert f"`bradbury up --address {address}`" in error
            assert "`bradbury up --data-dir /data` starts it again with its data" in error
        said = python("""
import bradbury
try:
    bradbury.connect()
except Exception as error:
    print(type(error).__name__, error)
""")
        assert said.startswith("AnotherRay no cluster is up: ")
        for arguments in ((), ("--address", "local")):  # a refused start forgets nothing
            refused = process("up", "--detach", "--host", "0.0.0.0", *arguments)
            assert (refused.code, "has no authentication" in refused.err) == (1, True)
            assert ("is gone: another one answers there" in refused.err) == (not arguments)
        assert read_state() == mine


def test_a_head_that_has_kept_its_storage_is_the_same_ray(
    python: Python,
    environment: dict[str, str],
    port: int,
    id_of: Callable[..., str],
    tmp_path: Path,
) -> None:
    with lone_gcs(environment, port, tmp_path / "gcs") as address:
        write_state(state_of(address, id_of(address)))
    assert python(WHY_GONE).endswith("where Bradbury was up, is gone")
    with lone_gcs(environment, port, tmp_path / "gcs"):
        assert python(WHY_GONE) == "None"
    with lone_gcs(environment, port):  # it was started again without
        assert "another one answers there" in python(WHY_GONE)


def test_a_state_file_of_a_former_version_names_whatever_answers(
    python: Python, environment: dict[str, str], port: int
) -> None:
    with lone_gcs(environment, port) as address:
        write_state(state_of(address, "ab" * 28))
        text = state_path().read_text()
        assert "another one answers there" in python(WHY_GONE)
        state_path().write_text(text.replace(f'"ray_cluster_id": "{"ab" * 28}",', ""))
        assert python(WHY_GONE) == "None"


def test_one_that_wants_another_token_is_anothers_if_the_brokers_are_gone_too(
    python: Python, environment: dict[str, str], port: int, id_of: Callable[..., str]
) -> None:
    with lone_gcs({**environment, **TOKEN}, port) as address:
        cluster_id = id_of(address, **TOKEN)
        token = Path(environment["HOME"]) / ".ray" / "auth_token"
        token.parent.mkdir()
        write_state(state_of(address, cluster_id))
        assert "another one, which requires another token, answers there" in python(WHY_GONE)
        token.write_text(TOKEN["RAY_AUTH_TOKEN"])
        assert python(WHY_GONE) == "None"
        token.write_text("f" * 64)
        with create_server(("127.0.0.1", 0)) as broker:
            bootstrap = f"127.0.0.1:{broker.getsockname()[1]}"
            write_state(state_of(address, cluster_id, bootstrap))
            said = python(WHY_GONE)
        assert said.startswith("unknown: the Ray cluster at ")
        assert "requires another token" in said


def test_another_program_at_the_address_is_no_ray_and_one_that_stands_still_may_be(
    python: Python, port: int
) -> None:
    address = f"127.0.0.1:{port}"
    write_state(state_of(address, "ab" * 28))
    with ThreadingHTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        assert python(WHY_GONE).endswith("is gone: another program listens there")
        other.shutdown()
    with create_server(("127.0.0.1", port)):
        assert python(WHY_GONE).startswith(f"unknown: what listens at '{address}' has not answered")


@pytest.mark.long  # three Rays more
def test_a_new_cluster_begins_beside_the_ray_that_has_taken_the_place(
    process: Command, environment: dict[str, str], home: Path, port: int
) -> None:
    up = ("up", "--detach", "--port", "0", "--data-dir", str(home / "data"))
    with hand_started_ray(environment, port=port) as address:
        assert process(*up, "--address", address).code == 0
        assert process("topics", "create", "kept").code == 0
        mine = read_state()
        assert mine is not None
        assert process(*up).code == 0  # no address: the state file knows where it is
        assert read_state() == mine
    theirs = {**environment, "RAY_TMPDIR": f"{environment['TMPDIR']}/theirs"}
    with hand_started_ray(theirs, port=port):
        assert ANOTHERS in process("status").error
        begun = process(*up)
        assert begun.code == 0, begun.err
        assert "is gone: another one answers there" in begun.err
        assert "(embedded;" in begun.out
        assert "kept" in process("topics", "list").out
        assert "no cluster is up in" in process("status", "--address", address).error
        assert process("down").code == 0
        joined = process(*up, "--address", address)  # on request it is joined
        assert joined.code == 0, joined.err
        assert "kept" in process("topics", "list").out
        assert process("down").code == 0
