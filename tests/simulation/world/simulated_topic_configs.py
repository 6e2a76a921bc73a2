"""The settings of a simulated cluster's topics."""

from __future__ import annotations

from collections.abc import Iterable

from bradbury.cluster.metadata.metadata_records import ConfigRecord
from bradbury.protocol.topic_name import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

from .simulated_swarm import Swarm

TOPIC = "t"
TRANSACTIONAL_TOPIC = "x"
OLD_TOPIC = "o"
"""Written to by producers of before Kafka 0.11."""
COORDINATED = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    # Longer than any node is away, as Kafka asks for: or it would never hear of a deletion.
    "delete.retention.ms": "60000",
}


def topic_configs(swarm: Swarm, topics: Iterable[str]) -> list[ConfigRecord]:
    records = []
    for name in topics:
        configs = {
            "min.insync.replicas": str(swarm.min_insync),
            "unclean.leader.election.enable": "false",
        }
        if name != TOPIC:
            configs["retention.ms"] = "-1"
        if name in COORDINATED:
            configs["flush.messages"] = "1"
        if name == OLD_TOPIC:
            configs["compression.type"] = swarm.old_codec
        if name in COORDINATED and swarm.compacts:
            configs |= COMPACTED
        records += [
            ConfigRecord(resource="topic", name=name, key=key, value=value)
            for key, value in configs.items()
        ]
    return records
