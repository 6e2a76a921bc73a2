"""One Ray cluster per process of a test run, and its hygiene: nothing of ours meets another Ray.

`make test` runs a process for each core: what shares a Ray cluster stays together in one, and so
does what starts further nodes of it; of the rest a file stays together, and goes to whichever has time,
what takes long first.

own home                  nothing of the user's is read or written: Ray's token, state files, data
address "local"           never join a cluster that happens to run here
own short temp directory  socket paths have at most 107 characters
byte code kept            or every Ray process compiles hundreds of modules again
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from bradbury.tests.support.command_line import UP_TRIES
from bradbury.tests.support.ray.ray_settings import HEAD, QUICK_DEATHS, RAY_ENVIRONMENT

if TYPE_CHECKING:  # it imports Ray
    from bradbury.tests.support.ray.ray_nodes import RayNode

# No test depends on how long something takes: the machine may be busy with others.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A suite in the background of a shell begins with Ctrl-C ignored, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a person has who has set nothing, in a new home.
HOME = tempfile.mkdtemp(prefix="bh-", dir="/tmp")
os.environ["HOME"] = HOME
for variable in list(os.environ):
    if variable.startswith(("BRADBURY_", "RAY_", "XDG_")):
        del os.environ[variable]


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


ONE_PROCESS = ("ray", "pipelines", "compatibility")
"""Folders whose tests share what a process has once: a Ray cluster, a Spark session, a JVM of Kafka's."""
SEVERAL_NODES = "tests/crash"
"""The place of tests that start further Ray nodes: two nodes at once would take the same sockets."""
WITH_NODES = (
    "tests/crash/",
    "tests/ray/nodes/test_drained_nodes.py",
    "tests/ray/nodes/test_growing_cluster.py",
    "tests/ray/nodes/test_joined_nodes.py",
    "tests/ray/nodes/test_many_nodes.py",
    "tests/ray/nodes/test_rebalance.py",
)
IN_TURN = (
    SEVERAL_NODES,
    "tests/ray/groups",
    "tests/live",
    "tests/ray",
    "tests/docs/test_pages.py",
    "tests/pipelines",
    "tests/cli/demo/test_demo.py",
    "tests/compatibility",
    "tests/cli/cluster/test_up_and_down.py",
    "tests/examples",
    "tests/cli/cluster/test_secure.py",
    "tests/cli/cluster/test_authentication.py",
    "tests/simulation",
    "tests/storage/directories/test_kafka_directory.py",
    "tests/cli",
    "tests/clients",
)
"""What begins first. Not all that is long at once, which starts many processes: those of tests/live wait
most of their time, beside two of the others. At the end of a run there are only short ones to wait for."""
GROUPS = ("tests/ray/groups/", "tests/ray/data/test_continuous_", "tests/ray/nodes/test_crash.py")
"""Those of groups, clients and crashes: half of what shares a Ray cluster, for another process."""


def place(path: str) -> str:
    """What a test stays together with, in one process: those of its file, or of its folder."""
    folder = path.split("/")[1] if path.count("/") > 1 else ""
    if path.startswith(WITH_NODES):
        return SEVERAL_NODES
    if path.startswith(GROUPS):
        return "tests/ray/groups"
    return f"tests/{folder}" if folder in ONE_PROCESS else path


def turn(path: str) -> int:
    """When the tests of a place have their turn."""
    turns = (number for number, one in enumerate(IN_TURN) if place(path).startswith(one))
    return next(turns, len(IN_TURN))


ENDS_AT = float(os.environ.get("TESTS_END_AT", "inf"))
"""Seconds since 1970 at which no more tests begin, for a run that is ended then whatever it does."""


def pytest_runtest_setup() -> None:
    if time.time() > ENDS_AT:
        pytest.skip("no time is left for it: TESTS_END_AT")


WHAT_RAN = "tests/compatibility/test_table.py"
"""What compares a document with the other tests of its place, and comes behind them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def order(item: pytest.Item) -> tuple[int, bool]:
        path = item.nodeid.split("::")[0]
        return turn(path), path == WHAT_RAN

    items.sort(key=order)


class Together(LoadScopeScheduling):
    """Gives a process all tests of a place, then the next ones."""

    def _split_scope(self, nodeid: str) -> str:
        return place(nodeid.split("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return Together(config, log)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """The address of this process's embedded Ray, started on first use and ended with the run."""
    import ray

    temporary = tempfile.mkdtemp(prefix="br-", dir="/tmp")
    os.environ.update(RAY_ENVIRONMENT)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    cache = Path(__file__).parent.parent / ".cache" / "pycache"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(cache))
    for tries_left in reversed(range(UP_TRIES)):
        try:
            context = ray.init(
                address="local",
                namespace="bradbury",
                num_cpus=4,
                resources={HEAD: 1},
                include_dashboard=False,
                log_to_driver=False,
                _temp_dir=temporary,
                _system_config=QUICK_DEATHS,
            )
            break
        except Exception as error:
            if not tries_left or "timed out during startup" not in str(error):
                raise
    yield context.address_info["gcs_address"]
    ray.shutdown()
    shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture(scope="session")
def nodes(ray_cluster: str) -> "Iterator[list[RayNode]]":
    """Three further nodes of that Ray, on which a test's cluster may be. A test that has ended one
    has started it again.

    To start and end them takes most of a minute, and so they are there once.
    """
    from bradbury.tests.crash.cluster import crash_nodes

    with crash_nodes(ray_cluster) as running:
        yield running
