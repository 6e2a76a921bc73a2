"""Check that the topics of a flow exist, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...clients.wire.cluster_client import ClusterClient
from ...protocol.errors import UnknownTopicOrPartition
from .flow import Flow, FlowFailed

TIMEOUT_MS: Final = 60_000


def check_topics_of(flow: Flow, client: ClusterClient) -> None:
    """Raise FlowFailed if a topic of a source or a target does not exist.

    client: of the flow's cluster. A source whose options name other brokers is not checked.
    """
    for part, topic in _topics_of(flow):
        try:
            client.run(client.topic(topic), TIMEOUT_MS)
        except UnknownTopicOrPartition:
            raise FlowFailed(
                f"{part}: topic {topic!r} does not exist; create it with "
                f"`bradbury topics create {topic}`"
            ) from None


def _topics_of(flow: Flow) -> Iterator[tuple[str, str]]:
    """(part of the flow, topic) of all topics."""
    for source in flow.sources:
        is_elsewhere = any(key.lower().endswith("bootstrap.servers") for key in source.options)
        if source.topic is not None and not is_elsewhere:
            for topic in source.topic.split(","):
                yield f"sources.{source.name}", topic.strip()
    for target in flow.targets:
        if target.topic is not None:
            yield f"targets.{target.name}", target.topic
