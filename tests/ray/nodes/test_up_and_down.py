"""Does a cluster come up on Ray, say what it is, and come back with everything it had?"""

import os
import socket
import threading
from pathlib import Path

import pytest
import ray
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from ray._private.state import actors

import bradbury
from bradbury.launch import cluster as launch
from bradbury.launch.actors import start_actors
from bradbury.launch.cluster import UpError
from bradbury.tests.support.free_ports import UP_PORTS, free_ports
from bradbury.tests.support.ray.ray_nodes import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures = []
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: error and failures.append(error)
        )
    assert producer.flush(30) == 0
    assert failures == []


def read_all(bootstrap: str, topic: str, partitions: int, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), 20)
        assert messages, f"only {len(values)} of {count} records came back"
        values += [message.value() for message in messages]
    consumer.close()
    return values


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def test_every_listening_actor_is_a_node_and_leaders_are_partition_actors(
    cluster: bradbury.Cluster,
) -> None:
    create(cluster.bootstrap_servers, "roles", 3)
    described = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("roles")
    status = cluster.status()
    roles = {node["node_id"]: node["roles"] for node in status["nodes"]}
    assert sorted(described.brokers) == sorted(roles)
    leaders = {partition.leader for partition in described.topics["roles"].partitions.values()}
    assert all(roles[leader] == ["partition"] for leader in leaders)


def test_ray_shows_which_actor_is_which(cluster: bradbury.Cluster) -> None:
    """As `ray list actors` and the dashboard do: by class, by name, and in each line of a log."""
    shown = {
        (actor["ActorClassName"], actor["Name"].split("/")[0])
        for actor in actors().values()
        if actor["State"] == "ALIVE" and actor["Name"]
    }
    assert {
        ("ControllerActor", "controller"),
        ("BrokerActor", "broker"),
        ("GroupCoordinatorActor", "groups"),
        ("PartitionActor", "partitions"),
    } <= shown


