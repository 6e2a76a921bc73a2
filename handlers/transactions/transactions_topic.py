"""`__transaction_state`, created on the first look-up of a transaction coordinator."""

from __future__ import annotations

from ...protocol.topic_name import TRANSACTIONS_TOPIC
from ..ports.context import RequestContext
from ..topics.internal_topic import InternalTopic


def transactions_topic(context: RequestContext) -> InternalTopic:
    config = context.node.server_config.transactions
    return InternalTopic(
        TRANSACTIONS_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        config.transaction_state_log_segment_bytes,
        config.transaction_state_log_min_isr,
    )
