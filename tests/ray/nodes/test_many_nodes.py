"""Do brokers stand on every Ray node, and does a node that comes back bring its data back?"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.tests.support.ray.ray_nodes import RayNode, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROLE = {"log-role": "many"}


@pytest.fixture
def two_nodes(ray_cluster: str, cluster: bradbury.Cluster) -> Iterator[list[RayNode]]:
    """Besides the test run's own node, whose cluster stands already and stays out of this."""
    nodes = []
    try:
        for label in ("n1", "n2"):  # one after the other: at once, they would take the same sockets
            nodes.append(RayNode(ray_cluster, label, "many"))
            nodes[-1].wait_until_alive()
        yield nodes
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            node.wait_until_dead()


def leaders(admin: AdminClient, topic: str) -> list[int]:
    partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
    return [partitions[index].leader for index in sorted(partitions)]


@pytest.mark.long  # two Ray nodes of its own
def test_files_are_read_on_the_node_of_their_leader(
    two_nodes: list[RayNode], tmp_path: Path
) -> None:
    with bradbury.up(str(tmp_path / "data"), port=0, namespace="many", node_label=ROLE) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("spread", 4)
            partitions = admin.describe_topics(["spread"])[0].partitions
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            for number in range(400):
                producer.send("spread", b"%d" % number, partition=number % 4)
        racks = {node["node_id"]: node["rack"] for node in cluster.status()["nodes"]}
        labels = {node["NodeID"]: node["Labels"].get("log-node") for node in ray.nodes()}
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "columns": ["partition", "value"],
            "num_cpus": 0.1,  # room for all of a node's tasks: Ray sends elsewhere what has none
            # Called in the tasks that read.
            "value_decoder": lambda values: pa.array(
                [ray.get_runtime_context().get_node_id()] * len(values)
            ),
        }
        rows = bradbury.read_topic("spread", local_files=True, **options).take_all()
        assert len(rows) == 400
        read_on = {(row["partition"], labels[row["value"]]) for row in rows}
        assert read_on == {(each.partition, racks[each.leader]) for each in partitions}
        assert {label for _, label in read_on} == {"n1", "n2"}

        # Whoever places the tasks himself has the last word.
        here = {"label_selector": {"log-node": "n1"}}
        rows = bradbury.read_topic("spread", local_files=True, **options, **here).take_all()
        assert {labels[row["value"]] for row in rows} == {"n1"}
        assert len(rows) == 400


# test_joined_nodes.py kills a node that comes back, and after test_drained_nodes.py its data is there.
@pytest.mark.deep
def test_partitions_spread_over_nodes_and_survive_the_death_of_one(
    two_nodes: list[RayNode], ray_cluster: str, tmp_path: Path
) -> None:
    with bradbury.up(str(tmp_path / "data"), port=0, namespace="many", node_label=ROLE) as cluster:
        status = cluster.status()
        assert len(status["nodes"]) == 6
        assert {node["rack"] for node in status["nodes"]} == {"n1", "n2"}
        assert (tmp_path / "data" / "n1").is_dir()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("spread", 4, 1)])["spread"].result(60)
        owners = leaders(admin, "spread")
        assert len(set(owners)) == 2
        assert sorted(owners.count(owner) for owner in set(owners)) == [2, 2]

        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        for number in range(400):
            producer.produce("spread", b"%d" % number, partition=number % 4)
        assert producer.flush(20) == 0

        voter = next(a for a in status["actors"] if a["actor"] == "broker/n1")
        assert voter["metadata_offset"] > 0
        two_nodes[1].kill()
        wait_for(lambda: -1 in leaders(admin, "spread"))
        assert sorted(leaders(admin, "spread"))[:2] == [-1, -1]
        two_nodes[1] = RayNode(ray_cluster, "n2", "many")
        two_nodes[1].wait_until_alive()
        wait_for(lambda: leaders(admin, "spread") == owners)

        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x"})
        consumer.assign([TopicPartition("spread", index, 0) for index in range(4)])
        values: list[int] = []
        while len(values) < 400:
            messages = consumer.consume(400 - len(values), 30)
            assert messages
            values += [int(message.value()) for message in messages]
        consumer.close()
        assert sorted(values) == list(range(400))


@pytest.mark.long  # nodes that come and go; one that joins is in make test
def test_a_stopped_partition_actor_is_fenced_and_comes_back(cluster: bradbury.Cluster) -> None:
    """SIGSTOP: alive for Ray, silent for us. Its session ends, its partitions have no leader."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("stopped", 1, 1)])["stopped"].result(60)
    pid = next(
        actor["pid"]
        for actor in cluster.status()["actors"]
        if actor["actor"].startswith("partitions")
    )
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: leaders(admin, "stopped") == [-1])
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: leaders(admin, "stopped") != [-1])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    errors = []
    producer.produce("stopped", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]


@pytest.mark.deep
def test_topics_are_made_while_a_node_with_the_metadata_is_away_and_it_catches_up(
    two_nodes: list[RayNode], ray_cluster: str, tmp_path: Path
) -> None:
    """Three brokers: the metadata is on the disks of all of them, and two are enough."""
    third = RayNode(ray_cluster, "n3", "many")
    two_nodes.append(third)
    third.wait_until_alive()
    with bradbury.up(str(tmp_path / "data"), port=0, namespace="three", node_label=ROLE) as cluster:
        assert len(cluster.status()["voters"]) == 3
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        third.kill()
        wait_for(lambda: sum(node["fenced"] for node in cluster.status()["nodes"]) > 0)
        silent = {a["actor"] for a in cluster.status()["actors"] if a["problem"]}
        assert silent and all("/n3" in name for name in silent)
        admin.create_topics([NewTopic("meanwhile", 4, 1)])["meanwhile"].result(60)
        two_nodes[2] = RayNode(ray_cluster, "n3", "many")
        two_nodes[2].wait_until_alive()

        def all_have_everything() -> bool:
            status = cluster.status()
            return set(status["voters"].values()) == {status["metadata_offset"]}

        wait_for(all_have_everything)
        logs = {
            b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
            for folder in (tmp_path / "data").glob("*/metadata/__cluster_metadata-0")
        }
        assert len(logs) == 1
        assert b"meanwhile" in logs.pop()
