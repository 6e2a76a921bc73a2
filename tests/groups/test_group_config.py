"""Which settings of group coordinators are refused?"""

import pytest

from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.protocol.errors import InvalidConfig


def test_the_shortest_session_timeout_may_be_the_longest_but_not_above_it() -> None:
    names = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")
    config = GroupCoordinatorConfig.from_kafka(dict.fromkeys(names, "7000"))
    assert config.group_min_session_timeout_ms == config.group_max_session_timeout_ms == 7_000
    with pytest.raises(InvalidConfig, match=f"{names[0]} is greater than {names[1]}"):
        GroupCoordinatorConfig.from_kafka({names[0]: "7001", names[1]: "7000"})
