"""Produce (API key 0): append one record batch per partition, answer according to `acks`.

    acks 0    no response; on an error the connection is closed, so the producer notices
    acks 1    answered when this leader has appended
    acks -1   answered when the batch is committed (and on disk, where the topic requires it);
              until then it waits in replication/partition/delayed_produces

Everything up to the append happens before the first await, in arrival order: an idempotent producer
has up to five batches of one partition in flight. The batch is validated (header, CRC, records:
storage/log/batch_validation) and appended unchanged; `records` is a slice of the receive buffer,
consumed before this returns. Where validation takes long, or the topic has another codec, the
replica makes a copy and appends it later, in the same order.

The first batch of a transaction is appended when the coordinator has verified it: verified_appends.

Versions 0-2 carry message sets of magic 0 and 1, converted to batches; from 3 on a request has
exactly one batch of magic 2 per partition.
Source: KafkaApis.handleProduceRequest, ProduceRequest.validateRecords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from ...protocol.buffer import Buffer
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    InvalidRecord,
    InvalidTopicException,
    KafkaError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from ...protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ...protocol.records.legacy_messages import MAGIC_POSITION
from ...protocol.records.record_batch import (
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL_MASK,
    read_header,
    read_size,
)
from ...protocol.topic_name import INTERNAL_TOPICS
from ..authorization.record_access import PRODUCE
from ..ports.api import Parts, api
from ..ports.context import RequestContext
from ..ports.produce_answer import CloseConnection, ProducedBatch
from ..ports.replica_port import Appended, LeaderReplica
from .produce_response import FIRST_WITH_TOPIC_IDS
from .verified_appends import VerifiedAppends

ZSTD: Final = 4
ATTRIBUTES_POSITION: Final = 22
"""Position of the low byte of a batch's attributes."""
ACKS_ALL: Final = -1
REFUSED_BY_THE_LOG: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_RECORD,
)
"""Errors that are answered with the log start offset, as in Kafka."""
FIRST_WITH_BATCHES: Final = 3


class _Later(NamedTuple):
    """Partition whose answer is not complete: its append, or its commit, is awaited."""

    answer: PartitionProduceResponse
    topic: str | None
    appended: Awaitable[Appended] | None
    committed: Awaitable[None] | None


Outcome = Appended | Awaitable[Appended] | KafkaError
"""Outcome of one partition's batch; an awaitable while it is not decided."""


def handle(
    request: ProduceRequest, context: RequestContext
) -> Awaitable[ProduceResponse | None] | ProduceResponse | ProducedBatch | None:
    """Handle a request; returns the response, or None if acks=0. Raises CloseConnection.

    A ProducedBatch is the response to the most frequent request, about one partition.
    """
    acks = request.acks
    if acks not in (-1, 0, 1):
        return _refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    acks_all = acks == ACKS_ALL
    topics = request.topic_data
    is_one = len(topics) == 1 and len(topics[0].partition_data) == 1
    if not is_one:
        request = without_repeats(request)
    if request.transactional_id is not None:
        return _in_transaction(request, request.transactional_id, context, acks_all)
    if not is_one:
        outcomes: list[tuple[str | None, Outcome]] = []
        for topic in request.topic_data:
            name = _topic_name(topic, context)
            outcomes += [
                (name, _append(name, topic.topic_id, data, context, acks_all))
                for data in topic.partition_data
            ]
        return _answer(request, outcomes, context)
    topic = topics[0]
    data = topic.partition_data[0]
    name = _topic_name(topic, context)
    outcome = _append(name, topic.topic_id, data, context, acks_all)
    if not isinstance(outcome, Appended) or acks == 0:
        return _answer(request, [(name, outcome)], context)
    base_offset, log_append_time_ms, log_start_offset, committed = outcome
    if acks_all and committed is not None:
        return _answer(request, [(name, outcome)], context)
    # Not the constructor of the named tuple, a Python function, which is slower.
    return tuple.__new__(
        ProducedBatch,
        (
            name or "",
            topic.topic_id,
            data.index,
            base_offset,
            log_append_time_ms,
            log_start_offset,
        ),
    )


