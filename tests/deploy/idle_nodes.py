"""Does Ray's autoscaler take a log node for idle? Not while Bradbury is on it; afterwards it does.

    make deploy-test                    # or: python -m bradbury.tests.deploy.idle_nodes

A Ray head of its own with the provider that Ray tests its autoscaler with: "machines" are further
Ray nodes on this one, started when something asks for them and ended after IDLE_SECONDS without
work. Brokers ask for no CPU, so nothing but their being there keeps their node.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import ray
import yaml
from rich.console import Console

from bradbury.tests.crash.cluster import ROOT
from bradbury.tests.support.free_ports import free_ports
from bradbury.tests.support.ray.ray_nodes import living_labels, wait_for
from bradbury.tests.support.ray.ray_settings import RAY_ENVIRONMENT

IDLE_SECONDS = 12
"""Longer than it takes to start the brokers."""
WATCHED_SECONDS = 3 * IDLE_SECONDS
START_SECONDS = 90
BIN = Path(sys.executable).parent

# Asks for a machine, and does nothing on it until its input ends.
HOLD = """
import ray, sys
ray.init(sys.argv[1], logging_level="ERROR", log_to_driver=False)
@ray.remote(num_cpus=0, resources={"log_broker": 1})
class Hold:
    def ready(self): return "ready"
hold = Hold.remote()
print(ray.get(hold.ready.remote()), flush=True)
sys.stdin.read()
"""


def configuration(gcs_address: str) -> dict[str, object]:
    """As the autoscaler wants it that is given one at `ray start`: nothing is filled in."""
    return {
        "cluster_name": "idle",
        "max_workers": 1,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": IDLE_SECONDS / 60,
        "provider": {
            "type": "fake_multinode",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "gcs_address": gcs_address,
        },
        "auth": {},
        "docker": {},
        "available_node_types": {
            "head": {"resources": {}, "node_config": {}, "max_workers": 0},
            "broker": {
                "resources": {"CPU": 1, "log_broker": 1},
                "labels": {"log-node": "f1", "log-role": "broker"},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 1,
            },
        },
        "head_node_type": "head",
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }


class Autoscaled:
    """The Ray cluster, and commands to it."""

    def __init__(self, folder: Path) -> None:
        port = free_ports(2)
        self.address = f"{ray.util.get_node_ip_address()}:{port}"
        self.folder = folder
        (folder / "idle.yaml").write_text(yaml.safe_dump(configuration(self.address)))
        command = [str(BIN / "ray"), "start", "--head", "--block", f"--port={port}"]
        command += [f"--ray-client-server-port={port + 1}", f"--temp-dir={folder}"]
        command += ["--num-cpus=1", "--include-dashboard=false"]
        command += [f"--autoscaling-config={folder / 'idle.yaml'}"]
        with (folder / "head.log").open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
                start_new_session=True,
            )
        try:
            wait_for(lambda: len(self.labels()) == 1, START_SECONDS, "no Ray head")
        except AssertionError:
            self.end()
            raise

    def _environment(self) -> dict[str, str]:
        """Of a process that belongs to it, as this one is now: see living_labels."""
        return {
            **os.environ,
            **RAY_ENVIRONMENT,
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "0",  # the second one starts no such node
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "PYTHONPATH": str(ROOT / ".path"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    def labels(self) -> list[str]:
        """log-node of the living Ray nodes, the head's being ""."""
        return living_labels(self.address)

    def has_machine(self) -> bool:
        return "f1" in self.labels()

    def bradbury(self, *words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "bradbury.cli", *words, "--address", self.address],
            check=True,
            timeout=START_SECONDS,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
        )

    def hold_a_machine(self) -> subprocess.Popen[str]:
        """Returns when there is one. It is held until the process's input is closed."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, self.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment(),
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready", "no machine is started"
        return process

    def end(self) -> None:
        """End it with SIGKILL: after SIGTERM it would first wait for its node to drain."""
        processes = [*psutil.Process(self._process.pid).children(recursive=True)]
        self._process.kill()
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(processes, timeout=20)
        self._process.wait()


def watch(cluster: Autoscaled, console: Console) -> None:
    """Raises AssertionError."""
    holding = cluster.hold_a_machine()
    try:
        words = ["--detach", "--port", str(free_ports(16)), "--node-label", "log-role=broker"]
        cluster.bradbury("up", *words, "--data-dir", str(cluster.folder / "data"))
    finally:
        holding.communicate("")
    console.print(
        f"brokers on the machine; for {WATCHED_SECONDS} s nothing else is", highlight=False
    )
    end = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < end:
        assert cluster.has_machine(), "the autoscaler has ended a log node"
        time.sleep(0.5)
    console.print("the machine is still there", highlight=False)
    cluster.bradbury("down")
    wait_for(
        lambda: not cluster.has_machine(),
        WATCHED_SECONDS,
        "an idle machine stays: nothing is shown",
    )
    console.print("without brokers the autoscaler has ended it", highlight=False)


def main() -> int:
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="bi-", dir="/tmp"))  # paths of sockets are short
    try:
        cluster = Autoscaled(folder)
        try:
            watch(cluster, console)
        finally:
            cluster.end()
    except AssertionError as error:
        console.print(f"failed: {error}", markup=False, highlight=False)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
