"""Append of the marker that ends a producer's transaction in a partition, by its leader.

It is appended like any batch: write, then producer state and index, then the high watermark.
Source: ReplicaManager.appendRecords and ProducerAppendInfo.appendEndTxnMarker in apache/kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.records.records import ControlType, encode_control_batch
from ...storage.log.partition_log import AppendResult
from .replica import Replica


class TransactionDecision(NamedTuple):
    """Decision of a coordinator about a producer's transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


def append_marker(
    replica: Replica, decision: TransactionDecision, *, now_ms: int, wall_ms: int
) -> AppendResult:
    """Append the marker, if this node leads. Whether it is committed: see Replica.when_committed.

    It is accepted on a disk that is nearly full, too: without it read_committed consumers get
    nothing after the transaction, and nothing is compacted there.

    Raises (and nothing was appended):
        InvalidProducerEpoch, TransactionCoordinatorFenced: see ProducerState.check_marker.
        NotLeaderOrFollower, NotEnoughReplicas, KafkaStorageError: as for a producer's batch.
    """
    replica.check_produce(acks_all=True)
    replica.log.local.producers.check_marker(
        decision.producer_id,
        decision.producer_epoch,
        coordinator_epoch=decision.coordinator_epoch,
        transaction_version=decision.transaction_version,
    )
    marker = encode_control_batch(
        ControlType.COMMIT if decision.is_commit else ControlType.ABORT,
        producer_id=decision.producer_id,
        producer_epoch=decision.producer_epoch,
        coordinator_epoch=decision.coordinator_epoch,
        timestamp=wall_ms,
    )
    return replica.append(
        marker, opened=True, is_own=True, uses_reserve=True, now_ms=now_ms, wall_ms=wall_ms
    )
