"""Contestants of three nodes: Bradbury on three Ray nodes of this machine, Kafka by KRaft."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from abc import abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from .contestants import GIVE_PAGES_BACK, Contestant
from .kafka_broker import KafkaBroker

NODES = 3
KAFKA_HEAP = "512m"
ROLE = "versus"


class Replicated(Contestant):
    """A cluster whose nodes can be killed."""

    @abstractmethod
    def kill(self, node_id: int) -> None:
        """End the process of the node with this Kafka id by SIGKILL; it is restarted."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until all killed nodes are restarted and in sync."""


class ReplicatedBradbury(Replicated):
    """Contestant: three more nodes of an embedded Ray, each with all kinds of actors."""

    name = "Bradbury"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bradbury"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        import ray

        import bradbury
        from bradbury.tests.support.ray.ray_nodes import RayNode
        from bradbury.tests.support.ray.ray_settings import RAY_ENVIRONMENT

        os.environ.update(RAY_ENVIRONMENT)
        temporary = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="vr-", dir="/tmp"))
        context = ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=temporary,
        )
        self._stack.callback(ray.shutdown)
        for number in range(NODES):
            node = RayNode(context.address_info["gcs_address"], f"v{number}", ROLE)
            self._stack.callback(node.kill)
            node.wait_until_alive()
        began = time.perf_counter()
        self._cluster = self._stack.enter_context(
            bradbury.up(str(self.folder), port=0, namespace=ROLE, node_label={"log-role": ROLE})
        )
        self.start_seconds = time.perf_counter() - began
        self.bootstrap_servers = self._cluster.bootstrap_servers
        self._find()
        return self

    def _find(self) -> None:
        actors = self._cluster.status()["actors"]
        self._pids: dict[int, int] = {
            each["node_id"]: each["pid"] for each in actors if "node_id" in each
        }

    def processes(self) -> list[psutil.Process]:
        controller = [self._cluster.status()["pid"]]
        return [psutil.Process(pid) for pid in (*self._pids.values(), *controller)]

    def kill(self, node_id: int) -> None:
        os.kill(self._pids[node_id], signal.SIGKILL)

    def settle(self) -> None:
        """Wait until all replicas are in sync again."""
        while True:
            described: dict[str, Any] = self._cluster.status()
            if not described["under_replicated"] and not described["leaderless"]:
                self._find()
                return
            time.sleep(0.2)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


class ReplicatedKafka(Replicated):
    """Contestant: three nodes, each broker and controller, with Kafka's own defaults."""

    name = "Kafka"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "kafka"
        self._brokers = {
            number: KafkaBroker(self.folder / str(number), heap=KAFKA_HEAP, config=GIVE_PAGES_BACK)
            for number in range(1, NODES + 1)
        }
        self._killed: int | None = None
        voters = ",".join(
            f"{number}@127.0.0.1:{each.controller_port}" for number, each in self._brokers.items()
        )
        for number, each in self._brokers.items():
            each.config |= {
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "offsets.topic.replication.factor": "3",
            }

    def __enter__(self) -> Self:
        for each in self._brokers.values():
            each.format()
        began = time.perf_counter()
        for each in self._brokers.values():
            each.start_without_waiting()
        for each in self._brokers.values():
            each.wait_until_it_serves()
        self.start_seconds = time.perf_counter() - began
        self.bootstrap_servers = ",".join(each.bootstrap_servers for each in self._brokers.values())
        return self

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(each.pid) for each in self._brokers.values()]

    def kill(self, node_id: int) -> None:
        self._brokers[node_id].kill()
        self._killed = node_id

    def settle(self) -> None:
        if self._killed is not None:
            self._brokers[self._killed].start()
            self._killed = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._brokers.values():
            each.kill()
