"""AddPartitionsToTxn (API key 24): partitions become part of a transaction, all of them or none.

Clients send versions 0-3, for one transaction; brokers send version 4 and later, for many: to add
partitions for clients of transaction.version 2, or only to verify that they were added (KIP-890).
If one partition does not exist none is added, and the others get OPERATION_NOT_ATTEMPTED.
Source: KafkaApis.handleAddPartitionsToTxnRequest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ...protocol.topic_partition import TopicPartitionPair
from ..authorization.transaction_access import ADD_PARTITIONS_TO_TXN
from ..ports.api import api
from ..ports.context import RequestContext
from .transactional_request import in_words_of, shard_of

FIRST_WITH_FENCED = 2
FIRST_OF_BROKERS = 4


async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.api_version >= FIRST_OF_BROKERS:
        asked = (_handle_one(each, context) for each in request.transactions)
        return AddPartitionsToTxnResponse(results_by_transaction=await asyncio.gather(*asked))
    result = await _handle_one(
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        ),
        context,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


async def _handle_one(
    asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> AddPartitionsToTxnResult:
    partitions = frozenset(
        (topic.name, index) for topic in asked.topics for index in topic.partitions
    )
    image = context.node.image
    missing = {each for each in partitions if image.partition(*each) is None}
    if missing:

        def code_of(partition: TopicPartitionPair) -> ErrorCode:
            if partition in missing:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.OPERATION_NOT_ATTEMPTED

        return _result(asked, code_of)
    try:
        codes = await _ask(asked, partitions, context)
    except KafkaError as error:
        codes = dict.fromkeys(partitions, error.code)
    return _result(
        asked,
        lambda partition: in_words_of(
            codes[partition], context, first_with_fenced=FIRST_WITH_FENCED
        ),
    )


async def _ask(
    asked: AddPartitionsToTxnTransaction,
    partitions: frozenset[TopicPartitionPair],
    context: RequestContext,
) -> dict[TopicPartitionPair, ErrorCode]:
    shard = shard_of(asked.transactional_id, context)
    producer = (asked.transactional_id, asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return shard.verify_partitions(*producer, partitions)
    version = 2 if context.api_version >= FIRST_OF_BROKERS else 0
    error = await shard.add_partitions(*producer, partitions, client_version=version)
    return dict.fromkeys(partitions, error)


def _result(
    asked: AddPartitionsToTxnTransaction, code_of: Callable[[TopicPartitionPair], ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code_of((topic.name, index))
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )


API = api(0, 5, AddPartitionsToTxnRequest, handle, access=ADD_PARTITIONS_TO_TXN)
