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
        {"default.replication.factor": "3"},
    ],
)
def test_what_cannot_be_honoured_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        BrokerConfig.from_kafka(values)
