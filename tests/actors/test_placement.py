"""Where is each actor placed, pinned by what, at which address?"""

import pytest

from bradbury.actors.ray.placement import PlacementError, RayNode, plan
from bradbury.handlers.ports.server_config import ServerConfig


def node(address: str, label: str | None = None, **resources: float) -> RayNode:
    labels = {"log-node": label} if label else {}
    return RayNode(address, labels, {f"node:{address}": 1.0, **resources})


def planned(*nodes: RayNode, **options):
    settings = {"data_dir": "/data", "host": None, "port": 9092, "server": ServerConfig()}
    return plan(list(nodes), **(settings | options))


def test_one_machine_listens_on_loopback_and_uses_the_directory_itself() -> None:
    (broker,) = planned(node("10.0.0.1"))
    assert broker.config.host == broker.config.advertised_host == "127.0.0.1"
    assert broker.config.data_dir == "/data"
    assert [broker.config.port, *(actor.config.port for actor in broker.siblings)] == [
        9092,
        9093,
        9094,
    ]


def test_machines_listen_on_their_own_addresses() -> None:
    brokers = planned(node("10.0.0.1"), node("10.0.0.2"))
    assert [broker.config.host for broker in brokers] == ["10.0.0.1", "10.0.0.2"]
    assert [broker.config.port for broker in brokers] == [9092, 9092]


def test_a_wildcard_is_bound_but_never_advertised() -> None:
    brokers = planned(node("10.0.0.1"), node("10.0.0.2"), host="0.0.0.0")
    assert [broker.config.host for broker in brokers] == ["0.0.0.0", "0.0.0.0"]
    assert [broker.config.advertised_host for broker in brokers] == ["10.0.0.1", "10.0.0.2"]


def test_a_node_that_comes_back_at_another_address_listens_there() -> None:
    """A pod created again. What the user has asked for stays."""
    for host, bound, advertised in (
        (None, "10.0.0.9", "10.0.0.9"),
        ("0.0.0.0", "0.0.0.0", "10.0.0.9"),
        ("192.168.0.1", "192.168.0.1", "192.168.0.1"),
    ):
        brokers = planned(node("10.0.0.1", "a"), node("10.0.0.2", "b"), host=host)
        moved = brokers[0].config.moved_to("10.0.0.9")
        assert (moved.host, moved.advertised_host) == (bound, advertised)
        assert brokers[0].config.moved_to("10.0.0.1") == brokers[0].config
    (alone,) = planned(node("10.0.0.1"))
    assert alone.config.moved_to("10.0.0.9").host == "127.0.0.1"


def test_a_label_pins_and_names_the_directory() -> None:
    brokers = planned(node("10.0.0.1", "b"), node("10.0.0.1", "a"))
    assert [broker.name for broker in brokers] == ["broker/a", "broker/b"]
    assert [broker.config.data_dir for broker in brokers] == ["/data/a", "/data/b"]
    assert [broker.config.port for broker in brokers] == [9092, 9108]
    assert all(broker.label_selector and not broker.resources for broker in brokers)
    assert brokers[0].siblings[0].label_selector == {"log-node": "a"}


def test_without_a_label_the_address_pins() -> None:
    (broker,) = planned(node("10.0.0.1"))
    assert broker.resources == {"node:10.0.0.1": 0.001}
    assert broker.label_selector == {}


def test_port_zero_is_any_free_port_foreveryone() -> None:
    (broker,) = planned(node("10.0.0.1"), port=0)
    assert {actor.config.port for actor in (broker, *broker.siblings)} == {0}


def test_as_many_partition_actors_as_asked_for_each_with_its_directory() -> None:
    (broker,) = planned(
        node("10.0.0.1"), server=ServerConfig.from_kafka({"bradbury.partition.actors": 3})
    )
    partitions = [actor for actor in broker.siblings if actor.kind == "PartitionActor"]
    assert [actor.config.directory for actor in partitions] == [
        "partitions-0",
        "partitions-1",
        "partitions-2",
    ]
    assert len({actor.name for actor in (broker, *broker.siblings)}) == 5


def test_only_nodes_that_have_what_is_asked_for() -> None:
    nodes = [node("10.0.0.1", "a"), node("10.0.0.2", "b", log_broker=1)]
    (broker,) = planned(*nodes, node_resource="log_broker")
    assert broker.name == "broker/b"
    (broker,) = planned(*nodes, node_label={"log-node": "a"})
    assert broker.name == "broker/a"
    with pytest.raises(PlacementError, match="none of the 2 Ray nodes"):
        planned(*nodes, node_resource="gpu")


@pytest.mark.parametrize(
    "nodes",
    [
        (node("10.0.0.1"), node("10.0.0.1")),
        (node("10.0.0.1", "a"), node("10.0.0.2", "a")),
    ],
)
def test_nodes_that_cannot_be_distinguished_are_refused(nodes: tuple[RayNode, ...]) -> None:
    with pytest.raises(PlacementError, match="give each its own name: ray start --labels"):
        planned(*nodes)
