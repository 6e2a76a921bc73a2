"""A real Apache Kafka broker next to ours: one KRaft node, started and ended by a program.

    with KafkaBroker(Path("/tmp/kafka"), heap="1g") as kafka:
        produce(kafka.bootstrap_servers)

The jars come from tests/compatibility/support/kafka_jars, which says why there are none. The log
directory is `<folder>/data`; it can be read when the broker has ended, by stop() or by kill().
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bradbury.tests.compatibility.support.kafka_jars import java_command, run_java
from bradbury.tests.support.free_ports import free_ports

START_SECONDS = 60.0
STOP_SECONDS = 60.0
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SERVER_OPTIONS = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class KafkaBroker:
    """An Apache Kafka broker, started on entering, killed on leaving unless ended before.

    Args:
        folder: not deleted; a second broker on it continues with the data of the first.
        heap: size of the Java heap, e.g. "1g", the default of Kafka's own scripts.
        config: settings of the broker, besides the addresses.
        features: feature levels of a new cluster, instead of the newest.
    """

    def __init__(
        self,
        folder: Path,
        *,
        heap: str = "1g",
        config: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
    ) -> None:
        self._folder = folder
        self.data = folder / "data"
        self._log = folder / "kafka.out"
        self._heap = heap
        self._port = free_ports(2)
        self._controller_port = self._port + 1
        self.config = dict(config or {})
        self._features = dict(features or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def controller_port(self) -> int:
        return self._controller_port

    def start(self) -> None:
        """Start it; returns when it accepts connections. Raises RuntimeError with its output."""
        self.start_without_waiting()
        self.wait_until_it_serves()

    def format(self) -> Path:
        """Write its settings, and format its directory if needed; returns the settings file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._folder / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},"
            f"CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.config,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.data / "meta.properties").exists():
            levels = [f"--feature={name}={level}" for name, level in self._features.items()]
            run_java(
                "kafka.tools.StorageTool",
                *("format", "-t", CLUSTER_ID, "-c", str(properties)),
                *levels,
            )
        return properties

    def start_without_waiting(self) -> None:
        properties = self.format()
        options = (f"-Xmx{self._heap}", f"-Xms{self._heap}", *SERVER_OPTIONS)
        command = java_command("kafka.Kafka", str(properties), options=options)
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self._folder
            )

    def wait_until_it_serves(self) -> None:
        """Wait until it serves; on failure end it, and raise RuntimeError with its output."""
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        assert self._process is not None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"Kafka exited at start:\n{self._log.read_text()[-3000:]}")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            time.sleep(0.05)
        raise RuntimeError(f"Kafka does not serve after {START_SECONDS:.0f} s")

    def stop(self) -> None:
        """End it with SIGTERM, a clean shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
