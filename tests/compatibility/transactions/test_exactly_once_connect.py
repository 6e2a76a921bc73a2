"""Kafka Connect with exactly.once.source.support: a worker dies, and each line is there once."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder
from bradbury.tests.compatibility.support.kafka_jars import (
    CONNECT,
    QUICK_OPTIONS,
    VERSION,
    java_command,
    require,
)
from bradbury.tests.compatibility.support.programs import RUN_SECONDS
from bradbury.tests.support.free_ports import free_ports

from .transactional_clients import read_with_confluent

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.deep]
TEXT = "org.apache.kafka.connect.storage.StringConverter"


class Worker:
    """A process of ConnectDistributed, and its REST interface."""

    def __init__(self, folder: Path, servers: str, name: str) -> None:
        self._port = free_ports(1)
        settings = {
            "bootstrap.servers": servers,
            "group.id": f"{name}-connect",
            "key.converter": TEXT,
            "value.converter": TEXT,
            "exactly.once.source.support": "enabled",
            "listeners": f"http://127.0.0.1:{self._port}",
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
        }
        for kind in ("config", "offset", "status"):
            settings[f"{kind}.storage.topic"] = f"{name}-{kind}s"
            settings[f"{kind}.storage.replication.factor"] = "1"
        settings |= {"offset.storage.partitions": "1", "status.storage.partitions": "1"}
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options = (*QUICK_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
        self._log = folder / "log"
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                java_command(main_class, str(file), options=options, jars=CONNECT),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """GET, or PUT of the body; None while it cannot be had."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.loads(answer.read())
        except (OSError, urllib.error.URLError):
            return None

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + RUN_SECONDS
        while not condition():
            assert self.process.poll() is None, self._log.read_text()[-6000:]
            assert time.monotonic() < deadline, self._log.read_text()[-6000:]
            time.sleep(0.2)


@contextmanager
def worker(folder: Path, servers: str, name: str) -> Iterator[Worker]:
    running = Worker(folder, servers, name)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def test_each_line_is_there_once_though_the_worker_is_killed(
    recorder: Recorder, servers: str, new_name: str, tmp_path: Path
) -> None:
    require(CONNECT)
    tool = recorder.tool("Kafka Connect, distributed", VERSION)
    with bradbury.Admin(servers) as admin:
        admin.create_topic(new_name, 1)
    source = tmp_path / "lines.txt"
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": new_name,
        "exactly.once.support": "required",
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "300",
    }

    def append(first: int) -> None:
        with source.open("a") as file:
            file.write("".join(f"{number}\n" for number in range(first, first + 1_000)))

    def committed() -> list[str]:
        return read_with_confluent(servers, (new_name, 0), "read_committed")

    append(0)
    with tool.call("exactly.once.source.support, a worker killed"):
        with worker(tmp_path, servers, new_name) as first:
            first.wait_for(lambda: first.ask("connectors/lines/config", connector) is not None)
            first.wait_for(lambda: len(committed()) > 0)
            append(1_000)
        with worker(tmp_path, servers, new_name) as second:
            append(2_000)
            second.wait_for(lambda: len(committed()) >= 3_000)
        assert committed() == [f"{number}" for number in range(3_000)]
