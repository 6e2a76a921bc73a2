"""Throttled replicas of a topic by its settings: `*` or a list of partition:node.

A replica in sync is not throttled, listed or not: a throttle slows down replicas that catch up, not
producers that wait for acks=all.
Source: ThrottledReplicaListValidator in apache/kafka; KIP-73.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ...protocol.config_key import split_list

ALL: Final = "*"
_REPLICA: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")


def is_replica_list(text: str) -> bool:
    """Whether `text` is a value of leader.replication.throttled.replicas and its like."""
    return text.strip() in ("", ALL) or all(map(_REPLICA.fullmatch, split_list(text)))


@lru_cache(maxsize=1024)
def _listed(text: str) -> frozenset[tuple[int, int]]:
    pairs = (word.split(":") for word in split_list(text))
    return frozenset((int(partition), int(node_id)) for partition, node_id in pairs)


def names_replica(text: str, partition: int, node_id: int) -> bool:
    """Whether a list for which `is_replica_list` is true names this replica."""
    if not text:
        return False
    return text == ALL or (partition, node_id) in _listed(text)
