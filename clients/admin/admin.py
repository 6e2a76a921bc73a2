"""The Admin client: describes and changes topics, configs, offsets and groups of a cluster.

Invariants:
    Nothing is changed twice: a request whose outcome is unknown because the connection was lost is
    repeated only where repeating is harmless (reads), and otherwise reported.

Not here: its parts for ACLs, quotas, delegation tokens, transactions and users (acls_calls,
quotas_calls, tokens_calls, transactions_calls, users_admin); long sequences of requests (modules of
their own).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack
from uuid import UUID

from ...protocol.errors import error_for
from ...protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..quotas.quotas_calls import QuotasCalls
from ..security.security_options import SecurityOptions, given_security
from ..threads.io_thread import Steps, wait
from ..wire.bootstrap_servers import format_servers
from ..wire.cluster_client import ClientConfig, ClusterClient
from ..wire.cluster_view import Broker, ClusterView, PartitionView
from ..wire.offset_lookup import EARLIEST, LATEST, OffsetAt, list_offsets
from .access.acls_calls import AclsCalls
from .access.tokens_calls import TokensCalls
from .admin_parts import delegated
from .configs import ConfigEntry, alter_configs, describe_configs, resource
from .group_admin import (
    GroupDescription,
    GroupListing,
    delete_groups,
    describe_groups,
    list_groups,
    remove_members,
)
from .group_lag import GroupLag, PartitionLag, group_lag
from .group_offsets_admin import (
    CommittedOffset,
    alter_group_offsets,
    delete_group_offsets,
    group_offsets,
)
from .log_dirs import LogDir, describe_log_dirs
from .records_admin import HIGH_WATERMARK, delete_records
from .replicas_admin import (
    ELECTION_TYPES,
    QuorumDescription,
    Reassignment,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_metadata_quorum,
    elect_leaders,
    list_partition_reassignments,
)
from .topics_admin import NewTopic, create_partitions, create_topics, delete_topics
from .transactions_calls import TransactionsCalls
from .users_admin import UsersCalls

T = TypeVar("T")

NEW_TOPIC_GRACE_MS: Final = 2_000
"""Milliseconds for which a topic that was just created may be unknown to some nodes."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: UUID
    partitions: tuple[PartitionView, ...]
    is_internal: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]


