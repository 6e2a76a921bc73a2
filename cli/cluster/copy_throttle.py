"""A limit on the copies of `bradbury rebalance` and `drain`, by Kafka's settings for it.

Set before replicas move, and removed when none moves any more: the rates of all brokers, and for
each topic the lists of replicas that move. If the command is interrupted the limit stays, as the
copies go on; the same command again waits for them and removes it.
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
"""ConfigEntry.source."""


class CopyThrottle:
    """`bytes_per_second`: of each node, sent and received."""

    def __init__(self, admin: Admin, bytes_per_second: int) -> None:
        self._admin = admin
        self._bytes_per_second = bytes_per_second

    def cover(self, moves: Iterable[PartitionMove]) -> None:
        """Before these moves begin. Raises KafkaError."""
        self._admin.alter_configs(
            broker="all", changes=dict.fromkeys(RATES, self._bytes_per_second)
        )
        for topic, replicas in throttled_replicas(moves).items():
            self._admin.alter_configs(topic, append=replicas.as_settings())

    def lift(self) -> None:
        """All lists of all topics: those of an interrupted command, too. Raises KafkaError."""
        for topic in self._admin.list_topics(include_internal=True):
            entries = self._admin.describe_configs(topic)
            listed = [name for name in (SENDERS, RECEIVERS) if entries[name].source == TOPICS_OWN]
            if listed:
                self._admin.alter_configs(topic, unset=listed)
        self._admin.alter_configs(broker="all", unset=RATES)
