"""Random requests to the controller: most could be carried out, many could not."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.cluster.control.access.acl_control import AclToCreate, CreateAcls, DeleteAcls
from bradbury.cluster.control.access.scram_control import (
    AlterUserScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from bradbury.cluster.control.access.token_control import (
    CreateDelegationToken,
    ExtendDelegationToken,
    RemoveExpiredTokens,
)
from bradbury.cluster.control.alter_partition import AlterPartition, Insync, ProposedIsr
from bradbury.cluster.control.client_quota_control import AlterClientQuotas, QuotaChange
from bradbury.cluster.control.config_control import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    AlterConfigs,
    ConfigChange,
    Operation,
    ResourceChanges,
)
from bradbury.cluster.control.controller_request import ControllerRequest
from bradbury.cluster.control.node_control import UnregisterBroker
from bradbury.cluster.control.offline_replicas import OfflineReplica, RemoveOfflineReplicas
from bradbury.cluster.control.partition_control import (
    CreatePartitions,
    ElectLeaders,
    NewPartitions,
    PeriodicLeaderElection,
)
from bradbury.cluster.control.reassignment import (
    AlterPartitionReassignments,
    ListPartitionReassignments,
    PartitionReassignment,
)
from bradbury.cluster.control.rebalance import Rebalance, nodes_on, replicas_on
from bradbury.cluster.control.throttled_moves import RATES
from bradbury.cluster.control.topic_control import (
    CreateTopics,
    DeleteTopics,
    TopicKey,
    TopicToCreate,
)
from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage
from bradbury.cluster.metadata.metadata_records import MetadataRecord, VotersRecord
from bradbury.cluster.metadata.user_records import DelegationTokenRecord
from bradbury.cluster.quorum.voter_change import VoterChange, successor
from bradbury.protocol.errors import KafkaError
from bradbury.protocol.security.acl_binding import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from bradbury.protocol.security.scram import ScramCredential
from bradbury.protocol.topic_name import INTERNAL_TOPICS

if TYPE_CHECKING:
    from .control_world import ControlWorld

NAMES = ("a", "b.c", "b_c", "d", "e", *sorted(INTERNAL_TOPICS)[:2])
NO_NAMES = ("", ".", "..", "no spaces", "x" * 250, "__cluster_metadata")
SETTINGS = {
    "min.insync.replicas": ("1", "2", "3", "0", "many"),
    "unclean.leader.election.enable": ("true", "false", "perhaps"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "burn"),
    "retention.ms": ("1000", "-1", "-5"),
    "follower.replication.throttled.replicas": ("0:1,1:2", "*", "0-1"),
    "no.such.setting": ("1",),
}
LISTS = ("cleanup.policy", "follower.replication.throttled.replicas", "no.such.setting")
OF_BROKERS = {
    RATES[0]: ("1000", "0", "-1", "fast"),
    "unclean.leader.election.enable": ("true", "false"),
    "min.insync.replicas": ("1", "2"),
    "listeners": ("PLAINTEXT://:1",),
}
OF_GROUPS = {"consumer.session.timeout.ms": ("45000", "1", "x"), "no.such.setting": ("1",)}
OF_METRICS = {
    "interval.ms": ("1000", "1", "x"),
    "match": ("client_id=a.*", "client_id", "age=3", "client_id=(", ""),
    "metrics": ("", "*"),
    "no.such.setting": ("1",),
}
ENTITIES = (
    (("user", "alice"),),
    (("user", None),),
    (("client-id", "loader"), ("user", "alice")),
    (("ip", "10.0.0.1"),),
    (("ip", "nowhere"),),
    (("ip", "10.0.0.1"), ("user", "alice")),
    (("moon", "full"),),
    (("user", ""),),
    (),
)
QUOTAS = (
    "producer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "no_such_rate",
)


class RequestMaker:
    def __init__(self, world: ControlWorld) -> None:
        self._world = world
        self._random: random.Random = world.random
        self._makers: list[Callable[[], ControllerRequest[Any]]] = [
            *[self._create_topics] * 3,
            self._delete_topics,
            self._create_partitions,
            *[self._alter_configs] * 3,
            *[self._reassign] * 2,
            self._elect,
            self._settle,
            self._list,
            self._offline,
            *[self._rebalance] * 2,
            self._unregister,
            self._create_acls,
            self._delete_acls,
            self._alter_users,
            self._create_token,
            self._extend_token,
            self._expire_tokens,
            self._alter_quotas,
        ]
        self._topic_ids: list[tuple[str, uuid.UUID]] = []
        self._tokens: list[str] = ["none"]

    @property
    def _image(self) -> MetadataImage:
        return self._world.image

    def make(self) -> ControllerRequest[Any]:
        return self._random.choice(self._makers)()

    # --- topics and partitions -------------------------------------------------------------------

    def _create_topics(self) -> CreateTopics:
        names = self._random.sample(NAMES, self._random.randint(1, 2))
        if self._is_wrong():
            names.append(self._random.choice(NO_NAMES))
        return CreateTopics(topics=tuple(map(self._topic, names)))

    def _topic(self, name: str) -> TopicToCreate:
        topic_id = uuid.UUID(int=self._random.getrandbits(128))
        if self._topic_ids and self._random.random() < 0.1:
            name, topic_id = self._random.choice(self._topic_ids)
        self._topic_ids.append((name, topic_id))
        configs = {}
        if self._random.random() < 0.5:
            configs = dict([self._setting(SETTINGS)])
        assignments = {}
        if self._random.random() < 0.3:
            factor = self._random.randint(1, 3)
            assignments = {number + self._is_wrong(): self._nodes(factor) for number in range(2)}
        return TopicToCreate(
            name=name,
            topic_id=topic_id,
            partitions=-1 if assignments else self._random.choice([-1, 1, 2, 3, 5, 0, 20_000]),
            replication_factor=-1 if assignments else self._random.choice([-1, 1, 2, 3, 0]),
            assignments=assignments,
            configs=configs,
        )

    def _delete_topics(self) -> DeleteTopics:
        topic = self._a_topic()
        by_id = self._random.choice([*self._topic_ids, ("", uuid.UUID(int=7))])[1]
        keys = [TopicKey(name=topic), TopicKey(topic_id=by_id)]
        if self._is_wrong():
            keys.append(TopicKey(name=topic))
        return DeleteTopics(topics=tuple(self._random.sample(keys, self._random.randint(1, 2))))

    def _create_partitions(self) -> CreatePartitions:
        name = self._a_topic()
        topic = self._image.topics.get(name)
        present = len(topic.partitions) if topic is not None else 1
        total = present + self._random.choice([-1, 0, 1, 1, 2, 20_000])
        assignments = None
        if self._random.random() < 0.5:
            factor = len(topic.partitions[0].replicas) if topic is not None else 1
            factor += self._random.random() < 0.2
            count = self._random.choice([1, max(1, min(3, total - present))])
            assignments = tuple(self._nodes(factor) for _ in range(count))
        return CreatePartitions(topics=(NewPartitions(name, total, assignments),))

    def _elect(self) -> ElectLeaders:
        partitions = None
        if self._random.random() < 0.5:
            partitions = ((self._a_topic(), (0, 1, 9)),)
        return ElectLeaders(election_type=self._random.choice([0, 0, 1, 2]), partitions=partitions)

    def _settle(self) -> PeriodicLeaderElection:
        return PeriodicLeaderElection(is_balancing=self._random.random() < 0.5)

    def _reassign(self) -> AlterPartitionReassignments:
        wanted = None if self._random.random() < 0.3 else self._nodes(self._random.randint(0, 3))
        change = PartitionReassignment(self._random.choice([0, 0, 1, 9]), wanted)
        return AlterPartitionReassignments(
            topics=((self._a_topic(), (change,)),),
            allows_other_factor=self._random.random() < 0.7,
        )

    def _list(self) -> ListPartitionReassignments:
        return ListPartitionReassignments(
            topics=self._random.choice([None, ((self._a_topic(), (0, 9)),)])
        )

    def alter_partition(self) -> AlterPartition | None:
        led = [
            (topic, index, partition)
            for topic in self._image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.leader != NO_LEADER
        ]
        if not led:
            return None
        topic, index, partition = self._random.choice(led)
        leader = self._image.nodes[partition.leader]
        others = [each for each in partition.replicas if each != partition.leader]
        chosen = self._random.sample(others, self._random.randint(0, len(others)))
        isr = [
            Insync(each, self._random.choice([-1, self._image.nodes[each].epoch]))
            for each in [partition.leader, *chosen]
        ]
        asking, topic_id, leader_epoch = leader, topic.topic_id, partition.leader_epoch
        partition_epoch, is_recovering = partition.partition_epoch, False
        match self._random.randrange(20):
            case 0:
                isr.pop(0)
            case 1:
                isr.append(isr[0])
            case 2:
                isr.append(Insync(77, -1))
            case 3:
                isr[-1] = Insync(isr[-1].node_id, 0)
            case 4:
                leader_epoch -= 1
            case 5:
                leader_epoch += 1
            case 6:
                partition_epoch -= 1
            case 7:
                index = 9
            case 8:
                topic_id = uuid.UUID(int=7)
            case 9:
                asking = self._random.choice(list(self._image.nodes.values()))
            case 10:
                is_recovering = True
        epoch = asking.epoch - (self._random.random() < 0.05)
        proposed = ProposedIsr(
            topic_id, index, leader_epoch, partition_epoch, tuple(isr), is_recovering
        )
        return AlterPartition(node_id=asking.node_id, broker_epoch=epoch, partitions=(proposed,))

    def _offline(self) -> RemoveOfflineReplicas:
        nodes = list(self._image.nodes.values())
        node_id, epoch = 1, 0
        if nodes:
            node = self._random.choice(nodes)
            node_id, epoch = node.node_id, node.epoch - self._is_wrong()
        topics = [topic.topic_id for topic in self._image.topics.values()]
        asked = self._random.sample([*topics, uuid.UUID(int=7)], 1)
        return RemoveOfflineReplicas(
            node_id=node_id,
            broker_epoch=epoch,
            replicas=tuple(OfflineReplica(each, index) for each in asked for index in (0, 9)),
        )

    # --- nodes -----------------------------------------------------------------------------------

    def _rebalance(self) -> Rebalance:
        machines = [None, None, "nowhere", *(f"n{number}" for number in range(6))]
        kind = self._random.choice(["drain", "restore", "leave", "nothing"])
        if kind == "nothing":
            return Rebalance()
        machine = self._random.choice(machines)
        if machine is not None:
            assert (
                replicas_on(self._image, machine) >= 0 and nodes_on(self._image, machine) >= set()
            )
        return Rebalance(**{kind: machine})  # type: ignore[arg-type]

    def _unregister(self) -> UnregisterBroker:
        gone = [node.node_id for node in self._image.nodes.values() if node.fenced]
        return UnregisterBroker(node_id=self._random.choice([*gone, *self._image.nodes, 99]))

    def change_voters(self, refused: Counter[str]) -> list[MetadataRecord]:
        """A record of who votes now, if that changes."""
        image = self._image
        node_id = self._random.choice([*image.nodes, 99])
        node = image.nodes.get(node_id)
        directory = node.metadata_directory_id if node is not None else ""
        change = VoterChange(
            is_addition=self._random.random() < 0.6,
            node_id=node_id,
            directory_id=self._random.choice(["", directory, "of nobody", *image.voters]),
            is_repeated=self._random.random() < 0.3,
        )
        has = {each: self._random.choice([5, 10, 10]) for each in [*image.voters, directory]}
        going = successor(image, f"n{self._random.randrange(6)}")
        assert going is None or going[0] != going[1]
        try:
            voters = change.voters(image, has, 10)
        except KafkaError as error:
            refused[type(error).__name__] += 1
            return []
        assert len(voters) >= 1 and abs(len(voters) - len(image.voters)) <= 1
        assert len({*voters}) == len(voters)
        return [VotersRecord(voters=voters)] if voters != image.voters else []

    # --- settings --------------------------------------------------------------------------------

    def _alter_configs(self) -> AlterConfigs:
        kind, name, known = self._random.choice(
            [
                (TOPIC, self._a_topic(), SETTINGS),
                (TOPIC, self._a_topic(), SETTINGS),
                (BROKER, self._random.choice(["", "1", "2", "99", "x"]), OF_BROKERS),
                (GROUP, self._random.choice(["g", "g", ""]), OF_GROUPS),
                (CLIENT_METRICS, self._random.choice(["m", "m", ""]), OF_METRICS),
                (3, "nothing", SETTINGS),
            ]
        )
        changes = []
        for _ in range(self._random.randint(1, 2)):
            key, value = self._setting(known)
            operation = self._random.choice([*Operation, Operation.SET, 7])
            if key not in LISTS and operation in (Operation.APPEND, Operation.SUBTRACT):
                operation = Operation.SET
            if key not in [change.name for change in changes]:
                text = self._random.choice([value, value, value, None])
                changes.append(ConfigChange(key, operation, text))
        resource = ResourceChanges(
            resource_type=kind,
            name=name,
            changes=tuple(changes),
            replaces=self._random.random() < 0.2,
        )
        return AlterConfigs(resources=(resource,))

    def lift_rates(self) -> AlterConfigs:
        """What somebody else than the automatic rebalance may have set."""
        changes = tuple(ConfigChange(rate, Operation.DELETE, None) for rate in RATES)
        return AlterConfigs(
            resources=(ResourceChanges(resource_type=BROKER, name="", changes=changes),)
        )

    def _alter_quotas(self) -> AlterClientQuotas:
        entries = []
        for entity in self._random.sample(ENTITIES, 2):
            changes = [
                QuotaChange(key, self._random.choice([None, 1.0, 100.0, 0.0, 1.5]))
                for key in self._random.choices(QUOTAS, k=self._random.randint(1, 2))
            ]
            entries.append((entity, tuple(changes)))
        return AlterClientQuotas(entries=tuple(entries))

    # --- access ----------------------------------------------------------------------------------

    def _binding(self) -> AclBinding:
        kind = self._random.choice([*ResourceType])
        name = CLUSTER_NAME if kind == ResourceType.CLUSTER else self._random.choice(["a", "*"])
        return AclBinding(
            kind,
            self._random.choice([name, name, name, ""]),
            self._random.choice([PatternType.LITERAL, PatternType.PREFIXED, *PatternType]),
            self._random.choice(["User:alice", "User:*", "alice"]),
            "*",
            self._random.choice([AclOperation.READ, AclOperation.WRITE, AclOperation.ANY]),
            self._random.choice([AclPermission.ALLOW, AclPermission.DENY, *AclPermission]),
        )

    def _create_acls(self) -> CreateAcls:
        return CreateAcls(
            acls=tuple(
                AclToCreate(acl_id=self._world.new_name("acl"), binding=self._binding())
                for _ in range(3)
            )
        )

    def _delete_acls(self) -> DeleteAcls:
        wrong = AclFilter(resource_type=ResourceType.UNKNOWN)
        unknown = AclFilter(operation=AclOperation.UNKNOWN)
        some = AclFilter(principal="User:alice", permission=AclPermission.DENY)
        by_name = AclFilter(resource_type=ResourceType.TOPIC, name="a", pattern=PatternType.MATCH)
        return DeleteAcls(filters=tuple(self._random.sample([wrong, unknown, some, by_name], 2)))

    def _alter_users(self) -> AlterUserScramCredentials:
        users = ["alice", "bob", "carol", "", "x" * 5_000]
        deletions, upsertions = [], []
        for name in self._random.choices(users, k=2):
            mechanism = self._random.choice([1, 2, 1, 2, 0])
            if self._random.random() < 0.4:
                deletions.append(ScramDeletion(name=name, mechanism=mechanism))
                continue
            credential = None
            if not self._is_wrong():
                credential = ScramCredential(
                    salt=b"s" * self._random.choice([10, 10, 10, 2_000]),
                    stored_key=b"stored",
                    server_key=b"server",
                    iterations=self._random.choice([4_096, 4_096, 8_192, 1, 99_999]),
                )
            upsertions.append(ScramUpsertion(name=name, mechanism=mechanism, credential=credential))
        return AlterUserScramCredentials(deletions=tuple(deletions), upsertions=tuple(upsertions))

    def _create_token(self) -> CreateDelegationToken:
        now, token_id = self._world.now_ms, self._world.new_name("token")
        self._tokens.append(token_id)
        token = DelegationTokenRecord(
            token_id=token_id,
            owner="User:alice",
            requester="User:alice",
            renewers=("User:bob",),
            issue_timestamp=now,
            max_timestamp=now + 50_000,
            expiry_timestamp=now + self._random.choice([1_000, 20_000]),
        )
        return CreateDelegationToken(token=token, now_ms=now)

    def _extend_token(self) -> ExtendDelegationToken:
        return ExtendDelegationToken(
            token_id=self._random.choice(self._tokens[-4:]),
            principal=self._random.choice(["User:alice", "User:bob", "User:mallory"]),
            period_ms=self._random.choice([5_000, 100_000, -1]),
            now_ms=self._world.now_ms,
            is_repeated=self._random.random() < 0.2,
        )

    def _expire_tokens(self) -> RemoveExpiredTokens:
        return RemoveExpiredTokens(now_ms=self._world.now_ms)

    # --- choices ---------------------------------------------------------------------------------

    def _is_wrong(self) -> bool:
        return self._random.random() < 0.1

    def _a_topic(self) -> str:
        """Mostly one that there is."""
        names = [*self._image.topics] * 4 + ["nothing", "a", ""]
        return self._random.choice(names)

    def _nodes(self, count: int) -> tuple[int, ...]:
        nodes = [*self._image.nodes, *([99] if self._is_wrong() else [])]
        return tuple(self._random.sample(nodes, min(count, len(nodes))))

    def _setting(self, known: dict[str, tuple[str, ...]]) -> tuple[str, str]:
        key = self._random.choice([*known])
        return key, self._random.choice(known[key])
