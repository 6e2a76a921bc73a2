"""Facts about a cluster by chance, of every kind that the metadata log has; and what they come to."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DrainRecord,
    FenceNodeRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterNodeRecord,
    RemoveAccessControlEntryRecord,
    RemoveNodeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from bradbury.cluster.metadata.user_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

NAMES = ("flights", "gates", "__consumer_offsets")
MORE_NODES = 9
"""Nodes above this id come and go; they have no directories."""
USERS = ("alice", "bob")
KEYS = ("retention.ms", "cleanup.policy")


class Facts:
    """Records that may come next, by chance. nodes: ids of those with directories, by these."""

    def __init__(self, random: Random, nodes: Mapping[int, str]) -> None:
        self._random = random
        self._nodes = nodes
        self._made = 0

    def _next(self) -> int:
        self._made += 1
        return self._made

    def registrations(self) -> list[MetadataRecord]:
        return [self._node(node_id, directory) for node_id, directory in self._nodes.items()]

    def _node(self, node_id: int, directory_id: str) -> RegisterNodeRecord:
        return RegisterNodeRecord(
            node_id=node_id,
            directory_id=directory_id,
            incarnation=f"i{self._next()}",
            roles=("partition",),
            host="h",
            port=node_id,
            rack=None,
            epoch=self._next(),
            name=f"broker/partitions-{node_id}",
        )

    def next(self, image: MetadataImage) -> list[MetadataRecord]:
        """What one decision of a controller writes."""
        kinds = [self._topic, self._partitions, self._partitions, self._settings, self._access]
        return self._random.choice([*kinds, self._users, self._nodes_come_and_go])(image)

    def _topic(self, image: MetadataImage) -> list[MetadataRecord]:
        random = self._random
        name = random.choice(NAMES)
        if name in image.topics:
            topic = image.topics[name]
            if random.random() < 0.3:
                return [RemoveTopicRecord(topic_id=str(topic.topic_id))]
            at = len(topic.partitions)
            return [] if at > 3 else [self._new_partition(topic.topic_id, at)]
        topic_id = UUID(int=self._next())
        records: list[MetadataRecord] = [TopicRecord(topic_id=str(topic_id), name=name)]
        for index in range(random.randint(1, 3)):
            records.append(self._new_partition(topic_id, index))
        if random.random() < 0.5:
            records.append(ConfigRecord(resource="topic", name=name, key=KEYS[0], value="7"))
        return records

    def _new_partition(self, topic_id: UUID, index: int) -> PartitionRecord:
        random = self._random
        replicas = tuple(random.sample(list(self._nodes), random.randint(1, len(self._nodes))))
        return PartitionRecord(
            topic_id=str(topic_id),
            partition=index,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )

    def _partitions(self, image: MetadataImage) -> list[MetadataRecord]:
        """A leader is elected, or an ISR changes."""
        random = self._random
        found = [
            (topic, index, partition)
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
        ]
        if not found:
            return self._topic(image)
        topic, index, partition = random.choice(found)
        isr = tuple(random.sample(partition.replicas, random.randint(1, len(partition.replicas))))
        leader = random.choice([*isr, NO_LEADER])
        return [
            PartitionRecord(
                topic_id=str(topic.topic_id),
                partition=index,
                replicas=partition.replicas,
                isr=isr,
                leader=leader,
                leader_epoch=partition.leader_epoch + (leader != partition.leader),
                partition_epoch=partition.partition_epoch + 1,
                last_known_leader=partition.leader if leader == NO_LEADER else NO_LEADER,
            )
        ]

    def _settings(self, image: MetadataImage) -> list[MetadataRecord]:
        random = self._random
        resource, name = random.choice(
            [*(("topic", each) for each in image.topics), ("broker", "1"), ("group", "g")]
        )
        value = random.choice([None, str(self._next())])
        if random.random() < 0.5:
            return [
                ConfigRecord(resource=resource, name=name, key=random.choice(KEYS), value=value)
            ]
        return [
            ClientQuotaRecord(
                entity=("user", random.choice(USERS)),
                key="producer_byte_rate",
                value=random.choice([None, float(self._next())]),
            )
        ]

    def _access(self, image: MetadataImage) -> list[MetadataRecord]:
        random = self._random
        if image.acls and random.random() < 0.4:
            return [RemoveAccessControlEntryRecord(id=random.choice(list(image.acls)))]
        return [
            AccessControlEntryRecord(
                id=f"a{self._next()}",
                resource_type=2,
                resource_name=random.choice(NAMES),
                pattern_type=3,
                principal=f"User:{random.choice(USERS)}",
                host="*",
                operation=random.choice([3, 4]),
                permission_type=random.choice([2, 3]),
            )
        ]

    def _users(self, image: MetadataImage) -> list[MetadataRecord]:
        random = self._random
        user, mechanism = random.choice(USERS), random.choice([1, 2])
        if random.random() < 0.5:
            token = f"t{random.randint(1, 3)}"
            if token in image.delegation_tokens:
                return [RemoveDelegationTokenRecord(token_id=token)]
            return [
                DelegationTokenRecord(
                    token_id=token,
                    owner=f"User:{user}",
                    requester=f"User:{user}",
                    renewers=(),
                    issue_timestamp=self._next(),
                    max_timestamp=10_000,
                    expiry_timestamp=10_000,
                )
            ]
        if user in image.scram_credentials and random.random() < 0.4:
            mechanisms = image.scram_credentials[user]
            mechanism = 1 if "SCRAM-SHA-256" in mechanisms else 2
            return [RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)]
        return [
            UserScramCredentialRecord(
                name=user,
                mechanism=mechanism,
                iterations=4096 + self._next(),
                salt="c2FsdA==",
                stored_key="a2V5",
                server_key="a2V5",
            )
        ]

    def _nodes_come_and_go(self, image: MetadataImage) -> list[MetadataRecord]:
        random = self._random
        kind = random.choice(["drain", "fence", "producer ids", "node"])
        if kind == "drain":
            return [DrainRecord(machine="m", is_draining="m" not in image.draining)]
        if kind == "producer ids":
            return [ProducerIdsRecord(next_producer_id=image.next_producer_id + 1_000)]
        others = [each for each in image.nodes if each > MORE_NODES]
        if kind == "fence" and image.nodes:
            node = random.choice(list(image.nodes.values()))
            return [FenceNodeRecord(node_id=node.node_id, epoch=node.epoch, fenced=not node.fenced)]
        if others and random.random() < 0.5:
            return [RemoveNodeRecord(node_id=random.choice(others))]
        node_id = max(image.next_node_id, MORE_NODES + 1)
        return [self._node(node_id, f"d{node_id}")]


def settled(image: MetadataImage) -> dict[Any, Any]:
    """What people have set, by what it is about; nothing that a new start changes by itself."""
    said: dict[Any, Any] = {("drain", each): True for each in image.draining}
    for topic in image.topics.values():
        said["topic", topic.topic_id] = topic.name
        for index, partition in enumerate(topic.partitions):
            said["partition", topic.topic_id, index] = frozenset(partition.replicas)
        for key, value in topic.configs.items():
            said["topic config", topic.topic_id, key] = value
    for part in ("broker_configs", "group_configs", "scram_credentials", "client_quotas"):
        for name, values in getattr(image, part).items():
            for key, value in values.items():
                said[part, name, key] = value
    for part in ("acls", "delegation_tokens"):
        for name, value in getattr(image, part).items():
            said[part, name] = value
    for node_id in image.nodes:
        said["node", node_id] = True
    return said
