"""What is done to the brokers' processes, and the table of all that is done to a cluster.

One call of an `act` is one fault and, where it has one, its undoing.

    B0   nothing
    B1   kill -9 of the process of a partition leader, follower or any
    B2   SIGSTOP of one, 0.5 to 20 s, then SIGCONT
    B2-broker  the same of a broker: a voter, and the address that clients begin with
    B3   the network between nodes is cut; see nemesis_network
    B4   kill -9 of a whole Ray node, which comes back after 5 to 30 s
    B5   SIGSTOP of a raylet alone, until Ray has made the node's actors again elsewhere: two processes
         for one data directory; then SIGCONT
    B6   kill -9 of the controller
    B6-stop    SIGSTOP of the controller until another one is active, then SIGCONT: two that live
    B8   kill -9 of all brokers, coordinators and partition actors at once
    B9   the disk of a partition actor is lost: stopped, its directory removed, killed
    B10  replicas move and are moved back, leaders are elected, processes die; see nemesis_replicas
    B12  a partition actor has a tenth of the time: stopped and woken in turn for 30 s

B7, the head's restart, is in head_restart. Names and expectations: those of the reliability plan's
crash tests.
"""

import shutil
import signal
import time
from functools import partial
from typing import Any

import ray

from bradbury.actors.ray.placement import Placement
from bradbury.actors.ray.ray_actors import ControllerActor
from bradbury.launch.actors import start_joined
from bradbury.tests.support.ray.ray_nodes import alive_labels, wait_for

from ..cluster import send_signal
from ..head_restart import ForgetfulHeadCluster, HeadCluster, restart_head
from ..scene import Nemesis, Scene
from .nemesis_network import cut_network
from .nemesis_replicas import move_replicas


def kill_partition_actor(scene: Scene) -> None:
    name = scene.some_partition_actor()
    pid = scene.cluster.pids(name).get(name)
    if pid is None:
        return  # it is not back yet
    scene.fault("kill -9", actor=name)
    send_signal(pid, signal.SIGKILL)


def stop_partition_actor(scene: Scene) -> None:
    _stop_for_a_while(scene, scene.some_partition_actor())


def stop_broker(scene: Scene) -> None:
    _stop_for_a_while(scene, scene.random.choice(scene.cluster.of_kind("broker")))


def _stop_for_a_while(scene: Scene, name: str) -> None:
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


def stop_controller(scene: Scene) -> None:
    """Ray sees that its process lives, so the second one is started by hand."""
    cluster = scene.cluster
    try:
        first = cluster.controller()
    except ray.exceptions.RayError:
        return  # it is not back yet
    scene.fault("SIGSTOP", actor="controller")
    send_signal(first["pid"], signal.SIGSTOP)
    rival = None
    try:
        rival = (
            ray.remote(ControllerActor)
            .options(name=RIVAL, namespace=cluster.namespace, num_cpus=0, max_restarts=0)
            .remote(
                cluster.namespace,
                first["settings"],
                Placement(**first["placement"]),
                partial(start_joined, cluster.namespace),
            )
        )
        wait_for(lambda: _epoch_of(rival) > first["epoch"], 30, "no second controller")
        scene.note("a second controller is active", epoch=_epoch_of(rival))
        time.sleep(scene.some_seconds(0.5, 10))
    finally:
        scene.note("SIGCONT", actor="controller")
        send_signal(first["pid"], signal.SIGCONT)
        time.sleep(2)
        if rival is not None:
            ray.kill(rival)
    cluster.wait_until_whole()


def _epoch_of(controller: Any) -> int:
    try:
        found = ray.get(controller.describe.remote(), timeout=3)
    except ray.exceptions.RayError:
        return -1
    return int(found["epoch"]) if found["active"] else -1


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
        nodes[index] = old.another()
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
        led = [number for number, node in enumerate(scene.leaders()) if node == leader_id]
        # On a slow machine the followers may have been given up before the leader stood still;
        # then nobody may take over, and nothing is lost by it.
        wait_for(
            lambda: (
                leader_id not in scene.leaders()
                or all(scene.in_sync()[number] == 1 for number in led)
            ),
            120,
            "nobody takes over",
        )
        time.sleep(1)
    finally:
        for pid in pids.values():
            send_signal(pid, signal.SIGCONT)


def do_nothing(scene: Scene) -> None:
    time.sleep(1)


RIVAL = "rival-controller"
CUT_OFF = Nemesis("acks=1", "a leader goes on alone, and is deposed", cut_off_leader)
"""Loses what was acknowledged with acks=1, as it must: for the proof that losses are found."""

NEMESES = {
    one.name: one
    for one in (
        Nemesis("B0", "nothing", do_nothing, (0, 0)),
        Nemesis("B1", "kill -9 of a partition actor", kill_partition_actor),
        Nemesis("B2", "SIGSTOP of a partition actor", stop_partition_actor),
        Nemesis("B2-broker", "SIGSTOP of a broker", stop_broker),
        Nemesis(
            "B3",
            "cuts of the network between nodes",
            cut_network,
            config={"replica.lag.time.max.ms": 5000},
            needs_networks=True,
        ),
        Nemesis("B4", "kill -9 of a Ray node", kill_node),
        Nemesis("B5", "SIGSTOP of a raylet", stop_raylet),
        Nemesis("B6", "kill -9 of the controller", kill_controller),
        Nemesis("B6-stop", "SIGSTOP of the controller, and a second one", stop_controller),
        Nemesis("B7", "kill -9 of Ray's head", restart_head, (5, 15), HeadCluster),
        Nemesis("B7-memory", "the same, forgetful", restart_head, (5, 15), ForgetfulHeadCluster),
        Nemesis("B8", "kill -9 of everything at once", kill_everything),
        Nemesis("B9", "loss of a disk", lose_disk, (15, 25)),
        Nemesis("B10", "replicas move, leaders change, processes die", move_replicas),
        Nemesis("B12", "a tenth of the time", starve_partition_actor),
    )
}
