"""`__consumer_offsets` is made when the first group is looked for, as in Kafka.

By then the nodes of a cluster that was just started have come, so its replicas can be on several of
them: offsets.topic.replication.factor, or one on each machine if there are fewer.
Source: AutoTopicCreationManager in apache/kafka.
"""

from __future__ import annotations

import logging

from ...cluster.control.topic_control import CreateTopics, TopicToCreate
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.partition.replica_placement import machine_of
from ...cluster.topic_name import OFFSETS_TOPIC
from ...protocol.error_code import ErrorCode
from ...protocol.errors import CoordinatorNotAvailable, KafkaError
from ..ports.context import RequestContext

logger = logging.getLogger(__name__)

# Commits are fsynced before they are answered, many with one fsync: they survive a power cut.
CONFIGS = {"cleanup.policy": "compact", "flush.messages": "1"}
TIMEOUT_MS = 5_000


def is_missing(image: MetadataImage) -> bool:
    return OFFSETS_TOPIC not in image.topics


async def create(context: RequestContext) -> None:
    """Returns when it is there. Raises CoordinatorNotAvailable."""
    node = context.node
    config = node.server_config.broker
    machines = {machine_of(each) for each in node.image.live_nodes("group")}
    if not machines:
        raise CoordinatorNotAvailable("no node that coordinates groups is in service")
    topic = TopicToCreate(
        name=OFFSETS_TOPIC,
        topic_id=node.new_id(),
        partitions=config.offsets_topic_num_partitions,
        replication_factor=min(config.offsets_topic_replication_factor, len(machines)),
        configs={**CONFIGS, "segment.bytes": str(config.offsets_topic_segment_bytes)},
    )
    try:
        [made] = await node.controller.change(CreateTopics(topics=(topic,)), timeout_ms=TIMEOUT_MS)
    except KafkaError as error:
        raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC} cannot be made: {error}") from None
    if made.outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC} cannot be made: {made.outcome.message}")
    if made.outcome.code == ErrorCode.NONE:
        logger.info("created %s with %d replicas", OFFSETS_TOPIC, topic.replication_factor)
