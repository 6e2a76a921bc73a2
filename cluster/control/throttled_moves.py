"""Replicas of moves that are throttled, as Kafka's settings list them.

    rates      of all nodes: bytes/s that each sends, and receives, for listed replicas out of sync
    replicas   of a topic: those that send (the former ones), and those that receive (the new ones)

Set before replicas move, removed when no replica moves any more.
Source: kafka-reassign-partitions.sh --throttle (ReassignPartitionsCommand).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from .rebalance import PartitionMove

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SENDERS: Final = "leader.replication.throttled.replicas"
RECEIVERS: Final = "follower.replication.throttled.replicas"


class ThrottledReplicas(NamedTuple):
    """Throttled replicas of one topic, each as `partition:node`."""

    senders: list[str]
    receivers: list[str]

    def as_settings(self) -> dict[str, str]:
        """Values to append to the topic's replica list settings."""
        return {SENDERS: ",".join(self.senders), RECEIVERS: ",".join(self.receivers)}


def throttled_replicas(moves: Iterable[PartitionMove]) -> dict[str, ThrottledReplicas]:
    """Throttled replicas of the moves, by topic."""
    listed: dict[str, ThrottledReplicas] = {}
    for move in moves:
        of_topic = listed.setdefault(move.topic, ThrottledReplicas([], []))
        of_topic.senders.extend(f"{move.partition}:{node_id}" for node_id in move.before)
        added = [node_id for node_id in move.after if node_id not in move.before]
        of_topic.receivers.extend(f"{move.partition}:{node_id}" for node_id in added)
    return listed
