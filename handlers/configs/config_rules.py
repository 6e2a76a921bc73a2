"""The rules for settings of topics and brokers at run time: the controller's ConfigRules.

A change of brokers' defaults for topics is also checked with every topic that has settings of its
own: if a topic's settings would contradict each other (a jitter longer than its segments' age), the
change is refused with the topic's name. Kafka accepts it, and fails when it opens the log.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...cluster.control.config_control import CLIENT_METRICS, GROUP, TOPIC
from ...cluster.metadata.metadata_image import MetadataImage
from ...groups.dynamic_group_config import DynamicGroupConfig
from ...protocol.config_key import ConfigKey, ConfigType
from ...protocol.errors import InvalidConfig, InvalidRequest
from ...storage.log_config import LogConfig
from ..ports.server_config import EMPTY, ServerConfig, server_key, server_keys


class ServerConfigRules:
    """Implements cluster.control.controller_request.ConfigRules for nodes started with `server`."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server

    def _now(self, image: MetadataImage) -> ServerConfig:
        """Settings of a node without settings of its own."""
        return self._server.with_dynamic(image.broker_configs.get("", EMPTY), EMPTY)

    def is_list(self, resource_type: int, name: str) -> bool:
        if resource_type in (CLIENT_METRICS, GROUP):
            return False  # as in Kafka, though `metrics` and `match` hold several words
        keys = LogConfig.keys() if resource_type == TOPIC else server_keys()
        return name in keys and keys[name].type is ConfigType.LIST

    def default_of(self, image: MetadataImage, resource_type: int, name: str) -> str:
        server = self._now(image)
        if resource_type == TOPIC:
            return server.log_defaults.to_kafka()[name]
        return server.value_of(name) or ""

    def topic_defaults(self, image: MetadataImage) -> tuple[int, int]:
        broker = self._now(image).broker
        return broker.num_partitions, broker.default_replication_factor

    def check_topic(self, image: MetadataImage, configs: Mapping[str, str]) -> None:
        self._now(image).topic_config(configs)

    def check_group(self, configs: Mapping[str, str]) -> None:
        DynamicGroupConfig.from_kafka(configs)

    def check_broker(self, image: MetadataImage, name: str, configs: Mapping[str, str]) -> None:
        for each, value in configs.items():
            _check_dynamic(server_key(each), value)
        default = image.broker_configs.get("", EMPTY)
        before = image.broker_configs.get(name, EMPTY)
        try:
            self._server.security.check_listeners(configs.keys() - before.keys())
            changed = (
                self._server.with_dynamic(default, configs)
                if name
                else self._server.with_dynamic(configs, EMPTY)
            )
        except InvalidConfig as error:
            raise InvalidRequest(str(error)) from None
        for topic in image.topics.values():
            if topic.configs:
                try:
                    changed.topic_config(topic.configs)
                except InvalidConfig as error:
                    raise InvalidRequest(
                        f"the change contradicts the settings of topic {topic.name!r}: {error}"
                    ) from None


def _check_dynamic(key: ConfigKey, value: str) -> None:
    if not key.is_dynamic:
        raise InvalidRequest(
            f"{key.name} cannot be changed while brokers run; give it to `bradbury up --config`"
        )
    try:
        key.parse(value)
    except InvalidConfig as error:  # Kafka's answer for brokers, KAFKA-13609
        raise InvalidRequest(str(error)) from None
