"""The processes of a run: each member of a group is one, begun, ended well or killed by its own id."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bradbury.tests.compatibility.support.kafka_jars import QUICK_OPTIONS, java_command
from bradbury.tests.groups_soak import member as member_module

ROOT = Path(__file__).resolve().parent.parent.parent
JAVA = "java"
LEAVE_SECONDS = 30
# A member of Java's has few records to carry, and there are other processes on the machine.
JAVA_OPTIONS = (*QUICK_OPTIONS[1:], "-Xmx128m")


@dataclass(frozen=True)
class Seat:
    """A place in a group, for one process after another. instance: of a static member."""

    group: str
    kind: str
    strategy: str = "range"
    instance: str | None = None

    @property
    def name(self) -> str:
        return f"{self.group}-{self.kind}" + (f"-{self.instance}" if self.instance else "")


@dataclass
class Occupant:
    """The process that sits there now, if any; `count` have sat there."""

    seat: Seat
    number: int
    count: int = 0
    process: subprocess.Popen[bytes] | None = None
    leaving: bool = False
    names: list[str] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, servers: str, topic: str, folder: Path) -> str:
        """Begin a process; its name."""
        assert not self.is_running
        self.count += 1
        self.leaving = False
        name = f"{self.seat.name}-{self.number}-{self.count}"
        self.names.append(name)
        is_java = self.seat.kind == JAVA
        words = (
            _java_words(self.seat, servers, topic)
            if is_java
            else _python_words(self.seat, name, servers, topic, folder)
        )
        out = folder / f"{name}.out" if is_java else Path(os.devnull)
        with out.open("ab") as stdout, (folder / f"{name}.err").open("ab") as stderr:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=_environment(),
                start_new_session=True,
            )
        return name

    def leave(self) -> None:
        """SIGTERM: it commits, leaves its group and ends."""
        assert self.process is not None
        self.leaving = True
        self.process.terminate()

    def kill(self) -> None:
        """kill -9, and gone."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Gone, one way or the other."""
        if self.process is None:
            return
        if self.is_running:
            self.process.terminate()
        try:
            self.process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


def end_all(occupants: list[Occupant]) -> None:
    """Together, so that it takes as long as the slowest."""
    for one in occupants:
        if one.is_running:
            one.leave()
    deadline = time.monotonic() + LEAVE_SECONDS
    for one in occupants:
        if one.process is not None:
            try:
                one.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.kill()


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / ".path"),
        "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"),
        "LC_ALL": "C.UTF-8",
    }


def _python_words(seat: Seat, name: str, servers: str, topic: str, folder: Path) -> list[str]:
    words = [sys.executable, "-m", member_module.__name__, seat.kind]
    words += ["--servers", servers, "--topic", topic, "--group", seat.group, "--name", name]
    words += ["--history", str(folder / f"{name}.jsonl"), "--strategy", seat.strategy]
    return words + (["--instance", seat.instance] if seat.instance else [])


def _java_words(seat: Seat, servers: str, topic: str) -> list[str]:
    """Kafka's console consumer. It commits in its poll what it has printed before."""
    properties = {
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": "500",
        "session.timeout.ms": str(member_module.SESSION_MS),
        "heartbeat.interval.ms": str(member_module.HEARTBEAT_MS),
        "max.poll.interval.ms": str(member_module.MAX_POLL_INTERVAL_MS),
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        **({"group.instance.id": seat.instance} if seat.instance else {}),
    }
    words = ["--bootstrap-server", servers, "--topic", topic, "--group", seat.group]
    for name, value in properties.items():
        words += ["--consumer-property", f"{name}={value}"]
    for name in ("print.partition", "print.offset"):
        words += ["--property", f"{name}=true"]
    main_class = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    return java_command(main_class, *words, options=JAVA_OPTIONS)
