"""Effects of the transaction rules, besides those of all coordinators
(coordinators/rules_effects).
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

from ..coordinators.rules_effects import Append, CancelTimer, Respond, StartTimer
from ..protocol.error_code import ErrorCode
from .transaction_metadata import NO_EPOCH, NO_PRODUCER_ID, Partitions


class TransactionTimerKind(IntEnum):
    ABORT_TIMED_OUT = auto()
    """Time to check for transactions that are open too long."""
    EXPIRE = auto()
    """Time to check for unused transactional ids."""
    TRANSITION = auto()
    """Timeout of requests that wait for a transition of the id to end."""
    COMPLETE = auto()
    """Time to retry writing the end of a transaction."""


class TransactionTimer(NamedTuple):
    kind: TransactionTimerKind
    transactional_id: str = ""


class InitializedProducer(NamedTuple):
    """Answer to InitProducerId and EndTxn: an error, or the producer to continue as.

    The answer to AddPartitionsToTxn is an ErrorCode.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class TransactionWritten(NamedTuple):
    """Completion of an Append: the record of this transactional id is committed.

    `request_id` None: no request waits for it.
    """

    transactional_id: str
    request_id: int | None
    answer: InitializedProducer | ErrorCode


class SendMarkers(NamedTuple):
    """Write the end markers of the transaction to its partitions; then on_markers_written(self),
    once.

    `partitions` may be empty: then there is nothing to write. `transaction_version`: from 2 on the
    epoch is higher than that of the transaction's batches.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Partitions
    transaction_version: int = 0


Effect = Respond | StartTimer | CancelTimer | Append | SendMarkers
