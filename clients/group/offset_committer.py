"""The committed offsets of a group: written and read at its coordinator.

Invariants:
    A commit is refused, here or by the coordinator, when the group has removed the member that read
    the records; its membership is reset then, so that the next poll joins again.
    A commit that is not waited for is sent once, because a retry could overwrite a later one.

Source: ConsumerCoordinator.OffsetCommitResponseHandler, OffsetFetchResponseHandler.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import ConnectionFailed, KafkaError, RebalanceInProgress
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import (
    CONTROL,
    GROUP,
    UNKNOWN_TOPIC_GRACE_MS,
    ClusterClient,
    is_retriable,
)
from ..wire.coordinator_lookup import COORDINATOR_MOVED
from ..wire.record_metadata import OffsetAndMetadata
from .consumer_coordinator import ConsumerCoordinator
from .membership import Membership, refusal

MAX_VERSION: Final = 9
"""Highest version that has topic names; from 10 on requests have topic ids."""

_MEMBER_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class OffsetCommitter:
    """Committer of offsets, as steps for the I/O thread. on_committed: called with the offsets."""

    def __init__(self, client: ClusterClient, coordinator: ConsumerCoordinator) -> None:
        self.on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] | None = (
            None
        )
        self._client = client
        self._coordinator = coordinator

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: Membership,
        timeout_ms: int,
    ) -> Steps[None]:
        """Commit offsets, with retries at the current coordinator, for `timeout_ms` at most.

        Args:
            member: returned by `ConsumerCoordinator.commit_membership` when the offsets were
                collected.

        Raises:
            IllegalGeneration, UnknownMemberId, FencedInstanceId: the group has removed this member,
                and its partitions may be another member's.
            RebalanceInProgress: this member has joined a rebalance; poll has to complete it first.
            KafkaError, ConnectionFailed: the coordinator refuses, or was not reached in time.
        """
        waited_ms = 0
        while True:
            try:
                return (yield from self.commit_once(offsets, member))
            except (KafkaError, ConnectionFailed) as error:
                unknown = _code(error) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if waited_ms >= min(timeout_ms, UNKNOWN_TOPIC_GRACE_MS if unknown else timeout_ms):
                    raise
                waited_ms += self._client.config.retry_backoff_ms
                yield from self._on_error(error)

    def commit_once(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: Membership,
        *,
        lane: str = GROUP,
    ) -> Steps[None]:
        """Commit offsets without retries. Raises the exceptions of `commit`."""
        if not offsets:
            return
        coordinator = self._coordinator
        coordinator.unsent_commits += 1
        try:
            address = yield from coordinator.lookup.find()
        finally:
            coordinator.unsent_commits -= 1
        if lane == GROUP:
            coordinator.check_not_waiting()
        request = self._commit_request(offsets, member)
        sent_at = time.monotonic()
        response = yield from wait(
            self._client.send(
                address, request, OffsetCommitResponse, lane=lane, max_version=MAX_VERSION
            )
        )
        coordinator.metrics.on_commit(sent_at)
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                if answer.error_code:
                    where = f"{topic_answer.name}-{answer.partition_index}"
                    error = refusal(answer.error_code, coordinator.config, f"commit of {where}")
                    raise self._noted(error, member)
        if self.on_committed is not None:
            self.on_committed(offsets)

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets; partitions without one are left out.

        It waits for the end of transactions with pending offsets of these partitions, as Java's
        consumer does: records before the pending offsets may be processed already (require_stable,
        KIP-447).

        Raises:
            KafkaError: the coordinator refuses.
        """
        partitions = list(partitions)
        while True:
            try:
                return (yield from self._fetch_once(partitions))
            except (KafkaError, ConnectionFailed) as error:
                yield from self._on_error(error)

    def _on_error(self, error: KafkaError | ConnectionFailed) -> Steps[None]:
        if not is_retriable(error) or _code(error) == ErrorCode.REBALANCE_IN_PROGRESS:
            raise error
        if _code(error) is None or _code(error) in COORDINATOR_MOVED:
            self._coordinator.lookup.forget()
        yield self._client.config.retry_backoff_ms / 1000

    def _noted(self, error: KafkaError, sent: Membership) -> KafkaError:
        """Apply a refusal to the membership it was about, unless the member has rejoined since."""
        coordinator = self._coordinator
        if not coordinator.subscription:
            return error
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            coordinator.request_rejoin("a commit was refused: the group is rebalancing")
        elif error.code in (ErrorCode.FENCED_INSTANCE_ID, *_MEMBER_LOST):
            fenced = error.code == ErrorCode.FENCED_INSTANCE_ID
            if coordinator.membership != sent or (coordinator.is_waiting and not fenced):
                # It is about a membership that has ended anyway.
                if coordinator.is_joining:
                    return RebalanceInProgress(f"{error}; there is a rebalance: poll, then commit")
                return error
            if fenced:
                coordinator.on_fenced(error)
            else:
                coordinator.on_lost(keep_member_id=error.code == ErrorCode.ILLEGAL_GENERATION)
        return error

    def _commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], sent: Membership
    ) -> OffsetCommitRequest:
        config = self._coordinator.config
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), (offset, metadata, leader_epoch) in offsets.items():
            topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=config.group_id,
            generation_id_or_member_epoch=sent.generation,
            member_id=sent.member_id,
            group_instance_id=config.group_instance_id if sent.member_id else None,
            topics=list(topics.values()),
        )

    def _fetch_once(
        self, partitions: list[TopicPartition]
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata]]:
        address = yield from self._coordinator.lookup.find()
        config = self._coordinator.config
        indexes: dict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            indexes[topic].append(partition)
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=config.group_id,
                    topics=[
                        OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                        for topic, numbers in indexes.items()
                    ],
                )
            ],
            group_id=config.group_id,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in indexes.items()
            ],
            require_stable=True,
        )
        response = yield from wait(
            # Not in the group's lane: in a cooperative group records are read while a join waits.
            self._client.send(
                address, request, OffsetFetchResponse, lane=CONTROL, max_version=MAX_VERSION
            )
        )
        group = response.groups[0] if response.groups else response
        if group.error_code:
            raise refusal(group.error_code, config, "offsets")
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic_answer in group.topics:
            for answer in topic_answer.partitions:
                key = TopicPartition(topic_answer.name, answer.partition_index)
                if answer.error_code:
                    raise refusal(answer.error_code, config, f"offset of {key}")
                if answer.committed_offset >= 0:
                    found[key] = OffsetAndMetadata(
                        answer.committed_offset,
                        answer.metadata or "",
                        answer.committed_leader_epoch,
                    )
        return found


def _code(error: Exception) -> int | None:
    return error.code if isinstance(error, KafkaError) else None
