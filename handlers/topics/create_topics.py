"""CreateTopics (API key 19): checks of the request; the rules are in cluster/control/topic_control.

From version 5 on the response also describes the new topic: partitions, replication factor and
every setting with its source (KIP-525).
Source: ControllerApis.createTopics, ReplicationControlManager.createTopic.
"""

from __future__ import annotations

from ...cluster.control.controller_request import RequestOutcome
from ...cluster.control.topic_control import CreateTopics, TopicOutcome, TopicToCreate
from ...protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
)
from ...protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..authorization.topic_access import CREATE_TOPICS
from ..configs.config_description import describe_topic
from ..ports.api import api
from ..ports.context import Node, RequestContext
from .metered_change import metered_change

FIRST_WITH_QUOTA_ERROR = 6


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    node = context.node
    counts: dict[str, int] = {}
    for topic in request.topics:
        counts[topic.name] = counts.get(topic.name, 0) + 1
    asked: dict[str, TopicToCreate] = {}
    refused: dict[str, RequestOutcome] = {}
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise InvalidRequest(f"topic {topic.name!r} is named twice in the request")
            asked[topic.name] = _new_topic(topic, node)
        except KafkaError as error:
            refused[topic.name] = RequestOutcome.of(error)
    made, throttle_ms = await _create(list(asked.values()), request, context)
    outcomes = {name: TopicOutcome(outcome) for name, outcome in refused.items()}
    outcomes |= dict(zip(asked, made, strict=True))
    return CreateTopicsResponse(
        throttle_time_ms=throttle_ms,
        topics=[_result(name, outcomes[name], asked.get(name), node) for name in counts],
    )


def _new_topic(topic: CreatableTopic, node: Node) -> TopicToCreate:
    """Make a TopicToCreate. Raises errors of the request that do not depend on the cluster."""
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise InvalidRequest(
                "give either an assignment or partitions and replication factor, not both"
            )
    elif topic.num_partitions == 0 or topic.num_partitions < -1:
        raise InvalidPartitions(f"a topic needs at least one partition, not {topic.num_partitions}")
    elif topic.replication_factor == 0 or topic.replication_factor < -1:
        raise InvalidReplicationFactor(
            f"a partition needs at least one replica, not {topic.replication_factor}"
        )
    assignments = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
    if len(assignments) < len(topic.assignments):
        raise InvalidReplicaAssignment(f"a partition of topic {topic.name!r} is assigned twice")
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.name in configs:
            raise InvalidRequest(f"setting {config.name} is named twice in the request")
        if config.value is None:
            raise InvalidRequest(f"{config.name} needs a value, not null")
        configs[config.name] = config.value
    return TopicToCreate(
        name=topic.name,
        topic_id=node.new_id(),
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs=configs,
    )


async def _create(
    topics: list[TopicToCreate], request: CreateTopicsRequest, context: RequestContext
) -> tuple[tuple[TopicOutcome, ...], int]:
    if not topics:
        return (), 0
    try:
        return await metered_change(
            CreateTopics(topics=tuple(topics), validate_only=request.validate_only),
            context,
            timeout_ms=request.timeout_ms,
            strict_from=FIRST_WITH_QUOTA_ERROR,
        )
    except KafkaError as error:
        return (TopicOutcome(RequestOutcome.of(error)),) * len(topics), 0


def _result(
    name: str, outcome: TopicOutcome, topic: TopicToCreate | None, node: Node
) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=name,
        error_code=outcome.outcome.code,
        error_message=outcome.outcome.message,
        num_partitions=outcome.partitions,
        replication_factor=outcome.replication_factor,
    )
    if outcome.topic_id is not None and topic is not None:
        result.topic_id = outcome.topic_id
        result.configs = [
            CreatableTopicConfigs(
                name=each.key.name,
                value=each.value,
                read_only=each.is_read_only,
                config_source=each.source,
                is_sensitive=False,
            )
            for each in describe_topic(topic.configs, node.server_config)
        ]
    return result


API = api(2, 7, CreateTopicsRequest, handle, access=CREATE_TOPICS)
