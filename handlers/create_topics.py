"""CreateTopics (API key 19). Settings are checked here, everything else by the controller."""

from __future__ import annotations

import asyncio

from ..cluster.controller_state import NewTopic
from ..protocol.error_code import ErrorCode
from ..protocol.errors import InvalidPartitions, InvalidRequest, KafkaError
from ..protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from .config_description import describe_topic
from .context import RequestContext


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    names = [topic.name for topic in request.topics]
    repeated = {name for name in names if names.count(name) > 1}
    unique = {topic.name: topic for topic in request.topics}.values()
    results = await asyncio.gather(
        *(_create(topic, topic.name in repeated, request, context) for topic in unique)
    )
    return CreateTopicsResponse(topics=list(results))


async def _create(
    topic: CreatableTopic,
    repeated: bool,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> CreatableTopicResult:
    result = CreatableTopicResult(name=topic.name, num_partitions=-1, replication_factor=-1)
    try:
        if repeated:
            raise InvalidRequest(f"topic {topic.name!r} stands twice in the request")
        if topic.assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
            raise InvalidRequest("give either an assignment or partitions and replication factor")
        if topic.num_partitions == 0:
            raise InvalidPartitions("a topic has at least one partition, not 0")
        configs = {config.name: config.value or "" for config in topic.configs}
        context.node.server_config.topic_config(configs)  # refuses what no log could act on
        created = await context.node.controller.create_topic(
            NewTopic(
                name=topic.name,
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments={
                    assigned.partition_index: tuple(assigned.broker_ids)
                    for assigned in topic.assignments
                },
                configs=configs,
            ),
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
        )
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = str(error)
    else:
        result.topic_id = created.topic_id
        result.num_partitions = created.partitions
        result.replication_factor = created.replication_factor
        result.configs = [
            CreatableTopicConfigs(
                name=entry.key.name, value=entry.value, config_source=entry.source
            )
            for entry in describe_topic(configs, context.node.server_config)
        ]
    if result.error_code == ErrorCode.NONE and context.api_version == 0:
        result.error_message = None
    return result
