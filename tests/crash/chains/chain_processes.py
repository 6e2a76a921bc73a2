"""The processes of a chain of transactions: each seat is taken by one after the other.

A process that ends by itself, as one that is fenced, is followed by another one with the same
transactional id.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bradbury.tests.compatibility.support.kafka_jars import QUICK_OPTIONS, java_command
from bradbury.tests.crash.cluster import send_signal
from bradbury.tests.groups_soak.history import read_lines
from bradbury.tests.groups_soak.processes import ROOT

from . import chain_links, own_links

JAVA = "java"
OWN = "bradbury"
PROGRAM = ROOT / "tests" / "compatibility" / "KafkaTransactionsProgram.java"
JAVA_OPTIONS = (*QUICK_OPTIONS[1:], "-Xmx128m")
RATE = 20
"""Transactions a second, of each source."""


@dataclass(frozen=True)
class Where:
    """What every process is told of the cluster."""

    servers: str
    partitions: int
    folder: Path


@dataclass(frozen=True)
class ChainSeat:
    """kind: source, copier or reader. topics: written (source), read and written, read."""

    name: str
    kind: str
    client: str
    topics: tuple[str, ...]
    group: str = ""
    isolation: str = "read_committed"
    careless: bool = False

    @property
    def transactional_id(self) -> str:
        return f"{self.name}-id"


class ChainProcess:
    """One, from its start to its end."""

    def __init__(self, seat: ChainSeat, number: int, where: Where) -> None:
        self.seat = seat
        self.name = f"{seat.name}-{number}"
        self.history = where.folder / f"{self.name}.jsonl"
        is_java = seat.client == JAVA
        words = self._java_words(where) if is_java else self._python_words(where)
        out = self.history if is_java else Path(os.devnull)
        with out.open("ab") as stdout, (where.folder / f"{self.name}.err").open("ab") as stderr:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / ".path"),
                    "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"),
                    "LC_ALL": "C.UTF-8",
                },
                start_new_session=True,
            )

    def _python_words(self, where: Where) -> list[str]:
        seat = self.seat
        module = own_links if seat.client == OWN else chain_links
        words = [sys.executable, "-m", module.__name__, seat.kind, "--servers", where.servers]
        words += ["--topics", ",".join(seat.topics) + ("," if seat.kind == "source" else "")]
        words += ["--name", self.name, "--history", str(self.history), "--rate", str(RATE)]
        words += ["--id", seat.transactional_id, "--partitions", str(where.partitions)]
        words += ["--isolation", seat.isolation]
        words += ["--group", seat.group] if seat.group else []
        return words + (["--careless"] if seat.careless else [])

    def _java_words(self, where: Where) -> list[str]:
        settings = {
            "servers": [where.servers],
            "name": self.name,
            "id": self.seat.transactional_id,
            "partitions": where.partitions,
            "group": self.seat.group,
            "topic": self.seat.topics[0],
            "output": self.seat.topics[-1],
            "size": 100,
            "abortEvery": 3,
            "mark": True,
            "pauseMs": 1000 // RATE,
        }
        command = "source" if self.seat.kind == "source" else "copy"
        return java_command(str(PROGRAM), command, json.dumps(settings), options=JAVA_OPTIONS)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def is_working(self) -> bool:
        """Whether it has committed or read something."""
        signs = ("committed", "records")
        return self.history.is_file() and any(
            line.get("event") in signs or "committed" in line for line in read_lines(self.history)
        )

    def send(self, number: signal.Signals) -> None:
        send_signal(self.process.pid, number)

    def ask_to_end(self) -> None:
        """Once."""
        assert self.process.stdin is not None
        if self.is_running and not self.process.stdin.closed:
            self.process.stdin.close()
            if self.seat.client != JAVA:
                self.process.terminate()

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait()

    def end(self, seconds: float) -> str | None:
        """Ask it to end, and wait; what was wrong with it, if anything."""
        self.ask_to_end()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not end within {seconds:.0f} s"
        # It may be asked before it minds the signal.
        return None if code in (0, -signal.SIGTERM) else f"{self.name} ended with {code}"


@dataclass
class ChainProcesses:
    """Who sits where, and who sat there before."""

    where: Where
    seats: list[ChainSeat]
    sitting: dict[ChainSeat, ChainProcess] = field(default_factory=dict)
    zombies: list[ChainProcess] = field(default_factory=list)
    all: list[ChainProcess] = field(default_factory=list)
    successions: int = 0

    def start(self, seat: ChainSeat) -> ChainProcess:
        number = 1 + sum(one.seat == seat for one in self.all)
        self.sitting[seat] = process = ChainProcess(seat, number, self.where)
        self.all.append(process)
        return process

    def start_all(self) -> None:
        for seat in self.seats:
            self.start(seat)

    def of_kind(self, *kinds: str) -> list[ChainProcess]:
        return [one for seat, one in self.sitting.items() if seat.kind in kinds]

    def look_after(self) -> None:
        """Whoever has ended by itself is followed by another one."""
        for seat, one in list(self.sitting.items()):
            if not one.is_running:
                self.successions += 1
                self.start(seat)

    def end(self, seconds: float, *kinds: str) -> list[str]:
        """Those of the kinds, together. What was wrong, where somebody should have ended well."""
        leaving = self.of_kind(*kinds)
        for one in leaving:
            del self.sitting[one.seat]  # nobody follows
            one.ask_to_end()
        deadline = time.monotonic() + seconds
        found = [one.end(max(0.1, deadline - time.monotonic())) for one in leaving]
        return [problem for problem in found if problem]

    def kill_all(self) -> None:
        for one in self.all:
            if one.is_running:
                one.kill()
