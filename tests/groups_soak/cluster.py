"""A cluster for a run: on a Ray of its own, with as many nodes as asked, all on this machine.

Each node has a coordinator, which leads its share of `__consumer_offsets`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

import bradbury
from bradbury.tests.support.ray.ray_settings import QUIET_DEATHS, RAY_ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent.parent
NODE_SECONDS = 60


def coordinator_pids(cluster: bradbury.Cluster) -> list[int]:
    """The pids of the coordinators that answer now."""
    return [
        actor["pid"]
        for actor in cluster.status()["actors"]
        if actor["actor"].startswith("groups") and "pid" in actor
    ]


@contextmanager
def own_cluster(data_dir: Path, *, nodes: int = 1) -> Iterator[bradbury.Cluster]:
    """Brokers on `nodes` Ray nodes, all of it gone afterwards."""
    import ray

    temporary = tempfile.mkdtemp(prefix="bs-", dir="/tmp")  # socket paths have at most 107 bytes
    os.environ.update(RAY_ENVIRONMENT | QUIET_DEATHS)
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".cache" / "pycache"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        context = ray.init(
            address="local",
            namespace="bradbury",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=temporary,
        )
        stack.callback(ray.shutdown)
        for number in range(
            1, nodes
        ):  # one after the other: at once, they would take the same sockets
            stack.enter_context(_further_node(context.address_info["gcs_address"], number))
        cluster = bradbury.up(str(data_dir), port=0)
        stack.callback(cluster.down)
        yield cluster


@contextmanager
def _further_node(address: str, number: int) -> Iterator[None]:
    import ray

    before = _alive(ray)
    command = [str(Path(sys.executable).parent / "ray"), "start", f"--address={address}"]
    command += [f"--labels=log-node=n{number}", "--num-cpus=1", "--block"]
    process = psutil.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + NODE_SECONDS
        while _alive(ray) == before:
            assert time.monotonic() < deadline, "a further Ray node does not come up"
            time.sleep(0.2)
        yield
    finally:
        ours = [process]
        with suppress(psutil.NoSuchProcess):
            ours += process.children(recursive=True)
        for one in ours:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(ours, timeout=20)


def _alive(ray: object) -> int:
    return sum(node["Alive"] for node in ray.nodes())
