"""Metadata (API key 3): nodes, topics, partitions and their leaders.

Every listening process is a node here, so a client connects directly to the process with the data.
Topics are requested by name, from version 12 on also by id; before, each topic with an id or
without a name gets INVALID_REQUEST.
The controller id is that of the answering node: every node forwards admin requests. Source:
KafkaApis.handleTopicMetadataRequest. Missing topics are created when request and broker allow it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from ...cluster.control.topic_control import CreateTopics, TopicToCreate
from ...cluster.metadata.metadata_image import NO_LEADER, MetadataImage, TopicImage
from ...protocol.error_code import ErrorCode
from ...protocol.errors import InvalidTopicException, KafkaError
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_name import check_topic_name
from ..authorization.topic_access import METADATA
from ..ports.api import Parts, api
from ..ports.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ..ports.context import RequestContext

AUTO_CREATE_TIMEOUT_MS = 5_000
FIRST_BY_ID = 12
LONG = 500


def handle(
    request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Awaitable[MetadataResponse]:
    missing = _topics_to_create(request, context)
    if missing:
        return _create_then_respond(missing, request, context)
    if _partition_count(request, context.node.image) > LONG:
        # The image is immutable, so another thread may read it for as long as it takes.
        return context.node.run_in_thread(partial(_respond, request, context))
    return _respond(request, context)


def _partition_count(request: MetadataRequest, image: MetadataImage) -> int:
    if not request.topics:
        return sum(len(topic.partitions) for topic in image.topics.values())
    found = (image.topics.get(topic.name or "") for topic in request.topics)
    return sum(len(topic.partitions) for topic in found if topic is not None)


def _topics_to_create(request: MetadataRequest, context: RequestContext) -> list[str]:
    if not (request.topics and request.allow_auto_topic_creation):
        return []
    if not context.node.server_config.broker.auto_create_topics_enable:
        return []
    existing = context.node.image.topics
    names = []
    for wanted in request.topics:
        if wanted.name and wanted.name not in existing:
            try:
                check_topic_name(wanted.name)
            except InvalidTopicException:
                continue  # reported by _describe
            names.append(wanted.name)
    return list(dict.fromkeys(names))


async def _create_then_respond(
    names: list[str], request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    topics = tuple(TopicToCreate(name=name, topic_id=context.node.new_id()) for name in names)
    codes: dict[str | None, int]
    try:
        outcomes = await context.node.controller.change(
            CreateTopics(topics=topics), timeout_ms=AUTO_CREATE_TIMEOUT_MS
        )
        codes = {name: each.outcome.code for name, each in zip(names, outcomes, strict=True)}
    except KafkaError as error:
        codes = dict.fromkeys(names, error.code)
    response = _respond(request, context)
    for topic in response.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name in codes:
            code = codes[topic.name]
            # Created, but not in this node's metadata yet: the client retries soon.
            is_there = code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE if is_there else code
    return response


def _respond(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    image = context.node.image
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        topics = [_describe_topic(topic, image) for topic in image.topics.values()]
    else:
        unique = {(topic.name, topic.topic_id): topic for topic in wanted}
        topics = [_describe(topic, image, context.api_version) for topic in unique.values()]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack
            )
            for node in context.node.listed_nodes()
            if (endpoint := context.endpoint_of(node)) is not None
        ],
        cluster_id=image.cluster_id,
        controller_id=context.node.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _describe(
    wanted: MetadataRequestTopic, image: MetadataImage, version: int
) -> MetadataResponseTopic:
    by_id = wanted.topic_id != ZERO_UUID
    if (by_id and version < FIRST_BY_ID) or (wanted.name is None and not by_id):
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST,
            name=wanted.name or "",
            topic_id=wanted.topic_id,
        )
    if by_id:
        topic = image.topic_by_id(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
            )
        return _describe_topic(topic, image)
    assert wanted.name is not None
    topic = image.topics.get(wanted.name)
    if topic is not None:
        return _describe_topic(topic, image)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(wanted.name)
    except InvalidTopicException as error:
        code = error.code
    return MetadataResponseTopic(error_code=code, name=wanted.name, topic_id=ZERO_UUID)


def _describe_topic(topic: TopicImage, image: MetadataImage) -> MetadataResponseTopic:
    fenced = {node.node_id for node in image.nodes.values() if node.fenced}
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=(
                    ErrorCode.LEADER_NOT_AVAILABLE
                    if partition.leader == NO_LEADER
                    else ErrorCode.NONE
                ),
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[node for node in partition.replicas if node in fenced],
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )


API = api(0, 13, MetadataRequest, handle, Parts("topics", "topics"), access=METADATA)
