"""The requests of a transactional producer, each limited to versions with the intended meaning.

Versions: clients send AddPartitionsToTxn up to 3. TxnOffsetCommit 5 and EndTxn 5 are of
transaction.version 2 (KIP-890): the one adds the group to the transaction, the other raises the
epoch. TxnOffsetCommit has the member and its generation from 3 on (KIP-447): below that, a member
that the group has removed is not fenced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ....protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ....protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ....protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ....protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ....protocol.topic_partition import TopicPartition
from ..batches.partition_queue import Identity
from .transaction_request import OffsetsToSend, RequestKind, TransactionRequest

_INITIALIZE_VERSIONS: Final = (0, 5)
_RAISE_EPOCH_VERSION: Final = 3
"""Version of InitProducerId from which a producer can raise its own epoch (KIP-360)."""

_FENCED_COMMIT_VERSION: Final = 3
_IMPLICIT_VERSION: Final = 5
"""Version of EndTxn and TxnOffsetCommit with transaction.version 2."""


def initialize_request(
    transactional_id: str, timeout_ms: int, identity: Identity
) -> TransactionRequest:
    """InitProducerId for a new producer (id -1), or to raise the epoch of this one."""
    first, last = _INITIALIZE_VERSIONS
    return TransactionRequest(
        RequestKind.INITIALIZE,
        InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        ),
        InitProducerIdResponse,
        min_version=first if identity.producer_id < 0 else _RAISE_EPOCH_VERSION,
        max_version=last,
    )


def add_partitions_request(
    transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> TransactionRequest:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(partition)
    return TransactionRequest(
        RequestKind.ADD_PARTITIONS,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        ),
        AddPartitionsToTxnResponse,
        max_version=3,
    )


def add_offsets_request(
    transactional_id: str, identity: Identity, group_id: str
) -> TransactionRequest:
    return TransactionRequest(
        RequestKind.ADD_OFFSETS,
        AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        ),
        AddOffsetsToTxnResponse,
    )


def commit_offsets_request(
    transactional_id: str, identity: Identity, waiting: OffsetsToSend, *, implicit: bool
) -> TransactionRequest:
    """TxnOffsetCommit. implicit: the group's coordinator adds the group to the transaction."""
    group = waiting.group
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, partition), (offset, metadata, leader_epoch) in sorted(waiting.missing.items()):
        topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    is_fenced = bool(group.member_id) or group.generation >= 0
    return TransactionRequest(
        RequestKind.COMMIT_OFFSETS,
        TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        ),
        TxnOffsetCommitResponse,
        min_version=_IMPLICIT_VERSION if implicit else _FENCED_COMMIT_VERSION if is_fenced else 0,
        max_version=_IMPLICIT_VERSION if implicit else _IMPLICIT_VERSION - 1,
        group_id=group.group_id,
    )


def end_request(
    transactional_id: str, identity: Identity, *, is_commit: bool, implicit: bool
) -> TransactionRequest:
    """EndTxn. implicit: the coordinator raises the epoch, which is in the answer."""
    return TransactionRequest(
        RequestKind.END,
        EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=is_commit,
        ),
        EndTxnResponse,
        min_version=_IMPLICIT_VERSION if implicit else 0,
        max_version=_IMPLICIT_VERSION if implicit else _IMPLICIT_VERSION - 1,
    )