def without_repeats(request: ProduceRequest) -> ProduceRequest:
    """Keep only the last batch of a partition that occurs more than once, as in Kafka.

    No known client sends such a request: a partition of a request has one batch.
    """
    last: dict[tuple[str, UUID], dict[int, PartitionProduceData]] = {}
    count = 0
    for topic in request.topic_data:
        partitions = last.setdefault((topic.name, topic.topic_id), {})
        count += len(topic.partition_data)
        for data in topic.partition_data:
            partitions[data.index] = data
    if len(last) == len(request.topic_data) and count == sum(map(len, last.values())):
        return request
    return replace(
        request,
        topic_data=[
            TopicProduceData(name=name, topic_id=topic_id, partition_data=list(found.values()))
            for (name, topic_id), found in last.items()
        ],
    )


def _answer(
    request: ProduceRequest, outcomes: list[tuple[str | None, Outcome]], context: RequestContext
) -> Awaitable[ProduceResponse | None] | ProduceResponse | None:
    response = ProduceResponse()
    later: list[_Later] = []
    failed = False
    acks_all = request.acks == ACKS_ALL
    remaining = iter(outcomes)
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            name, outcome = next(remaining)
            answer = PartitionProduceResponse(index=data.index, log_append_time_ms=-1)
            answers.append(answer)
            if isinstance(outcome, KafkaError):
                failed = True
                _describe(answer, outcome, name, response, context)
            elif not isinstance(outcome, Appended):
                later.append(_Later(answer, name, outcome, None))
            else:
                _fill(answer, outcome)
                if outcome.committed is not None and acks_all:
                    later.append(_Later(answer, name, None, outcome.committed))
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if later:
        return _complete(request, response, later, context)
    if request.acks == 0:
        if failed:
            raise CloseConnection(_first_failure(response))
        return None
    return response


def _topic_name(topic: TopicProduceData, context: RequestContext) -> str | None:
    if context.api_version < FIRST_WITH_TOPIC_IDS:
        return topic.name
    found = context.node.image.topic_by_id(topic.topic_id)
    return None if found is None else found.name


