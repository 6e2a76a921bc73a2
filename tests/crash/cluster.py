"""A cluster for a run: three Ray nodes beside the head, which runs nothing of ours but, perhaps, the
controller; and the hand on its processes.

    with ray_of_its_own() as address, crash_nodes(address) as nodes:
        with CrashCluster(nodes, data_dir) as cluster:
            send_signal(cluster.pids("partitions/c1/0")["partitions/c1/0"], SIGKILL)

Brokers have fixed ports, as they have in earnest: one that comes back is where it was.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import ray

import bradbury
from bradbury.actors.ray.placement import PORTS_PER_NODE
from bradbury.tests.support.free_ports import free_ports
from bradbury.tests.support.ray.ray_nodes import RayNode, wait_for
from bradbury.tests.support.ray.ray_settings import QUICK_DEATHS, QUIET_DEATHS, RAY_ENVIRONMENT

from .faults.networks import OwnNetwork

ROOT = Path(__file__).resolve().parent.parent.parent
ROLE = "crash"
NODES = 3
ANSWER_SECONDS = 3


class CrashCluster:
    """A running cluster on the nodes of role `crash`; down at the end, its files kept."""

    def __init__(
        self, nodes: list[RayNode], data_dir: Path, config: Mapping[str, Any] | None = None
    ) -> None:
        self.nodes = nodes
        self.data_dir = data_dir
        self.namespace = f"crash-{data_dir.parent.name}"
        self._cluster = bradbury.up(
            str(data_dir),
            port=free_ports(NODES * PORTS_PER_NODE),
            namespace=self.namespace,
            node_label={"log-role": ROLE},
            config=config,
            insecure=True,  # some nodes have networks of their own
        )
        self.servers = self._cluster.bootstrap_servers
        self.names = sorted(one["actor"] for one in self._cluster.status()["actors"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.down()

    # --- who is there ----------------------------------------------------------------------------

    def of_kind(self, *kinds: str) -> list[str]:
        """Names of actors: "broker", "groups", "partitions"."""
        return [name for name in self.names if name.split("/")[0] in kinds]

    def statuses(self, *names: str) -> dict[str, dict[str, Any]]:
        """What those actors say of themselves; without those that do not answer in time."""
        asked = {}
        for name in names or self.names:
            with suppress(ValueError):
                handle = ray.get_actor(name, namespace=self.namespace)
                asked[name] = handle.status.remote()
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_SECONDS)
        found = {}
        for name, reference in asked.items():
            with suppress(ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
                found[name] = ray.get(reference, timeout=0)
        return found

    def pids(self, *names: str) -> dict[str, int]:
        return {name: found["pid"] for name, found in self.statuses(*names).items()}

    def controller(self) -> dict[str, Any]:
        """What the controller says of the cluster. Raises RayError if it does not answer."""
        handle = ray.get_actor("controller", namespace=self.namespace)
        found: dict[str, Any] = ray.get(handle.describe.remote(), timeout=ANSWER_SECONDS)
        return found

    def node_ids(self) -> dict[int, str]:
        """The actor behind each Kafka node."""
        return {
            found["node_id"]: name for name, found in self.statuses().items() if "node_id" in found
        }

    def wait_until_whole(self, seconds: float = 180) -> None:
        """Until every actor serves, none is fenced, and there is a controller."""
        wait_for(self._is_whole, seconds, "not all actors come back")

    def _is_whole(self) -> bool:
        found = self.statuses()
        if len(found) < len(self.names) or any(one["problem"] for one in found.values()):
            return False
        try:
            controller = self.controller()
        except ray.exceptions.RayError:
            return False
        ids = {one["node_id"] for one in found.values()}
        fenced = {one["node_id"] for one in controller["nodes"] if one["fenced"]}
        return controller["active"] and not ids & fenced

    def admin(self) -> bradbury.Admin:
        return self._cluster.admin()


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended by itself."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def crash_nodes(address: str, networks: Sequence[OwnNetwork] = ()) -> Iterator[list[RayNode]]:
    """Three further Ray nodes, each in its network, if there are. A nemesis may replace them in
    the list.
    """
    nodes: list[RayNode] = []
    try:
        for number in range(1, NODES + 1):  # one after the other, see RayNode
            network = networks[number - 1] if networks else None
            nodes.append(RayNode(address, f"c{number}", ROLE, network))
            nodes[-1].wait_until_alive()
        yield nodes
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            node.wait_until_dead()


@contextmanager
def ray_of_its_own(here: str | None = None) -> Iterator[str]:
    """A Ray head in this process, for runs outside of the test suite; its address.

    here: of this side, where the nodes have networks of their own.
    """
    temporary = tempfile.mkdtemp(prefix="bc-", dir="/tmp")  # socket paths have at most 107 bytes
    os.environ.update(RAY_ENVIRONMENT | QUIET_DEATHS)
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".cache" / "pycache"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        context = ray.init(
            address="local",
            namespace="bradbury",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=temporary,
            _system_config=QUICK_DEATHS,
            _node_ip_address=here,
        )
        stack.callback(ray.shutdown)
        yield context.address_info["gcs_address"]


def keep_logs(folder: Path, since: float) -> None:
    """Copy what actors have written since `since` (time.time()) beside a history that has faults."""
    if not ray.is_initialized():
        return  # a cluster on a Ray of its own keeps its own
    session = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    kept = folder / "logs"
    kept.mkdir(exist_ok=True)
    for path in session.glob("worker-*.err"):
        if path.stat().st_mtime >= since and path.stat().st_size:
            shutil.copy(path, kept / path.name)
