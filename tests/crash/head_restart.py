"""B7: the head of the Ray cluster is killed and comes back, with and without what its GCS knew.

    B7          RAY_gcs_storage=rocksdb: the new GCS has the old one's nodes, actors and names
    B7-memory   Ray's default: the new GCS knows nothing; what then ends by itself is started again,
                and `bradbury up` is run again, as an operator would

The whole head goes: GCS, raylet, agents, and whatever of ours Ray has put there, like the controller.
This process is no driver of that Ray, since drivers end with their GCS: commands do what needs one,
and what runs is seen by a client of the GCS and on the wire.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
import ray
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import bradbury
from bradbury.actors.ray.placement import PORTS_PER_NODE
from bradbury.tests.support.free_ports import free_ports
from bradbury.tests.support.ray.ray_nodes import RayNode, living_labels, wait_for
from bradbury.tests.support.ray.ray_settings import QUICK_DEATHS, RAY_ENVIRONMENT

from .cluster import NODES, ROLE, ROOT

COMMAND_SECONDS = 150
START_SECONDS = 90
DECIDED_SECONDS = 90
ACTORS_PER_NODE = 3
# What docs/deploy says: the loss of the head must not end the nodes.
RECONNECT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "86400"}


class Head:
    """The head of a Ray cluster, on its own: nothing of it survives but its storage's files."""

    def __init__(self, folder: Path, *, persists: bool) -> None:
        self._folder = folder
        self._port = free_ports(2)
        self.address = f"{ray.util.get_node_ip_address()}:{self._port}"
        self._environment = {f"RAY_{name}": str(value) for name, value in QUICK_DEATHS.items()}
        if persists:
            storage = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder / "gcs")}
            self._environment |= storage
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        """Returns when its GCS answers."""
        # Ray would take the other nodes on this machine for a cluster that runs here already.
        (self._folder / "ray_current_cluster").unlink(missing_ok=True)
        command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block"]
        command += [f"--port={self._port}", f"--ray-client-server-port={self._port + 1}"]
        command += ["--num-cpus=1", "--include-dashboard=false", f"--temp-dir={self._folder}"]
        with (self._folder / "head.log").open("ab") as output:
            self._process = psutil.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self._environment},
            )
        wait_for(lambda: "" in self.labels(), START_SECONDS, "the head does not start")

    def labels(self) -> list[str]:
        """log-node of the living Ray nodes, the head's being ""; none while no GCS answers."""
        return living_labels(self.address)

    def kill(self) -> None:
        """kill -9 of every process of the head."""
        if self._process is None:
            return
        processes = [self._process, *self._process.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=20)
        self._process = None


class HeadCluster:
    """What CrashCluster is, on a Ray of its own, for a head that dies. The nodes given stay idle."""

    persists = True

    def __init__(
        self, _nodes: list[RayNode], data_dir: Path, config: Mapping[str, Any] | None = None
    ) -> None:
        os.environ.update(RAY_ENVIRONMENT | RECONNECT)
        self.data_dir = data_dir
        self._config = {name: str(value) for name, value in (config or {}).items()}
        self._folder = Path(tempfile.mkdtemp(prefix="bh-", dir="/tmp"))
        self._port = free_ports(NODES * PORTS_PER_NODE)
        self._address = ray.util.get_node_ip_address()
        self.head = Head(self._folder, persists=self.persists)
        self.nodes: list[RayNode] = []
        try:
            self.head.start()
            for number in range(1, NODES + 1):  # one after the other, see RayNode
                self.nodes.append(RayNode(self.head.address, f"h{number}", ROLE))
                self.wait_for_node(self.nodes[-1])
            self.servers = self.up()
            self.wait_until_whole()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(subprocess.SubprocessError):
            self._command("down", "--address", self.head.address)
        for node in self.nodes:
            node.kill()
        self.head.kill()
        self._keep_logs()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _keep_logs(self) -> None:
        """What Ray and the actors have said, beside the history."""
        kept = self.data_dir.parent / "logs"
        kept.mkdir(exist_ok=True)
        logs = [*self._folder.glob("session_*/logs/worker-*.err"), self._folder / "head.log"]
        for path in logs:
            if path.is_file():
                shutil.copy(path, kept)

    def up(self) -> str:
        """`bradbury up`; the addresses."""
        words = ["--detach", "--address", self.head.address, "--data-dir", str(self.data_dir)]
        words += ["--port", str(self._port), "--node-label", f"log-role={ROLE}"]
        for name, value in self._config.items():
            words += ["--config", f"{name}={value}"]
        said = self._command("up", *words)
        return said.split("Bradbury is up:")[1].split()[0]

    def _command(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bradbury.cli", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / ".path"),
                "XDG_STATE_HOME": str(self._folder / "state"),
            },
        )
        assert done.returncode == 0, f"bradbury {' '.join(words)}: {done.stderr}"
        return done.stdout

    def wait_for_node(self, node: RayNode) -> None:
        wait_for(lambda: node.label in self.head.labels(), START_SECONDS, "no Ray node")

    def admin(self) -> bradbury.Admin:
        return bradbury.Admin(bootstrap=self.servers)

    def wait_until_whole(self, seconds: float = 60) -> None:
        """Until every node is in service, as any client sees it."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

        def is_whole() -> bool:
            try:
                found = admin.list_topics(timeout=5)
            except KafkaException:
                return False
            return len(found.brokers) == NODES * ACTORS_PER_NODE

        wait_for(is_whole, seconds, "not all nodes come back")

    # --- what is done to it -----------------------------------------------------------------------

    def restart_head(self, scene: Any) -> None:
        seconds = scene.some_seconds(2, 20)
        scene.fault("kill -9", node="head", seconds=seconds)
        begin = time.monotonic()
        self.head.kill()
        time.sleep(seconds)
        scene.note("the head comes back")
        self.head.start()
        lost = self._start_what_ended(scene)
        if lost or not self.persists:
            scene.note("bradbury up")
            self.up()
        self.wait_until_whole()
        scene.recoveries.append(time.monotonic() - begin)

    def _start_what_ended(self, scene: Any) -> int:
        """Nodes that Ray has ended, as it meets a GCS that it does not know; how many."""

        def is_decided() -> bool:
            known = self.head.labels()
            return all(
                node.label in known or node.process.poll() is not None for node in self.nodes
            )

        wait_for(is_decided, DECIDED_SECONDS, "nodes neither end nor are known to the new head")
        lost = [node for node in self.nodes if node.label not in self.head.labels()]
        for node in lost:
            scene.note("a node is started again", node=node.label)
            node.kill()
            node.start_again()
            self.wait_for_node(node)
        return len(lost)


class ForgetfulHeadCluster(HeadCluster):
    """Its GCS keeps everything in memory, as Ray's does by default."""

    persists = False


def restart_head(scene: Any) -> None:
    scene.cluster.restart_head(scene)
