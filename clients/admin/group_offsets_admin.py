"""Committed offsets of a group, read and changed from outside, as steps for Admin.

Invariants: offsets of a group with members are not changed; the members would continue at
their positions, and overwrite the offsets.

Source: AlterConsumerGroupOffsetsHandler and its neighbours in apache/kafka clients/.../internals.

Not here: commits of members (group_offsets).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError, error_for
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import ClusterClient
from ..wire.connection import Address
from .group_admin import at_coordinators, describe_groups, has_members

MAX_VERSION: Final = 9
"""Highest version that has topic names; from 10 on requests have topic ids."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Committed offset. leader_epoch: -1 if none was committed. metadata: text of the committer."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def group_offsets(
    client: ClusterClient, group_ids: Iterable[str], *, timeout_ms: int
) -> Steps[dict[str, dict[TopicPartition, CommittedOffset]]]:
    """Committed offsets of each group, sorted; {} for an unknown group.

    Raises:
        KafkaError: a coordinator refuses.
    """
    group_ids = list(group_ids)
    found: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    def ask(address: Address, part: list[str]) -> Steps[Mapping[str, Exception]]:
        again: dict[str, Exception] = {}
        for group_id in part:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
                group_id=group_id,
                topics=None,
            )
            response = yield from wait(
                client.send(address, request, OffsetFetchResponse, max_version=MAX_VERSION)
            )
            group = response.groups[0] if response.groups else response
            error = _error(group.error_code, group_id)
            if error is None:
                committed = {
                    TopicPartition(topic.name, one.partition_index): CommittedOffset(
                        one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                    )
                    for topic in group.topics
                    for one in topic.partitions
                    if one.committed_offset >= 0
                }
                found[group_id] = dict(sorted(committed.items()))
            elif error.retriable:
                again[group_id] = error
            else:
                raise error
        return again

    yield from at_coordinators(client, group_ids, ask, timeout_ms=timeout_ms)
    return {group_id: found[group_id] for group_id in group_ids}


def alter_group_offsets(
    client: ClusterClient,
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    timeout_ms: int,
) -> Steps[None]:
    """Set committed offsets of a group, which is created if it does not exist. Idempotent.

    Raises:
        NonEmptyGroup: it has members.
        UnknownTopicOrPartition, OffsetMetadataTooLarge: a partition is refused; others are set.
    """
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), wanted in sorted(offsets.items()):
        topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=wanted.offset,
                committed_leader_epoch=wanted.leader_epoch,
                committed_metadata=wanted.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=list(topics.values()),
    )

    def ask(address: Address, _: list[str]) -> Steps[Mapping[str, Exception]]:
        response = yield from wait(
            client.send(address, request, OffsetCommitResponse, max_version=MAX_VERSION)
        )
        return _errors_to_retry(
            group_id,
            (
                (topic.name, one.partition_index, one.error_code)
                for topic in response.topics
                for one in topic.partitions
            ),
        )

    if offsets:
        yield from at_coordinators(client, [group_id], ask, timeout_ms=timeout_ms)


def delete_group_offsets(
    client: ClusterClient,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout_ms: int,
) -> Steps[None]:
    """Delete committed offsets of a group in these partitions. Idempotent.

    Raises:
        GroupIdNotFound: there is no such group.
        GroupSubscribedToTopic: a live member reads the topic; nothing of that topic is deleted.
        NonEmptyGroup: it has members of another protocol, whose topics are not known.
    """
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        numbers[topic].append(partition)
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=one) for one in indexes],
            )
            for topic, indexes in numbers.items()
        ],
    )

    def ask(address: Address, _: list[str]) -> Steps[Mapping[str, Exception]]:
        response = yield from wait(client.send(address, request, OffsetDeleteResponse))
        error = _error(response.error_code, group_id)
        if error is not None:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                yield from describe_groups(client, [group_id], timeout_ms=timeout_ms)
            if not error.retriable:
                raise error
            return {group_id: error}
        return _errors_to_retry(
            group_id,
            (
                (topic.name, one.partition_index, one.error_code)
                for topic in response.topics
                for one in topic.partitions
            ),
        )

    if numbers:
        yield from at_coordinators(client, [group_id], ask, timeout_ms=timeout_ms)


def _errors_to_retry(
    group_id: str, answers: Iterable[tuple[str, int, int]]
) -> dict[str, Exception]:
    """Return {} if all is done, {group: error} if it must be retried. Raises final errors."""
    again: dict[str, Exception] = {}
    for topic, partition, code in answers:
        if not code:
            continue
        where = f"group {group_id!r}, {topic}-{partition}"
        error = _error(code, group_id) or error_for(code)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error_for(code, f"{where}: there is no such partition; `bradbury topics list`")
        if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            raise error_for(code, f"{where}: a live member of the group reads it; stop it first")
        if not error.retriable:
            raise error
        again[group_id] = error
    return again


_OF_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
"""Error codes for a commit from outside while the group has members."""


def _error(code: int, group_id: str) -> KafkaError | None:
    if not code:
        return None
    if code in _OF_MEMBERS:
        return has_members(group_id)
    return error_for(code, f"group {group_id!r}: {error_for(code)}")
