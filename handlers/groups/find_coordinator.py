"""FindCoordinator (API key 10): the node that leads the partition of a group or transactional id.

Groups are in __consumer_offsets, transactional ids in __transaction_state. v0-3 ask for one key,
v4+ for many with an error each; v6 adds the key type of share groups, which are not supported yet
and refused. An empty group id has a coordinator like any other: old clients commit and fetch
offsets under it, though no member can join such a group.
Source: KafkaApis.getCoordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from ...cluster.metadata.metadata_image import NodeImage
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
)
from ...protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...protocol.partitioner import partition_for_group
from ..authorization.group_access import FIND_COORDINATOR
from ..ports.api import Parts, api
from ..ports.context import RequestContext
from ..topics import internal_topic
from ..topics.internal_topic import InternalTopic
from ..transactions.transactions_topic import transactions_topic
from .offsets_topic import offsets_topic

logger = logging.getLogger(__name__)

GROUP = 0
TRANSACTION = 1


_TOPICS: dict[int, Callable[[RequestContext], InternalTopic]] = {
    GROUP: offsets_topic,
    TRANSACTION: transactions_topic,
}


def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    topic_of = _TOPICS.get(request.key_type)
    if topic_of is not None:
        topic = topic_of(context)
        if topic.name not in context.node.image.topics:
            return _handle_first(topic, request, context)
    return _answer(request, context)


async def _handle_first(
    topic: InternalTopic, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    try:
        await internal_topic.create(topic, context)
    except CoordinatorNotAvailable as error:
        logger.info("no coordinator is available yet: %s", error)
    return _answer(request, context)


def _answer(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version < 4:
        found = _find(request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        coordinators=[_find(key, request.key_type, context) for key in request.coordinator_keys]
    )


def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        node = _coordinator(key, key_type, context)
        endpoint = context.endpoint_of(node)
        if endpoint is None:
            raise CoordinatorNotAvailable(
                f"the coordinator of {key!r} has no listener {context.session.listener}"
            )
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error)
        )
    return Coordinator(
        key=key,
        node_id=node.node_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE,
        error_message=None,
    )


def _coordinator(key: str, key_type: int, context: RequestContext) -> NodeImage:
    topic_of = _TOPICS.get(key_type)
    if topic_of is None:
        raise InvalidRequest(
            f"unsupported coordinator key type {key_type}; use 0 (group) or 1 (transaction)"
        )
    image = context.node.image
    name = topic_of(context).name
    topic = image.topics.get(name)
    if topic is None or not topic.partitions:
        raise CoordinatorNotAvailable(f"{name} is being created")
    leader = image.live_leader(name, partition_for_group(key, len(topic.partitions)))
    if leader is None:
        raise CoordinatorNotAvailable(f"the coordinator of {key!r} is not running")
    return image.nodes[leader]


API = api(
    0,
    6,
    FindCoordinatorRequest,
    handle,
    Parts("coordinator_keys", "coordinators"),
    access=FIND_COORDINATOR,
)
