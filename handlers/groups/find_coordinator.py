"""FindCoordinator (API key 10): the node that leads the group's partition of __consumer_offsets.

v0-3 ask for one key, v4+ for many with an error each; v6 lets share groups be asked for. They and
transactions are not there yet: their key types are refused. An empty group id has a coordinator as
any other: old clients commit and fetch offsets under it, and nobody can join it.
Source: KafkaApis.getCoordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from ...cluster.metadata.metadata_image import NO_LEADER, MetadataImage, NodeImage
from ...cluster.topic_name import OFFSETS_TOPIC
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
    TransactionalIdAuthorizationFailed,
)
from ...protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...protocol.partitioner import partition_for_group
from ..ports.api import Parts, api
from ..ports.context import RequestContext
from . import offsets_topic

logger = logging.getLogger(__name__)

GROUP = 0
TRANSACTION = 1


def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    if request.key_type == GROUP and offsets_topic.is_missing(context.node.image):
        return _handle_first(request, context)
    return _answer(request, context)


async def _handle_first(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    try:
        await offsets_topic.create(context)
    except CoordinatorNotAvailable as error:
        logger.info("no group can be coordinated yet: %s", error)
    return _answer(request, context)


def _answer(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    image = context.node.image
    if context.api_version < 4:
        found = _find(request.key, request.key_type, image)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        coordinators=[_find(key, request.key_type, image) for key in request.coordinator_keys]
    )


def _find(key: str, key_type: int, image: MetadataImage) -> Coordinator:
    try:
        node = _coordinator(key, key_type, image)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error)
        )
    return Coordinator(
        key=key,
        node_id=node.node_id,
        host=node.host,
        port=node.port,
        error_code=ErrorCode.NONE,
        error_message=None,
    )


def _coordinator(key: str, key_type: int, image: MetadataImage) -> NodeImage:
    if key_type == TRANSACTION:
        # The one code that every client reports at once instead of asking forever.
        raise TransactionalIdAuthorizationFailed("Bradbury has no transactions yet")
    if key_type != GROUP:
        raise InvalidRequest(f"key type {key_type} has no coordinator here; groups have (0)")
    topic = image.topics.get(OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        raise CoordinatorNotAvailable("the offsets topic is being created")
    partition = topic.partitions[partition_for_group(key, len(topic.partitions))]
    node = image.nodes.get(partition.leader)
    if partition.leader == NO_LEADER or node is None or node.fenced:
        raise CoordinatorNotAvailable(f"the coordinator of group {key!r} is not running")
    return node


API = api(0, 6, FindCoordinatorRequest, handle, Parts("coordinator_keys", "coordinators"))
