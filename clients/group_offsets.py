"""The committed offsets of a group: written and read at its coordinator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from ..protocol.error_code import ErrorCode
from ..protocol.errors import ConnectionFailed, KafkaError, error_for
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ..protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from .cluster_client import GROUP, ClusterClient, is_retriable
from .coordinator import COORDINATOR_MOVED, Coordinator
from .io_thread import Steps, wait
from .topic_partition import TopicPartition

MAX_VERSION: Final = 9
"""From 10 on a topic is its id; names work with every broker."""


class GroupOffsets:
    """Steps for the I/O thread. Each goes on, at whichever coordinator, until it has an answer."""

    def __init__(self, client: ClusterClient, coordinator: Coordinator) -> None:
        self._client = client
        self._coordinator = coordinator

    def commit(self, offsets: Mapping[TopicPartition, int]) -> Steps[None]:
        """Store where the group goes on: the offset after the last record that is done.

        Raises:
            IllegalGeneration, UnknownMemberId, RebalanceInProgress, FencedInstanceId: the group has
                been rebalanced without this member: its partitions are another's.
            KafkaError: the coordinator refuses.
        """
        if not offsets:
            return
        while True:
            try:
                yield from self._commit_once(offsets)
            except (KafkaError, ConnectionFailed) as error:
                yield from self._on_error(error)
            else:
                return

    def committed(
        self, partitions: Iterable[TopicPartition], *, require_stable: bool = False
    ) -> Steps[dict[TopicPartition, int]]:
        """What is committed; partitions without are left out.

        Raises:
            KafkaError: the coordinator refuses.
        """
        partitions = list(partitions)
        while True:
            try:
                return (yield from self._fetch_once(partitions, require_stable=require_stable))
            except (KafkaError, ConnectionFailed) as error:
                yield from self._on_error(error)

    def _on_error(self, error: KafkaError | ConnectionFailed) -> Steps[None]:
        if not is_retriable(error) or _code(error) == ErrorCode.REBALANCE_IN_PROGRESS:
            raise error
        if _code(error) is None or _code(error) in COORDINATOR_MOVED:
            self._coordinator.forget()
        yield self._client.config.retry_backoff_ms / 1000

    def _commit_once(self, offsets: Mapping[TopicPartition, int]) -> Steps[None]:
        address = yield from self._coordinator.find()
        config, membership = self._coordinator.config, self._coordinator.membership
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(
                OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            )
        request = OffsetCommitRequest(
            group_id=config.group_id,
            generation_id_or_member_epoch=membership.generation,
            member_id=membership.member_id,
            group_instance_id=config.group_instance_id,
            topics=list(topics.values()),
        )
        response = yield from wait(
            self._client.send(
                address, request, OffsetCommitResponse, lane=GROUP, max_version=MAX_VERSION
            )
        )
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                if answer.error_code:
                    where = f"{topic_answer.name}-{answer.partition_index}"
                    raise _refused(answer.error_code, f"commit of {where}", config.group_id)

    def _fetch_once(
        self, partitions: list[TopicPartition], *, require_stable: bool
    ) -> Steps[dict[TopicPartition, int]]:
        address = yield from self._coordinator.find()
        group_id = self._coordinator.config.group_id
        indexes: dict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            indexes[topic].append(partition)
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=[
                        OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                        for topic, numbers in indexes.items()
                    ],
                )
            ],
            group_id=group_id,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in indexes.items()
            ],
            require_stable=require_stable,
        )
        response = yield from wait(
            self._client.send(
                address, request, OffsetFetchResponse, lane=GROUP, max_version=MAX_VERSION
            )
        )
        group = response.groups[0] if response.groups else response
        if group.error_code:
            raise _refused(group.error_code, "offsets", group_id)
        found: dict[TopicPartition, int] = {}
        for topic_answer in group.topics:
            for answer in topic_answer.partitions:
                key = TopicPartition(topic_answer.name, answer.partition_index)
                if answer.error_code:
                    raise _refused(answer.error_code, f"offset of {key}", group_id)
                if answer.committed_offset >= 0:
                    found[key] = answer.committed_offset
        return found


def _code(error: Exception) -> int | None:
    return error.code if isinstance(error, KafkaError) else None


def _refused(code: int, what: str, group_id: str) -> KafkaError:
    return error_for(code, f"group {group_id!r}, {what}: {error_for(code)}")
