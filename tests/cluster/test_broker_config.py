"""Are a broker's settings checked when they are given, and none ignored?"""

import pytest

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.protocol.errors import InvalidConfig


def test_names_are_kafkas_and_values_may_be_text() -> None:
    config = BrokerConfig.from_kafka({"num.partitions": "4", "auto.create.topics.enable": "False"})
    assert config.num_partitions == 4
    assert config.auto_create_topics_enable is False
    assert BrokerConfig.from_kafka(config.to_kafka()) == config


@pytest.mark.parametrize(
    "values",
    [
        {"no.such.setting": "1"},
        {"num.partitions": "many"},
        {"num.partitions": "0"},
        {"auto.create.topics.enable": "perhaps"},
        {"replica.lag.time.max.ms": "400"},
        {"queued.max.request.bytes": "-1"},
        {"bradbury.metrics.port": "-2"},
        {"max.connections.per.ip.overrides": "10.0.0.1"},
        {"max.connections.per.ip.overrides": "10.0.0.1:many"},
        {"super.users": "User:admin"},
        {"allow.everyone.if.no.acl.found": "true"},
    ],
)
def test_what_cannot_be_honoured_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        BrokerConfig.from_kafka(values)


def test_limits_of_single_addresses_are_read() -> None:
    config = BrokerConfig.from_kafka(
        {"max.connections.per.ip.overrides": "10.0.0.1:5, ::1:0", "max.connections.per.ip": "0"}
    )
    assert config.connection_limits_by_address() == {"10.0.0.1": 5, "::1": 0}
    assert BrokerConfig.from_kafka(config.to_kafka()) == config