def _append(
    name: str | None,
    topic_id: UUID,
    data: PartitionProduceData,
    context: RequestContext,
    acks_all: bool,
) -> Outcome:
    try:
        replica = _leader(name, topic_id, data.index, context)
        if context.api_version < FIRST_WITH_BATCHES and _is_message_set(data.records):
            if not data.records:
                return Appended(-1, -1, replica.log.log_start_offset, None)
            return replica.produce(memoryview(data.records), is_message_set=True, acks_all=acks_all)
        batch = _one_batch(data.records, context.api_version)
        if batch[ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK:
            raise TransactionalIdAuthorizationFailed(
                "records of a transaction need its transactional id"
            )
        return replica.produce(batch, is_message_set=False, acks_all=acks_all)
    except KafkaError as error:
        # Its traceback would reference this frame, and with it the receive buffer.
        return error.with_traceback(None)


def _leader(name: str | None, topic_id: UUID, index: int, context: RequestContext) -> LeaderReplica:
    if name is None:
        raise UnknownTopicId(f"unknown topic id {topic_id}")
    if name in INTERNAL_TOPICS:
        raise InvalidTopicException(f"only coordinators may write to the internal topic {name}")
    return context.node.partitions.leader_of(name, index)


def _in_transaction(
    request: ProduceRequest, transactional_id: str, context: RequestContext, acks_all: bool
) -> Awaitable[ProduceResponse | None] | ProduceResponse | None:
    """Handle a request with a transactional id: all batches are checked before one is appended."""
    found: list[tuple[str | None, UUID, int, memoryview | KafkaError]] = []
    producers: set[tuple[int, int]] = set()
    for topic in request.topic_data:
        name = _topic_name(topic, context)
        for data in topic.partition_data:
            try:
                batch = _one_batch(data.records, context.api_version)
            except KafkaError as error:
                found.append((name, topic.topic_id, data.index, error.with_traceback(None)))
                continue
            found.append((name, topic.topic_id, data.index, batch))
            if batch[ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK:
                header = read_header(batch)
                producers.add((header.producer_id, header.producer_epoch))
    if len(producers) > 1:
        return _refuse(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    appends = VerifiedAppends(transactional_id, context, acks_all=acks_all)
    outcomes: list[tuple[str | None, Outcome]] = []
    for name, topic_id, index, batch_or_error in found:
        outcome: Outcome
        try:
            if isinstance(batch_or_error, KafkaError):
                raise batch_or_error
            replica = _leader(name, topic_id, index, context)
            if batch_or_error[ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK:
                outcome = appends.append(replica, (name or "", index), batch_or_error)
            else:
                outcome = replica.produce(batch_or_error, is_message_set=False, acks_all=acks_all)
        except KafkaError as error:
            outcome = error.with_traceback(None)
        outcomes.append((name, outcome))
    appends.begin_verification()
    return _answer(request, outcomes, context)


def _is_message_set(records: Buffer | None) -> bool:
    """Whether a request of an old version has a message set; it may also have a batch."""
    return records is None or len(records) <= MAGIC_POSITION or records[MAGIC_POSITION] < MAGIC


def _fill(answer: PartitionProduceResponse, appended: Appended) -> None:
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = appended.log_start_offset


class _NoBatch(InvalidRecord):
    """Error of a batch that is refused before the log checks it: without log start offset."""


def _one_batch(records: Buffer | None, version: int) -> memoryview:
    """Check for one batch of magic 2; less than a header after it is trimmed, as in Kafka."""
    if records is None or len(records) == 0:
        raise _NoBatch("a produce request has exactly one record batch per partition, not none")
    there = len(records)
    if there < HEADER_SIZE:
        raise _NoBatch(f"{there} bytes are too few for a record batch")
    batch = records if isinstance(records, memoryview) else memoryview(records)
    if batch[MAGIC_POSITION] != MAGIC:
        raise _NoBatch(
            f"record batch of magic {batch[MAGIC_POSITION]}; this version requires magic 2"
        )
    _, size = read_size(batch)
    if size < HEADER_SIZE or size > there:
        raise _NoBatch(f"a record batch with size {size} in {there} bytes")
    if there - size >= HEADER_SIZE:
        raise _NoBatch("a produce request has exactly one record batch per partition")
    if version < 7 and batch[ATTRIBUTES_POSITION] & 0x07 == ZSTD:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or newer")
    return batch if size == there else batch[:size]


def _describe(
    answer: PartitionProduceResponse,
    error: KafkaError,
    topic: str | None,
    response: ProduceResponse,
    context: RequestContext,
) -> None:
    """Fill in the error, its records, and the current leader if it moved (KIP-467, KIP-951)."""
    answer.error_code = error.code
    answer.base_offset = -1
    answer.error_message = str(error)
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in error.record_errors
    ]
    if topic is None:
        return
    if error.code in REFUSED_BY_THE_LOG and not isinstance(error, _NoBatch):
        with suppress(KafkaError):  # another node may have become leader
            replica = context.node.partitions.leader_of(topic, answer.index)
            answer.log_start_offset = replica.log.log_start_offset
    if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return
    partition = context.node.image.partition(topic, answer.index)
    if partition is None:
        return
    answer.current_leader = LeaderIdAndEpoch(
        leader_id=partition.leader, leader_epoch=partition.leader_epoch
    )
    node = context.node.image.nodes.get(partition.leader)
    endpoint = None if node is None else context.endpoint_of(node)
    if node is None or endpoint is None:
        return
    if all(node.node_id != each.node_id for each in response.node_endpoints):
        response.node_endpoints.append(
            NodeEndpoint(
                node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack
            )
        )


async def _complete(
    request: ProduceRequest,
    response: ProduceResponse,
    later: list[_Later],
    context: RequestContext,
) -> ProduceResponse | None:
    """Complete the response once the batches are appended and, for acks=-1, committed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(request.timeout_ms, 1) / 1000

    async def settle(one: _Later) -> None:
        committed = one.committed
        try:
            if one.appended is not None:
                appended = await one.appended
                _fill(one.answer, appended)
                committed = appended.committed
            if committed is not None and request.acks == ACKS_ALL:
                # On a timeout the batch stays in the log.
                async with asyncio.timeout_at(deadline):
                    await committed
        except TimeoutError:
            one.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        except KafkaError as error:
            _describe(one.answer, error, one.topic, response, context)

    if len(later) == 1:  # most requests: no separate task
        await settle(later[0])
    else:
        await asyncio.gather(*(settle(one) for one in later))
    if request.acks != 0:
        return response
    if any(each.error_code for topic in response.responses for each in topic.partition_responses):
        raise CloseConnection(_first_failure(response))
    return None


def _first_failure(response: ProduceResponse) -> str:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                return f"produce with acks=0 failed: {answer.error_message}"
    return "produce with acks=0 failed"


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


API: Final = api(
    0,
    13,
    ProduceRequest,
    handle,
    Parts("topic_data", "responses", 100, "partition_data", "partition_responses"),
    access=PRODUCE,
)
