"""Common part of the transaction handlers: the coordinator of an id, and errors for old clients.

The version of a request implies the transaction.version that its client follows (KIP-890): 2 from
AddPartitionsToTxn 4 (which brokers send for clients) and EndTxn 5 on, else 0.
"""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.errors import InvalidRequest, NotCoordinator
from ...protocol.partitioner import partition_for_group
from ...protocol.topic_name import TRANSACTIONS_TOPIC
from ..ports.context import RequestContext
from ..ports.transaction_port import TransactionShard


def shard_of(transactional_id: str, context: RequestContext) -> TransactionShard:
    """Coordinator of this transactional id.

    Raises:
        InvalidRequest: the id is empty.
        NotCoordinator: another node is the coordinator; the client looks it up again.
        CoordinatorLoadInProgress: this node is loading the id; the client retries.
    """
    if not transactional_id:
        raise InvalidRequest("a transactional id cannot be empty")
    transactions = context.node.transactions
    topic = context.node.image.topics.get(TRANSACTIONS_TOPIC)
    if transactions is None or topic is None or not topic.partitions:
        raise NotCoordinator("this node coordinates no transactions")
    return transactions.shard(partition_for_group(transactional_id, len(topic.partitions)))


def in_words_of(error: ErrorCode, context: RequestContext, *, first_with_fenced: int) -> ErrorCode:
    """Replace PRODUCER_FENCED by INVALID_PRODUCER_EPOCH for clients that do not know it yet."""
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
