"""B10: replicas go, come back and change places, leaders are elected, and processes die meanwhile.

kafka-python moves, confluent-kafka elects. After each act all partitions have all their replicas
again, or are on their way to it.
"""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import kafka
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaError

from bradbury.tests.support.ray.ray_nodes import wait_for

from ..cluster import send_signal
from ..scene import Scene

MOVED_SECONDS = 60
TRIES = 20


def move_replicas(scene: Scene) -> None:
    """Some partitions lose a replica; it is given up or finished; then all three, in another order."""
    cluster, random = scene.cluster, scene.random
    nodes = sorted(
        node_id for node_id, name in cluster.node_ids().items() if name.startswith("partitions/")
    )
    if len(nodes) < 3:
        return  # one is not back yet
    chosen = random.sample(range(scene.partitions), scene.partitions // 2)
    fewer = {number: random.sample(nodes, 2) for number in chosen}
    scene.fault("fewer replicas", partitions=fewer)
    _reassign(scene, fewer)
    _maybe_kill(scene)
    time.sleep(random.uniform(0, 2))
    again = {number: random.sample(nodes, 3) for number in chosen}
    scene.fault("more replicas", partitions=again)
    _reassign(scene, again)
    if random.random() < 0.4:
        time.sleep(random.uniform(0, 0.3))
        scene.note("given up", partitions=chosen)
        _reassign(scene, dict.fromkeys(chosen))
    _maybe_kill(scene)
    _elect(scene)
    # Whatever became of it: in the end everybody has all of them.
    _reassign(scene, again)
    wait_for(lambda: not _under_way(scene), MOVED_SECONDS, "replicas do not come")
    _elect(scene)


def _reassign(scene: Scene, wanted: Mapping[int, list[int] | None]) -> None:
    """Again and again while the controller is not there; what cannot be is left."""
    moves = {kafka.TopicPartition(scene.topic, number): to for number, to in wanted.items()}
    for _ in range(TRIES):
        try:
            with _admin(scene) as admin:
                admin.alter_partition_reassignments(moves)
        except KafkaError as error:
            scene.note("failed", error=repr(error))
            time.sleep(0.5)
        else:
            return


@contextmanager
def _admin(scene: Scene) -> Iterator[kafka.KafkaAdminClient]:
    """A fresh one each time: it keeps asking the broker that it has found first, dead or not."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=scene.cluster.servers)
    try:
        yield admin
    finally:
        admin.close()


def _under_way(scene: Scene) -> bool:
    try:
        with _admin(scene) as admin:
            return bool(admin.list_partition_reassignments())
    except KafkaError:
        return True


def _maybe_kill(scene: Scene) -> None:
    if scene.random.random() < 0.5:
        return
    name = scene.some_partition_actor()
    pid = scene.cluster.pids(name).get(name)
    if pid is not None:
        scene.fault("kill -9", actor=name)
        send_signal(pid, signal.SIGKILL)


def _elect(scene: Scene) -> None:
    """The first replica of every partition is to lead, where it can."""
    admin = AdminClient({"bootstrap.servers": scene.cluster.servers, "log_level": 0})
    with suppress(KafkaException, TimeoutError):
        admin.elect_leaders(ElectionType.PREFERRED, None).result(15)
        scene.note("preferred leaders elected")
