"""Which lists of throttled replicas are valid, and which replicas do they name?"""

import pytest

from bradbury.protocol.errors import InvalidConfig
from bradbury.storage.disk.throttled_replicas import names_replica
from bradbury.storage.log_config import LogConfig

NAMES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,1:2", " 0:1 , 10:20 "])
def test_lists_of_partition_and_node_are_valid(name: str, text: str) -> None:
    assert LogConfig.from_kafka({name: text}).to_kafka()[name] == text.replace(" ", "")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["all", "0", "0:", ":1", "0:1:2", "-1:0", "*,0:1", "0:1;1:2"])
def test_anything_else_is_refused_with_an_example(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match="a list like 0:1,1:2"):
        LogConfig.from_kafka({name: text})


def test_a_list_names_its_replicas_and_a_star_all() -> None:
    assert not names_replica("", 0, 1)
    assert names_replica("*", 7, 3)
    assert names_replica("0:1,1:2", 1, 2)
    assert not names_replica("0:1,1:2", 1, 1)
    assert not names_replica("0:1,1:2", 0, 2)
