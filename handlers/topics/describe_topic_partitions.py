"""DescribeTopicPartitions (API key 75): topics in order of name, a page at a time (KIP-966).

A page has at most response_partition_limit partitions, and never more than
max.request.partition.size.limit. Its cursor names the first partition of the next page. If all
topics are asked for, one that is deleted before its page is omitted.
Source: apache/kafka core/.../server/handlers/DescribeTopicPartitionsRequestHandler.java.
"""

from __future__ import annotations

from ...cluster.metadata.metadata_image import NO_LEADER, MetadataImage, TopicImage
from ...protocol.error_code import ErrorCode
from ...protocol.errors import InvalidTopicException
from ...protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ...protocol.topic_name import check_topic_name
from ..authorization.topic_access import DESCRIBE_TOPIC_PARTITIONS
from ..ports.api import api
from ..ports.authorized_operations import TOPIC_OPERATIONS
from ..ports.context import RequestContext

DESCRIBE_TOPIC = AclOperation.DESCRIBE, ResourceType.TOPIC


def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    image = context.node.image
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    if cursor is not None and cursor.partition_index < 0:
        return _refused(sorted(asked), ErrorCode.INVALID_REQUEST)
    names = sorted(asked or image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    rights, hidden = context.rights("DescribeTopicPartitions"), set[str]()
    if rights is not None:
        hidden = {name for name in names if not rights.may(*DESCRIBE_TOPIC, name, asks=not asked)}
        names = [name for name in names if name not in hidden]
    left = min(
        max(1, request.response_partition_limit),
        context.node.server_config.broker.max_request_partition_size_limit,
    )
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = 0
        if cursor is not None and cursor.topic_name == name:
            first = cursor.partition_index
        end = min(len(topic.partitions), first + left)
        response.topics.append(_describe(topic, image, first, end))
        left -= max(0, end - first)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    if rights is not None:
        for described in response.topics:
            described.topic_authorized_operations = rights.operations(
                TOPIC_OPERATIONS, ResourceType.TOPIC, described.name or ""
            )
    if asked and hidden:
        refused = _refused(sorted(hidden), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        response.topics += refused.topics
    return response


def _refused(names: list[str], code: ErrorCode) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names]
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except InvalidTopicException as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _describe(
    topic: TopicImage, image: MetadataImage, first: int, end: int
) -> DescribeTopicPartitionsResponseTopic:
    fenced = {node.node_id for node in image.nodes.values() if node.fenced}
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
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
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=(
                    []
                    if partition.last_known_leader == NO_LEADER or partition.elr
                    else [partition.last_known_leader]
                ),
                offline_replicas=[node for node in partition.replicas if node in fenced],
            )
            for index, partition in enumerate(topic.partitions[first:end], first)
        ],
    )


API = api(0, 0, DescribeTopicPartitionsRequest, handle, access=DESCRIBE_TOPIC_PARTITIONS)
