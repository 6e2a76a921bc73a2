"""Where is each actor placed, pinned by what, at which address?"""

import pytest

from bradbury.actors.ray.placement import (
    ActorPlan,
    Placement,
    PlacementError,
    RayNode,
    plan,
    plan_joined,
    shared_address,
    with_kept,
)
from bradbury.handlers.ports.server_config import ServerConfig


def node(address: str, label: str | None = None, **resources: float) -> RayNode:
    labels = {"log-node": label} if label else {}
    return RayNode(address, labels, {f"node:{address}": 1.0, **resources})


def placed(*nodes: RayNode, **options) -> Placement:
    settings = {"data_dirs": ("/data",), "port": 9092, "shared_address": shared_address(nodes)}
    return Placement(**(settings | options))


def planned(*nodes: RayNode, server: ServerConfig | None = None, **options) -> list[ActorPlan]:
    return plan(list(nodes), placed(*nodes, **options), server or ServerConfig())


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


# --- nodes that come later -----------------------------------------------------------------------


def joined(*nodes: RayNode, placement: Placement, **known: tuple[str, int]):
    return plan_joined(
        list(nodes), placement, ServerConfig(), started=set(known), brokers=dict(known)
    )


def names(plans: list[ActorPlan]) -> list[str]:
    return [broker.config.name for broker in plans]


def test_a_node_that_joins_gets_what_it_would_have_got_at_first() -> None:
    first, second = node("10.0.0.1", "a"), node("10.0.0.2", "b")
    placement = placed(first, second)
    (broker,) = joined(first, second, placement=placement, a=("10.0.0.1", 9092)).plans
    assert broker == plan([first, second], placement, ServerConfig())[1]
    assert joined(
        first, second, placement=placement, a=("10.0.0.1", 9092), b=("10.0.0.2", 9092)
    ) == ([], {})


def test_a_node_that_joins_takes_no_port_of_another_alive_or_dead() -> None:
    placement = placed(node("10.0.0.1", "b"), node("10.0.0.1", "c"))
    plans = joined(
        node("10.0.0.1", "a"),
        node("10.0.0.1", "c"),
        placement=placement,
        b=("127.0.0.1", 9092),
        c=("127.0.0.1", 9108),
    ).plans
    assert [(broker.config.name, broker.config.port) for broker in plans] == [("a", 9124)]


def test_a_broker_that_ray_has_given_up_is_started_at_its_port() -> None:
    first, second = node("10.0.0.1", "a"), node("10.0.0.1", "b")
    plans = plan_joined(
        [first, second],
        placed(first, second),
        ServerConfig(),
        started={"a"},
        brokers={"a": ("127.0.0.1", 9092), "b": ("127.0.0.1", 9140)},
    ).plans
    assert [(broker.config.name, broker.config.port) for broker in plans] == [("b", 9140)]


def test_a_node_that_the_cluster_is_not_meant_for_is_left_alone() -> None:
    placement = placed(node("10.0.0.1", "a"), node_label={"log-node": "a"})
    assert joined(node("10.0.0.2", "b"), placement=placement) == ([], {})


def test_what_is_wrong_with_one_node_that_joins_harms_no_other() -> None:
    first = node("10.0.0.1", "a")
    placement = placed(first, node("10.0.0.2", "b"))
    twice = node("10.0.0.3", "c"), node("10.0.0.4", "c")
    found = joined(first, *twice, node("10.0.0.5", "d"), placement=placement, a=("10.0.0.1", 9092))
    assert names(found.plans) == ["d"]
    assert list(found.left_out) == ["c"]
    assert "several Ray nodes have the name c" in found.left_out["c"]


