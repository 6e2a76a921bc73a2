"""Whose fetches does a throttle hold back, and for how long?"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.replication.partition.replication_throttle import ReplicationThrottle
from bradbury.storage.log_config import LogConfig

RATE = 1_000
"""Bytes per second."""


class Node:
    """Node 1 with t-0, whose leader has node 2 in sync and node 3 not."""

    def __init__(self, **topic: str) -> None:
        self.now_ms = 0
        self.isr = (2,)
        settings = replace(
            BrokerConfig(),
            leader_replication_throttled_rate=RATE,
            follower_replication_throttled_rate=RATE,
        )
        config = LogConfig.from_kafka(
            {name.replace("_", "."): value for name, value in topic.items()}
        )
        self.replica: Any = SimpleNamespace(
            topic="t",
            partition=0,
            log=SimpleNamespace(config=config),
            leader=SimpleNamespace(isr=frozenset({1, 2})),
        )
        image: Any = SimpleNamespace(partition=lambda topic, partition: self)
        self.throttle = ReplicationThrottle(
            {("t", 0): self.replica},  # type: ignore[dict-item]
            settings,
            node_id=lambda: 1,
            image=lambda: image,
            settings=lambda: settings,
            monotonic_ms=lambda: self.now_ms,
        )


@pytest.mark.parametrize(
    ("listed", "is_listed"),
    [("0:1", True), ("*", True), ("0:2", False), ("1:1", False), ("", False)],
)
def test_a_leader_holds_back_a_listed_replica_that_is_not_in_sync(
    listed: str, *, is_listed: bool
) -> None:
    node = Node(leader_replication_throttled_replicas=listed)
    assert not node.throttle.should_throttle("t", 0, 3)
    node.throttle.on_sent("t", 0, 100 * RATE)
    assert node.throttle.should_throttle("t", 0, 3) is is_listed
    assert not node.throttle.should_throttle("t", 0, 2), "it is in sync"
    assert not node.throttle.should_throttle("gone", 0, 3)
    node.now_ms = 200_000
    assert not node.throttle.should_throttle("t", 0, 3)


def test_a_follower_waits_with_a_listed_replica_until_it_is_in_sync() -> None:
    node = Node(follower_replication_throttled_replicas="0:1")
    assert node.throttle.wait_to_receive_ms(node.replica) == 0
    node.throttle.on_received(node.replica, 100 * RATE)
    assert node.throttle.wait_to_receive_ms(node.replica) > 0
    node.isr = (1, 2)
    assert node.throttle.wait_to_receive_ms(node.replica) == 0
