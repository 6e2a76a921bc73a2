"""Does a session on Ray stand whatever Ray cluster it is in wants for a token?

Each in a process of its own, in a home of its own: Ray decides about tokens once a process. Four
JVMs have to prove themselves to Ray besides this one, and none of them is asked for its mode.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bradbury.tests.support.ray.hand_started_ray import hand_started_ray
from bradbury.tests.support.ray.ray_settings import RAY_ENVIRONMENT

pytestmark = [pytest.mark.spark, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "0123456789abcdef" * 4

UP = """
import sys
import bradbury

cluster = bradbury.up(sys.argv[1], address=sys.argv[2], port=0)
with cluster.admin() as admin:
    admin.create_topic("numbers", 2)
with bradbury.Producer() as producer:
    producer.send_batch("numbers", [b"%d" % number for number in range(100)]).result(60)
"""
READ = """
import os
import bradbury
from bradbury.pipelines.spark.session import stop_spark

spark = bradbury.spark("authentication", executor_memory="512m", short_lived=True)
assert spark.read.format("bradbury").option("subscribe", "numbers").load().count() == 100
stop_spark()
print("read in mode", os.environ.get("RAY_AUTH_MODE"))
"""
DOWN = "\ncluster.down()\n"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    home = tempfile.mkdtemp(prefix="bs-", dir="/tmp")
    inherited = ("PATH", "LANG", "JAVA_HOME")
    yield {
        **{name: os.environ[name] for name in inherited if name in os.environ},
        **RAY_ENVIRONMENT,
        "HOME": home,
        "RAY_TMPDIR": f"{home}/ray",
        "PYTHONPATH": str(ROOT / ".path"),
        "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"),
    }
    shutil.rmtree(home, ignore_errors=True)


def run(environment: dict[str, str], program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=environment["HOME"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_token(environment: dict[str, str]) -> None:
    path = Path(environment["HOME"]) / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text(TOKEN)


# test_spark_raydp.py has a session in an embedded Ray of a home without a token, too, and so has
# README.md (tests/docs), in a Ray that another process has embedded.
@pytest.mark.deep
def test_in_a_ray_of_its_own_in_a_home_that_never_had_a_token(environment: dict[str, str]) -> None:
    said = run(environment, UP + READ + DOWN, f"{environment['HOME']}/data", "local")
    assert "read in mode token" in said


@pytest.mark.deep  # docs/deploy's test joins one, too
def test_in_a_ray_that_is_joined_by_its_address_and_wants_the_token_of_the_home(
    environment: dict[str, str],
) -> None:
    write_token(environment)
    with hand_started_ray(environment) as address:
        run(environment, UP, f"{environment['HOME']}/data", address)
        # A process that is in no Ray yet and finds the cluster as all clients do.
        assert "read in mode token" in run(environment, READ)


@pytest.mark.deep
def test_in_a_ray_whose_token_is_in_the_environment(environment: dict[str, str]) -> None:
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    with hand_started_ray(environment) as address:
        said = run(environment, UP + READ, f"{environment['HOME']}/data", address)
    assert "read in mode token" in said


@pytest.mark.deep
def test_in_a_ray_without_tokens_although_the_home_has_one(environment: dict[str, str]) -> None:
    with hand_started_ray(environment) as address:
        write_token(environment)
        said = run(environment, UP + READ, f"{environment['HOME']}/data", address)
        assert "read in mode disabled" in said
        environment["RAY_AUTH_MODE"] = "disabled"
        assert "read in mode disabled" in run(environment, READ)
