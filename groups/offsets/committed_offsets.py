"""Committed offsets of all groups of one partition of `__consumer_offsets`.

    OffsetCommit, TxnOffsetCommit, OffsetDelete -> answer and records    nothing changes here yet
    begin(records) .. apply each, or not .. end(records)
    OffsetFetch                                                          only what is applied

classic_group.check_commit decides who may commit; here is decided which offsets may be stored.
One group's offsets are in group_offsets.py.

Invariants: a group is here exactly while its GroupOffsets is not empty.
Source: apache/kafka group-coordinator/.../OffsetMetadataManager.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ...protocol.error_code import ErrorCode
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ..group_config import GroupCoordinatorConfig
from ..group_records import (
    NO_TIMESTAMP,
    CoordinatorRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    TransactionalOffset,
    TransactionEnd,
)
from .group_offsets import GroupOffsets

IsKnown = Callable[[str, int], bool]
"""Predicate whether (topic, partition) exists."""

CommittedPartition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition

LONGEST_TEXT = 2**15 - 1
"""Most bytes of a string in a record."""
LONG_MAX = 2**63 - 1
NO_RETENTION = -1
NO_OFFSET = -1


class CommittedOffsets:
    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self._config = config
        self._groups: dict[str, GroupOffsets] = {}
        self._in_transaction: dict[int, set[str]] = {}
        """Groups with pending offsets in the open transaction of a producer, by producer id."""
        self._ending: Counter[int] = Counter()
        """Producer ids whose end marker is being appended, with the number of those appends."""

    def __iter__(self) -> Iterator[GroupOffsets]:
        return iter(self._groups.values())

    def of(self, group_id: str) -> GroupOffsets | None:
        return self._groups.get(group_id)

    @property
    def count(self) -> int:
        """Number of partitions with a committed offset, of all groups."""
        return sum(map(len, self._groups.values()))

    def count_of(self, group_id: str) -> int:
        """Number of partitions with a committed offset, of this group."""
        offsets = self._groups.get(group_id)
        return 0 if offsets is None else len(offsets)

    # --- requests --------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, error: ErrorCode, *, is_known: IsKnown, now_ms: int
    ) -> tuple[OffsetCommitResponse, list[OffsetRecord]]:
        """Commit offsets: (answer, records to store). `error`: error of the whole request, NONE if
        none.
        """
        response, records = OffsetCommitResponse(), list[OffsetRecord]()
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                code = error or self._check(topic.name, partition, is_known)
                answers.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
                if not code:
                    records.append(_plain_record(topic.name, partition, request, now_ms))
            response.topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
        return response, records

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, error: ErrorCode, *, is_known: IsKnown, now_ms: int
    ) -> tuple[TxnOffsetCommitResponse, list[OffsetRecord]]:
        """Commit offsets in the transaction of the request's producer: (answer, records of that
        transaction).

        Unknown partitions get UNKNOWN_TOPIC_OR_PARTITION, whatever `error` is.
        """
        response, records = TxnOffsetCommitResponse(), list[OffsetRecord]()
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                code = self._check(topic.name, partition, is_known)
                if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    code = error or code
                answers.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
                if not code:
                    records.append(_record(request.group_id, topic.name, partition, now_ms))
            response.topics.append(
                TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)
            )
        return response, records

    def _check(self, topic: str, partition: CommittedPartition, is_known: IsKnown) -> ErrorCode:
        if not is_known(topic, partition.partition_index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._config.offset_metadata_max_bytes or not fits(metadata):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def is_committing(self, group_id: str) -> bool:
        """Whether group offsets, or the end of a transaction with some, are being appended."""
        offsets = self.of(group_id)
        if offsets is not None and offsets.is_committing:
            return True
        return any(group_id in self._in_transaction.get(each, ()) for each in self._ending)

    def fetch(
        self, asked: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """Committed offsets of the requested topics, or of all (topics None).

        A partition without an offset has offset -1 and no error: the client then applies its own
        auto.offset.reset. With require_stable an offset that an open transaction may change is an
        error to retry.
        """
        answer = OffsetFetchResponseGroup(group_id=asked.group_id)
        offsets = self._groups.get(asked.group_id)
        if asked.topics is None:
            topics = [] if offsets is None else list(offsets.topics())
        else:
            topics = [(topic.name, topic.partition_indexes) for topic in asked.topics]
        for topic, partitions in topics:
            found = []
            for partition in partitions:
                if require_stable and offsets is not None and offsets.is_pending(topic, partition):
                    error, value = ErrorCode.UNSTABLE_OFFSET_COMMIT, None
                else:
                    error = ErrorCode.NONE
                    value = None if offsets is None else offsets.get(topic, partition)
                if value is None:
                    value = OffsetCommitValue(offset=NO_OFFSET)
                found.append(
                    OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                        error_code=error,
                    )
                )
            answer.topics.append(OffsetFetchResponseTopics(name=topic, partitions=found))
        return answer

    def delete(
        self,
        request: OffsetDeleteRequest,
        *,
        is_known: IsKnown,
        is_subscribed: Callable[[str], bool],
    ) -> tuple[OffsetDeleteResponse, list[OffsetRecord]]:
        """Delete offsets: (answer, tombstones to store). Absent offsets count as deleted."""
        response, records = OffsetDeleteResponse(), list[OffsetRecord]()
        offsets = self._groups.get(request.group_id)
        for topic in request.topics:
            subscribed = is_subscribed(topic.name)
            answers, gone = [], set()
            for index in (partition.partition_index for partition in topic.partitions):
                error = ErrorCode.NONE
                if not is_known(topic.name, index):
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif subscribed:
                    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    gone.add(index)
                answers.append(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                )
            if offsets is not None:
                records += offsets.tombstones_of(topic.name, gone)
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        return response, records

    # --- the log ---------------------------------------------------------------------------------

    def begin(self, records: Iterable[OffsetRecord]) -> None:
        """Note that these commits are being appended."""
        for key, _ in records:
            self._make(key.group).begin(key.topic, key.partition)

    def end(self, records: Iterable[CoordinatorRecord]) -> None:
        """Note that these commits will be applied, or were not appended. Call `forget_if_empty`
        afterwards.
        """
        for record in records:
            assert isinstance(record, OffsetRecord)
            self._groups[record.key.group].end(record.key.topic, record.key.partition)

    def apply(self, entry: OffsetRecord | TransactionalOffset) -> None:
        key, group_id = entry.key, entry.key.group
        if isinstance(entry, TransactionalOffset):
            offsets = self._make(group_id)
            offsets.apply_pending(entry.producer_id, key.topic, key.partition, entry.value)
            self._in_transaction.setdefault(entry.producer_id, set()).add(group_id)
        elif entry.value is not None:
            self._make(group_id).apply(entry)
        elif group_id in self._groups:
            self._groups[group_id].apply(entry)

    def begin_marker(self, producer_id: int) -> None:
        """Note that the end marker of the producer's transaction is being appended."""
        self._ending[producer_id] += 1

    def end_marker(self, producer_id: int) -> None:
        """Note that the end marker will be applied, or was not appended."""
        self._ending[producer_id] -= 1
        if not self._ending[producer_id]:
            del self._ending[producer_id]

    def end_transaction(self, end: TransactionEnd) -> dict[str, bool]:
        """End a transaction. Returns its groups; True: pending offsets of the group took effect."""
        ended: dict[str, bool] = {}
        for group_id in self._in_transaction.pop(end.producer_id, ()):
            offsets = self._groups.get(group_id)
            ended[group_id] = offsets is not None and offsets.end_transaction(
                end.producer_id, is_commit=end.is_commit
            )
        return ended

    def forget_if_empty(self, group_id: str) -> bool:
        """Forget the group if it has no offsets left. Returns whether it has none."""
        offsets = self._groups.get(group_id)
        if offsets is not None:
            if not offsets.is_empty:
                return False
            del self._groups[group_id]
        return True

    def _make(self, group_id: str) -> GroupOffsets:
        offsets = self._groups.get(group_id)
        if offsets is None:
            offsets = self._groups[group_id] = GroupOffsets(group_id)
        return offsets


def fits(text: str) -> bool:
    """Whether a record can hold the text."""
    return len(text.encode()) <= LONGEST_TEXT


def _plain_record(
    topic: str,
    partition: OffsetCommitRequestPartition,
    request: OffsetCommitRequest,
    now_ms: int,
) -> OffsetRecord:
    # Version 1 may have a commit timestamp, instead of the retention time of later versions.
    commit_timestamp = now_ms
    if partition.commit_timestamp != NO_TIMESTAMP:
        commit_timestamp = partition.commit_timestamp
    expire_timestamp = NO_TIMESTAMP
    if request.retention_time_ms != NO_RETENTION:
        expire_timestamp = min(now_ms + request.retention_time_ms, LONG_MAX)
    return _record(request.group_id, topic, partition, commit_timestamp, expire_timestamp)


def _record(
    group_id: str,
    topic: str,
    partition: CommittedPartition,
    commit_timestamp: int,
    expire_timestamp: int = NO_TIMESTAMP,
) -> OffsetRecord:
    return OffsetRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition.partition_index),
        OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=commit_timestamp,
            expire_timestamp=expire_timestamp,
        ),
    )
