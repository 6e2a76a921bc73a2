"""Clients and nodes that reach a broker only by what advertised.listeners says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.protocol.errors import InvalidConfig
from bradbury.tests.support.free_ports import free_ports
from bradbury.tests.support.wire.forwarder import Forwarder

PATIENCE = 60
OUTSIDE = "127.0.0.2"
"""Where nodes do not listen."""
NODES = 2


@dataclass
class Scene:
    cluster: bradbury.LocalCluster
    client_port: int
    internal_port: int
    clients: list[Forwarder]
    between: list[Forwarder]

    @property
    def bootstrap(self) -> str:
        return f"{OUTSIDE}:{self.client_port}"


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Two nodes on 127.0.0.1, and a forwarder for each of their listeners on 127.0.0.2."""
    client_port, internal_port = free_ports(NODES, OUTSIDE), free_ports(NODES)
    config = {
        "listeners": f"CLIENT://:0,INTERNAL://:{internal_port}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "advertised.listeners": (
            f"CLIENT://{OUTSIDE}:{client_port},INTERNAL://{OUTSIDE}:{internal_port}"
        ),
        "offsets.topic.num.partitions": "4",
    }
    with contextlib.ExitStack() as opened:
        between = [
            opened.enter_context(
                Forwarder((OUTSIDE, port), lambda port=port: ("127.0.0.1", port))  # type: ignore[misc]
            )
            for port in range(internal_port, internal_port + NODES)
        ]
        cluster = opened.enter_context(bradbury.local(config=config, nodes=NODES))

        def listens_at(index: int) -> tuple[str, int]:
            return "127.0.0.1", cluster.nodes[index].socket_server.ports()["CLIENT"]

        clients = [
            opened.enter_context(
                Forwarder((OUTSIDE, client_port + index), lambda index=index: listens_at(index))  # type: ignore[misc]
            )
            for index in range(NODES)
        ]
        yield Scene(cluster, client_port, internal_port, clients, between)


def brokers_of(bootstrap: str) -> set[tuple[str, int]]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE).brokers
    return {(broker.host, broker.port) for broker in found.values()}


def create(scene: Scene, topic: str, partitions: int, factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, factor)])[topic].result(PATIENCE)


def test_a_client_is_told_the_addresses_of_the_listener_that_it_asked(scene: Scene) -> None:
    assert brokers_of(scene.bootstrap) == {
        (OUTSIDE, scene.client_port + index) for index in range(NODES)
    }
    assert brokers_of(scene.cluster.bootstrap_servers_of("INTERNAL")) == {
        (OUTSIDE, scene.internal_port + index) for index in range(NODES)
    }
    # Where nodes listen is what they are asked by here, and not what they answer.
    assert brokers_of(scene.cluster.bootstrap_servers) == brokers_of(scene.bootstrap)


def test_all_answers_that_name_nodes_name_those_addresses(scene: Scene) -> None:
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    outside = {(OUTSIDE, scene.client_port + index) for index in range(NODES)}
    described = admin.describe_cluster().result(PATIENCE)
    assert {(node.host, node.port) for node in described.nodes} == outside
    create(scene, "grouped", 1, 1)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": scene.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.commit(offsets=[confluent_kafka.TopicPartition("grouped", 0, 0)], asynchronous=False)
    consumer.close()
    group: Any = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE)
    assert (group.coordinator.host, group.coordinator.port) in outside


def test_librdkafka_produces_to_and_consumes_from_every_node_through_the_forwarders(
    scene: Scene,
) -> None:
    create(scene, "flights", 4, 1)
    before = [each.accepted for each in scene.clients]
    producer = confluent_kafka.Producer({"bootstrap.servers": scene.bootstrap})
    for number in range(400):
        producer.produce("flights", str(number), partition=number % 4)
    assert producer.flush(PATIENCE) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": scene.bootstrap, "group.id": "f", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["flights"])
    got = set()
    while len(got) < 400:
        message = consumer.poll(PATIENCE)
        assert message is not None and message.error() is None
        got.add(int(message.value()))
    consumer.close()
    assert all(each.accepted > count for each, count in zip(scene.clients, before, strict=True))


def test_nodes_find_each_other_where_the_listener_between_them_is_advertised(scene: Scene) -> None:
    create(scene, "copied", 2, NODES)
    producer = confluent_kafka.Producer({"bootstrap.servers": scene.bootstrap, "acks": "all"})
    for partition in range(2):
        producer.produce("copied", b"a record", partition=partition)
    assert producer.flush(PATIENCE) == 0
    assert all(each.accepted for each in scene.between)


def test_a_listener_that_is_not_advertised_is_told_to_nobody() -> None:
    config = {
        "listeners": "CLIENT://:0,INTERNAL://:0",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "advertised.listeners": "INTERNAL://:0",
    }
    with bradbury.local(config=config) as cluster:
        (node,) = cluster.nodes
        assert [each.listener for each in node.image.nodes[node.node_id].listeners] == ["INTERNAL"]
        assert brokers_of(cluster.bootstrap_servers_of("INTERNAL")) == {
            ("127.0.0.1", node.socket_server.ports()["INTERNAL"])
        }


def test_each_node_looks_up_what_is_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "address").write_text("port=19092\n")
    config = {
        "advertised.listeners": f"PLAINTEXT://${{env:OUTSIDE}}:${{file:{tmp_path}/address:port}}"
    }
    with pytest.raises(InvalidConfig, match=r"\$\{env:OUTSIDE\}: there is no such environment"):
        bradbury.local(config=config).close()
    monkeypatch.setenv("OUTSIDE", "kafka.example.com")
    with bradbury.local(config=config) as cluster:
        (node,) = cluster.nodes
        (address,) = node.image.nodes[node.node_id].listeners
        assert str(address) == "PLAINTEXT://kafka.example.com:19092"
    monkeypatch.setenv("OUTSIDE", "0.0.0.0")
    with pytest.raises(InvalidConfig, match="nonroutable"):
        bradbury.local(config=config).close()


def test_another_address_counts_from_the_next_start(tmp_path: Path) -> None:
    for host in ("first.example.com", "second.example.com"):
        config = {"advertised.listeners": f"PLAINTEXT://{host}:9092"}
        with bradbury.local(config=config, data_dir=str(tmp_path)) as cluster:
            (node,) = cluster.nodes
            assert node.image.nodes[node.node_id].listeners[0].host == host
