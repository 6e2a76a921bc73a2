"""Offline replicas of a node whose log directory failed: removed from the ISR, and others lead.

The node stays in service with its other directories (KIP-858). A partition that no other replica
can lead keeps this leader, which answers KAFKA_STORAGE_ERROR until the directory is back.
Source: ReplicationControlManager.handleDirectoriesOffline in apache/kafka, where heartbeats report
directories and the metadata has the directory of every replica; here the node lists partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from uuid import UUID

from ...protocol.errors import StaleBrokerEpoch
from ..metadata.metadata_image import NO_LEADER, MetadataImage
from ..metadata.metadata_records import MetadataRecord
from ..partition.partition_change import next_partition
from .controller_request import ConfigRules, ControllerRequest
from .partition_control import may_be_unclean, min_insync_replicas


class OfflineReplica(NamedTuple):
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOfflineReplicas(ControllerRequest[tuple[bool, ...]]):
    """Removes offline replicas of a node from the ISR, and lets others lead. Answered for each, in
    order: True if it is removed or was not in the ISR; False: no other replica can lead now.

    Raises StaleBrokerEpoch: the asking node has been registered again.
    """

    # Otherwise the node would rely on an answer from a deposed controller's outdated metadata.
    needs_confirmation: ClassVar[bool] = True
    node_id: int
    broker_epoch: int
    replicas: tuple[OfflineReplica, ...]

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], tuple[bool, ...]]:
        node = image.nodes.get(self.node_id)
        if node is None or node.epoch != self.broker_epoch:
            current = "not registered" if node is None else f"current is {node.epoch}"
            raise StaleBrokerEpoch(
                f"node {self.node_id}: broker epoch {self.broker_epoch} is stale, {current}"
            )
        others = {each.node_id for each in image.live_nodes()} - {self.node_id}
        records: list[MetadataRecord] = []
        answers = []
        for offline in self.replicas:
            topic = image.topic_by_id(offline.topic_id)
            if topic is None or offline.partition >= len(topic.partitions):
                answers.append(True)  # deleted meanwhile
                continue
            partition = topic.partitions[offline.partition]
            if self.node_id not in partition.isr:  # and so it does not lead
                answers.append(True)
                continue
            # As if the node were fenced, for this partition: its replica gets no more records, but
            # keeps the acknowledged ones, so below min.insync.replicas it stays in the ELR.
            changed = next_partition(
                partition,
                is_active=others.__contains__,
                min_insync_replicas=min_insync_replicas(image, rules, topic),
                is_unclean=may_be_unclean(image, rules, topic),
            )
            answers.append(changed.leader != NO_LEADER)
            if changed.leader != NO_LEADER:
                records.append(changed.to_record(offline.topic_id, offline.partition))
        return records, tuple(answers)
