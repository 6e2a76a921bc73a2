"""AddOffsetsToTxn (API key 25): a transaction is going to commit offsets of a consumer group.

The group's partition of __consumer_offsets becomes part of the transaction. Clients of
transaction.version 2 do not send this: their TxnOffsetCommit adds the partition.
Source: KafkaApis.handleAddOffsetsToTxnRequest.
"""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ...protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ...protocol.partitioner import partition_for_group
from ...protocol.topic_name import OFFSETS_TOPIC
from ...protocol.topic_partition import TopicPartitionPair
from ..authorization.transaction_access import ADD_OFFSETS_TO_TXN
from ..ports.api import api
from ..ports.context import RequestContext
from .transactional_request import in_words_of, shard_of

FIRST_WITH_FENCED = 2


async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    try:
        error = await shard_of(request.transactional_id, context).add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            frozenset({_partition_of(request.group_id, context)}),
            client_version=0,
        )
    except KafkaError as refused:
        error = refused.code
    return AddOffsetsToTxnResponse(
        error_code=in_words_of(error, context, first_with_fenced=FIRST_WITH_FENCED)
    )


def _partition_of(group_id: str, context: RequestContext) -> TopicPartitionPair:
    """Partition of a group in __consumer_offsets, even if the topic does not exist yet."""
    topic = context.node.image.topics.get(OFFSETS_TOPIC)
    count = 0 if topic is None else len(topic.partitions)
    return OFFSETS_TOPIC, partition_for_group(
        group_id, count or context.node.server_config.broker.offsets_topic_num_partitions
    )


API = api(0, 4, AddOffsetsToTxnRequest, handle, access=ADD_OFFSETS_TO_TXN)
