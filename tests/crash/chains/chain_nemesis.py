"""What is done to the clients of a chain of transactions, and to the brokers meanwhile.

One call of an `act` is one fault: of a client, or of the brokers (those of nemesis.py), as often one as
the other.

    T0   clients alone: kill -9 of sources and copiers, and zombies
    T1   kill -9 of partition actors, which lead and follow the topics and the coordinators' logs
    T2   SIGSTOP of partition actors
    T3   kill -9 of the actors that have the coordinators
    T6   kill -9 of the controller
    T8   kill -9 of all actors at once
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bradbury.tests.crash.cluster import send_signal
from bradbury.tests.crash.faults.nemesis import (
    kill_controller,
    kill_everything,
    kill_partition_actor,
    stop_partition_actor,
)
from bradbury.tests.crash.scene import Scene

from .chain_processes import ChainProcess, ChainProcesses

TRUST_SECONDS = 25.0
"""How long a successor may take until it is at work; then the zombie comes back all the same."""


class ChainScene(Scene):
    """The cluster, and the chain's processes."""

    def __init__(self, processes: ChainProcesses, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.processes = processes


Act = Callable[[ChainScene], None]


def kill_client(scene: ChainScene) -> None:
    """kill -9; another one takes over its transactional id at once, or when its time is over."""
    one = _some_client(scene)
    waits = scene.random.random() < 0.3
    scene.fault("kill -9", client=one.name, waits=waits)
    one.kill()
    if waits:
        time.sleep(scene.some_seconds(1, 10))
    scene.processes.start(one.seat)


def make_zombie(scene: ChainScene) -> None:
    """SIGSTOP; another one takes over; then the first one comes back, and must be fenced."""
    one = _some_client(scene)
    scene.fault("SIGSTOP", client=one.name)
    one.send(signal.SIGSTOP)
    try:
        successor = scene.processes.start(one.seat)
        deadline = time.monotonic() + scene.random.uniform(2, TRUST_SECONDS)
        while not successor.is_working and successor.is_running and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        scene.note("SIGCONT", client=one.name)
        one.send(signal.SIGCONT)
    scene.processes.zombies.append(one)


def pause_client(scene: ChainScene) -> None:
    """SIGSTOP for longer than its transaction may last; nobody else has its id."""
    one = _some_client(scene)
    seconds = scene.some_seconds(1, 12)
    scene.fault("SIGSTOP", client=one.name, seconds=seconds)
    one.send(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        scene.note("SIGCONT", client=one.name)
        one.send(signal.SIGCONT)


def _some_client(scene: ChainScene) -> ChainProcess:
    running = [one for one in scene.processes.of_kind("source", "copier") if one.is_running]
    return scene.random.choice(running)


def trouble_client(scene: ChainScene) -> None:
    scene.random.choice([kill_client, make_zombie, pause_client])(scene)


def kill_coordinators(scene: ChainScene) -> None:
    """kill -9 of an actor that has coordinators of groups and transactions."""
    names = scene.cluster.of_kind("groups")
    name = scene.random.choice(names)
    pid = scene.cluster.pids(name).get(name)
    if pid is None:
        return  # it is not back yet
    scene.fault("kill -9", actor=name)
    send_signal(pid, signal.SIGKILL)


def kill_broker(scene: ChainScene) -> None:
    """Of a cluster that is one process."""
    scene.fault("kill -9", broker="all")
    scene.cluster.kill_and_start_again()


def or_client(act: Callable[[Any], None]) -> Act:
    def one_of_them(scene: ChainScene) -> None:
        (act if scene.random.random() < 0.5 else trouble_client)(scene)

    return one_of_them


@dataclass(frozen=True)
class ChainNemesis:
    """pause: seconds between one fault and the next, least and most."""

    name: str
    what: str
    act: Act
    pause: tuple[float, float] = (2, 6)


CHAIN_NEMESES = {
    one.name: one
    for one in (
        ChainNemesis("T0", "kill -9 and zombies of clients", trouble_client),
        ChainNemesis("T1", "kill -9 of partition actors", or_client(kill_partition_actor)),
        ChainNemesis("T2", "SIGSTOP of partition actors", or_client(stop_partition_actor)),
        ChainNemesis("T3", "kill -9 of coordinators", or_client(kill_coordinators)),
        ChainNemesis("T6", "kill -9 of the controller", or_client(kill_controller)),
        ChainNemesis("T8", "kill -9 of everything at once", or_client(kill_everything), (5, 12)),
    )
}
ONE_PROCESS = ChainNemesis("T", "kill -9 of all brokers", or_client(kill_broker), (4, 10))
"""Of a cluster in one process; see one_process_clusters."""
