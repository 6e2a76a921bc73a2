"""Requests that change settings of topics and brokers at run time.

A resource is a topic, a broker by its node id, all brokers (name ""), a group, or a client metrics
subscription. The changes of one resource are made together or not at all; other resources of the
request do not depend on them. ConfigRules checks the values of settings (client_metrics_config
those of subscriptions).
Source: apache/kafka metadata/.../controller/ConfigurationControlManager.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ...protocol.config_key import split_list
from ...protocol.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)
from ...protocol.topic_name import check_topic_name
from ..client_metrics_config import check_client_metrics
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import ConfigRecord, MetadataRecord
from .controller_request import DONE, ConfigRules, ControllerRequest, RequestOutcome

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
"""Resource type of broker loggers; not handled here, as log levels are set per process
(handlers/configs/broker_loggers).
"""
CLIENT_METRICS: Final = 16
GROUP: Final = 32
RESOURCE_NAMES: Final = {
    TOPIC: "topic",
    BROKER: "broker",
    CLIENT_METRICS: "client_metrics",
    GROUP: "group",
}


class Operation(IntEnum):
    """Operation on a setting: AlterConfigOp.OpType on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChanges:
    """Changes of one resource: at most one per setting. With `replaces`, settings not named are
    removed.
    """

    resource_type: int
    name: str
    changes: tuple[ConfigChange, ...]
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs(ControllerRequest[tuple[RequestOutcome, ...]]):
    """Changes settings of resources; answered with an outcome per resource, in order."""

    resources: tuple[ResourceChanges, ...]

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], tuple[RequestOutcome, ...]]:
        records: list[MetadataRecord] = []
        outcomes = []
        for resource in self.resources:
            try:
                changed = alter(image, resource, rules)
            except KafkaError as error:
                outcomes.append(RequestOutcome.of(error))
            else:
                records += changed
                outcomes.append(DONE)
        return records, tuple(outcomes)


def alter(
    image: MetadataImage, resource: ResourceChanges, rules: ConfigRules
) -> list[MetadataRecord]:
    """Records that change one resource; none for a setting that keeps its value.

    Raises:
        UnknownTopicOrPartition, BrokerIdNotRegistered: there is no such resource.
        InvalidConfig, InvalidRequest: a setting is not allowed; see ConfigRules.
    """
    before = configs_of(image, resource.resource_type, resource.name)
    after = {} if resource.replaces else dict(before)
    for change in resource.changes:
        value = _value_after(image, resource, change, before, rules)
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    if resource.resource_type == TOPIC:
        rules.check_topic(image, after)
    elif resource.resource_type == GROUP:
        rules.check_group(after)
    elif resource.resource_type == CLIENT_METRICS:
        check_client_metrics(after)
    else:
        rules.check_broker(image, resource.name, after)
    return [
        ConfigRecord(
            resource=RESOURCE_NAMES[resource.resource_type],
            name=resource.name,
            key=key,
            value=after.get(key),
        )
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _value_after(
    image: MetadataImage,
    resource: ResourceChanges,
    change: ConfigChange,
    before: Mapping[str, str],
    rules: ConfigRules,
) -> str | None:
    match change.operation:
        case Operation.SET:
            return change.value
        case Operation.DELETE:
            return None
        case Operation.APPEND | Operation.SUBTRACT:
            if not rules.is_list(resource.resource_type, change.name):
                raise InvalidConfig(f"{change.name} is not a list: set it instead")
            words = split_list(
                before[change.name]
                if change.name in before
                else rules.default_of(image, resource.resource_type, change.name)
            )
            given = split_list(change.value or "")
            if change.operation == Operation.APPEND:
                return ",".join(words + [word for word in given if word not in words])
            return ",".join(word for word in words if word not in given)
    raise InvalidRequest(f"there is no operation {change.operation} on settings")


def configs_of(image: MetadataImage, resource_type: int, name: str) -> Mapping[str, str]:
    """Settings of a resource that differ from the defaults. Raises UnknownTopicOrPartition,
    BrokerIdNotRegistered.
    """
    if resource_type == TOPIC:
        if not name:
            raise InvalidRequest("settings of topics belong to one topic; defaults are a broker's")
        check_topic_name(name)
        topic = image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return topic.configs
    if resource_type in (GROUP, CLIENT_METRICS):
        if not name:
            raise InvalidRequest("settings of this kind need a resource name")
        named = image.group_configs if resource_type == GROUP else image.client_metrics
        return named.get(name, {})
    if resource_type != BROKER:
        raise InvalidRequest(f"resource type {resource_type} has no settings here")
    if name and (not name.isdecimal() or int(name) not in image.nodes):
        raise BrokerIdNotRegistered(f"there is no node {name!r}")
    return image.broker_configs.get(name, {})
