"""Nodes that may have the records lost in a damaged segment of this node."""

from __future__ import annotations

from ...cluster.metadata.metadata_image import MetadataImage


def segment_sources(image: MetadataImage, topic: str, partition: int, node_id: int) -> list[int]:
    """Nodes of the other replicas, without fenced ones: the leader, then those in sync, then
    others.

    A replica that is out of sync may still have old records.
    """
    state = image.partition(topic, partition)
    if state is None:
        return []
    others = [
        each
        for each in state.replicas
        if each != node_id and (node := image.nodes.get(each)) is not None and not node.fenced
    ]
    return sorted(others, key=lambda each: (each != state.leader, each not in state.isr))
