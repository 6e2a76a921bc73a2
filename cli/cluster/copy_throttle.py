"""Replication throttle of `bradbury rebalance` and `drain`, set by Kafka's configs.

Set before replicas move, and removed when all have moved: the rates of all brokers, and for
each topic the lists of throttled replicas. If the command is interrupted the throttle stays, as
the copies continue; the same command run again waits for them and removes it.
Source: kafka-reassign-partitions.sh --throttle (ReassignPartitionsCommand).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...cluster.control.throttled_moves import RATES, RECEIVERS, SENDERS, throttled_replicas

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...cluster.control.rebalance import PartitionMove

TOPICS_OWN = 1
"""Value of ConfigEntry.source for a config set on the topic."""


class CopyThrottle:
    """Throttle of replica moves. bytes_per_second: limit of each node, sent and received."""

    def __init__(self, admin: Admin, bytes_per_second: int) -> None:
        self._admin = admin
        self._bytes_per_second = bytes_per_second

    def cover(self, moves: Iterable[PartitionMove]) -> None:
        """Throttle these moves, before they begin. Raises KafkaError."""
        self._admin.alter_configs(
            broker="all", changes=dict.fromkeys(RATES, self._bytes_per_second)
        )
        for topic, replicas in throttled_replicas(moves).items():
            self._admin.alter_configs(topic, append=replicas.as_settings())

    def lift(self) -> None:
        """Remove the throttle of all topics, also of an interrupted command. Raises KafkaError."""
        for topic in self._admin.list_topics(include_internal=True):
            entries = self._admin.describe_configs(topic)
            listed = [name for name in (SENDERS, RECEIVERS) if entries[name].source == TOPICS_OWN]
            if listed:
                self._admin.alter_configs(topic, unset=listed)
        self._admin.alter_configs(broker="all", unset=RATES)
