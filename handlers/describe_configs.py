"""DescribeConfigs (API key 32): the settings of topics and of the answering broker.

Broker "" stands for what was set for all brokers at run time. Unknown types and names are errors
per resource. How a setting is shown: config_description. Source: ConfigHelper.scala.
"""

from __future__ import annotations

from ..cluster.topic_name import check_topic_name
from ..protocol.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from ..protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from .config_description import (
    DescribedConfig,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from .context import Node, RequestContext

TOPIC = 2
BROKER = 4


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(resource, request, context.node) for resource in request.resources]
    )


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, node: Node
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        configs = _configs(resource, node)
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = str(error)
        return result
    wanted = resource.configuration_keys or None  # none asked for by name: all
    result.configs = [
        _entry(config, request) for config in configs if wanted is None or config.key.name in wanted
    ]
    return result


def _configs(resource: DescribeConfigsResource, node: Node) -> list[DescribedConfig]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        check_topic_name(name)
        topic = node.image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return describe_topic(topic.configs, node.server_config)
    if resource.resource_type == BROKER:
        if not name:
            return describe_broker_default(node.server_config)
        check_this_node(name, node)
        return describe_broker(node.server_config)
    raise InvalidRequest(f"resource type {resource.resource_type} has no settings here")


def check_this_node(name: str, node: Node) -> None:
    """Raises InvalidRequest unless `name` is this node's id: each node knows its own settings."""
    if not name.isdecimal():
        raise InvalidRequest(f"a broker is named by its node id, a number, not {name!r}")
    if int(name) != node.node_id:
        raise InvalidRequest(f"this is node {node.node_id}; ask node {name} itself")


def _entry(
    config: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = config.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=config.key.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.source,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=config.key.type,
        documentation=config.key.documentation if request.include_documentation else None,
    )
