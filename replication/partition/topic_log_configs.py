"""The settings of each topic's logs: its own, and the node's defaults where it has none."""

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
        """What holds where a topic says nothing itself."""
        ...


class TopicLogConfigs:
    """Of the topics that `replicas` are of."""

    def __init__(self, node: NodeWithDefaults, replicas: ServingNode) -> None:
        self._node = node
        self._replicas = replicas

    def on_defaults(self) -> None:
        """Logs that take a default from the node's settings follow at once."""
        for (name, _), replica in self._replicas.by_partition.items():
            topic = self._replicas.image.topics.get(name)
            if topic is not None:
                replica.reconfigure(self.of(topic))

    def of(self, topic: TopicImage) -> LogConfig:
        """The topic's settings. What contradicts itself must not stop the node, nor lose records.

        Changes are checked before they are stored, but the settings a node is started with may be
        other ones by now.
        """
        for defaults in (self._node.log_defaults, LogConfig()):
            try:
                return LogConfig.from_kafka(topic.configs, defaults=defaults)
            except InvalidConfig as error:
                logger.warning("topic %s: %s", topic.name, error)
        return LogConfig(retention_ms=-1)
