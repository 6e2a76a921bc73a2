"""UnregisterBroker: removes a node that will not come back from the metadata.

Source: ClusterControlManager.unregisterBroker in apache/kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.errors import BrokerIdNotRegistered, InvalidRequest
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import MetadataRecord, RemoveNodeRecord
from .controller_request import ConfigRules, ControllerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker(ControllerRequest[None]):
    """Removes a node from the metadata. Raises: BrokerIdNotRegistered: no such node.
    InvalidRequest: it is in service, is a voter, or has replicas.
    """

    node_id: int

    def decide(self, image: MetadataImage, rules: ConfigRules) -> tuple[list[MetadataRecord], None]:
        del rules
        node = image.nodes.get(self.node_id)
        if node is None:
            if self.is_repeated:
                return [], None
            raise BrokerIdNotRegistered(f"there is no node {self.node_id}")
        if not node.fenced:
            raise InvalidRequest(f"node {self.node_id} is in service; stop it first")
        if node.metadata_directory_id in image.voters:
            raise InvalidRequest(
                f"node {self.node_id} holds a copy of the metadata that counts: "
                "remove it from the voters first"
            )
        count = sum(
            self.node_id in partition.replicas
            for topic in image.topics.values()
            for partition in topic.partitions
        )
        if count:
            raise InvalidRequest(
                f"{count} partitions have a replica on node {self.node_id}; move them first"
            )
        return [RemoveNodeRecord(node_id=self.node_id)], None
