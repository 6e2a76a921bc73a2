"""Do copies go as slowly as they are told, and everything else as before?"""

from collections.abc import Iterator
from os import urandom
from pathlib import Path

import kafka
import pytest

import bradbury
from bradbury.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from bradbury.tests.support.ray.three_nodes import ThreeNodes, until
from bradbury.tests.support.wire.raw_client import RawClient

TOPIC = "t"
BATCHES, BATCH_BYTES = 40, 100_000
RATES = {
    "leader": "leader.replication.throttled.rate",
    "follower": "follower.replication.throttled.rate",
}
LISTS = {
    "leader": "leader.replication.throttled.replicas",
    "follower": "follower.replication.throttled.replicas",
}


def create_on_the_first(nodes: ThreeNodes, partitions: int = 1) -> None:
    """One replica each, all on node 1."""
    wanted = kafka.admin.NewTopic(
        TOPIC, -1, -1, replica_assignments={index: [1] for index in range(partitions)}
    )
    admin = kafka.KafkaAdminClient(bootstrap_servers=nodes.servers)
    admin.create_topics([wanted])
    admin.close()


def add_replicas(nodes: ThreeNodes, *partitions: int) -> None:
    """Add replicas on node 2."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=nodes.servers)
    admin.alter_partition_reassignments(
        {kafka.TopicPartition(TOPIC, index): [1, 2] for index in partitions}
    )
    admin.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    config = {"replica.fetch.max.bytes": 2 * BATCH_BYTES, "replica.fetch.wait.max.ms": 50}
    with ThreeNodes(tmp_path, config) as nodes:
        yield nodes


def fill(nodes: ThreeNodes, topic: str = TOPIC) -> None:
    with bradbury.Producer(nodes.servers) as producer:
        for _ in range(BATCHES):
            producer.send(topic, urandom(BATCH_BYTES)).result(60)


def requests_of_followers(nodes: ThreeNodes, node_id: int) -> int:
    return nodes.node(node_id).metrics.apis[1].requests


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_new_replica_comes_slowly_and_at_full_speed_when_the_throttle_is_lifted(
    nodes: ThreeNodes, side: str
) -> None:
    with nodes.cluster.admin() as admin:
        create_on_the_first(nodes)
        fill(nodes)
        throttled = 1 if side == "leader" else 2
        admin.alter_configs(TOPIC, {LISTS[side]: f"0:{throttled}"})
        admin.alter_configs(broker=throttled, changes={RATES[side]: 1})
        add_replicas(nodes, 0)
        until(lambda: nodes.ends(TOPIC).get(2, 0) > 0)
        copied = nodes.ends(TOPIC)[2]
        asked = requests_of_followers(nodes, 1)
        # It goes on asking (a leader answers with nothing), or begins to when its time has come.
        if side == "leader":
            until(lambda: requests_of_followers(nodes, 1) > asked + 5)
        assert nodes.ends(TOPIC)[2] == copied < BATCHES
        assert nodes.partition(TOPIC).isr == (1,)

        admin.alter_configs(broker=throttled, unset=[RATES[side]])
        until(lambda: nodes.partition(TOPIC).isr == (1, 2))
        assert nodes.ends(TOPIC)[2] == BATCHES
        assert len(set(nodes.contents(TOPIC).values())) == 1


def test_a_replica_in_sync_is_not_throttled(nodes: ThreeNodes) -> None:
    nodes.create(TOPIC, min_insync_replicas="3")
    with nodes.cluster.admin() as admin:
        admin.alter_configs(TOPIC, dict.fromkeys(LISTS.values(), "*"))
        admin.alter_configs(broker="all", changes=dict.fromkeys(RATES.values(), 1))
    fill(nodes)  # acks=all: each record is on all three
    assert set(nodes.ends(TOPIC).values()) == {BATCHES}


def test_a_partition_that_is_not_listed_is_copied_beside_one_that_waits(nodes: ThreeNodes) -> None:
    with nodes.cluster.admin() as admin:
        create_on_the_first(nodes, 2)
        with bradbury.Producer(nodes.servers) as producer:
            for number in range(2 * BATCHES):
                producer.send(TOPIC, urandom(BATCH_BYTES), partition=number % 2).result(60)
        admin.alter_configs(TOPIC, {LISTS["leader"]: "0:1"})
        admin.alter_configs(broker=1, changes={RATES["leader"]: 1})
        add_replicas(nodes, 0, 1)
        until(lambda: nodes.partition(TOPIC, 1).isr == (1, 2))
        assert nodes.ends(TOPIC, 0).get(2, 0) < BATCHES
        admin.alter_configs(TOPIC, {LISTS["leader"]: ""})
        until(lambda: nodes.partition(TOPIC, 0).isr == (1, 2))


def test_a_move_between_log_directories_waits_for_its_throttle(tmp_path: Path) -> None:
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    with bradbury.local(paths) as cluster, cluster.admin() as admin:
        admin.create_topic(TOPIC, 1)
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            for _ in range(BATCHES):
                producer.send(TOPIC, urandom(BATCH_BYTES)).result(60)
        admin.alter_configs(broker=1, changes={rate: 1})

        def sizes() -> dict[str, int]:
            return {
                each.path: partition.size
                for each in admin.describe_log_dirs()
                for partition in each.partitions
                if partition.topic == TOPIC
            }

        [source] = sizes()
        [target] = {each.path for each in admin.describe_log_dirs()} - {source}
        move = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=target, topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])]
                )
            ]
        )
        with RawClient(cluster.bootstrap_servers) as client:
            client.call(move, AlterReplicaLogDirsResponse, 2)
        until(lambda: sizes().get(target, 0) > 0)
        assert sizes()[target] < sizes()[source]
        admin.alter_configs(broker=1, unset=[rate])
        until(lambda: {*sizes()} == {target})
