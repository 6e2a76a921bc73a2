"""`__consumer_offsets`, created on the first look-up of a group coordinator: internal_topic."""

from __future__ import annotations

from ...protocol.topic_name import OFFSETS_TOPIC
from ..ports.context import RequestContext
from ..topics.internal_topic import InternalTopic


def offsets_topic(context: RequestContext) -> InternalTopic:
    config = context.node.server_config.broker
    return InternalTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        config.offsets_topic_segment_bytes,
    )
