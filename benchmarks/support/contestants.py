"""Brokers to compare, each a separate process that is started and ended here."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from .kafka_broker import KafkaBroker

KAFKA_HEAP = "1g"
GIVE_PAGES_BACK = {"log.segment.delete.delay.ms": "100"}
"""Config of fast topic deletion: Kafka applies the broker's delay only, not the topic's."""
MAY_STAND_STILL = {"broker.session.timeout.ms": "3600000"}
"""Config without which a suspended Kafka is fenced when it resumes (see alone)."""


def _serve(pipe: Connection, data_dir: str, config: dict[str, str], names: list[str]) -> None:
    import bradbury

    with bradbury.local(data_dir=data_dir, config=config) as cluster:
        listeners = {name: cluster.bootstrap_servers_of(name) for name in names}
        pipe.send((cluster.bootstrap_servers, listeners))
        pipe.recv()


class Contestant(ABC):
    """A broker under test. `start_seconds`: from the start of its process until it serves.

    listeners: addresses by name, of those that are not `bootstrap_servers`.
    """

    name: str
    folder: Path
    bootstrap_servers: str
    listeners: dict[str, str]
    start_seconds: float
    _process: psutil.Process

    @abstractmethod
    def __enter__(self) -> Self: ...

    def processes(self) -> list[psutil.Process]:
        """Processes of the broker, without Ray's own."""
        return [self._process]

    def wait_until_deleted(self, topic: str) -> None:
        """Wait until the files of a deleted topic are removed, and their pages are free."""
        while any(self.folder.rglob(f"{topic}-*")):
            time.sleep(0.01)

    def cpu_seconds(self) -> float:
        """CPU seconds so far, user and system (/proc/<pid>/stat)."""
        return float(sum(sum(each.cpu_times()[:2]) for each in self.processes()))

    def rss_bytes(self) -> int:
        return sum(each.memory_info().rss for each in self.processes())

    def suspend(self) -> None:
        for each in self.processes():
            each.suspend()

    def resume(self) -> None:
        for each in self.processes():
            each.resume()

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@contextmanager
def alone(broker: Contestant, brokers: Iterable[Contestant]) -> Iterator[None]:
    """Suspend the other brokers' processes: an idle JVM wakes up some hundred times a second.

    They stay so until it is their turn, or their end: one that was awake for a moment, with all its
    timeouts over, would give up what it had no time to go on with.
    """
    for other in brokers:
        if other is not broker:
            other.suspend()
    broker.resume()
    yield


class Bradbury(Contestant):
    """Contestant: one node with every role in one process, as made by local()."""

    name = "Bradbury"

    def __init__(
        self,
        folder: Path,
        *,
        config: Mapping[str, str] | None = None,
        listeners: Iterable[str] = (),
    ) -> None:
        self.folder = folder / "bradbury"
        self._config = dict(config or {})
        self._names = list(listeners)

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        arguments = (other, str(self.folder), self._config, self._names)
        began = time.perf_counter()
        self._child = context.Process(target=_serve, args=arguments)
        self._child.start()
        other.close()  # so that recv fails, instead of waiting, if the child dies
        self.bootstrap_servers, self.listeners = self._pipe.recv()
        self.start_seconds = time.perf_counter() - began
        self._process = psutil.Process(self._child.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child.is_alive():
            self.resume()
            self._pipe.send(None)
        self._child.join(60)
        if self._child.is_alive():
            self._child.kill()
            self._child.join()


class Kafka(Contestant):
    """Contestant: Apache Kafka, one KRaft node with its own defaults and its scripts' heap."""

    name = "Kafka"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "kafka"
        self.listeners = {}
        config = {**GIVE_PAGES_BACK, **MAY_STAND_STILL}
        self._broker = KafkaBroker(self.folder, heap=KAFKA_HEAP, config=config)

    def __enter__(self) -> Self:
        self._broker.start()
        self._broker.stop()  # the first start also formats the directory
        began = time.perf_counter()
        self._broker.start()
        self.start_seconds = time.perf_counter() - began
        self.bootstrap_servers = self._broker.bootstrap_servers
        self._process = psutil.Process(self._broker.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._broker.kill()


class Arena:
    """Temporary folder on one disk for both; deleted afterwards."""

    def __init__(self, parent: str | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="versus-", dir=parent))

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
