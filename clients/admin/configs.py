"""Configs of topics and brokers: described with sources, changed incrementally (KIP-226, 339)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...protocol.errors import BrokerNotAvailable, KafkaError, error_for
from ...protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ...protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...protocol.schema import Message
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import ClusterClient, R
from .topics_admin import refused_topic

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
ALL_BROKERS: Final = "all"
SET, DELETE, APPEND, SUBTRACT = range(4)


class ConfigSynonym(NamedTuple):
    """Value of a config at one source; sources as in ConfigEntry."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config.

    source: 1 set on the topic, 2 set for the broker and 3 for all brokers at run time, 4 given to
    the brokers at their start, 5 the default. synonyms: values of all sources, in precedence order.
    """

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


class Resource(NamedTuple):
    """Resource that configs belong to. node: broker that has to be asked; None: any."""

    kind: int
    name: str
    node: int | None


def resource(topic: str | None, broker: int | str | None) -> Resource:
    """Make the resource of a topic or a broker. Raises ValueError: not exactly one is given."""
    if (topic is None) == (broker is None):
        raise ValueError('use a topic, or broker=node_id, or broker="all"')
    if topic is not None:
        return Resource(TOPIC_RESOURCE, topic, None)
    if broker == ALL_BROKERS:
        return Resource(BROKER_RESOURCE, "", None)
    try:
        node_id = int(broker or 0)
    except ValueError:
        raise ValueError(f'broker={broker!r}: use a node id, or "all"') from None
    return Resource(BROKER_RESOURCE, str(node_id), node_id)


def describe_configs(
    client: ClusterClient, of: Resource, *, documentation: bool = False
) -> Steps[dict[str, ConfigEntry]]:
    """Describe configs, by name. Raises UnknownTopicOrPartition, BrokerNotAvailable."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=of.kind, resource_name=of.name, configuration_keys=None
            )
        ],
        include_synonyms=True,
        include_documentation=documentation,
    )
    response = yield from _ask(client, of, request, DescribeConfigsResponse)
    (result,) = response.results
    if result.error_code:
        raise _refused(of, result.error_code, result.error_message)
    return {
        entry.name: ConfigEntry(
            entry.name,
            entry.value,
            entry.config_source,
            entry.read_only,
            entry.is_sensitive,
            tuple(ConfigSynonym(each.name, each.value, each.source) for each in entry.synonyms),
            entry.documentation,
        )
        for entry in result.configs
    }


def alter_configs(
    client: ClusterClient,
    of: Resource,
    changes: Mapping[str, object],
    *,
    unset: Iterable[str] = (),
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Steps[None]:
    """Change configs of one resource: all of them, or none.

    Raises:
        InvalidConfig: an unknown name, or a value that is not allowed.
        InvalidRequest: a setting is named twice, or cannot be changed while brokers run.
        UnknownTopicOrPartition, BrokerNotAvailable: there is no such resource.
    """
    configs = [
        AlterableConfig(name=name, config_operation=operation, value=_text(value))
        for operation, values in (
            (SET, changes),
            (DELETE, dict.fromkeys(unset)),
            (APPEND, append or {}),
            (SUBTRACT, subtract or {}),
        )
        for name, value in values.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=of.kind, resource_name=of.name, configs=configs)
        ],
        validate_only=validate_only,
    )
    # Each of the four operations is idempotent, so the request may be retried.
    response = yield from _ask(client, of, request, IncrementalAlterConfigsResponse)
    (result,) = response.responses
    if result.error_code:
        raise _refused(of, result.error_code, result.error_message)


def _refused(of: Resource, code: int, message: str | None) -> KafkaError:
    return (
        error_for(code, message)
        if of.kind != TOPIC_RESOURCE
        else refused_topic(code, of.name, message)
    )


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ask(client: ClusterClient, of: Resource, request: Message, response: type[R]) -> Steps[R]:
    if of.node is None:
        return (yield from client.send_to_any(request, response))
    view = yield from wait(client.refresh())
    broker = view.brokers.get(of.node)
    if broker is None:
        raise BrokerNotAvailable(f"there is no live broker {of.node}; see describe_cluster()")
    return (yield from wait(client.send(broker.address, request, response)))
