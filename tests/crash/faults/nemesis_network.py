"""B3: the network between Ray nodes is cut; clients and the head of Ray are reached all the time.

minority   the leader of most is cut off from both others
killed     the same, until it is alone in sync; then it is killed, and the network mended
pair       two nodes do not reach each other
one way    what one node sends to another is lost
"""

import signal
import time
from contextlib import suppress

from bradbury.tests.support.ray.ray_nodes import RayNode, wait_for

from ..cluster import send_signal
from ..scene import Scene
from .networks import cut, mend_all

ALONE_SECONDS = 25


def cut_network(scene: Scene) -> None:
    kind = scene.random.choice(("minority", "killed", "pair", "one way"))
    leader = scene.some_partition_actor()
    first = next(node for node in scene.cluster.nodes if node.label == leader.split("/")[1])
    others = [node for node in scene.cluster.nodes if node is not first]
    scene.random.shuffle(others)
    if kind in ("pair", "one way"):
        others = others[:1]
    seconds = scene.some_seconds(1, 20)
    scene.fault("cut", how=kind, node=first.label, others=[node.label for node in others])
    try:
        for other in others:
            _cut(first, other)
            if kind != "one way":
                _cut(other, first)
        if kind == "killed":
            _kill_when_alone(scene, leader)
        else:
            time.sleep(seconds)
    finally:
        scene.note("mended")
        mend_all(node.network for node in scene.cluster.nodes if node.network is not None)


def _cut(source: RayNode, target: RayNode) -> None:
    assert source.network is not None, "the nodes share one network"
    assert target.network is not None
    cut(source.network, target.network)


def _kill_when_alone(scene: Scene, leader: str) -> None:
    """As Kafka once lost what was acknowledged: whoever leads alone dies, and others go on."""
    with suppress(AssertionError):  # the controller may have been cut off with it
        wait_for(lambda: min(scene.in_sync()) < 2, ALONE_SECONDS)
    pid = scene.cluster.pids(leader).get(leader)
    if pid is not None:
        scene.fault("kill -9", actor=leader)
        send_signal(pid, signal.SIGKILL)
