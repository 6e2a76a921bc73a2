"""Whether the topics that a flow writes exist, asked before anything is computed."""

from __future__ import annotations

from typing import Final

from ...clients.wire.cluster_client import ClusterClient
from ...protocol.errors import UnknownTopicOrPartition
from .flow import FlowFailed, FlowTarget

TIMEOUT_MS: Final = 60_000


def check_topic_of(target: FlowTarget, client: ClusterClient) -> None:
    """Raise FlowFailed if the topic of this target, if it is one, does not exist."""
    if target.topic is None:
        return
    try:
        client.run(client.topic(target.topic), TIMEOUT_MS)
    except UnknownTopicOrPartition:
        raise FlowFailed(
            f"targets.{target.name}: topic {target.topic!r} does not exist; create it with "
            f"`bradbury topics create {target.topic}`"
        ) from None
