"""Is docs/configs.md what the code says, and does a broker's configuration add up as it says?"""

import pickle

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.handlers.configs.config_description import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC_CONFIG,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from bradbury.handlers.configs.config_document import PATH, document
from bradbury.handlers.configs.config_rules import ServerConfigRules
from bradbury.handlers.ports.server_config import ServerConfig, server_keys
from bradbury.protocol.errors import InvalidConfig, InvalidRequest


def test_the_document_is_current() -> None:
    assert PATH.read_text() == document(), "run `make generate`"


def test_every_setting_is_in_it_with_a_sentence() -> None:
    text = document()
    for name, key in server_keys().items():
        assert f"`{name}`" in text
        assert key.documentation.endswith("."), name


def layered(static=(), default=(), broker=()) -> ServerConfig:
    return ServerConfig.from_kafka(
        dict(static), dynamic_default=dict(default), dynamic_broker=dict(broker)
    )


def test_a_topic_takes_each_value_from_the_nearest_layer() -> None:
    name = "log.segment.bytes"
    layers = [
        layered(),
        layered({name: "100"}),
        layered({name: "100"}, {name: "200"}),
        layered({name: "100"}, {name: "200"}, {name: "300"}),
    ]
    seen = []
    for server in layers:
        found = {each.key.name: each for each in describe_topic({}, server)}["segment.bytes"]
        seen.append((found.value, found.source))
    assert seen == [
        ("1073741824", DEFAULT_CONFIG),
        ("100", STATIC_BROKER_CONFIG),
        ("200", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("300", DYNAMIC_BROKER_CONFIG),
    ]
    own = describe_topic({"segment.bytes": "400"}, layers[-1])
    found = {each.key.name: each for each in own}["segment.bytes"]
    assert (found.value, found.source) == ("400", TOPIC_CONFIG)
    assert [(each.value, each.source) for each in found.synonyms] == [
        ("400", TOPIC_CONFIG),
        ("300", DYNAMIC_BROKER_CONFIG),
        ("200", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("100", STATIC_BROKER_CONFIG),
        ("1073741824", DEFAULT_CONFIG),
    ]


def test_a_default_set_at_run_time_covers_every_name_of_it_given_at_the_start() -> None:
    server = layered({"log.retention.minutes": "1"}, {"log.retention.ms": "5"})
    assert server.log_defaults.retention_ms == 5
    assert layered({"log.retention.minutes": "1"}).log_defaults.retention_ms == 60_000


def test_a_broker_shows_what_can_be_changed_and_where_each_value_is_from() -> None:
    server = layered({"num.partitions": 4, "log.retention.hours": "1"}, {"max.connections": "9"})
    shown = {each.key.name: each for each in describe_broker(server)}
    assert set(shown) == set(server_keys())
    partitions, connections = shown["num.partitions"], shown["max.connections"]
    assert (partitions.value, partitions.source, partitions.is_read_only) == ("4", 4, True)
    assert (connections.value, connections.source, connections.is_read_only) == ("9", 3, False)
    assert shown["log.retention.ms"].value is None
    assert shown["log.retention.hours"].source == STATIC_BROKER_CONFIG
    assert [each.key.name for each in describe_broker_default(server)] == ["max.connections"]


LISTENERS = {
    "listeners": "CLIENT://:0,INTERNAL://:0",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "PLAIN",
}
LIMIT = "listener.name.client.max.connections"


def test_a_listener_has_limits_of_its_own_or_the_nodes() -> None:
    rate = "max.connection.creation.rate"
    server = layered(LISTENERS | {LIMIT: "30"}, {"max.connections": "20", rate: "9"})
    client, between = server.connection_limits("CLIENT"), server.connection_limits("INTERNAL")
    assert (client.of_node, client.of_listener, between.of_listener) == (20, 30, 20)
    assert (client.rate_of_node, client.rate_of_listener, between.rate_of_listener) == (9, 9, 9)
    server = layered(LISTENERS | {LIMIT: "30"}, {LIMIT: "3", f"listener.name.client.{rate}": "4"})
    client, between = server.connection_limits("CLIENT"), server.connection_limits("INTERNAL")
    assert (client.of_node, client.of_listener, between.of_listener) == (10_000, 3, 10_000)
    assert (client.rate_of_listener, between.rate_of_listener) == (4, client.rate_of_node)


def test_a_broker_shows_the_settings_of_single_listeners_that_are_given() -> None:
    secret = "listener.name.client.plain.sasl.jaas.config"
    mine = "listener.name.client.plain.connections.max.reauth.ms"
    near = "listener.name.client.connections.max.reauth.ms"
    static = {LIMIT: "30", secret: "secret", mine: "3", near: "2"}
    server = layered(LISTENERS | static, {"max.connections": "20", LIMIT: "25"})
    shown = {each.key.name: each for each in describe_broker(server)}
    assert set(shown) == {*server_keys(), *static}
    limit = shown[LIMIT]
    assert (limit.value, limit.source, limit.is_read_only, limit.key.type) == ("25", 3, False, 3)
    assert limit.synonyms == [
        (LIMIT, "25", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("max.connections", "20", DYNAMIC_DEFAULT_BROKER_CONFIG),
        (LIMIT, "30", STATIC_BROKER_CONFIG),
        ("max.connections", "10000", DEFAULT_CONFIG),
    ]
    assert [each.name for each in shown["max.connections"].synonyms] == ["max.connections"] * 2
    assert (shown[secret].value, shown[secret].synonyms[0].value) == (None, None)
    assert [each.value for each in shown[mine].synonyms] == ["3", "2", "0"]
    assert shown[mine].is_read_only
    own = layered(LISTENERS | {LIMIT: "30"}, {"max.connections": "20"})
    (limit,) = [each for each in describe_broker(own) if each.key.name == LIMIT]
    assert limit.value == "30"
    assert limit.synonyms[0] == (LIMIT, "30", STATIC_BROKER_CONFIG), "that of a listener first"
    assert [each.key.name for each in describe_broker_default(server)] == [LIMIT, "max.connections"]


def test_a_limit_of_a_listener_that_is_gone_does_not_hold_up_the_other_settings() -> None:
    server = layered({}, {LIMIT: "3", "num.partitions": "4"})
    assert server.broker.num_partitions == 4
    rules = ServerConfigRules(ServerConfig())
    image = MetadataImage(broker_configs={"": {LIMIT: "3"}})
    rules.check_broker(image, "", {LIMIT: "3", "max.connections": "5"})
    rules.check_broker(image, "", {})
    with pytest.raises(InvalidRequest, match="there is no listener CLIENT; there are PLAINTEXT"):
        rules.check_broker(image, "1", {LIMIT: "3"})


def test_other_settings_of_a_listener_are_given_at_the_start() -> None:
    rules = ServerConfigRules(ServerConfig.from_kafka(LISTENERS))
    rules.check_broker(MetadataImage(), "1", {LIMIT: "3"})
    with pytest.raises(InvalidRequest, match=r"client\.connections.* cannot be changed while"):
        rules.check_broker(
            MetadataImage(), "1", {"listener.name.client.connections.max.reauth.ms": "3"}
        )
    with pytest.raises(InvalidConfig, match=r"per\.ip: there is no such setting of a single"):
        rules.check_broker(MetadataImage(), "1", {f"{LIMIT}.per.ip": "3"})


@pytest.mark.parametrize(
    ("static", "message"),
    [
        ({LIMIT: "3"}, "there is no listener CLIENT; there are PLAINTEXT"),
        ({"listener.name.plaintext.max.connections": "0"}, "plaintext.max.* must be at least 1"),
        ({"listener.name.PLAINTEXT.max.connections": "3"}, "written in lower case"),
        ({"listener.name.plaintext.max.connections.per.ip": "3"}, "no such setting of a single"),
        ({"no.such": "1"}, "unknown broker config 'no.such'"),
        ({"zookeeper.connect": "x"}, "there is no ZooKeeper"),
        ({"log.retention.ms": "x"}, "log.retention.ms must be an integer"),
        ({"log.retention.ms": "1", "log.retention.hours": "x"}, "log.retention.hours must be"),
        ({"group.max.size": "0"}, "group.max.size must be at least 1"),
    ],
)
def test_what_a_cluster_cannot_be_started_with(static: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        ServerConfig.from_kafka(static)


@given(
    st.dictionaries(
        st.sampled_from(sorted(name for name, key in server_keys().items() if key.type == 5)),
        st.integers(100, 10_000).map(str),
        max_size=6,
    ),
    st.dictionaries(
        st.sampled_from(
            [
                "log.retention.ms",
                "log.segment.bytes",
                "max.connections",
                "listener.name.plaintext.max.connections",
            ]
        ),
        st.integers(100, 10_000).map(str),
    ),
)
def test_a_configuration_survives_the_way_to_another_process(static, dynamic) -> None:
    try:
        server = ServerConfig.from_kafka(static, dynamic_default=dynamic)
    except InvalidConfig:
        return
    assert pickle.loads(pickle.dumps(server)) == server
    assert server.with_dynamic({}, {}) == ServerConfig.from_kafka(static)
