"""advertised.listeners: what may be said, and which address it gives to each node."""

from __future__ import annotations

import pytest

from bradbury.cluster.metadata.listener_address import ListenerAddress
from bradbury.cluster.security.advertised_listeners import (
    AdvertisedListener,
    advertised_addresses,
    parse_advertised,
)
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.errors import InvalidConfig

NAMES = ("CLIENT", "INTERNAL")
TWO = {
    "listeners": "CLIENT://:0,INTERNAL://:9200",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CLIENT://kafka.example.com:9092", ("CLIENT", "kafka.example.com", 9092)),
        ("client://kafka:9092", ("CLIENT", "kafka", 9092)),
        ("CLIENT://:9092", ("CLIENT", "", 9092)),
        ("CLIENT://10.0.0.1:0", ("CLIENT", "10.0.0.1", 0)),
        ("CLIENT://[2001:db8::1]:9092", ("CLIENT", "2001:db8::1", 9092)),
        ("CLIENT://2001:db8::1:9092", ("CLIENT", "2001:db8::1", 9092)),
        ("CLIENT://${env:HOST}:9092", ("CLIENT", "${env:HOST}", 9092)),
        (
            "CLIENT://n-${file:/etc/a,b:c}.net:${env:PORT}",
            ("CLIENT", "n-${file:/etc/a,b:c}.net", None),
        ),
    ],
)
def test_a_listener_is_a_name_a_host_and_a_port(text: str, said: tuple[str, str, int]) -> None:
    other = AdvertisedListener("INTERNAL", "", 0)
    assert parse_advertised(f"{text}, INTERNAL://:0", NAMES) == (AdvertisedListener(*said), other)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CLIENT://0.0.0.0:9092", "nonroutable meta-address 0.0.0.0"),
        ("CLIENT://[::]:9092", "nonroutable meta-address ::"),
        ("OTHER://kafka:9092", "equal to or a subset of .* no OTHER, only CLIENT, INTERNAL"),
        ("CLIENT://a:1,CLIENT://b:2", "two of the name CLIENT"),
        ("CLIENT://kafka", "is not NAME://host:port"),
        ("CLIENT://kafka:65536", "is not NAME://host:port"),
        ("CLIENT://kafka:-1", "is not NAME://host:port"),
        ("kafka:9092", "is not NAME://host:port"),
        ("CLIENT://${vault:host}:9092", "is not NAME://host:port"),
    ],
)
def test_what_means_nothing_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        parse_advertised(text, NAMES)


def test_two_listeners_may_have_one_port() -> None:
    """As in Kafka: behind a proxy they may have several hosts."""
    assert len(parse_advertised("CLIENT://a:9092,INTERNAL://b:9092", NAMES)) == 2


def test_each_node_adds_to_a_port_what_it_adds_to_those_of_listeners() -> None:
    bound = {"CLIENT": 30_001, "INTERNAL": 30_002}
    said = parse_advertised("CLIENT://proxy:9092,INTERNAL://:0", NAMES)
    of_node = [
        advertised_addresses(said, bound, host="10.0.0.1", port_offset=offset) for offset in (0, 3)
    ]
    assert of_node == [
        (ListenerAddress("CLIENT", "proxy", port), ListenerAddress("INTERNAL", "10.0.0.1", 30_002))
        for port in (9092, 9095)
    ]
    assert advertised_addresses((), bound, host="10.0.0.1", port_offset=3) == (
        ListenerAddress("CLIENT", "10.0.0.1", 30_001),
        ListenerAddress("INTERNAL", "10.0.0.1", 30_002),
    )
    with pytest.raises(InvalidConfig, match="would be at 65536, beyond 65535"):
        advertised_addresses(
            parse_advertised("CLIENT://proxy:65535", NAMES), bound, host="a", port_offset=1
        )


def test_the_listener_between_nodes_has_to_be_advertised() -> None:
    ServerConfig.from_kafka(TWO | {"advertised.listeners": "INTERNAL://:0"})
    with pytest.raises(InvalidConfig, match="must be a listener name defined in advertised"):
        ServerConfig.from_kafka(TWO | {"advertised.listeners": "CLIENT://proxy:9092"})
