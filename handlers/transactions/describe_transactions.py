"""DescribeTransactions (API key 65): the coordinator's state of transactional ids (KIP-664)."""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ..authorization.transaction_access import DESCRIBE_TRANSACTIONS
from ..ports.api import Parts, api
from ..ports.context import RequestContext
from .transactional_request import shard_of


def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(each, context) for each in request.transactional_ids]
    )


def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    answer = TransactionState(transactional_id=transactional_id)
    try:
        metadata = shard_of(transactional_id, context).metadata_of(transactional_id)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    if metadata is None:
        answer.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return answer
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    answer.transaction_state = metadata.state.title
    answer.transaction_timeout_ms = metadata.timeout_ms
    answer.transaction_start_time_ms = metadata.start_ms
    answer.producer_id = metadata.producer_id
    answer.producer_epoch = metadata.producer_epoch
    answer.topics = [
        TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()
    ]
    return answer


API = api(
    0,
    0,
    DescribeTransactionsRequest,
    handle,
    Parts("transactional_ids", "transaction_states"),
    access=DESCRIBE_TRANSACTIONS,
)
