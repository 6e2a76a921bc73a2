"""Effects of errors on a transaction: retry, abort, or the producer's end (KIP-1050); their texts.

Errors in none of these sets are retried if they are retriable in Kafka's table, else fatal. Source:
the handlers of TransactionManager in apache/kafka clients/.../producer/internals.
"""

from __future__ import annotations

from typing import Final

from ....protocol.error_code import ErrorCode
from ....protocol.errors import (
    ApplicationRecoverable,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
    error_for,
)
from ..batches.partition_queue import Identity

MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
NEEDS_NEW_EPOCH: Final = frozenset(
    {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
BATCH_FATAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Fatal errors of a Produce. INVALID_PRODUCER_EPOCH is not one: the transaction's end shows whether
the producer is fenced.
"""


NOT_STARTED: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors for which a producer was not initialized, but may be later."""


def is_ended_by_another(error: BaseException) -> bool:
    """Whether a producer failed because its transaction was ended by another producer of its
    transactional id, or by the coordinator, after transaction_timeout_ms.

    Between the abort and the other producer's new epoch the coordinator, like Kafka's, reports only
    that there is nothing to commit: INVALID_TXN_STATE at the end of a transaction.
    """
    return isinstance(error, ProducerFenced | InvalidProducerEpoch) or (
        isinstance(error, ApplicationRecoverable) and isinstance(error.__cause__, InvalidTxnState)
    )


def no_transaction(call: str, transactional_id: str, phase: str) -> InvalidTxnState:
    """Error of a call outside a transaction. phase: what the producer is instead."""
    return InvalidTxnState(
        f"{call}: no transaction is open: the producer of {transactional_id!r} is {phase}; "
        "use `with producer.transaction():`, or begin()"
    )


def cannot_commit(transactional_id: str, error: Exception) -> TransactionAbortable:
    """Failure of a transaction, for the reason `error`."""
    failure = TransactionAbortable(
        f"the transaction of {transactional_id!r} cannot be committed: {error}; "
        "abort() it, and do its work again in the next one"
    )
    failure.__cause__ = error
    return failure


def cannot_go_on(
    transactional_id: str, identity: Identity, timeout_ms: int, error: Exception
) -> ProducerFenced | ApplicationRecoverable:
    """Failure of a producer, for the reason `error`."""
    who = f"the producer of {transactional_id!r} (id {identity.producer_id}, epoch "
    who += f"{identity.producer_epoch})"
    if isinstance(error, ProducerFenced):
        return ProducerFenced(
            f"{who} is fenced: another producer has this transactional id now, or the "
            f"transaction outlived transaction_timeout_ms={timeout_ms}; close() this "
            "one, and make a new one if no other took over"
        )
    reason = str(error)
    if isinstance(error, InvalidTxnState):
        reason = (
            "its transaction has been ended: it outlived "
            f"transaction_timeout_ms={timeout_ms}, or another producer has taken over ({error})"
        )
    failure = ApplicationRecoverable(
        f"{who} cannot go on: {reason}; close() it, and make a new one"
    )
    failure.__cause__ = error
    return failure


def not_initialized(code: int, transactional_id: str, timeout_ms: int) -> KafkaError:
    """Error of a producer that was not initialized, but may be later."""
    text = f"transactional_id={transactional_id!r}: {error_for(code)}"
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        text += (
            f"; transaction_timeout_ms={timeout_ms} is more than the brokers' "
            "transaction.max.timeout.ms allows: lower the one or raise the other"
        )
    return error_for(code, text)
