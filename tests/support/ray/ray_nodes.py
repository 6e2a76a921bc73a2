"""Further Ray nodes on this machine, beside the one that the test's process has started.

Start them one after the other: at once, they would take the same sockets.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil
import ray
from ray._raylet import GcsClient

from bradbury.discovery.ray_tokens import match_authentication


def living_labels(address: str) -> list[str]:
    """log-node of the living Ray nodes, "" where there is none; no nodes while no GCS answers.

    This process, and what it starts from then on, proves itself to Ray as that cluster wants it:
    whether Ray asks for a token depends on whether there was one when the cluster was started.
    """
    try:
        match_authentication(address)
        found = GcsClient(address=address).get_all_node_info(timeout=5)
    except Exception:  # whatever Ray raises
        return []
    return [one.labels.get("log-node", "") for one in found.values() if one.state == 0]


class NodeNetwork(Protocol):
    """A network of a node's own on this machine."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def command(self) -> list[str]:
        """What runs a command in it."""
        ...


class RayNode:
    """One, as `ray start` makes it. Ended with its children.

    Args:
        address: of the Ray cluster's head.
        label: its log-node, by which actors are pinned to it.
        role: its log-role, by which a cluster of ours finds its nodes.
        network: the one it has for itself; None: it shares this process's.
    """

    def __init__(
        self, address: str, label: str, role: str, network: NodeNetwork | None = None
    ) -> None:
        self.address = address
        self.network = network
        self._role = role
        self.label = label
        self.process = self._start()

    def _start(self) -> psutil.Popen:
        ray_command = str(Path(sys.executable).parent / "ray")
        labels = f"log-node={self.label},log-role={self._role}"
        command = [ray_command, "start", f"--address={self.address}", f"--labels={labels}"]
        command += ["--include-log-monitor=false"]  # nobody reads what it would pass on
        if self.network is not None:
            command = [*self.network.command, *command, f"--node-ip-address={self.network.address}"]
        return psutil.Popen(
            [*command, "--num-cpus=1", "--block"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "RAY_worker_niceness": "0"},
        )

    def start_again(self) -> None:
        """After `kill`: to Ray it is another node, with the same labels."""
        self.process = self._start()

    def another(self) -> "RayNode":
        """A second one in its place, with the same labels."""
        return RayNode(self.address, self.label, self._role, self.network)

    def wait_until_alive(self) -> "RayNode":
        """A raylet that comes up beside others on a busy machine ends now and then; then again."""

        def is_alive() -> bool:
            if self.process.poll() is not None:
                self.kill()
                self.process = self._start()
            return self.label in alive_labels()

        wait_for(is_alive)
        return self

    def raylet(self) -> psutil.Process:
        """The process that Ray takes for the node."""
        return next(one for one in self.process.children(recursive=True) if one.name() == "raylet")

    def drain(self, seconds: int = 120) -> None:
        """As an operator does, or whoever takes the machine away at the end of that time."""
        (node_id,) = (
            node["NodeID"]
            for node in ray.nodes()
            if node["Alive"] and node["Labels"].get("log-node") == self.label
        )
        command = [str(Path(sys.executable).parent / "ray"), "drain-node"]
        command += [f"--address={self.address}", f"--node-id={node_id}"]
        command += ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=test"]
        subprocess.run(
            [*command, f"--deadline-remaining-seconds={seconds}"],
            check=True,
            timeout=60,
            capture_output=True,
        )

    def kill(self) -> None:
        """kill -9 of everything on the node, as a power cut would end it."""
        self._kill(self._processes())

    def _processes(self) -> list[psutil.Process]:
        processes = [self.process]
        with suppress(psutil.NoSuchProcess):
            processes += self.process.children(recursive=True)
        return processes

    def _kill(self, processes: list[psutil.Process]) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=20)

    def end(self) -> None:
        """At the end of a test: what it takes off itself, Ray need not find out in ten seconds."""
        processes = self._processes()
        raylets = []
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                if process.name() == "raylet":
                    process.terminate()
                    raylets.append(process)
        with suppress(AssertionError):  # one that hangs is killed like the others
            wait_for(lambda: all(has_ended(raylet) for raylet in raylets), 20)
        self._kill(processes)

    def wait_until_dead(self) -> None:
        """Until Ray has noticed."""
        wait_for(lambda: self.label not in alive_labels())


def has_ended(process: psutil.Process) -> bool:
    """Whether or not its parent knows."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def alive_labels() -> set[str]:
    return {node["Labels"].get("log-node", "") for node in ray.nodes() if node["Alive"]}


def wait_for(
    condition: Callable[[], bool], seconds: float = 120, what: str = "it did not come about"
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
