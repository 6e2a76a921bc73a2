"""TxnOffsetCommit (API key 28): store a group's offsets in a producer's transaction.

Topics and partitions that do not exist are refused one by one; the rest is stored as one batch, and
takes effect when the transaction commits (KIP-98). Version 3 says which member of the group commits
(KIP-447). Before the first batch the transaction coordinator verifies that the group's partition of
`__consumer_offsets` is in the transaction; from version 5 on it adds the partition (KIP-890).
A long request is handled in parts (request_parts), each a separate batch, like OffsetCommit.
Source: apache/kafka KafkaApis.scala (handleTxnOffsetCommitRequest), CoordinatorPartitionWriter.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...groups.append_error import append_error
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    InvalidGroupId,
    KafkaError,
    UnknownTopicOrPartition,
    error_for,
)
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...protocol.topic_name import OFFSETS_TOPIC
from ...storage.producers.verification_guard import UNVERIFIED, VerificationGuard
from ..authorization.transaction_access import TXN_OFFSET_COMMIT
from ..ports.answer_or import answer_or
from ..ports.api import Parts, api
from ..ports.context import RequestContext
from .group_request import partition_of, shard_of

FIRST_THAT_ADDS = 5
FIRST_WITH_ABORTABLE = 4
FIRST_WITH_LOADING = 2


def handle(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    image = context.node.image

    def is_known(topic: str, partition: int) -> bool:
        return image.partition(topic, partition) is not None

    def refuse(error: KafkaError) -> TxnOffsetCommitResponse:
        code = _client_error(error.code, context.api_version)
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=code
                            if is_known(topic.name, partition.partition_index)
                            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def commit() -> TxnOffsetCommitResponse:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty; offsets are committed for a group")
        if not any(
            is_known(each.name, p.partition_index)
            for each in request.topics
            for p in each.partitions
        ):
            raise UnknownTopicOrPartition("none of the topics and partitions exists")
        guard = await _verified(request, context)
        return await shard_of(request.group_id, context).commit_transaction_offsets(
            request, is_known=is_known, guard=guard
        )

    def finish(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        if context.api_version < FIRST_WITH_LOADING:
            _hide_loading(response)
        return response

    return answer_or(commit, refuse, finish)


async def _verified(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> VerificationGuard | None:
    """Verify the transaction with its coordinator; returns the guard of the append, or None.

    Raises:
        KafkaError: this node is not the group's coordinator, or the transaction's has refused.
    """
    shard_of(request.group_id, context)
    partition = partition_of(request.group_id, context)
    replica = context.node.partitions.leader_of(OFFSETS_TOPIC, partition)
    adds = context.api_version >= FIRST_THAT_ADDS
    config = context.node.server_config.transactions
    if not (adds or config.transaction_partition_verification_enable):
        return UNVERIFIED
    guard = replica.begin_verification(
        request.producer_id, request.producer_epoch, supports_epoch_bump=adds
    )
    if guard is None:
        return None  # the transaction is open in this partition already
    topic_partition = (OFFSETS_TOPIC, partition)
    answers = await context.node.transaction_partitions.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [topic_partition],
        adds=adds,
    )
    error = answers[topic_partition]
    if error:
        raise error_for(error)
    return guard


def _client_error(error: ErrorCode, api_version: int) -> ErrorCode:
    match error:
        case ErrorCode.NETWORK_EXCEPTION:
            # Old clients do not expect NETWORK_EXCEPTION; on this code they retry here.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case ErrorCode.TRANSACTION_ABORTABLE if api_version < FIRST_WITH_ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
    return append_error(error)


def _hide_loading(response: TxnOffsetCommitResponse) -> None:
    """Replace COORDINATOR_LOAD_IN_PROGRESS: producers before 2.0 could crash on it (KAFKA-7296)."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


API = api(
    0,
    5,
    TxnOffsetCommitRequest,
    handle,
    Parts("topics", "topics", 500, "partitions", "partitions"),
    access=TXN_OFFSET_COMMIT,
)
