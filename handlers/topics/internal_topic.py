"""Creation of the coordinators' topics, on the first look-up of a coordinator, as in Kafka.

By then the nodes of a new cluster have registered, so a topic's replicas can be on several of them:
as many as its setting says, or one on each machine if there are fewer machines.
Source: AutoTopicCreationManager in apache/kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from ...cluster.control.topic_control import CreateTopics, TopicToCreate
from ...cluster.partition.replica_placement import machine_of
from ...protocol.error_code import ErrorCode
from ...protocol.errors import CoordinatorNotAvailable, KafkaError
from ..ports.context import RequestContext

logger = logging.getLogger(__name__)

# Records are fsynced before they are acknowledged, many with one fsync: they survive a power cut.
CONFIGS = {"cleanup.policy": "compact", "flush.messages": "1"}
TIMEOUT_MS = 5_000


class InternalTopic(NamedTuple):
    """Internal topic to create. `min_isr`: at most the number of replicas; None: the default."""

    name: str
    partitions: int
    replication_factor: int
    segment_bytes: int
    min_isr: int | None = None

    def configs(self, replicas: int) -> Mapping[str, str]:
        found = {**CONFIGS, "segment.bytes": str(self.segment_bytes)}
        if self.min_isr is not None:
            found["min.insync.replicas"] = str(min(self.min_isr, replicas))
        return found


async def create(wanted: InternalTopic, context: RequestContext) -> None:
    """Create the topic; returns when it exists. Raises CoordinatorNotAvailable."""
    node = context.node
    machines = {machine_of(each) for each in node.image.live_nodes("group")}
    if not machines:
        raise CoordinatorNotAvailable("no node with the group role is in service")
    replicas = min(wanted.replication_factor, len(machines))
    topic = TopicToCreate(
        name=wanted.name,
        topic_id=node.new_id(),
        partitions=wanted.partitions,
        replication_factor=replicas,
        configs=dict(wanted.configs(replicas)),
    )
    try:
        [made] = await node.controller.change(CreateTopics(topics=(topic,)), timeout_ms=TIMEOUT_MS)
    except KafkaError as error:
        raise CoordinatorNotAvailable(f"{wanted.name} cannot be created: {error}") from None
    if made.outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise CoordinatorNotAvailable(f"{wanted.name} cannot be created: {made.outcome.message}")
    if made.outcome.code == ErrorCode.NONE:
        logger.info("created %s with %d replicas", wanted.name, replicas)
