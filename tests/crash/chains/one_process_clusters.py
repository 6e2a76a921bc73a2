"""Clusters in one process each, killed and started again on the same ports: ours, and Apache Kafka's.

Without Ray, so they are there in a second. What the chain does is right against Kafka's.
"""

import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.tests.groups_soak.processes import ROOT
from bradbury.tests.support.free_ports import free_ports

CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
PROGRAM = """
import sys, bradbury
nodes, port = int(sys.argv[2]), int(sys.argv[3])
config = dict(word.split("=") for word in sys.argv[4:])
with bradbury.local(data_dir=sys.argv[1], nodes=nodes, port=port, config=config):
    print("serves", flush=True)
    sys.stdin.read()
"""


class OneProcessCluster(ABC):
    """What a chain wants of a cluster."""

    servers: str

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def kill(self) -> None: ...

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def admin(self) -> bradbury.Admin:
        return bradbury.Admin(self.servers)

    def kill_and_start_again(self) -> None:
        self.kill()
        time.sleep(1)
        self.start()

    def wait_until_whole(self, seconds: float) -> None:
        """It is, when it has started."""
        del seconds


class OwnProcess(OneProcessCluster):
    """Nodes of Bradbury, each with every role, and their controller."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self._folder = folder
        self._nodes = nodes
        self._port = free_ports(nodes)
        self.servers = ",".join(f"127.0.0.1:{self._port + n}" for n in range(nodes))
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        words = [sys.executable, "-c", PROGRAM, str(self._folder / "data"), str(self._nodes)]
        words += [str(self._port), *(f"{name}={value}" for name, value in CONFIG.items())]
        with (self._folder / "broker.err").open("ab") as errors:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / ".path")},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said == "serves\n", (self._folder / "broker.err").read_text()[-3000:]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class KafkaProcess(OneProcessCluster):
    """One node of Apache Kafka."""

    def __init__(self, folder: Path) -> None:
        self._broker = KafkaBroker(folder / "kafka", heap="512m", config=CONFIG)

    def start(self) -> None:
        self._broker.start()
        self.servers = self._broker.bootstrap_servers

    def kill(self) -> None:
        self._broker.kill()
