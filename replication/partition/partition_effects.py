"""Effects of the replica manager about the replicas of a node, for its driver."""

from __future__ import annotations

from typing import NamedTuple

from ...cluster.metadata.metadata_image import PartitionImage
from ...protocol.topic_partition import TopicPartitionPair
from .replica import Replica


class ReplicaOpened(NamedTuple):
    """A replica is held by this node from now on."""

    replica: Replica


class ReplicaClosed(NamedTuple):
    """A replica is not held here any more, or its directory is offline."""

    replica: Replica


class LeaderElected(NamedTuple):
    """A replica leads from now on, in a new leader epoch."""

    replica: Replica
    state: PartitionImage


class Resigned(NamedTuple):
    """A replica does not lead any more."""

    replica: Replica


class ResumeMove(NamedTuple):
    """Resume a move that a stop interrupted, if there is one."""

    key: TopicPartitionPair
    replica: Replica
