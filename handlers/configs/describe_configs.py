"""DescribeConfigs (API key 32): the settings of topics and of the answering broker.

Broker "" has the settings made for all brokers at run time. Also described: the levels of the
broker's loggers, the settings of groups, and subscriptions to client metrics. An unknown topic or
broker is an error of that resource, an unknown resource type one of the whole request.
How a setting is shown: config_description. Source: ConfigHelper.scala.
"""

from __future__ import annotations

from ...cluster.control.config_control import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from ...protocol.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from ...protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ...protocol.topic_name import check_topic_name
from ..authorization.config_access import DESCRIBE_CONFIGS_ACCESS
from ..ports.api import Parts, api
from ..ports.context import Node, RequestContext
from .broker_loggers import levels
from .config_description import (
    DescribedConfig,
    describe_broker,
    describe_broker_default,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
)

KINDS = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    unknown = {resource.resource_type for resource in request.resources} - KINDS
    if unknown:
        refusal = InvalidRequest(f"unknown resource type {min(unknown)}")
        return DescribeConfigsResponse(
            results=[_refused(resource, refusal) for resource in request.resources]
        )
    return DescribeConfigsResponse(
        results=[_describe(resource, request, context.node) for resource in request.resources]
    )


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=error.code,
        error_message=str(error),
    )


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, node: Node
) -> DescribeConfigsResult:
    try:
        configs = _configs(resource, node)
    except KafkaError as error:
        return _refused(resource, error)
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    wanted = resource.configuration_keys or None  # no names: all settings
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
    if not name:
        raise InvalidRequest("settings of this kind need a resource name")
    if resource.resource_type == BROKER_LOGGER:
        check_this_node(name, node)
        return describe_loggers(levels())
    if resource.resource_type == GROUP:
        return describe_group(node.image.group_configs.get(name, {}))
    return describe_client_metrics(node.image.client_metrics.get(name, {}))


def check_this_node(name: str, node: Node) -> None:
    """Raise InvalidRequest unless `name` is this node's id: it has no settings of other nodes."""
    if not name.isdecimal():
        raise InvalidRequest(f"the name of a broker is its node id, a number, not {name!r}")
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
        is_sensitive=config.key.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=config.key.type,
        documentation=config.key.documentation if request.include_documentation else None,
    )


API = api(
    1,
    4,
    DescribeConfigsRequest,
    handle,
    Parts("resources", "results", 5),
    access=DESCRIBE_CONFIGS_ACCESS,
)
