"""Produce (API key 0): append one record batch per partition, answer as `acks` asks.

    acks 0    no answer at all; on an error the connection closes, so the producer notices
    acks 1    answered when this leader has appended
    acks -1   answered when the batch is committed (and on disk, where the topic asks for that)

Everything up to the append happens before the first await, in arrival order: an idempotent producer
has up to five batches of one partition in flight. The batch is checked by its header and CRC alone
and appended as it came; `records` is a slice of the receive buffer, used up before this returns.

Versions 0-2 (message sets) are answered UNSUPPORTED_VERSION per partition, as Kafka 4 does: they
are advertised because librdkafka before 2.11.1 reads its compression support from them.
Source: KafkaApis.handleProduceRequest, ProduceRequest.validateRecords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ..cluster.topic_name import INTERNAL_TOPICS
from ..protocol.error_code import ErrorCode
from ..protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTopicException,
    KafkaError,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from ..protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ..protocol.record_batch import HEADER_SIZE, MAGIC, Buffer, read_size
from .context import Appended, RequestContext

ZSTD = 4
ACKS_ALL = -1


class CloseConnection(Exception):
    """The peer must notice a failure that the protocol cannot tell it: acks=0 has no answer."""


def handle(
    request: ProduceRequest, context: RequestContext
) -> Awaitable[ProduceResponse | None] | ProduceResponse | None:
    """The response, or None when acks=0. Raises CloseConnection."""
    if context.api_version < 3:
        return _refuse(request, ErrorCode.UNSUPPORTED_VERSION)
    if request.acks not in (-1, 0, 1):
        return _refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    response = ProduceResponse()
    pending: list[tuple[PartitionProduceResponse, Awaitable[None]]] = []
    failed: str | None = None
    for topic in request.topic_data:
        name = _topic_name(topic, context)
        answers = []
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, log_append_time_ms=-1)
            answers.append(answer)
            try:
                appended = _append(name, data, context)
            except KafkaError as error:
                failed = str(error)
                _describe(answer, error, name, context)
                continue
            answer.base_offset = appended.base_offset
            answer.log_append_time_ms = appended.log_append_time_ms
            answer.log_start_offset = appended.log_start_offset
            if appended.committed is not None and request.acks == ACKS_ALL:
                pending.append((answer, appended.committed))
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if request.acks == 0:
        if failed is not None:
            raise CloseConnection(f"produce with acks=0 failed: {failed}")
        return None
    if pending:
        return _when_committed(response, pending, request.timeout_ms)
    return response


def _topic_name(topic: TopicProduceData, context: RequestContext) -> str | None:
    if context.api_version < 13:
        return topic.name
    found = context.node.image.topic_by_id(topic.topic_id)
    return None if found is None else found.name


def _append(name: str | None, data: PartitionProduceData, context: RequestContext) -> Appended:
    if name is None:
        raise UnknownTopicId("no topic has this id")
    if name in INTERNAL_TOPICS:
        raise InvalidTopicException(f"{name} is written by the group coordinator alone")
    replica = context.node.partitions.leader_of(name, data.index)
    return replica.append(_one_batch(data.records, context.api_version))


def _one_batch(records: Buffer | None, version: int) -> memoryview:
    """Exactly one batch of magic 2; bytes after it are a torn next one in Kafka's eyes, trimmed."""
    if records is None or len(records) == 0:
        raise InvalidRecord(
            "a produce request has exactly one record batch per partition, not none"
        )
    if len(records) < HEADER_SIZE:
        raise CorruptMessage(f"{len(records)} bytes are no record batch")
    batch = memoryview(records)
    if batch[16] != MAGIC:
        raise InvalidRecord(f"record batch of magic {batch[16]}; this version carries magic 2")
    _, size = read_size(batch)
    if size < HEADER_SIZE or size > len(batch):
        raise CorruptMessage(f"a batch of {size} bytes in {len(batch)}")
    if len(batch) - size >= HEADER_SIZE:
        raise InvalidRecord("a produce request has exactly one record batch per partition")
    if version < 7 and batch[22] & 0x07 == ZSTD:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or newer")
    return batch[:size]


def _describe(
    answer: PartitionProduceResponse, error: KafkaError, topic: str | None, context: RequestContext
) -> None:
    answer.error_code = error.code
    answer.base_offset = -1
    answer.error_message = str(error)
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and topic is not None:
        partition = context.node.image.partition(topic, answer.index)
        if partition is not None:
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )


async def _when_committed(
    response: ProduceResponse,
    pending: list[tuple[PartitionProduceResponse, Awaitable[None]]],
    timeout_ms: int,
) -> ProduceResponse:
    """Each partition's answer once its batch is committed. Late: the batch stays in the log."""

    async def settle(answer: PartitionProduceResponse, committed: Awaitable[None]) -> None:
        try:
            await asyncio.wait_for(committed, max(timeout_ms, 1) / 1000)
        except TimeoutError:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        except KafkaError as error:
            answer.error_code = error.code
            answer.error_message = str(error)

    await asyncio.gather(*(settle(answer, committed) for answer, committed in pending))
    return response


def _refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if request.acks == 0:
        raise CloseConnection(f"produce with acks=0 refused: {code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=-1, log_append_time_ms=-1
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
