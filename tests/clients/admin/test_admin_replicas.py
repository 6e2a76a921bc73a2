"""Leaders, replicas and their disks: changed by Admin, seen by another client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import bradbury
from bradbury.protocol.errors import (
    BrokerNotAvailable,
    InvalidReplicaAssignment,
    LogDirNotFound,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from bradbury.tests.support.ray.three_nodes import until

SLOW = {"leader.replication.throttled.rate": "1", "follower.replication.throttled.rate": "1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(nodes=3, config={"auto.leader.rebalance.enable": "false"}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: bradbury.LocalCluster) -> Iterator[bradbury.Admin]:
    with bradbury.Admin(cluster.bootstrap_servers) as client:
        yield client


def replicas(cluster: bradbury.LocalCluster, topic: str) -> list[int]:
    """The replicas of partition 0, as librdkafka sees them; none at a node that knows no such topic
    yet.
    """
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partitions = client.list_topics(topic, timeout=60).topics[topic].partitions
    return list(partitions[0].replicas) if partitions else []


def leader(admin: bradbury.Admin, topic: str) -> int:
    return admin.describe_topics([topic])[0].partitions[0].leader


def nodes(admin: bradbury.Admin) -> list[int]:
    return [broker.node_id for broker in admin.describe_cluster().brokers]


@pytest.mark.long  # replicas that move
def test_a_partition_gets_other_replicas_more_and_fewer_with_its_records(
    cluster: bradbury.LocalCluster, admin: bradbury.Admin
) -> None:
    one, two, three = nodes(admin)
    admin.create_topic("moved")
    admin.alter_partition_reassignments({("moved", 0): [one]})
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        sent = [producer.send("moved", b"%d" % number) for number in range(100)]
        for wanted in ([one, two, three], [two], [three, one]):
            until(lambda: not admin.list_partition_reassignments())
            admin.alter_partition_reassignments({("moved", 0): wanted})
            until(lambda wanted=wanted: replicas(cluster, "moved") == wanted)
            sent.append(producer.send("moved", b"during"))
        assert [one.result().offset for one in sent] == list(range(103))
    end = admin.list_offsets([("moved", 0)])["moved", 0].offset
    assert end == 103


def test_what_goes_on_is_listed_and_stopped(
    cluster: bradbury.LocalCluster, admin: bradbury.Admin
) -> None:
    one, two, three = nodes(admin)
    admin.create_topic("stopped", replication_factor=2)
    until(lambda: len(replicas(cluster, "stopped")) == 2)
    before = replicas(cluster, "stopped")
    (new,) = {one, two, three} - set(before)
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for _ in range(4):  # more than the first fetch, which no throttle delays
            producer.send("stopped", bytes(900_000)).result()
    for broker in (one, two, three):
        admin.alter_configs(broker=broker, changes=SLOW)
    both_ways = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    admin.alter_configs("stopped", dict.fromkeys(both_ways, "*"))
    kept, given_up = before
    admin.alter_partition_reassignments({("stopped", 0): [kept, new]})
    found = admin.list_partition_reassignments([("stopped", 0)])["stopped", 0]
    assert sorted(found.replicas) == sorted({*before, new})
    assert (found.adding, found.removing) == ((new,), (given_up,))
    assert admin.list_partition_reassignments() == {("stopped", 0): found}
    assert admin.list_partition_reassignments([("moved", 0)]) == {}
    admin.alter_partition_reassignments({("stopped", 0): None})
    until(lambda: not admin.list_partition_reassignments())
    until(lambda: replicas(cluster, "stopped") == before)
    with pytest.raises(NoReassignmentInProgress, match="stopped-0"):
        admin.alter_partition_reassignments({("stopped", 0): None})
    for broker in (one, two, three):
        admin.alter_configs(broker=broker, unset=list(SLOW))


def test_refusals_name_the_partition_and_the_others_are_moved(
    cluster: bradbury.LocalCluster, admin: bradbury.Admin
) -> None:
    one, two, _ = nodes(admin)
    admin.create_topic("mixed")
    with pytest.raises(InvalidReplicaAssignment, match="mixed-0"):
        admin.alter_partition_reassignments({("mixed", 0): [one, 99]})
    with pytest.raises(UnknownTopicOrPartition, match="absent-7"):
        admin.alter_partition_reassignments({("absent", 7): [one], ("mixed", 0): [one, two]})
    until(lambda: replicas(cluster, "mixed") == [one, two])


def test_leadership_goes_back_to_the_first_replica(
    cluster: bradbury.LocalCluster, admin: bradbury.Admin
) -> None:
    first = admin.create_topic("led", replication_factor=3).partitions[0].replicas[0]
    index = [node.node_id for node in cluster.nodes].index(first)
    assert admin.elect_leaders([("led", 0)]) == []  # it leads
    cluster.stop_node(index)
    until(lambda: leader(admin, "led") not in (-1, first))
    with pytest.raises(PreferredLeaderNotAvailable, match="led-0"):
        admin.elect_leaders([("led", 0)])
    cluster.start_node(index)
    until(lambda: first in admin.describe_topics(["led"])[0].partitions[0].isr)
    assert ("led", 0) in admin.elect_leaders()  # of all topics
    until(lambda: leader(admin, "led") == first)
    with pytest.raises(UnknownTopicOrPartition, match="absent-0"):
        admin.elect_leaders([("absent", 0)])
    with pytest.raises(ValueError, match="preferred"):
        admin.elect_leaders(election="any")


def test_the_quorum_names_its_leader_and_the_end_of_each_log(admin: bradbury.Admin) -> None:
    quorum = admin.describe_metadata_quorum()
    assert quorum.leader_epoch >= 0
    assert quorum.leader in [voter.node for voter in quorum.voters]
    assert quorum.high_watermark > 0
    ends = {voter.node: voter.log_end_offset for voter in quorum.voters}
    assert ends[quorum.leader] >= quorum.high_watermark


def test_a_replica_moves_to_another_disk_with_its_records(tmp_path: Path) -> None:
    disks = [str(tmp_path / "one"), str(tmp_path / "two")]
    with (
        bradbury.local(disks) as cluster,
        bradbury.Admin(cluster.bootstrap_servers) as admin,
    ):
        admin.create_topic("disks")
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            producer.send("disks", b"here").result()
        (broker,) = nodes(admin)

        def held_by() -> list[tuple[str, bool]]:
            return [
                (directory.path, partition.is_future)
                for directory in admin.describe_log_dirs(["disks"])
                for partition in directory.partitions
            ]

        ((before, _),) = held_by()
        (after,) = {one.path for one in admin.describe_log_dirs()} - {before}
        admin.alter_replica_log_dirs({("disks", 0, broker): after})
        until(lambda: held_by() == [(after, False)])
        with bradbury.Consumer(
            bootstrap=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([("disks", 0)])
            assert consumer.poll(10_000)["value"].to_pylist() == [b"here"]
        refusal = f"disks-0: broker {broker} has no log directory .*/absent; .* --data-dir"
        with pytest.raises(LogDirNotFound, match=refusal):
            admin.alter_replica_log_dirs({("disks", 0, broker): str(tmp_path / "absent")})
        with pytest.raises(BrokerNotAvailable, match="99"):
            admin.alter_replica_log_dirs({("disks", 0, 99): after})
