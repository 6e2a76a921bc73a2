"""Commands and Python at Ray clusters that were started by hand, with and without tokens.

Ray decides about tokens when a cluster starts: RAY_AUTH_MODE, or whether a token is there. Whoever
joins has nothing set but what a person has who set nothing.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bradbury.discovery.state_file import read_state, state_path
from bradbury.tests.support.command_line import Command
from bradbury.tests.support.ray.hand_started_ray import hand_started_ray

pytestmark = [pytest.mark.ray, pytest.mark.slow]

TOKEN = "0123456789abcdef" * 4


@dataclass(frozen=True)
class Ray:
    address: str
    environment: dict[str, str]


def write_token(home: str, token: str = TOKEN) -> None:
    path = Path(home) / ".ray" / "auth_token"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(token)


def in_a_fresh_home(environment: dict[str, str]) -> None:
    """`ray start` where there is no token: none is wanted."""


def before_there_was_a_token(environment: dict[str, str]) -> None:
    """None is wanted, but an embedded Ray leaves one in the home later."""


def with_the_token_of_the_home(environment: dict[str, str]) -> None:
    """`ray start` in a home where an embedded Ray has left a token: it is wanted."""
    write_token(environment["HOME"])


def with_a_token_of_the_environment(environment: dict[str, str]) -> None:
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}


def with_tokens_switched_off(environment: dict[str, str]) -> None:
    write_token(environment["HOME"])
    environment["RAY_AUTH_MODE"] = "disabled"


DEEP = (before_there_was_a_token, with_a_token_of_the_environment, with_tokens_switched_off)
WAYS = [
    with_the_token_of_the_home,
    *(pytest.param(way, marks=pytest.mark.deep) for way in DEEP),
]


Way = Callable[[dict[str, str]], None]


@pytest.fixture
def ray(way: Way, environment: dict[str, str]) -> Iterator[Ray]:
    way(environment)
    with hand_started_ray(environment) as address:
        if way is before_there_was_a_token:
            write_token(environment["HOME"])
        yield Ray(address, environment)


PROGRAM = """
import bradbury, ray
with bradbury.Producer() as producer:
    producer.send("numbers", b"from a plain process").result(60)
assert not ray.is_initialized()
cluster = bradbury.connect()
assert cluster.status()["active"]

@ray.remote
def produce(text):
    with bradbury.Producer() as producer:
        producer.send("numbers", text).result(60)
    return text

waited = [produce.remote(b"from a task")]
assert ray.get(produce.remote(waited[0])) == b"from a task"
with bradbury.Consumer("numbers", auto_offset_reset="earliest") as consumer:
    values = []
    while len(values) < 4:
        values += consumer.poll(60_000)["value"].to_pylist()
print(sorted(values))
"""


@pytest.mark.long  # a whole cluster comes and goes; the README's page does so in make test
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_whole_life_in_a_ray_that_was_started_by_hand(
    process: Command, ray: Ray, home: Path
) -> None:
    begun = process("up", "--detach", "--address", "auto", "--port", "0")
    assert begun.code == 0, begun.err
    assert "(the cluster that was joined" in begun.out
    state = read_state()
    assert state is not None
    # Ray itself puts the machine's own address in the place of 127.0.0.1.
    assert state.ray_address.split(":")[1] == ray.address.split(":")[1]

    assert "healthy" in process("status").out
    assert process("status", "--address", ray.address, "--json").code == 0
    assert process("topics", "create", "numbers").code == 0
    assert process("produce", "numbers", stdin=b"from the command\n").code == 0
    assert process("rebalance", "--dry-run").code == 0
    machine = json.loads(process("status", "--json").out)["nodes"][0]["machine"]
    assert process("voters").code == 0
    assert process("drain", "--restore", machine).code == 0
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=home,
        env=ray.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(
        sorted([b"from a plain process", b"from a task", b"from a task", b"from the command"])
    )

    again = process("up", "--detach")  # no address: the state file knows where it is
    assert again.code == 0, again.err
    assert state.bootstrap in again.out
    ended = process("down")
    assert (ended.code, ended.out) == (0, ""), ended.err
    assert process("status", "--address", ray.address).code == 1
    assert not state_path().exists()


@pytest.mark.long  # a Ray more; the whole life joins by "auto"
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(in_a_fresh_home, id="in_a_fresh_home", marks=pytest.mark.deep),
        pytest.param(with_the_token_of_the_home, id="with_the_token_of_the_home"),
    ],
)
def test_ray_address_is_joined_without_further_words(process: Command, ray: Ray) -> None:
    ray.environment["RAY_ADDRESS"] = ray.address
    begun = process("up", "--detach", "--port", "0")
    assert begun.code == 0, begun.err
    state_path().unlink()  # as on another machine of the cluster
    assert "healthy" in process("status").out
    assert process("topics", "create", "numbers").code == 0
    assert process("down").code == 0


@pytest.mark.long  # a Ray more
def test_a_secured_cluster_is_refused_by_a_ray_that_asks_for_no_token(
    process: Command, environment: dict[str, str], home: Path
) -> None:
    in_a_fresh_home(environment)
    with hand_started_ray(environment) as address:
        error = process("up", "--secure", "--address", address, "--port", "0").error
        assert "asks for no token" in error
        assert "ray get-auth-token --generate" in error
        # It is let in with a token, too, by a Ray that checks none.
        write_token(environment["HOME"])
        environment["RAY_AUTH_MODE"] = "token"
        assert "asks for no token" in process("up", "--secure", "--address", address).error
        assert not (home / ".local" / "share" / "bradbury").exists()


@pytest.mark.long  # a Ray more; the whole life has the token
@pytest.mark.parametrize(
    "token",
    [
        pytest.param(None, id="no token"),
        pytest.param("f" * 64, id="another token", marks=pytest.mark.deep),
    ],
)
def test_without_the_token_a_command_fails_in_one_line_and_keeps_its_state_file(
    process: Command, environment: dict[str, str], token: str | None
) -> None:
    write_token(environment["HOME"])
    with hand_started_ray(environment) as address:
        assert process("up", "-d", "--address", address, "--port", "0").code == 0
        (Path(environment["HOME"]) / ".ray" / "auth_token").unlink()
        if token is not None:
            write_token(environment["HOME"], token)
        for command in (("status",), ("down",), ("rebalance",), ("voters",)):
            error = process(*command).error
            assert "token" in error
            assert "ray get-auth-token" in error
        assert read_state() is not None
        write_token(environment["HOME"])
        assert "healthy" in process("status").out
        assert process("down").code == 0


@pytest.mark.long  # two Rays more
def test_a_ray_that_is_gone_is_not_forgotten_by_down(
    process: Command, environment: dict[str, str]
) -> None:
    with hand_started_ray(environment) as address:
        assert process("up", "-d", "--address", address, "--port", "0").code == 0
    for command in ("status", "down"):
        error = process(command).error
        assert "where it was, does not answer; start that again, or `bradbury up" in error
    for address in ((), ("--address", "local")):  # nor by a start that is refused
        refused = process("up", "-d", "--host", "0.0.0.0", *address)
        assert (refused.code, "has no authentication" in refused.err) == (1, True)
    assert read_state() is not None
    begun = process("up", "--detach", "--port", "0")  # nobody else has its data: it goes on
    assert begun.code == 0, begun.err
    assert "is gone" in begun.err
    assert process("down").code == 0