class Admin:
    """Admin client, usable from any thread. Each call waits for its answer, at most `timeout_ms`.

    Every call raises ConnectionFailed if no broker answers, AuthenticationFailed if a broker does
    not accept this client, RequestTimedOut after `timeout_ms`. `security`: see SecurityOptions.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        client_id: str = "bradbury-admin",
        timeout_ms: int = 60_000,
        namespace: str | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        self._timeout_ms = timeout_ms
        self._client = ClusterClient(
            bootstrap,
            namespace=namespace,
            config=ClientConfig(
                client_id=client_id,
                request_timeout_ms=timeout_ms,
                security=given_security(security, Admin),
            ),
        )
        self._acls = AclsCalls(self._client, timeout_ms)
        self._quotas = QuotasCalls(self._client, timeout_ms)
        self._tokens = TokensCalls(self._client, timeout_ms)
        self._transactions = TransactionsCalls(self._client, timeout_ms)
        self._users = UsersCalls(self._client, timeout_ms)
        self._finalizer = weakref.finalize(self, self._client.close)

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap addresses that this client was given or found, "host:port,..."."""
        return format_servers(self._client.bootstrap)

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Create one topic and describe it.

        partitions, replication_factor: by default the brokers' num.partitions and
        default.replication.factor.

        Raises:
            TopicAlreadyExists, InvalidTopicException, InvalidPartitions, InvalidReplicationFactor,
            InvalidConfig: as the broker says.
        """
        return self.create_topics([NewTopic(name, partitions, replication_factor, configs)])[0]

    def create_topics(self, topics: Iterable[NewTopic | str]) -> list[TopicDescription]:
        """Create topics; return descriptions in order. The first refusal is raised at the end."""
        wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in topics]
        self._run(create_topics(self._client, wanted, timeout_ms=self._timeout_ms))
        return self.describe_topics([topic.name for topic in wanted])

    def delete_topic(self, name: str) -> None:
        """Delete one topic and its records.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        self.delete_topics([name])

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics. The first refusal is raised at the end."""
        self._run(delete_topics(self._client, list(names), timeout_ms=self._timeout_ms))

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Topic names, sorted."""
        view = self._view(None)
        return sorted(
            topic.name
            for topic in view.topics.values()
            if include_internal or not topic.is_internal
        )

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Descriptions in the order of `names`; of all topics, in order of name, for None.

        Raises:
            UnknownTopicOrPartition: a topic does not exist, after some seconds of retries.
        """
        if names is None:
            view = self._view(None)
            return [_describe(view, name) for name in sorted(view.topics)]
        return self._run(self._describe_known(list(names)))

    def create_partitions(
        self,
        topic: str,
        total: int,
        *,
        assignments: Iterable[Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Give a topic more partitions, `total` afterwards. Records stay where they are.

        Records of one key may go to another partition from then on.

        Args:
            topic: its name.
            total: more than it has; partitions cannot be removed.
            assignments: the node ids of each new partition; by default they are spread.
            validate_only: check, change nothing.

        Raises:
            UnknownTopicOrPartition, InvalidPartitions, InvalidReplicaAssignment: the broker
                refuses.
        """
        self._run(
            create_partitions(
                self._client,
                topic,
                total,
                assignments=assignments,
                validate_only=validate_only,
                timeout_ms=self._timeout_ms,
            )
        )
        if not validate_only:
            self._run(self._see_partitions(topic, total))

    def delete_records(
        self, before: Mapping[TopicPartitionPair, int | str]
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset; "latest": all records. It cannot be undone.

        Returns the first offset that is left, for each partition.

        Raises:
            UnknownTopicOrPartition, OffsetOutOfRange, PolicyViolation (a compacted topic).
        """
        offsets = {}
        for key, offset in before.items():
            if isinstance(offset, str) and offset != "latest":
                raise ValueError(f'{offset!r}: use an offset, or "latest"')
            offsets[TopicPartition(*key)] = HIGH_WATERMARK if offset == "latest" else int(offset)
        return self._run(delete_records(self._client, offsets, timeout_ms=self._timeout_ms))

    def describe_configs(
        self,
        topic: str | None = None,
        *,
        broker: int | str | None = None,
        documentation: bool = False,
    ) -> dict[str, ConfigEntry]:
        """Configs of a topic, or of a broker by node id; "all": those set for all brokers.

        Raises:
            ValueError: topic and broker are both given, or neither.
            UnknownTopicOrPartition, BrokerNotAvailable: there is no such topic or broker.
        """
        of = resource(topic, broker)
        return self._run(describe_configs(self._client, of, documentation=documentation))

    def alter_configs(
        self,
        topic: str | None = None,
        changes: Mapping[str, object] | None = None,
        *,
        broker: int | str | None = None,
        unset: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change settings of a topic or broker while it runs: all that are named, or none.

        Args:
            topic, broker: exactly one, as in describe_configs.
            changes: values by config name.
            unset: names of configs to reset to their defaults.
            append, subtract: values of list configs to add and remove, by name.
            validate_only: check, change nothing.

        Raises:
            InvalidConfig: an unknown name, or a value that is not allowed.
            InvalidRequest: a name is given twice, or cannot be changed while brokers run.
            UnknownTopicOrPartition, BrokerNotAvailable: there is no such topic or broker.
        """
        self._run(
            alter_configs(
                self._client,
                resource(topic, broker),
                changes or {},
                unset=unset,
                append=append,
                subtract=subtract,
                validate_only=validate_only,
            )
        )

    def describe_cluster(self) -> ClusterDescription:
        response = self._run(
            self._client.send_to_any(DescribeClusterRequest(), DescribeClusterResponse)
        )
        if response.error_code:
            raise error_for(response.error_code, response.error_message)
        brokers = tuple(
            Broker(broker.broker_id, broker.host, broker.port, broker.rack)
            for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
        )
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    def list_offsets(
        self,
        partitions: Iterable[TopicPartitionPair] | Mapping[TopicPartitionPair, int | str],
        at: int | str = "latest",
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAt]:
        """The offset at "earliest", "latest", or a timestamp (ms since 1970), for each partition.

        A mapping gives each partition its own time. A timestamp later than every record gives
        offset -1.

        Raises:
            UnknownTopicOrPartition: there is no such partition.
        """
        times = (
            dict(partitions) if isinstance(partitions, Mapping) else dict.fromkeys(partitions, at)
        )
        asked = {TopicPartition(*key): _timestamp(value) for key, value in times.items()}
        isolation = ("read_uncommitted", "read_committed").index(isolation_level)
        return self._run(list_offsets(self._client, asked, isolation_level=isolation))

    def describe_log_dirs(self, topics: Iterable[str] | None = None) -> list[LogDir]:
        """The log directories of every broker; with the partitions of `topics`, or with all.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        return self._run(describe_log_dirs(self._client, topics))

    def alter_replica_log_dirs(self, targets: Mapping[tuple[str, int, int], str]) -> None:
        """Move replicas to other log directories of their brokers, while they serve.

        Returns when the moves have started; describe_log_dirs shows them (`is_future`) until they
        are done. All are requested; then the first refusal is raised.

        Args:
            targets: the directory's path for each (topic, partition, broker's node id).

        Raises:
            LogDirNotFound: the broker has no such directory.
            ReplicaNotAvailable, BrokerNotAvailable: no such replica, or no such live broker.
        """
        self._run(alter_replica_log_dirs(self._client, targets))

    def elect_leaders(
        self, partitions: Iterable[TopicPartitionPair] | None = None, *, election: str = "preferred"
    ) -> list[TopicPartition]:
        """Elect leaders of partitions; return the partitions that have a new leader.

        Args:
            partitions: None for all.
            election: "preferred": the first replica; "unclean": any live replica of partitions
                without a leader. Records that only other replicas have are lost then.

        Raises:
            PreferredLeaderNotAvailable, EligibleLeadersNotAvailable: no such replica is live.
            UnknownTopicOrPartition: there is no such partition; for the others elections are held.
        """
        if election not in ELECTION_TYPES:
            raise ValueError(f'{election!r}: use "preferred" or "unclean"')
        asked = None if partitions is None else [TopicPartition(*key) for key in partitions]
        timeout_ms = self._timeout_ms
        return self._run(elect_leaders(self._client, election, asked, timeout_ms=timeout_ms))

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartitionPair, Iterable[int] | None]
    ) -> None:
        """Reassign partitions to other, more, or fewer replicas; None cancels a reassignment.

        Returns when the moves have started; list_partition_reassignments shows them until they are
        done. Clients keep working. All are requested; then the first refusal is raised.

        Args:
            targets: the node ids for each partition, the preferred leader first.

        Raises:
            InvalidReplicaAssignment: an unknown node, or a node that is given twice.
            NoReassignmentInProgress: there is nothing to cancel.
            UnknownTopicOrPartition: there is no such partition.
        """
        wanted = {
            TopicPartition(*key): None if ids is None else list(ids) for key, ids in targets.items()
        }
        timeout_ms = self._timeout_ms
        self._run(alter_partition_reassignments(self._client, wanted, timeout_ms=timeout_ms))

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartitionPair] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Reassignments in progress, sorted; of some partitions, or of all."""
        asked = None if partitions is None else [TopicPartition(*key) for key in partitions]
        timeout_ms = self._timeout_ms
        return self._run(list_partition_reassignments(self._client, asked, timeout_ms=timeout_ms))

    def describe_metadata_quorum(self) -> QuorumDescription:
        """Metadata quorum: its leader, voters and observers, and the log end offset of each."""
        return self._run(describe_metadata_quorum(self._client))

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Groups of all coordinators, sorted by id; of some states and types, or all.

        Args:
            states: "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead".
            types: "classic", "consumer". Case does not matter in either.
        """
        states, types, timeout_ms = list(states), list(types), self._timeout_ms
        return self._run(
            list_groups(self._client, states=states, types=types, timeout_ms=timeout_ms)
        )

    def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """State, assignor, coordinator and members of each, in the order given.

        Raises:
            GroupIdNotFound: there is no such group.
        """
        return self._run(describe_groups(self._client, group_ids, timeout_ms=self._timeout_ms))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups and their committed offsets. The first refusal is raised at the end.

        Raises:
            GroupIdNotFound: there is no such group.
            NonEmptyGroup: it has members.
        """
        self._run(delete_groups(self._client, list(group_ids), timeout_ms=self._timeout_ms))

    def group_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets of a group, sorted by partition; {} for an unknown group."""
        steps = group_offsets(self._client, [group_id], timeout_ms=self._timeout_ms)
        return self._run(steps)[group_id]

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartitionPair, int | CommittedOffset]
    ) -> None:
        """Set committed offsets of a group, which is created if it does not exist.

        Raises:
            NonEmptyGroup: it has members, which would overwrite the offsets.
            UnknownTopicOrPartition: there is no such partition; the others are set.
            ValueError: an offset below 0.
        """
        wanted = {
            TopicPartition(*key): one if isinstance(one, CommittedOffset) else CommittedOffset(one)
            for key, one in offsets.items()
        }
        for key, one in wanted.items():
            if one.offset < 0:
                raise ValueError(f"{key.topic}-{key.partition}: offset {one.offset} is below 0")
        timeout_ms = self._timeout_ms
        self._run(alter_group_offsets(self._client, group_id, wanted, timeout_ms=timeout_ms))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartitionPair]) -> None:
        """Delete committed offsets of a group in these partitions.

        Raises:
            GroupIdNotFound: there is no such group.
            GroupSubscribedToTopic: a live member reads the topic.
        """
        keys, timeout_ms = [TopicPartition(*key) for key in partitions], self._timeout_ms
        self._run(delete_group_offsets(self._client, group_id, keys, timeout_ms=timeout_ms))

    def remove_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] = (),
        member_ids: Iterable[str] = (),
        reason: str | None = None,
    ) -> list[str]:
        """Remove members, those named or all; return their instance ids, else member ids.

        For static members that will not rejoin: their partitions go to others at once. A member
        that still runs rejoins.

        Raises:
            GroupIdNotFound: there is no such group.
            UnknownMemberId: there is no such member; the others that were named are removed.
        """
        return self._run(
            remove_members(
                self._client,
                group_id,
                instance_ids=instance_ids,
                member_ids=member_ids,
                reason=reason,
                timeout_ms=self._timeout_ms,
            )
        )

    def lag(self, group_id: str, *, times: bool = True) -> GroupLag:
        """Lag of a group: `.records` and `.seconds` in all, and for every partition.

        Args:
            group_id: id of the group.
            times: also find the time of the first unread record, with a fetch per leader.

        Raises:
            GroupIdNotFound: there is no such group.
        """
        steps = group_lag(self._client, [group_id], times=times, timeout_ms=self._timeout_ms)
        return GroupLag(group_id, tuple(self._run(steps)[group_id]))

    def group_lag(self, group_id: str, *, times: bool = True) -> list[PartitionLag]:
        """Partitions of `lag`, as a list; kept for older programs."""
        return list(self.lag(group_id, times=times))

    create_acls = delegated("_acls", AclsCalls.create_acls)
    describe_acls = delegated("_acls", AclsCalls.describe_acls)
    delete_acls = delegated("_acls", AclsCalls.delete_acls)
    describe_client_quotas = delegated("_quotas", QuotasCalls.describe_client_quotas)
    alter_client_quotas = delegated("_quotas", QuotasCalls.alter_client_quotas)
    create_delegation_token = delegated("_tokens", TokensCalls.create_delegation_token)
    renew_delegation_token = delegated("_tokens", TokensCalls.renew_delegation_token)
    expire_delegation_token = delegated("_tokens", TokensCalls.expire_delegation_token)
    describe_delegation_token = delegated("_tokens", TokensCalls.describe_delegation_token)
    list_transactions = delegated("_transactions", TransactionsCalls.list_transactions)
    describe_transactions = delegated("_transactions", TransactionsCalls.describe_transactions)
    describe_producers = delegated("_transactions", TransactionsCalls.describe_producers)
    abort_transaction = delegated("_transactions", TransactionsCalls.abort_transaction)
    fence_producers = delegated("_transactions", TransactionsCalls.fence_producers)
    find_hanging_transactions = delegated(
        "_transactions", TransactionsCalls.find_hanging_transactions
    )
    describe_user_scram_credentials = delegated(
        "_users", UsersCalls.describe_user_scram_credentials
    )
    alter_user_scram_credentials = delegated("_users", UsersCalls.alter_user_scram_credentials)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        return self._client.run(steps, self._timeout_ms)

    def _view(self, names: list[str] | None) -> ClusterView:
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        response = self._run(self._client.send_to_any(request, MetadataResponse))
        return ClusterView().updated(response, asked=names)

    def _see_partitions(self, topic: str, total: int) -> Steps[None]:
        """Wait, at most NEW_TOPIC_GRACE_MS, until metadata has the added partitions."""
        waited_ms = 0
        self._client.want([topic])
        while waited_ms < NEW_TOPIC_GRACE_MS:
            view = yield from wait(self._client.refresh())
            if topic in view.topics and len(view.topics[topic].partitions) >= total:
                return
            waited_ms += self._client.config.retry_backoff_ms
            yield self._client.config.retry_backoff_ms / 1000

    def _describe_known(self, names: list[str]) -> Steps[list[TopicDescription]]:
        """Describe topics with fresh metadata, as their leaders and partitions may have changed.

        It retries for NEW_TOPIC_GRACE_MS, as some nodes may not know a topic that was just created.
        """
        self._client.want(names)
        yield from wait(self._client.refresh())
        described = []
        for name in names:
            yield from self._client.topic(name, grace_ms=NEW_TOPIC_GRACE_MS)
            described.append(_describe(self._client.view, name))
        return described


def _describe(view: ClusterView, name: str) -> TopicDescription:
    topic = view.topics[name]
    return TopicDescription(topic.name, topic.topic_id, topic.partitions, topic.is_internal)


def _timestamp(at: int | str) -> int:
    if isinstance(at, int):
        return at
    try:
        return {"earliest": EARLIEST, "latest": LATEST}[at]
    except KeyError:
        raise ValueError(f'{at!r}: use "earliest", "latest" or milliseconds since 1970') from None