def test_a_second_up_is_the_same_cluster_and_a_different_one_is_refused(
    cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    again = bradbury.up(port=0)
    assert again.bootstrap_servers == cluster.bootstrap_servers
    with pytest.raises(UpError, match="already up.*bradbury down"):
        bradbury.up(str(tmp_path / "elsewhere"), port=0)
    with pytest.raises(UpError, match="up already with host=None, not '0.0.0.0'.*bradbury down"):
        bradbury.up(host="0.0.0.0", port=0)
    with pytest.raises(UpError, match="up already with node_label={}, not {'a': 'b'}"):
        bradbury.up(node_label={"a": "b"})
    assert cluster.status()["active"]


@pytest.mark.long  # whole clusters that come and go
def test_two_namespaces_do_not_meet_and_down_keeps_every_topic_and_record(
    cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    data_dir = str(tmp_path / "second")
    values = [b"record %d" % number for number in range(500)]
    with bradbury.up(data_dir, port=0, namespace="second") as second:
        create(second.bootstrap_servers, "kept", 2)
        produce(second.bootstrap_servers, "kept", values)
        known = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics().topics
        assert "kept" not in known
        before = second.status()
    with bradbury.up(data_dir, port=0, namespace="second") as second:
        assert sorted(read_all(second.bootstrap_servers, "kept", 2, 500)) == sorted(values)
        after = second.status()
    assert after["cluster_id"] == before["cluster_id"]
    assert after["epoch"] > before["epoch"]
    assert {node["node_id"] for node in after["nodes"]} == {
        node["node_id"] for node in before["nodes"]
    }


@pytest.mark.long  # half a minute: four clusters one after the other
def test_fewer_partition_actors_than_before_serve_what_all_of_them_had(
    cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    data_dir = str(tmp_path / "fewer")
    values = [b"record %d" % number for number in range(100)]

    def partition_actors(of: bradbury.Cluster) -> set[str]:
        return {
            actor["actor"]
            for actor in of.status()["actors"]
            if "partition" in actor.get("roles", ())
        }

    with bradbury.up(
        data_dir, port=0, namespace="fewer", config={"bradbury.partition.actors": 3}
    ) as three:
        before = partition_actors(three)
        create(three.bootstrap_servers, "kept", 2)  # on two of them
        produce(three.bootstrap_servers, "kept", values)
    with bradbury.up(data_dir, port=0, namespace="fewer") as fewer:
        wait_for(lambda: fewer.status()["leaderless"] == 0)
        assert partition_actors(fewer) < before, "the one without partitions is not missed"
        assert sorted(read_all(fewer.bootstrap_servers, "kept", 2, 100)) == sorted(values)


def test_a_port_in_use_is_one_line_and_leaves_nothing_behind(
    cluster: bradbury.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = ray.kill  # Ray's own takes effect a moment after it has returned, too

    def killed_later(actor: object, *, no_restart: bool = True) -> None:
        threading.Timer(0.3, kill, (actor,), {"no_restart": no_restart}).start()

    monkeypatch.setattr("ray.kill", killed_later)
    port = free_ports(UP_PORTS)  # else another of them may be in use, and be named
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(UpError, match=f"cannot listen on 127.0.0.1:{port}.*--port"):
            bradbury.up(str(tmp_path / "d"), port=port, namespace="third")
    names = ray.util.list_named_actors(all_namespaces=True)
    assert [entry for entry in names if entry["namespace"] == "third"] == []


@pytest.mark.long  # said as a port in use is
def test_a_host_that_is_none_of_this_machine_is_tried_once(
    cluster: bradbury.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    def counted(*arguments: object) -> object:
        starts.append(arguments)
        return start_actors(*arguments)

    monkeypatch.setattr("bradbury.launch.cluster.start_actors", counted)
    with pytest.raises(UpError, match="cannot listen on 203.0.113.1:.*--host"):
        bradbury.up(str(tmp_path / "d"), host="203.0.113.1", namespace="third", insecure=True)
    assert len(starts) == 1


def test_a_cluster_says_what_it_is(cluster: bradbury.Cluster) -> None:
    assert cluster.bootstrap_servers in repr(cluster)
    with bradbury.local() as local:
        assert local.bootstrap_servers in repr(local)


def test_the_directory_of_a_running_cluster_is_refused(
    cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    data_dir = cluster.status()["settings"]["data_dir"]
    with pytest.raises(UpError, match=r"in use by a running broker"):
        bradbury.up(data_dir, port=0, namespace="thief")
    assert cluster.status()["active"]


@pytest.mark.long  # tests/storage/directories and tests/cluster/control refuse one, too
def test_directories_of_two_clusters_are_refused(cluster: bradbury.Cluster, tmp_path: Path) -> None:
    with bradbury.up(str(tmp_path / "one"), port=0, namespace="one"):
        pass
    with bradbury.up(str(tmp_path / "two"), port=0, namespace="two"):
        pass
    (tmp_path / "one" / "groups").rename(tmp_path / "lost")
    (tmp_path / "two" / "groups").rename(tmp_path / "one" / "groups")
    with pytest.raises(UpError, match="belongs to cluster"):
        bradbury.up(str(tmp_path / "one"), port=0, namespace="one")
    (tmp_path / "one" / "groups").rename(tmp_path / "two" / "groups")
    (tmp_path / "lost").rename(tmp_path / "one" / "groups")
    with bradbury.up(str(tmp_path / "one"), port=0, namespace="one") as one:
        assert one.status()["leaderless"] == 0


@pytest.mark.long  # a race that is set up at length
def test_a_port_that_another_process_bound_is_replaced_where_none_was_asked_for(
    cluster: bradbury.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken: int = somebody.getsockname()[1]
        chosen = iter([taken, 0])
        monkeypatch.setattr(launch, "_free_port", lambda nodes, host, server: next(chosen))
        with bradbury.up(str(tmp_path / "data"), namespace="late") as late:
            assert late.status()["active"]
            assert not late.bootstrap_servers.endswith(f":{taken}")
        with pytest.raises(UpError, match=f"cannot listen on 127.0.0.1:{taken} "):
            bradbury.up(str(tmp_path / "data"), port=taken, namespace="late")


@pytest.mark.long  # said as the directory of a running cluster is
def test_a_directory_that_cannot_be_written_is_one_line(
    cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UpError, match=r"cannot be used as a data directory.*; make it writable"):
        bradbury.up(str(tmp_path / "file"), port=0, namespace="fourth")


def test_nothing_of_the_test_run_is_nice(cluster: bradbury.Cluster) -> None:
    """Ray's default would put brokers behind every busy task of the machine."""
    for actor in cluster.status()["actors"]:
        assert os.getpriority(os.PRIO_PROCESS, actor["pid"]) == 0
