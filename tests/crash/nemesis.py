"""What is done to the brokers. One call of an `act` is one fault and, where it has one, its undoing.

    B0   nothing
    B1   kill -9 of the process of a partition leader, follower or any
    B2   SIGSTOP of one, 0.5 to 20 s, then SIGCONT
    B4   kill -9 of a whole Ray node, which comes back after 5 to 30 s
    B5   SIGSTOP of a raylet alone, until Ray has made the node's actors anew elsewhere: two processes
         for one data directory; then SIGCONT
    B6   kill -9 of the controller
    B7   the head of the Ray cluster dies and comes back: see head_restart.py
    B8   kill -9 of all brokers, coordinators and partition actors at once
    B9   the disk of a partition actor is lost: stopped, its directory removed, killed
    B12  a partition actor has a tenth of the time: stopped and woken in turn for 30 s

Names and expectations: those of the reliability plan's crash tests.
"""

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from bradbury.tests.support.ray_nodes import RayNode, alive_labels, wait_for

from .cluster import ROLE, CrashCluster, send_signal
from .head_restart import ForgetfulHeadCluster, HeadCluster, restart_head
from .history import Lines


class Scene:
    """The cluster, and what a nemesis needs to trouble it."""

    def __init__(
        self,
        cluster: CrashCluster,
        lines: Lines,
        seed: int,
        leaders: Callable[[], list[int]],
        most_seconds: float,
    ) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.leaders = leaders
        self.most_seconds = most_seconds
        """The longest that a fault may take, of those that can be longer or shorter."""
        self._lines = lines
        self.count = 0
        self.recoveries: list[float] = []

    def fault(self, what: str, **fields: Any) -> None:
        """Say it right before doing it."""
        self.count += 1
        self.note("fault", what=what, **fields)

    def note(self, event: str, **fields: Any) -> None:
        self._lines.write(event=event, time=time.monotonic_ns(), **fields)

    def some_partition_actor(self) -> str:
        """A third of the time each: the leader of most, one that leads less, any."""
        names = self.cluster.of_kind("partitions")
        by_id = self.cluster.node_ids()
        led = [by_id[leader] for leader in self.leaders() if leader in by_id]
        ranked = sorted(names, key=led.count)
        return self.random.choice([ranked[-1], ranked[0], self.random.choice(names)])

    def some_seconds(self, least: float, most: float) -> float:
        """Short ones as often as long ones."""
        most = max(least, min(most, self.most_seconds))
        seconds: float = least * (most / least) ** self.random.random()
        return seconds


@dataclass(frozen=True)
class Nemesis:
    """pause: seconds between one fault and the next, least and most. cluster: what it is done to."""

    name: str
    what: str
    act: Callable[[Scene], None]
    pause: tuple[float, float] = (3, 10)
    cluster: Callable[..., Any] = CrashCluster


def kill_partition_actor(scene: Scene) -> None:
    name = scene.some_partition_actor()
    pid = scene.cluster.pids(name).get(name)
    if pid is None:
        return  # it is not back yet
    scene.fault("kill -9", actor=name)
    send_signal(pid, signal.SIGKILL)


