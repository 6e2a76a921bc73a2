"""Nodes come and go under load: is anything lost that was acknowledged, and for how long is nothing?

The longest time without an acknowledgement, and the longest that one record waited for its own, are
printed (`pytest -s`) for each event, and judged by who reads them.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.tests.deploy.probe import Writer, in_sync, missing, read_all
from bradbury.tests.support.ray.ray_nodes import RayNode, alive_labels, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROLE = "growing"
TOPIC = "grown"
CONFIG = {
    "bradbury.auto.rebalance": True,
    "bradbury.drain.moves.replicas": True,
    "group.initial.rebalance.delay.ms": 500,
}
RECORDS = 100
"""Acknowledged before an event, and after it."""
LOOKS = 10
Join = Callable[[int], RayNode]


@pytest.fixture
def join(ray_cluster: str, cluster: bradbury.Cluster) -> Iterator[Join]:
    """Starts a further node of the test run's Ray, whose cluster stays out of this."""
    nodes = []

    def start(number: int) -> RayNode:
        nodes.append(RayNode(ray_cluster, f"g{number}", ROLE))
        return nodes[-1].wait_until_alive()

    try:
        yield start
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            node.wait_until_dead()


class Growing(NamedTuple):
    """A cluster with a topic, a producer that goes on all the while, and what is seen of both."""

    cluster: bradbury.Cluster
    writer: Writer

    def machines(self) -> set[str]:
        """Those that have replicas of the topic."""
        names = {node["node_id"]: node["machine"] for node in self.cluster.status()["nodes"]}
        with self.cluster.admin() as admin:
            partitions = admin.describe_topics([TOPIC])[0].partitions
        return {names[node] for partition in partitions for node in partition.replicas}

    def serving(self) -> set[str]:
        nodes = self.cluster.status()["nodes"]
        return {node["machine"] for node in nodes} - {
            node["machine"] for node in nodes if node["fenced"]
        }

    def is_settled(self) -> bool:
        """Nothing moves, and the limit on what moves is lifted."""
        status = self.cluster.status()
        with self.cluster.admin() as admin:
            entries = admin.describe_configs(TOPIC)
        listed = entries["leader.replication.throttled.replicas"].value
        return not (status["reassigned"] or status["under_replicated"] or listed)

    def event(self, what: str, happen: Callable[[], None]) -> None:
        """Something, while records are produced; they are before it, during it, and after it."""
        self.go_on()
        self.writer.begin_gap()
        began = time.monotonic()
        happen()
        took = time.monotonic() - began
        self.go_on()
        print(
            f"{what}: {took:.1f} s, {self.writer.longest_gap:.2f} s without an acknowledgement, "
            f"{self.writer.slowest:.2f} s the slowest record"
        )

    def go_on(self) -> None:
        count = len(self.writer.acknowledged)
        wait_for(lambda: len(self.writer.acknowledged) > count + RECORDS)


def grow(growing: Growing, join: Join, numbers: range) -> dict[str, RayNode]:
    nodes: dict[str, RayNode] = {}

    def all_join() -> None:
        nodes.update({f"g{number}": join(number) for number in numbers})

    growing.event(f"{len(numbers)} join", all_join)
    growing.event("brokers", lambda: wait_for(lambda: set(nodes) <= growing.serving()))
    growing.event("moves", lambda: wait_for(lambda: set(nodes) <= growing.machines()))
    growing.event("is moved", lambda: wait_for(growing.is_settled))
    return nodes


def leave(growing: Growing, node: RayNode) -> None:
    """Ray drains it, for good: everything is elsewhere when it is gone."""

    def drained() -> None:
        node.drain()
        wait_for(lambda: node.label not in alive_labels(), what="Ray does not end it")

    growing.event(f"{node.label} is drained", drained)
    wait_for(lambda: growing.cluster.status()["active"], what="no controller after that")
    assert node.label not in growing.machines()


def is_lossless(growing: Growing, servers: str) -> bool:
    """Whether every acknowledged record can be read.

    Looked at again where one is missing: a broker that does not know yet that another one leads
    names the end that it knows, in Kafka as here.
    """
    assert growing.writer.failed == []
    for _ in range(LOOKS):
        lost = missing(growing.writer.acknowledged, read_all(servers, TOPIC))
        print(f"{len(growing.writer.acknowledged)} records acknowledged, {len(lost)} lost")
        if not lost:
            return True
        time.sleep(1)
    return False


def create(servers: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    config = {"min.insync.replicas": str(min(2, replicas))}
    admin.create_topics([NewTopic(TOPIC, partitions, replicas, config=config)])[TOPIC].result(60)


@pytest.mark.deep
def test_one_node_becomes_two_and_the_first_one_goes(join: Join, tmp_path: Path) -> None:
    """With one replica: what is lost with a node that goes would be lost for ever."""
    first = join(1)
    with bradbury.up(
        str(tmp_path / "d"), port=0, namespace=ROLE, node_label={"log-role": ROLE}, config=CONFIG
    ) as cluster:
        create(cluster.bootstrap_servers, 4, 1)
        with Writer(cluster.bootstrap_servers, TOPIC) as writer:
            growing = Growing(cluster, writer)
            (second,) = grow(growing, join, range(2, 3)).values()
            leave(growing, first)
            first.kill()
        wait_for(lambda: growing.serving() == {second.label})
        assert is_lossless(growing, bradbury.connect(namespace=ROLE).bootstrap_servers)


@pytest.mark.long
def test_two_nodes_that_go_at_once_leave_all_to_the_one_that_stays(
    join: Join, tmp_path: Path
) -> None:
    """As where the autoscaler ends several. With one replica, none of which may go astray."""
    stays, *going = [join(number) for number in range(1, 4)]
    with bradbury.up(
        str(tmp_path / "d"), port=0, namespace=ROLE, node_label={"log-role": ROLE}, config=CONFIG
    ) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, 6, 1)

        def drained() -> None:
            for node in going:
                node.drain()
            gone = {node.label for node in going}
            wait_for(lambda: not gone & alive_labels(), what="Ray does not end them")

        with Writer(servers, TOPIC) as writer:
            growing = Growing(cluster, writer)
            growing.event("two are drained", drained)
            assert growing.machines() == {stays.label}
        assert is_lossless(growing, bradbury.connect(namespace=ROLE).bootstrap_servers)


@pytest.mark.deep
def test_three_nodes_become_six_and_three_again(join: Join, tmp_path: Path) -> None:
    """Of those that go one is drained, one votes on the metadata, and one is killed."""
    nodes = {f"g{number}": join(number) for number in range(1, 4)}
    with bradbury.up(
        str(tmp_path / "d"), port=0, namespace=ROLE, node_label={"log-role": ROLE}, config=CONFIG
    ) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, 12, 3)
        with Writer(servers, TOPIC) as writer:
            growing = Growing(cluster, writer)
            nodes |= grow(growing, join, range(4, 7))
            voters = cluster.status()["voters"]
            leave(growing, nodes["g5"])
            leave(growing, nodes["g3"])
            assert len(cluster.status()["voters"]) == 3
            assert set(cluster.status()["voters"]) != set(voters)
            growing.event("g6 is killed", nodes["g6"].kill)
            growing.event(
                "g6 is given up",
                lambda: wait_for(
                    lambda: not cluster.rebalance(drain="g6") and growing.is_settled()
                ),
            )
        assert growing.machines() == {"g1", "g2", "g4"}
        assert set(in_sync(servers, TOPIC)) == {3}
        assert is_lossless(growing, servers)
