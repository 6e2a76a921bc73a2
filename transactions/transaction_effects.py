"""What the rules of transactions ask the outside to do.

In order, and all of them: a list of effects is one decision.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

from ..protocol.error_code import ErrorCode
from .transaction_metadata import NO_EPOCH, NO_PRODUCER_ID, Partitions
from .transaction_records import TransactionRecord


class TransactionTimerKind(IntEnum):
    ABORT_TIMED_OUT = auto()
    """It is time to look for transactions that are open for too long."""
    EXPIRE = auto()
    """It is time to look for transactional ids that nobody uses."""
    COMPLETE = auto()
    """The end of a transaction could not be written; it is to be tried again."""


class TransactionTimer(NamedTuple):
    kind: TransactionTimerKind
    transactional_id: str = ""


class InitializedProducer(NamedTuple):
    """The answer to InitProducerId and EndTxn: an error, or the producer to go on as."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class AnswerRequest(NamedTuple):
    """Answer the request that came with this id. Each request is answered exactly once.

    `answer`: a Producer for InitProducerId and EndTxn, an ErrorCode for AddPartitionsToTxn.
    """

    request_id: int
    answer: InitializedProducer | ErrorCode


class StartTransactionTimer(NamedTuple):
    """Call on_timer(key) in `after_ms`; replaces the timer of that key."""

    key: TransactionTimer
    after_ms: int


class TransactionWritten(NamedTuple):
    """What waits for a record of this transactional id; `request_id` None: nobody does any more."""

    transactional_id: str
    request_id: int | None
    answer: InitializedProducer | ErrorCode


class AppendTransactions(NamedTuple):
    """Append the records as one batch. Then on_committed(self), in log order, or on_failed(self).

    In between on_late(self), at most once, gives the Append to go on with.
    """

    records: tuple[TransactionRecord, ...]
    written: TransactionWritten | None = None


class SendMarkers(NamedTuple):
    """Write the end of the transaction to its partitions; then on_markers_written, once.

    `partitions` may be empty, and then nothing is to be written. `transaction_version`: from 2 on
    the epoch is one that no batch of the transaction has.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Partitions
    transaction_version: int = 0


Effect = AnswerRequest | StartTransactionTimer | AppendTransactions | SendMarkers
