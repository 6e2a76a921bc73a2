"""Rights to be a producer, and to use and see transactional ids.

Source: KafkaApis.handleInitProducerIdRequest, handleAddPartitionsToTxnRequest and the others by
name.
"""

from __future__ import annotations

from typing import Any, Final

from ...protocol.error_code import ErrorCode
from ...protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ...protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ...protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ...protocol.topic_name import INTERNAL_TOPICS
from ..ports.access import Access, Need, Rights
from ..ports.context import RequestContext
from .guarding import Handle, each, need, then, whole

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CLUSTER_ACTION, IDEMPOTENT_WRITE = AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
FIRST_OF_BROKERS: Final = 4


# --- InitProducerId, EndTxn -----------------------------------------------------------------------


def _guard_init(
    request: InitProducerIdRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if request.transactional_id is not None:
        if rights.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
            return handle(request, context)
        return _no_producer(ID_REFUSED)
    if rights.may_cluster(IDEMPOTENT_WRITE, asks=True) or rights.may_any(WRITE, TOPIC):
        return handle(request, context)
    return _no_producer(CLUSTER_REFUSED)


def _no_producer(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


INIT_PRODUCER_ID = Access(
    (
        need(WRITE, TRANSACTIONAL_ID, "if one is named"),
        need(IDEMPOTENT_WRITE, CLUSTER, "if none is named"),
        Need(WRITE, TOPIC, what="on any topic, instead of IDEMPOTENT_WRITE"),
    ),
    _guard_init,
)


def _id_of_end(request: EndTxnRequest) -> str:
    return request.transactional_id


def _refuse_end(_request: Any, code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1)


END_TXN = whole(need(WRITE, TRANSACTIONAL_ID), _id_of_end, _refuse_end)


# --- AddPartitionsToTxn, AddOffsetsToTxn ----------------------------------------------------------


def _guard_partitions(
    request: AddPartitionsToTxnRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    """Guard of AddPartitionsToTxn: if one topic is not allowed, no partition is added."""
    if context.api_version >= FIRST_OF_BROKERS:
        if rights.may_cluster(CLUSTER_ACTION):
            return handle(request, context)
        return AddPartitionsToTxnResponse(error_code=CLUSTER_REFUSED)
    topics = request.v3_and_below_topics
    if not rights.may(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[_unadded(topic, ID_REFUSED, None) for topic in topics]
        )
    refused = {
        topic.name
        for topic in topics
        if topic.name in INTERNAL_TOPICS or not rights.may(WRITE, TOPIC, topic.name)
    }
    if not refused:
        return handle(request, context)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            _unadded(topic, TOPIC_REFUSED, None)
            if topic.name in refused
            else _unadded(topic, ErrorCode.OPERATION_NOT_ATTEMPTED, context)
            for topic in topics
        ]
    )


def _unadded(
    topic: AddPartitionsToTxnTopic, code: ErrorCode, context: RequestContext | None
) -> AddPartitionsToTxnTopicResult:
    """Refusal of a topic. With `context`, missing partitions have an error of their own."""
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=index,
                partition_error_code=code
                if context is None or context.node.image.partition(topic.name, index) is not None
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for index in topic.partitions
        ],
    )


ADD_PARTITIONS_TO_TXN = Access(
    (
        need(WRITE, TRANSACTIONAL_ID, "up to version 3"),
        need(WRITE, TOPIC, "up to version 3"),
        need(CLUSTER_ACTION, CLUSTER, "from version 4 on, which brokers send"),
    ),
    _guard_partitions,
)


def _guard_offsets(
    request: AddOffsetsToTxnRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if not rights.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ID_REFUSED)
    if not rights.may(READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=GROUP_REFUSED)
    return handle(request, context)


ADD_OFFSETS_TO_TXN = Access((need(WRITE, TRANSACTIONAL_ID), need(READ, GROUP)), _guard_offsets)


# --- TxnOffsetCommit ------------------------------------------------------------------------------


def _uncommitted(
    topic: TxnOffsetCommitRequestTopic, code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _commit_refused(
    topic: TxnOffsetCommitRequestTopic, _context: RequestContext, rights: Rights
) -> TxnOffsetCommitResponseTopic | None:
    return None if rights.may(READ, TOPIC, topic.name) else _uncommitted(topic, TOPIC_REFUSED)


_commit_each = each("topics", "topics", _commit_refused, TxnOffsetCommitResponse)


def _guard_commit(
    request: TxnOffsetCommitRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    code = None
    if not rights.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        code = ID_REFUSED
    elif not rights.may(READ, GROUP, request.group_id):
        code = GROUP_REFUSED
    if code is not None:
        return TxnOffsetCommitResponse(
            topics=[_uncommitted(topic, code) for topic in request.topics]
        )
    return _commit_each(request, context, rights, handle)


TXN_OFFSET_COMMIT = Access(
    (need(WRITE, TRANSACTIONAL_ID), need(READ, GROUP), need(READ, TOPIC)), _guard_commit
)


# --- DescribeTransactions, ListTransactions -------------------------------------------------------


def _describe_refused(
    transactional_id: str, _context: RequestContext, rights: Rights
) -> TransactionState | None:
    if rights.may(DESCRIBE, TRANSACTIONAL_ID, transactional_id):
        return None
    return TransactionState(transactional_id=transactional_id, error_code=ID_REFUSED)


_describe_each = each(
    "transactional_ids", "transaction_states", _describe_refused, DescribeTransactionsResponse
)


def _guard_description(
    request: DescribeTransactionsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    def finish(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if rights.may(DESCRIBE, TOPIC, topic.topic)
            ]
        return response

    return then(_describe_each(request, context, rights, handle), finish)


DESCRIBE_TRANSACTIONS = Access(
    (
        need(DESCRIBE, TRANSACTIONAL_ID),
        Need(DESCRIBE, TOPIC, what="others are left out of the transaction"),
    ),
    _guard_description,
)


def _guard_list(
    request: ListTransactionsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    def finish(response: ListTransactionsResponse) -> ListTransactionsResponse:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if rights.may(DESCRIBE, TRANSACTIONAL_ID, state.transactional_id, asks=True)
        ]
        return response

    return then(handle(request, context), finish)


LIST_TRANSACTIONS = Access(
    (Need(DESCRIBE, TRANSACTIONAL_ID, what="others are left out"),), _guard_list
)
