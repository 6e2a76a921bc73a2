"""One Ray cluster per test run, and its hygiene: nothing of ours meets another Ray on the machine.

`make test` runs two processes: what needs Ray or Spark stays together in one, so that there is one
cluster; of the rest a file stays together, and goes to whichever has time.

address "local"           never join a cluster that happens to run here
own short temp directory  socket paths have at most 107 characters
byte code kept            or every Ray process compiles hundreds of modules anew
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

RAY_ENVIRONMENT = {
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


# A killed node is noticed after some 5 s instead of 14.
QUICK_DEATHS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 5,
}


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which tests stay in one process; the longest such group first."""

    def place(item: pytest.Item) -> tuple[int, str]:
        if item.get_closest_marker("ray") or item.get_closest_marker("spark"):
            return 0, "ray"
        if "compatibility" in item.path.parts:  # its table is looked at after its calls
            return 1, "compatibility"
        return 2, str(item.path)

    for item in items:
        item.add_marker(pytest.mark.xdist_group(place(item)[1]))
    items.sort(key=lambda item: place(item)[0])


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """The address of an embedded Ray, started on first use and ended with the test run."""
    import ray

    temporary = tempfile.mkdtemp(prefix="br-", dir="/tmp")
    os.environ.update(RAY_ENVIRONMENT)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.pop("RAY_ADDRESS", None)
    cache = Path(__file__).parent.parent / ".cache" / "pycache"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(cache))
    context = ray.init(
        address="local",
        namespace="bradbury",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=temporary,
        _system_config=QUICK_DEATHS,
    )
    yield context.address_info["gcs_address"]
    ray.shutdown()
    shutil.rmtree(temporary, ignore_errors=True)
