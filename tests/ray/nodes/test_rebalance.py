"""Do replicas go where they are sent, while producers and consumers go on?"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.cli.cluster.copy_throttle import SENDERS
from bradbury.tests.support.ray.ray_nodes import RayNode

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROLE = "moving"
ROOT = Path(bradbury.__file__).resolve().parent


@pytest.fixture
def three_nodes(
    ray_cluster: str, cluster: bradbury.Cluster, tmp_path: Path
) -> Iterator[bradbury.Cluster]:
    """A cluster on three further nodes of the test run's Ray."""
    nodes = []
    try:
        for label in ("m1", "m2", "m3"):
            nodes.append(RayNode(ray_cluster, label, ROLE))
            nodes[-1].wait_until_alive()
        with bradbury.up(
            str(tmp_path / "data"), port=0, namespace=ROLE, node_label={"log-role": ROLE}
        ) as running:
            yield running
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            node.wait_until_dead()


def command(ray_address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "bradbury.cli",
            *arguments,
            "--address",
            ray_address,
            "--namespace",
            ROLE,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".path")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def machines(cluster: bradbury.Cluster, topic: str) -> list[set[str]]:
    """The nodes of each partition's replicas."""
    names = {node["node_id"]: node["machine"] for node in cluster.status()["nodes"]}
    with cluster.admin() as admin:
        return [
            {names[node] for node in partition.replicas}
            for partition in admin.describe_topics([topic])[0].partitions
        ]


@pytest.mark.long  # test_drained_nodes.py drains by Ray; tests/cluster/control plans moves
def test_a_machine_is_drained_and_gets_its_share_back(
    three_nodes: bradbury.Cluster, ray_cluster: str
) -> None:
    cluster = three_nodes
    with cluster.admin() as admin:
        admin.create_topic("t", 6, replication_factor=2)
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for number in range(1000):
            producer.send("t", b"%d" % number, partition=number % 6)
    shown = command(ray_cluster, "drain", "m2", "--dry-run", "--json")
    assert shown.returncode == 0, shown.stderr
    planned = json.loads(shown.stdout)
    assert {"m2"} <= set().union(*machines(cluster, "t")), "nothing has moved yet"
    done = command(ray_cluster, "drain", "m2", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) >= len(planned) > 0
    assert set().union(*machines(cluster, "t")) == {"m1", "m3"}
    assert cluster.status()["under_replicated"] == 0
    with cluster.admin() as admin:
        admin.create_topic("later", 3)
    assert set().union(*machines(cluster, "later")) == {"m1", "m3"}
    refused = command(ray_cluster, "drain", "m1")
    assert refused.returncode == 1
    assert "too few machines would be left" in refused.stderr
    assert command(ray_cluster, "drain", "m1", "--restore").returncode == 0
    assert command(ray_cluster, "drain", "m2", "--restore").returncode == 0
    balanced = command(ray_cluster, "rebalance", "--throttle", "50000000")
    assert balanced.returncode == 0, balanced.stderr
    assert "partitions moved" in balanced.stderr + balanced.stdout
    assert set().union(*machines(cluster, "t")) == {"m1", "m2", "m3"}
    with cluster.admin() as admin:
        assert admin.describe_configs("t")[SENDERS].value == "", "the throttle is lifted"
    again = command(ray_cluster, "rebalance")
    assert "nothing has to move" in again.stderr + again.stdout
    consumer = bradbury.Consumer(bootstrap=cluster.bootstrap_servers)
    consumer.assign([bradbury.TopicPartition("t", index) for index in range(6)])
    consumer.seek_to_beginning()
    found: list[int] = []
    while len(found) < 1000:
        found += [int(value) for value in consumer.poll(1000).column("value").to_pylist()]
    consumer.close()
    assert sorted(found) == list(range(1000))
