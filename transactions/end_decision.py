"""Decision about an EndTxn: end the transaction, report that it has already ended so, or an error.

`is_busy`: another transition of the transactional id is under way.
Source: apache/kafka core/.../transaction/TransactionCoordinator.scala, endTransaction (4.1).
"""

from __future__ import annotations

from ..protocol.error_code import ErrorCode
from .transaction_metadata import MAX_EPOCH, TransactionMetadata
from .transaction_state import TransactionState


def decide_end(
    metadata: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    is_busy: bool,
) -> ErrorCode | None:
    """Decide an EndTxn up to transaction.version 1: the error, NONE if it has already ended so,
    None: proceed.
    """
    if metadata.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _END[is_commit].get(metadata.state, ErrorCode.INVALID_TXN_STATE)


_END: dict[bool, dict[TransactionState, ErrorCode | None]] = {
    True: {
        TransactionState.ONGOING: None,
        TransactionState.COMPLETE_COMMIT: ErrorCode.NONE,
    },
    False: {
        TransactionState.ONGOING: None,
        TransactionState.COMPLETE_ABORT: ErrorCode.NONE,
    },
}


def decide_end_v2(
    metadata: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    is_busy: bool,
) -> ErrorCode | None:
    """Decide an EndTxn from transaction.version 2 on, where each end raises the epoch; results as
    in decide_end.

    A request with the previous epoch is a repeated one; with the present epoch it ends the next
    transaction, and only an abort is allowed if none is open.

                       repeated               present epoch
                       abort      commit      abort      commit
    EMPTY              fenced     fenced      go ahead   INVALID_TXN_STATE
    COMPLETE_ABORT     NONE       INVALID     go ahead   INVALID
    COMPLETE_COMMIT    INVALID    NONE        go ahead   INVALID

    The previous epoch means a repeated request only if the last end raised the epoch. If a producer
    of version 1 has begun and ended a transaction since, it is the epoch of a fenced producer.
    Kafka takes that for a repeated request, too, and answers with the other producer's epoch.
    """
    has_rotated = (
        metadata.previous_producer_id == producer_id
        and producer_epoch == MAX_EPOCH - 1
        and metadata.producer_epoch == 0
    )
    is_repeated = metadata.bumps_epoch and (
        has_rotated or metadata.producer_epoch == producer_epoch + 1
    )
    if metadata.producer_id != producer_id and not has_rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_present = metadata.producer_epoch == producer_epoch
    if metadata.state.is_prepared:
        is_valid = is_repeated
    elif metadata.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        is_valid = is_repeated or is_present
    else:
        is_valid = is_present
    if not is_valid:
        return ErrorCode.PRODUCER_FENCED
    if is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if is_present and metadata.state.may_expire:
        return ErrorCode.INVALID_TXN_STATE if is_commit else None
    return _END[is_commit].get(metadata.state, ErrorCode.INVALID_TXN_STATE)
