"""Nodes that a metadata change affects: its answer waits until they have applied it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from .metadata_image import NO_LEADER, MetadataImage
from .metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
)
from .user_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

_OF_ALL = (
    ConfigRecord,
    ClientQuotaRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)


def concerned_nodes(records: Sequence[MetadataRecord], image: MetadataImage) -> set[int]:
    """Affected nodes: the leaders of changed and deleted partitions; all live nodes if only
    settings, quotas, users or ACLs change.

    `image`: before the change.
    """
    if records and all(isinstance(record, _OF_ALL) for record in records):
        return {node.node_id for node in image.live_nodes()}
    leaders = {record.leader for record in records if isinstance(record, PartitionRecord)}
    for record in records:
        if isinstance(record, RemoveTopicRecord):
            topic = image.topic_by_id(uuid.UUID(record.topic_id))
            if topic is not None:
                leaders |= {partition.leader for partition in topic.partitions}
    return leaders - {NO_LEADER}
