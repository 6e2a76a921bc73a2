"""DescribeConfigs (API key 32): the settings of topics and of the answering broker.

Unknown resource types and names are errors per resource. Sources: 1 set on the topic, 5 default,
4 given to the broker at its start. Types: ConfigDef's numbers. Source: ConfigHelper.scala.
"""

from __future__ import annotations

from ..cluster.broker_config import BrokerConfig
from ..groups.group_config import GroupCoordinatorConfig
from ..protocol.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from ..protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ..storage.log_config import LogConfig
from .context import RequestContext

TOPIC = 2
BROKER = 4
SET_ON_TOPIC = 1
STATIC_BROKER = 4
DEFAULT = 5
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7
TYPES = {"boolean": BOOLEAN, "string": STRING, "int": INT, "long": LONG, "list": LIST}


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(resource, request, context) for resource in request.resources]
    )


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        entries = _entries(resource, request, context)
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = str(error)
        return result
    wanted = resource.configuration_keys
    result.configs = [entry for entry in entries if wanted is None or entry.name in wanted]
    return result


def _entries(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> list[DescribeConfigsResourceResult]:
    if resource.resource_type == TOPIC:
        topic = context.node.image.topics.get(resource.resource_name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {resource.resource_name!r} does not exist")
        return [
            _entry(
                entry.name,
                entry.value,
                source=DEFAULT if entry.is_default else SET_ON_TOPIC,
                kind=TYPES[entry.type],
                documentation=entry.documentation,
                request=request,
            )
            for entry in LogConfig.from_kafka(topic.configs).describe()
        ]
    if resource.resource_type == BROKER:
        if resource.resource_name not in ("", str(context.node.node_id)):
            raise InvalidRequest(
                f"this is node {context.node.node_id}; ask node {resource.resource_name} itself"
            )
        node = context.node
        defaults = BrokerConfig().to_kafka() | GroupCoordinatorConfig().to_kafka()
        settings = node.config.to_kafka() | node.group_config.to_kafka()
        return [
            _entry(
                name,
                value,
                source=DEFAULT if value == defaults[name] else STATIC_BROKER,
                kind=BOOLEAN if value in ("true", "false") else INT,
                documentation=None,
                request=request,
                read_only=True,
            )
            for name, value in settings.items()
        ]
    raise InvalidRequest(f"resource type {resource.resource_type} has no settings here")


def _entry(
    name: str,
    value: str,
    *,
    source: int,
    kind: int,
    documentation: str | None,
    request: DescribeConfigsRequest,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [DescribeConfigsSynonym(name=name, value=value, source=source)]
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=kind,
        documentation=documentation if request.include_documentation else None,
    )