def stop_partition_actor(scene: Scene) -> None:
    name = scene.some_partition_actor()
    seconds = scene.some_seconds(0.5, 20)
    pid = scene.cluster.pids(name).get(name)
    if pid is None:
        return
    scene.fault("SIGSTOP", actor=name, seconds=seconds)
    send_signal(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        scene.note("SIGCONT", actor=name)
        send_signal(pid, signal.SIGCONT)


def kill_controller(scene: Scene) -> None:
    try:
        pid = scene.cluster.controller()["pid"]
    except ray.exceptions.RayError:
        return  # it is not back yet
    scene.fault("kill -9", actor="controller")
    send_signal(pid, signal.SIGKILL)


def kill_everything(scene: Scene) -> None:
    pids = scene.cluster.pids()
    scene.fault("kill -9", actor="all")
    for pid in pids.values():
        send_signal(pid, signal.SIGKILL)
    begin = time.monotonic()
    scene.cluster.wait_until_whole()
    scene.recoveries.append(time.monotonic() - begin)


def kill_node(scene: Scene) -> None:
    node = scene.random.choice(scene.cluster.nodes)
    seconds = scene.some_seconds(5, 30)
    scene.fault("kill -9", node=node.label, seconds=seconds)
    node.kill()
    time.sleep(seconds)
    scene.note("a node comes back", node=node.label)
    wait_for(lambda: node.label not in alive_labels(), 30, "Ray does not notice")
    node.start_again()
    node.wait_until_alive()
    scene.cluster.wait_until_whole()


def stop_raylet(scene: Scene) -> None:
    nodes = scene.cluster.nodes
    index = scene.random.randrange(len(nodes))
    old = nodes[index]
    raylet = old.raylet()
    scene.fault("SIGSTOP", raylet=old.label)
    raylet.suspend()
    try:
        wait_for(lambda: old.label not in alive_labels(), 90, "Ray does not notice")
        scene.note("a second node of the same name", node=old.label)
        nodes[index] = RayNode(old.address, old.label, ROLE)
        nodes[index].wait_until_alive()
        time.sleep(scene.some_seconds(5, 20))  # two processes want the same directories
    finally:
        scene.note("SIGCONT", raylet=old.label)
        raylet.resume()
        time.sleep(2)
        old.kill()
    scene.cluster.wait_until_whole()


def lose_disk(scene: Scene) -> None:
    name = scene.some_partition_actor()
    pid = scene.cluster.pids(name).get(name)
    if pid is None:
        return
    _, node, number = name.split("/")
    directory = scene.cluster.data_dir / node / f"partitions-{number}"
    scene.fault("disk lost", actor=name)
    send_signal(pid, signal.SIGSTOP)
    shutil.rmtree(directory)
    send_signal(pid, signal.SIGKILL)


def starve_partition_actor(scene: Scene) -> None:
    name = scene.some_partition_actor()
    pid = scene.cluster.pids(name).get(name)
    if pid is None:
        return
    seconds = min(30.0, scene.most_seconds)
    scene.fault("a tenth of the time", actor=name, seconds=seconds)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            send_signal(pid, signal.SIGSTOP)
            time.sleep(0.18)
            send_signal(pid, signal.SIGCONT)
            time.sleep(0.02)
    finally:
        send_signal(pid, signal.SIGCONT)


def cut_off_leader(scene: Scene) -> None:
    """The followers stand still while the leader goes on; then it does, and they take over."""
    cluster = scene.cluster
    leader = scene.some_partition_actor()
    others = [name for name in cluster.of_kind("partitions") if name != leader]
    pids = cluster.pids(leader, *others)
    (leader_id,) = (number for number, name in cluster.node_ids().items() if name == leader)
    if leader_id not in scene.leaders() or len(pids) < 1 + len(others):
        return
    scene.fault("cut off", actor=leader)
    try:
        for name in others:
            send_signal(pids[name], signal.SIGSTOP)
        time.sleep(1.5)
        send_signal(pids[leader], signal.SIGSTOP)
        for name in others:
            send_signal(pids[name], signal.SIGCONT)
        wait_for(lambda: leader_id not in scene.leaders(), 30, "nobody takes over")
        time.sleep(1)
    finally:
        for pid in pids.values():
            send_signal(pid, signal.SIGCONT)


def do_nothing(scene: Scene) -> None:
    time.sleep(1)


CUT_OFF = Nemesis("acks=1", "a leader goes on alone, and is deposed", cut_off_leader)
"""Loses what was acknowledged with acks=1, as it must: for the proof that losses are found."""

NEMESES = {
    one.name: one
    for one in (
        Nemesis("B0", "nothing", do_nothing, (0, 0)),
        Nemesis("B1", "kill -9 of a partition actor", kill_partition_actor),
        Nemesis("B2", "SIGSTOP of a partition actor", stop_partition_actor),
        Nemesis("B4", "kill -9 of a Ray node", kill_node),
        Nemesis("B5", "SIGSTOP of a raylet", stop_raylet),
        Nemesis("B6", "kill -9 of the controller", kill_controller),
        Nemesis("B7", "kill -9 of Ray's head", restart_head, (5, 15), HeadCluster),
        Nemesis("B7-memory", "the same, forgetful", restart_head, (5, 15), ForgetfulHeadCluster),
        Nemesis("B8", "kill -9 of everything at once", kill_everything),
        Nemesis("B9", "loss of a disk", lose_disk, (15, 25)),
        Nemesis("B12", "a tenth of the time", starve_partition_actor),
    )
}
