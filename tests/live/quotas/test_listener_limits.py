"""Do limits of connections hold for a listener, and do nodes come through where clients are many?"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import bradbury
from bradbury.launch.local import LocalCluster
from bradbury.protocol.errors import InvalidRequest
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.tests.support.wire.raw_client import RawClient

LISTENERS = {
    "listeners": "CLIENT://:0,INTERNAL://:0",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
OF_CLIENT = "listener.name.client.max.connections"


class Listeners:
    """The listeners of one node, and clients of each."""

    def __init__(self, cluster: LocalCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.node = cluster.nodes[0]
        self._stack = stack

    def begin(self, listener: str, count: int) -> list[RawClient]:
        """Connections that the node may not have accepted yet."""
        port = self.node.socket_server.ports()[listener]
        return [self._stack.enter_context(RawClient(f"127.0.0.1:{port}")) for _ in range(count)]

    def connect(self, listener: str, count: int = 1) -> list[RawClient]:
        """Connections that the node has taken up, or refused, when this returns."""
        seen = self._seen()
        found = self.begin(listener, count)
        wait_until(lambda: self._seen() == seen + count)
        return found

    def _seen(self) -> int:
        metrics = self.node.metrics
        return metrics.connections_accepted + sum(metrics.connections_refused.values())

    def is_served(self, listener: str) -> bool:
        (client,) = self.connect(listener)
        return is_answered(client)

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.node.metrics.connections_refused)

    def open_ones(self, listener: str) -> int:
        connections = list(self.node.socket_server._connections)
        return sum(each.session.listener == listener for each in connections)


@contextmanager
def node_with(**config: object) -> Iterator[Listeners]:
    given = {name.replace("_", "."): value for name, value in config.items()}
    with bradbury.local(config=LISTENERS | given) as cluster, ExitStack() as stack:
        wait_until(lambda: cluster.nodes[0].socket_server.connection_count == 0)
        yield Listeners(cluster, stack)


def wait_until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def is_answered(client: RawClient) -> bool:
    try:
        return client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
    except Exception:
        return False


def test_the_limit_of_a_listener_leaves_the_other_alone() -> None:
    with node_with(listener_name_client_max_connections=3) as node:
        held = node.connect("CLIENT", 3)
        assert node.connect("CLIENT")[0].is_closed_by_peer()
        assert node.refused == {OF_CLIENT: 1}
        between = node.connect("INTERNAL", 5)
        assert all(is_answered(each) for each in [*held, *between])
        held[0].socket.close()
        wait_until(lambda: node.open_ones("CLIENT") == 2)
        assert node.is_served("CLIENT")


def test_nodes_come_through_when_clients_hold_every_connection() -> None:
    with node_with(max_connections=5) as node:
        strangers = node.connect("CLIENT", 5)
        assert is_answered(strangers[0]), "used, and so not the first to go"
        assert node.connect("CLIENT")[0].is_closed_by_peer()
        assert node.refused == {"max.connections": 1}
        between = node.connect("INTERNAL", 4)
        assert all(is_answered(each) for each in between)
        assert node.node.socket_server.connection_count == 5
        assert [each.is_closed_by_peer() for each in strangers[1:]] == [True] * 4
        assert is_answered(strangers[0])
        assert node.node.metrics.connections_closed["excess"] == 4
        # Without a limit of its own a listener has the node's as its own.
        between += node.connect("INTERNAL")
        assert strangers[0].is_closed_by_peer()
        assert node.connect("INTERNAL")[0].is_closed_by_peer()
        assert node.refused["listener.name.internal.max.connections"] == 1
        assert all(is_answered(each) for each in between)
        assert node.connect("CLIENT")[0].is_closed_by_peer()


def test_the_only_listener_is_under_the_limit_of_the_node() -> None:
    with bradbury.local(config={"max.connections": 2}) as cluster, ExitStack() as stack:
        server = cluster.nodes[0].socket_server
        wait_until(lambda: server.connection_count == 0)
        for _ in range(2):
            stack.enter_context(RawClient(cluster.bootstrap_servers))
        wait_until(lambda: server.connection_count == 2)
        assert stack.enter_context(RawClient(cluster.bootstrap_servers)).is_closed_by_peer()
        assert cluster.nodes[0].metrics.connections_closed["excess"] == 0


@pytest.mark.parametrize(
    "rates",
    [
        {"listener_name_client_max_connection_creation_rate": 1},
        {
            "max_connection_creation_rate": 1,
            "listener_name_internal_max_connection_creation_rate": 1_000_000,
        },
    ],
    ids=["of the listener", "of the node"],
)
def test_a_crowd_that_waits_for_its_rate_leaves_the_other_listener_alone(
    rates: dict[str, object],
) -> None:
    with node_with(**rates) as node:
        node.begin("CLIENT", 60)  # a minute's connections
        wait_until(lambda: node.open_ones("CLIENT") > 0)
        began = time.monotonic()
        assert all(is_answered(each) for each in node.begin("INTERNAL", 40))
        assert time.monotonic() - began < 20
        assert node.open_ones("INTERNAL") == 40
        assert node.open_ones("CLIENT") < 30
        assert node.refused == {}


def test_limits_of_a_listener_are_changed_and_shown_while_the_broker_runs() -> None:
    with node_with(listener_name_client_max_connections=100) as node:
        admin = node.cluster.admin()
        number = admin.describe_cluster().brokers[0].node_id
        shown = admin.describe_configs(broker=number)[OF_CLIENT]
        assert (shown.value, shown.source) == ("100", 4)
        admin.alter_configs(broker="all", changes={OF_CLIENT: 90})
        assert admin.describe_configs(broker="all")[OF_CLIENT].value == "90"
        admin.alter_configs(broker=number, changes={OF_CLIENT: 1})
        shown = admin.describe_configs(broker=number)[OF_CLIENT]
        assert [(each.name, each.value, each.source) for each in shown.synonyms] == [
            (OF_CLIENT, "1", 2),
            (OF_CLIENT, "90", 3),
            (OF_CLIENT, "100", 4),
            ("max.connections", "10000", 5),
        ]
        assert node.connect("CLIENT")[0].is_closed_by_peer(), "the admin has the one"
        assert node.is_served("INTERNAL")
        admin.alter_configs(broker=number, unset=[OF_CLIENT])
        assert node.is_served("CLIENT")
        rate = "listener.name.client.max.connection.creation.rate"
        admin.alter_configs(broker=number, changes={rate: 1000})
        assert admin.describe_configs(broker=number)[rate].value == "1000"
        with pytest.raises(InvalidRequest, match="there is no listener NOPE; there are CLIENT"):
            admin.alter_configs(broker=number, changes={"listener.name.nope.max.connections": 5})
        with pytest.raises(InvalidRequest, match=f"{OF_CLIENT} must be at least 1"):
            admin.alter_configs(broker=number, changes={OF_CLIENT: 0})
        admin.close()


def test_a_lowered_limit_closes_the_least_recently_used_but_not_between_nodes() -> None:
    with node_with() as node:
        between = node.connect("INTERNAL", 3)
        idle = node.connect("CLIENT", 6)
        admin = node.cluster.admin()
        admin.alter_configs(broker="all", changes={"max.connections": 4})
        wait_until(lambda: node.node.socket_server.connection_count <= 4)
        assert [each.is_closed_by_peer() for each in idle] == [True] * 6
        assert all(is_answered(each) for each in between)
        admin.close()
