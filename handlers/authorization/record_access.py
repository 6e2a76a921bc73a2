"""Rights to write, read and look up records.

An unknown topic id is left to the handler, which returns the error. Source:
KafkaApis.handleProduceRequest, handleFetchRequest, handleListOffsetRequest and the others by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from ...protocol.error_code import ErrorCode
from ...protocol.errors import InvalidTopicException
from ...protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from ...protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
    TopicResponse,
)
from ...protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ...protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ...protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...protocol.records.record_batch import HEADER_SIZE, MAGIC, TRANSACTIONAL_MASK
from ...protocol.schema import ZERO_UUID
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ...protocol.topic_name import check_topic_name
from ..ports.access import Access, Need, Rights
from ..ports.context import RequestContext
from ..ports.produce_answer import CloseConnection, ProducedBatch, as_response
from .guarding import MESSAGES, Handle, each, merged, need, then, without

READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
DESCRIBE, ALTER = AclOperation.DESCRIBE, AclOperation.ALTER
CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ATTRIBUTES_POSITION: Final = 22
MAGIC_POSITION: Final = 16


def name_of(topic_id: UUID, name: str | None, context: RequestContext) -> str | None:
    """Name of a topic that is given by id or by name; None if the id is unknown."""
    if topic_id == ZERO_UUID:
        return name
    return context.node.image.topic_names.get(topic_id)


# --- Produce --------------------------------------------------------------------------------------


def _guard_produce(
    request: ProduceRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if _is_transactional(request):
        own = request.transactional_id
        if own is None or not rights.may(WRITE, TRANSACTIONAL_ID, own):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            refused = [_unproduced(topic, code) for topic in request.topic_data]
            return _answered(request, ProduceResponse(responses=refused), code)
    refusals: dict[int, TopicProduceResponse] = {}
    for place, topic in enumerate(request.topic_data):
        name = name_of(topic.topic_id, topic.name, context)
        if name is not None and not rights.may(WRITE, TOPIC, name):
            refusals[place] = _unproduced(topic, REFUSED)
    if not refusals:
        return handle(request, context)
    if len(refusals) == len(request.topic_data):
        return _answered(request, ProduceResponse(responses=list(refusals.values())), REFUSED)
    kept = [topic for place, topic in enumerate(request.topic_data) if place not in refusals]

    def finish(answer: ProduceResponse | ProducedBatch | None) -> ProduceResponse | None:
        if answer is None:
            answer = ProduceResponse()
        elif isinstance(answer, ProducedBatch):
            answer = as_response(answer)
        answer.responses = merged(request.topic_data, refusals, answer.responses)
        return _answered(request, answer, REFUSED)

    return then(handle(without(request, "topic_data", kept), context), finish)


def _answered(
    request: ProduceRequest, response: ProduceResponse, code: ErrorCode
) -> ProduceResponse | None:
    if request.acks == 0:
        raise CloseConnection(MESSAGES[code])
    return response


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether a batch is part of a transaction; only then is the transactional id checked."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) >= HEADER_SIZE
                and records[MAGIC_POSITION] == MAGIC
                and records[ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK
            ):
                return True
    return False


def _unproduced(topic: TopicProduceData, code: ErrorCode) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
            for data in topic.partition_data
        ],
    )


PRODUCE: Final = Access(
    (
        need(WRITE, TRANSACTIONAL_ID, "of records in a transaction"),
        need(WRITE, TOPIC),
    ),
    _guard_produce,
)

# --- Fetch ----------------------------------------------------------------------------------------

FETCH: Final = Access(
    (
        need(READ, TOPIC, "of a consumer"),
        replace(need(CLUSTER_ACTION, CLUSTER, "of a follower"), refusal=REFUSED.name),
    ),
    remark="checked again whenever a partition is read",
)


def may_fetch(topic: str, context: RequestContext, *, is_follower: bool) -> bool:
    rights = context.rights("Fetch")
    if rights is None:
        return True
    return rights.may_cluster(CLUSTER_ACTION) if is_follower else rights.may(READ, TOPIC, topic)


# --- lookups --------------------------------------------------------------------------------------


def _refuse_offsets(
    topic: ListOffsetsTopic, _context: RequestContext, rights: Rights
) -> ListOffsetsTopicResponse | None:
    if rights.may(DESCRIBE, TOPIC, topic.name):
        return None
    return ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            ListOffsetsPartitionResponse(
                partition_index=wanted.partition_index,
                error_code=REFUSED,
                offset=-1,
                timestamp=-1,
            )
            for wanted in topic.partitions
        ],
    )


LIST_OFFSETS: Final = Access(
    (need(DESCRIBE, TOPIC),), each("topics", "topics", _refuse_offsets, ListOffsetsResponse)
)


def _refuse_epochs(
    topic: OffsetForLeaderTopic, _context: RequestContext, rights: Rights
) -> OffsetForLeaderTopicResult | None:
    if rights.may(DESCRIBE, TOPIC, topic.topic):
        return None
    return OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            EpochEndOffset(partition=wanted.partition, error_code=REFUSED)
            for wanted in topic.partitions
        ],
    )


_of_each_epoch = each("topics", "topics", _refuse_epochs, OffsetForLeaderEpochResponse)


def _guard_epochs(
    request: OffsetForLeaderEpochRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if rights.may_cluster(CLUSTER_ACTION, asks=True):
        return handle(request, context)
    return _of_each_epoch(request, context, rights, handle)


OFFSET_FOR_LEADER_EPOCH: Final = Access(
    (Need(CLUSTER_ACTION, CLUSTER, what="enough for every topic"), need(DESCRIBE, TOPIC)),
    _guard_epochs,
)


def _refuse_producers(
    topic: TopicRequest, _context: RequestContext, rights: Rights
) -> TopicResponse | None:
    try:
        check_topic_name(topic.name)
    except InvalidTopicException:
        return None  # the handler returns the error
    if rights.may(READ, TOPIC, topic.name):
        return None
    return TopicResponse(
        name=topic.name,
        partitions=[
            PartitionResponse(
                partition_index=index, error_code=REFUSED, error_message=MESSAGES[REFUSED]
            )
            for index in topic.partition_indexes
        ],
    )


DESCRIBE_PRODUCERS: Final = Access(
    (need(READ, TOPIC),), each("topics", "topics", _refuse_producers, DescribeProducersResponse)
)


# --- changes --------------------------------------------------------------------------------------


def _refuse_deletion(
    topic: DeleteRecordsTopic, _context: RequestContext, rights: Rights
) -> DeleteRecordsTopicResult | None:
    if rights.may(DELETE, TOPIC, topic.name):
        return None
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            DeleteRecordsPartitionResult(
                partition_index=wanted.partition_index, low_watermark=-1, error_code=REFUSED
            )
            for wanted in topic.partitions
        ],
    )


DELETE_RECORDS: Final = Access(
    (need(DELETE, TOPIC),), each("topics", "topics", _refuse_deletion, DeleteRecordsResponse)
)


def _guard_markers(
    request: WriteTxnMarkersRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if rights.may_cluster(ALTER, asks=True) or rights.may_cluster(CLUSTER_ACTION):
        return handle(request, context)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


WRITE_TXN_MARKERS: Final = Access(
    (Need(ALTER, CLUSTER, what="enough"), need(CLUSTER_ACTION, CLUSTER)), _guard_markers
)