def test_a_cluster_on_loopback_gets_no_node_of_another_machine() -> None:
    """It would hear itself when it asks for the others, and nobody would hear it."""
    first, same, other = node("10.0.0.1", "a"), node("10.0.0.1", "b"), node("10.0.0.2", "c")
    found = joined(first, same, other, placement=placed(first), a=("127.0.0.1", 9092))
    assert names(found.plans) == ["b"]
    assert "loopback address of 10.0.0.1" in found.left_out["c"]
    with pytest.raises(PlacementError, match="Ray node c gets no broker.*loopback"):
        plan([first, other], placed(first), ServerConfig())
    everywhere = placed(first, host="0.0.0.0")
    assert names(joined(first, other, placement=everywhere, a=("10.0.0.1", 9092)).plans) == ["c"]


# --- how many partition actors -------------------------------------------------------------------


def partitions_of(broker: ActorPlan) -> list[str]:
    return [each.config.directory for each in broker.siblings if each.kind == "PartitionActor"]


@pytest.mark.parametrize(
    ("cores", "count"), [(0, 1), (1, 1), (4, 1), (7, 1), (8, 2), (16, 4), (128, 14)]
)
def test_a_node_has_a_partition_actor_for_every_four_cores(cores: int, count: int) -> None:
    (broker,) = planned(node("10.0.0.1", CPU=cores))
    assert len(partitions_of(broker)) == count
    (broker,) = planned(
        node("10.0.0.1", CPU=cores),
        server=ServerConfig.from_kafka({"bradbury.partition.actors": 2}),
    )
    assert len(partitions_of(broker)) == 2


def test_fewer_partition_actors_than_before_leave_no_partition_behind() -> None:
    (before,) = planned(node("10.0.0.1", CPU=16))
    (after,) = planned(node("10.0.0.1", CPU=4))
    on_disk = ["partitions-0", "partitions-2", "partitions-x", "groups"]
    kept = with_kept(after.siblings, on_disk)
    assert kept == [*after.siblings, before.siblings[3]]
    (anywhere,) = planned(node("10.0.0.1", CPU=4), port=0)
    assert [each.config.port for each in with_kept(anywhere.siblings, on_disk)] == [0, 0, 0]
    assert with_kept(before.siblings, on_disk) == list(before.siblings)


# --- addresses that clients are told ------------------------------------------------------------


def advertising(text: str) -> ServerConfig:
    return ServerConfig.from_kafka({"advertised.listeners": text})


def test_no_two_nodes_are_advertised_at_one_address() -> None:
    """Clients would ask one node for what the other one has."""
    proxy = advertising("PLAINTEXT://proxy:9092")
    two = node("10.0.0.1"), node("10.0.0.2")
    with pytest.raises(PlacementError, match=r"10\.0\.0\.2 gets no broker.*proxy:9092 of another"):
        planned(*two, server=proxy)
    joined = plan_joined(
        list(two),
        placed(*two),
        proxy,
        started={"10.0.0.1"},
        brokers={"10.0.0.1": ("10.0.0.1", 9092)},
    )
    assert not joined.plans
    assert list(joined.left_out) == ["10.0.0.2"]


def test_nodes_at_one_address_are_advertised_as_far_apart_as_they_listen() -> None:
    proxy = advertising("PLAINTEXT://proxy:9092")
    two = planned(node("10.0.0.1", "a"), node("10.0.0.1", "b"), server=proxy)
    assert [broker.config.port_offset for broker in two] == [0, 16]
    with pytest.raises(PlacementError, match="of another node"):
        planned(node("10.0.0.1", "a"), node("10.0.0.1", "b"), server=proxy, port=0)


@pytest.mark.parametrize("host", ["", "${env:HOST}"])
def test_nodes_may_look_up_where_they_are_advertised(host: str) -> None:
    server = advertising(f"PLAINTEXT://{host}:9092")
    assert len(planned(node("10.0.0.1"), node("10.0.0.2"), server=server)) == 2


# --- the controller ------------------------------------------------------------------------------


def test_the_controller_is_on_a_node_that_the_cluster_is_meant_for() -> None:
    assert placed().controller_pins == {}
    assert placed(node_label={"log-role": "broker"}, node_resource="disk").controller_pins == {
        "label_selector": {"log-role": "broker"},
        "resources": {"disk": 0.001},
    }
