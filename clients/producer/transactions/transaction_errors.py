"""Effects of errors on a transaction: retry, abort, or the producer's end (KIP-1050).

What is in none of these sets is repeated if Kafka's table calls it retriable, else fatal. Source:
the handlers of TransactionManager in apache/kafka clients/.../producer/internals.
"""

from __future__ import annotations

from typing import Final

from ....protocol.error_code import ErrorCode
from ....protocol.errors import (
    ApplicationRecoverable,
    InvalidProducerEpoch,
    InvalidTxnState,
    ProducerFenced,
)

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
    """Whether a producer failed because its transaction was ended by another producer
    of its transactional id, or the coordinator, for which it was open for too long.

    Between the abort and the epoch of the other one the coordinator, as Kafka's, knows only that
    there is nothing to commit: INVALID_TXN_STATE at the end of a transaction.
    """
    return isinstance(error, ProducerFenced | InvalidProducerEpoch) or (
        isinstance(error, ApplicationRecoverable) and isinstance(error.__cause__, InvalidTxnState)
    )
