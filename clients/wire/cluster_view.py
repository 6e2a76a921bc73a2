"""The client's view of a cluster: nodes, topics, leaders. Immutable: replaced, never changed.

Invariants:
    Within one topic id a leader epoch never goes back: an answer with older metadata does not
    overwrite newer metadata of another node (KIP-320).

Not here: Metadata requests (cluster_client).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from ...protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ...protocol.schema import ZERO_UUID
from .connection import Address


@dataclass(frozen=True, slots=True)
class Broker:
    """One Kafka node. rack: the Ray node or zone that it reports."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Partition. leader: node id, -1 if there is none now. leader_epoch: -1 if not reported."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicView:
    """Topic. partitions: by number, without gaps. error_code: if not 0, there are none."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionView, ...]
    is_internal: bool = False
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def partition(self, topic: str, partition: int) -> PartitionView | None:
        view = self.topics.get(topic)
        if view is None or not 0 <= partition < len(view.partitions):
            return None
        return view.partitions[partition]

    def leader(self, topic: str, partition: int) -> Broker | None:
        """The node that leads, if it is known and alive."""
        view = self.partition(topic, partition)
        return None if view is None else self.brokers.get(view.leader)

    def partition_count(self, topic: str) -> int:
        """Number of partitions; 0 if the topic is not known."""
        view = self.topics.get(topic)
        return 0 if view is None else len(view.partitions)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Ids, as text, of the known ones of `topics`; zero where brokers have none."""
        return {name: str(self.topics[name].topic_id) for name in topics if name in self.topics}

    def updated(self, response: MetadataResponse, *, asked: Iterable[str] | None) -> ClusterView:
        """The view after `response`, which answers for the topics `asked` (None: all)."""
        topics = dict(self.topics) if asked is not None else {}
        for topic in response.topics:
            if topic.name is not None:
                topics[topic.name] = _newer(self.topics.get(topic.name), _topic_view(topic))
        return ClusterView(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers={
                broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            },
            topics=topics,
        )


def _topic_view(topic: MetadataResponseTopic) -> TopicView:
    partitions = tuple(
        PartitionView(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            partition.error_code,
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    return TopicView(
        topic.name or "", topic.topic_id, partitions, topic.is_internal, topic.error_code
    )


def _newer(old: TopicView | None, new: TopicView) -> TopicView:
    if old is None or new.error_code or old.topic_id != new.topic_id or new.topic_id == ZERO_UUID:
        return new
    kept = [
        before if before is not None and before.leader_epoch > after.leader_epoch else after
        for after, before in zip(
            new.partitions,
            [*old.partitions, *[None] * len(new.partitions)],
            strict=False,
        )
    ]
    return replace(new, partitions=tuple(kept))
