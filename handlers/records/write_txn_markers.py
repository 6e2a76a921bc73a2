"""WriteTxnMarkers (API key 27): a coordinator, or an operator, ends transactions in partitions.

All markers are appended to their logs before the first await, in the order of the request; then
each is awaited until it is committed, as with acks=all. In partitions of __consumer_offsets the
group coordinators append the marker, and apply the offsets along with it.

Version 2 has the transaction.version of the transaction (KIP-1228); a marker of version 1 is
treated as one of the earlier versions. Source: KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError, NotCoordinator
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...protocol.topic_name import OFFSETS_TOPIC
from ...protocol.topic_partition import TopicPartitionPair
from ..authorization.record_access import WRITE_TXN_MARKERS
from ..ports.api import api
from ..ports.context import RequestContext

TIMEOUT_SECONDS = 30
"""request.timeout.ms of Kafka's brokers: a marker that is not committed by then may still be."""
NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors of group coordinators, returned as NOT_LEADER_OR_FOLLOWER to the sender."""

Outcome = Awaitable[None] | ErrorCode
Outcomes = dict[int, dict[TopicPartitionPair, Outcome]]
"""Outcomes by producer id and partition; of a repeated marker the last one is returned."""


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    outcomes: Outcomes = {}
    waiting: list[Awaitable[None]] = []
    for marker in request.markers:
        of_producer = outcomes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for index in topic.partition_indexes:
                of_producer[topic.name, index] = outcome = _append(
                    marker, (topic.name, index), context
                )
                if not isinstance(outcome, ErrorCode):
                    waiting.append(outcome)
    errors = iter(await asyncio.gather(*(_settle(each) for each in waiting)))
    codes = {id(each): code for each, code in zip(waiting, errors, strict=True)}
    return WriteTxnMarkersResponse(
        markers=[
            _result(
                producer_id,
                {
                    partition: found if isinstance(found, ErrorCode) else codes[id(found)]
                    for partition, found in of_producer.items()
                },
            )
            for producer_id, of_producer in outcomes.items()
        ]
    )


def _append(
    marker: WritableTxnMarker, partition: TopicPartitionPair, context: RequestContext
) -> Outcome:
    """Append a marker; returns what to await, or the code if the outcome is known at once."""
    topic, index = partition
    try:
        if topic == OFFSETS_TOPIC:
            groups = context.node.groups
            if groups is None:
                raise NotCoordinator("this node has no groups")
            return groups.shard(index).complete_transaction(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                is_commit=marker.transaction_result,
                transaction_version=marker.transaction_version,
            )
        committed = (
            context.node.partitions.leader_of(topic, index)
            .append_marker(
                marker.producer_id,
                marker.producer_epoch,
                is_commit=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            .committed
        )
    except KafkaError as error:
        return _leader_error(error.code)
    return ErrorCode.NONE if committed is None else committed


async def _settle(committed: Awaitable[None]) -> ErrorCode:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await committed
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
    except KafkaError as error:
        return _leader_error(error.code)
    return ErrorCode.NONE


def _leader_error(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in NOT_READY else code


def _result(
    producer_id: int, codes: dict[TopicPartitionPair, ErrorCode]
) -> WritableTxnMarkerResult:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        )
    return WritableTxnMarkerResult(
        producer_id=producer_id,
        topics=[
            WritableTxnMarkerTopicResult(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


API = api(1, 2, WriteTxnMarkersRequest, handle, access=WRITE_TXN_MARKERS)
