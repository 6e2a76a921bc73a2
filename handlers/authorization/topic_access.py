"""Rights to see, create, change and delete topics.

A client that may not describe a topic gets the same answer whether the topic exists or not.
Source: KafkaApis.handleTopicMetadataRequest, ControllerApis.createTopics, deleteTopics,
createPartitions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from ...protocol.error_code import ErrorCode
from ...protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ...protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ...protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ...protocol.schema import ZERO_UUID
from ...protocol.security.acl_binding import CLUSTER_NAME, AclOperation, ResourceType
from ..ports.access import Access, Need, Rights
from ..ports.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from ..ports.context import RequestContext
from .guarding import Handle, merged, need, then, without

CREATE, DELETE, ALTER = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER
DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FIRST_BY_ID: Final = 12


# --- Metadata -------------------------------------------------------------------------------------


def _guard_metadata(
    request: MetadataRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    wanted = request.topics
    refused: dict[int, MetadataResponseTopic] = {}
    asks_all = wanted is None or (context.api_version == 0 and not wanted)
    if wanted is not None and not asks_all:
        may_create = _MayCreate(request, context, rights)
        for place, topic in enumerate(wanted):
            refusal = _refuse_description(topic, context, rights, may_create)
            if refusal is not None:
                refused[place] = refusal
        if refused:
            kept = [topic for place, topic in enumerate(wanted) if place not in refused]
            request = without(request, "topics", kept)
            if not kept and context.api_version == 0:
                context = replace(context, api_version=1)  # in version 0 an empty list means all

    def finish(response: MetadataResponse) -> MetadataResponse:
        if asks_all:
            response.topics = [
                topic
                for topic in response.topics
                if rights.may(DESCRIBE, TOPIC, topic.name or "", asks=True)
            ]
        if request.include_topic_authorized_operations:
            for topic in response.topics:
                if topic.name is not None:
                    topic.topic_authorized_operations = rights.operations(
                        TOPIC_OPERATIONS, TOPIC, topic.name
                    )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(rights)
        response.topics = merged(wanted or (), refused, response.topics)
        return response

    return then(handle(request, context), finish)


def cluster_operations(rights: Rights) -> int:
    if not rights.may_cluster(DESCRIBE):
        return 0
    return rights.operations(CLUSTER_OPERATIONS, CLUSTER, CLUSTER_NAME)


class _MayCreate:
    """Right to create a missing topic with Metadata; always given if Metadata creates none."""

    def __init__(self, request: MetadataRequest, context: RequestContext, rights: Rights) -> None:
        self._makes_topics = (
            request.allow_auto_topic_creation
            and context.node.server_config.broker.auto_create_topics_enable
        )
        self._rights = rights

    def __call__(self, name: str) -> bool:
        rights = self._rights
        return (
            not self._makes_topics
            or rights.may_cluster(CREATE, asks=True)
            or rights.may(CREATE, TOPIC, name)
        )


def _refuse_description(
    wanted: MetadataRequestTopic, context: RequestContext, rights: Rights, may_create: _MayCreate
) -> MetadataResponseTopic | None:
    if wanted.topic_id != ZERO_UUID:
        if context.api_version < FIRST_BY_ID:
            return None  # the handler refuses it
        name = context.node.image.topic_names.get(wanted.topic_id)
        if name is not None and rights.may(DESCRIBE, TOPIC, name):
            return None
        # Unknown ids are answered here, too: they may be in the metadata when the handler looks.
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else REFUSED
        return MetadataResponseTopic(error_code=code, name=None, topic_id=wanted.topic_id)
    name = wanted.name
    if name is None:
        return None  # the handler returns the error
    if rights.may(DESCRIBE, TOPIC, name) and (
        name in context.node.image.topics or may_create(name)
    ):
        return None
    return MetadataResponseTopic(error_code=REFUSED, name=name, topic_id=ZERO_UUID)


METADATA = Access(
    (
        need(DESCRIBE, TOPIC, "left out where all are asked for"),
        Need(CREATE, CLUSTER, what="enough for every topic that the request creates"),
        need(CREATE, TOPIC, "a topic that the request creates"),
        Need(DESCRIBE, CLUSTER, what="for the operations on it"),
    ),
    _guard_metadata,
)
DESCRIBE_TOPIC_PARTITIONS = Access(
    (need(DESCRIBE, TOPIC, "left out where all are asked for"),),
    remark="checked by the handler: only topics that may be described count towards a page",
)


# --- CreateTopics ---------------------------------------------------------------------------------


def _guard_creation(
    request: CreateTopicsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    topics = request.topics
    refused: dict[int, CreatableTopicResult] = {}
    if not rights.may_cluster(CREATE, asks=True):
        counts = Counter(topic.name for topic in topics)
        refused = {
            place: CreatableTopicResult(
                name=topic.name, error_code=REFUSED, error_message="Authorization failed."
            )
            for place, topic in enumerate(topics)
            if counts[topic.name] == 1 and not rights.may(CREATE, TOPIC, topic.name)
        }
    if len(refused) == len(topics):
        return CreateTopicsResponse(topics=list(refused.values()))
    kept = [topic for place, topic in enumerate(topics) if place not in refused]

    def finish(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in response.topics:
            if not topic.error_code and not rights.may(
                DESCRIBE_CONFIGS, TOPIC, topic.name, asks=True
            ):
                topic.topic_config_error_code = REFUSED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics = merged(topics, refused, response.topics)
        return response

    return then(handle(without(request, "topics", kept), context), finish)


CREATE_TOPICS = Access(
    (
        Need(CREATE, CLUSTER, what="enough for every topic"),
        need(CREATE, TOPIC),
        Need(DESCRIBE_CONFIGS, TOPIC, what="for the settings in the answer"),
    ),
    _guard_creation,
)


# --- DeleteTopics ---------------------------------------------------------------------------------


def _guard_deletion(
    request: DeleteTopicsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if not context.node.server_config.broker.delete_topic_enable:
        return handle(request, context)  # which deletes nothing
    if rights.may_cluster(DELETE, asks=True):
        return handle(request, context)
    asked: list[tuple[str | None, UUID]] = [(name, ZERO_UUID) for name in request.topic_names]
    asked += [(topic.name, topic.topic_id) for topic in request.topics]
    counts, image = Counter(asked), context.node.image
    refused: dict[int, DeletableTopicResult] = {}
    for place, (given, topic_id) in enumerate(asked):
        is_by_id = topic_id != ZERO_UUID
        if counts[given, topic_id] > 1 or is_by_id == (given is not None):
            continue  # an invalid item, for which the handler returns the error
        name = image.topic_names.get(topic_id) if is_by_id else given
        code = REFUSED
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif rights.may(DESCRIBE, TOPIC, name):
            if rights.may(DELETE, TOPIC, name):
                continue
            if name not in image.topics:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif is_by_id:
            name = None
        # An unknown topic is answered here: the controller may have created it already.
        refused[place] = DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=code, error_message=None
        )
    if not refused:
        return handle(request, context)
    if len(refused) == len(asked):
        return DeleteTopicsResponse(responses=list(refused.values()))
    names = len(request.topic_names)
    less = without(
        request,
        "topic_names",
        [each for place, each in enumerate(request.topic_names) if place not in refused],
    )
    less.topics = [each for place, each in enumerate(request.topics, names) if place not in refused]

    def finish(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses = merged(asked, refused, response.responses)
        return response

    return then(handle(less, context), finish)


DELETE_TOPICS = Access(
    (
        Need(DELETE, CLUSTER, what="enough for every topic"),
        need(DELETE, TOPIC),
        need(DESCRIBE, TOPIC, "to get the error of an unknown topic"),
    ),
    _guard_deletion,
)


# --- CreatePartitions -----------------------------------------------------------------------------


def _guard_partitions(
    request: CreatePartitionsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    topics = request.topics
    counts = Counter(topic.name for topic in topics)
    refused = {
        place: CreatePartitionsTopicResult(name=topic.name, error_code=REFUSED, error_message=None)
        for place, topic in enumerate(topics)
        if counts[topic.name] == 1 and not rights.may(ALTER, TOPIC, topic.name)
    }
    if len(refused) == len(topics):
        return CreatePartitionsResponse(results=list(refused.values()))
    kept = [topic for place, topic in enumerate(topics) if place not in refused]

    def finish(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
        response.results = merged(topics, refused, response.results)
        return response

    return then(handle(without(request, "topics", kept), context), finish)


CREATE_PARTITIONS = Access((need(ALTER, TOPIC),), _guard_partitions)
