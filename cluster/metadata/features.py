"""Kafka features that all nodes of a cluster agree on, with the levels supported here.

All nodes of a cluster have the same levels, which are set at its first start and cannot be changed.
Features that are not supported at all (group.version, share.version) are not listed, so that
clients do not use them. At level 2 of transaction.version clients of lower levels are served as
well: the version of a request shows which level its client uses (KIP-890).
Source: apache/kafka server-common/.../common/{MetadataVersion,KRaftVersion,Feature}.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TRANSACTION_VERSION = 2
"""Level of transaction.version: each end of a transaction raises the producer's epoch; leaders add
partitions themselves.
"""

FEATURES: Mapping[str, int] = MappingProxyType(
    {
        "metadata.version": 27,  # 4.1-IV1, whose APIs and records' meaning are those of 4.1
        "kraft.version": 1,  # voters are records and can be changed (KIP-853)
        "transaction.version": TRANSACTION_VERSION,
        "eligible.leader.replicas.version": 1,  # KIP-966
    }
)

LOWEST_SUPPORTED: Mapping[str, int] = MappingProxyType({"transaction.version": 0})
"""Lowest supported level, where it differs from the level itself: clients of these levels are
served, too.
"""
