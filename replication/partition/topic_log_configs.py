"""Settings of each topic's logs: its own, and the node's defaults otherwise."""

from __future__ import annotations

import logging
from typing import Protocol

from ...cluster.metadata.metadata_image import TopicImage
from ...protocol.errors import InvalidConfig
from ...storage.log_config import LogConfig
from .served_replicas import ServingNode

logger = logging.getLogger(__name__)


class NodeWithDefaults(Protocol):
    @property
    def log_defaults(self) -> LogConfig:
        """Settings of logs where a topic sets none."""
        ...


class TopicLogConfigs:
    """Settings of the topics that have replicas here."""

    def __init__(self, node: NodeWithDefaults, replicas: ServingNode) -> None:
        self._node = node
        self._replicas = replicas

    def on_defaults(self) -> None:
        """Apply changed defaults to logs that use them, at once."""
        for (name, _), replica in self._replicas.by_partition.items():
            topic = self._replicas.image.topics.get(name)
            if topic is not None:
                replica.reconfigure(self.of(topic))

    def of(self, topic: TopicImage) -> LogConfig:
        """Settings of a topic. Invalid combinations must not stop the node, nor lose records.

        Changes are checked before they are stored, but the node may be started with other settings
        later.
        """
        for defaults in (self._node.log_defaults, LogConfig()):
            try:
                return LogConfig.from_kafka(topic.configs, defaults=defaults)
            except InvalidConfig as error:
                logger.warning("topic %s: %s", topic.name, error)
        return LogConfig(retention_ms=-1)
