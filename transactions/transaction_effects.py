"""What the rules of transactions ask the outside to do, besides what all coordinators ask for.

See coordinators/rules_effects for that.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

from ..coordinators.rules_effects import Append, CancelTimer, Respond, StartTimer
from ..protocol.error_code import ErrorCode
from .transaction_metadata import NO_EPOCH, NO_PRODUCER_ID, Partitions


class TransactionTimerKind(IntEnum):
    ABORT_TIMED_OUT = auto()
    """It is time to look for transactions that are open for too long."""
    EXPIRE = auto()
    """It is time to look for transactional ids that nobody uses."""
    TURN = auto()
    """Requests have waited long enough for a transition of the id to end."""
    COMPLETE = auto()
    """The end of a transaction could not be written; it is to be tried again."""


class TransactionTimer(NamedTuple):
    kind: TransactionTimerKind
    transactional_id: str = ""


class InitializedProducer(NamedTuple):
    """The answer to InitProducerId and EndTxn: an error, or the producer to go on as.

    That to AddPartitionsToTxn is an ErrorCode.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class TransactionWritten(NamedTuple):
    """Completion of an Append: what waits for the record of this transactional id.

    `request_id` None: nobody does any more.
    """

    transactional_id: str
    request_id: int | None
    answer: InitializedProducer | ErrorCode


class SendMarkers(NamedTuple):
    """Write the end of the transaction to its partitions; then on_markers_written(self), once.

    `partitions` may be empty, and then nothing is to be written. `transaction_version`: from 2 on
    the epoch is one that no batch of the transaction has.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Partitions
    transaction_version: int = 0


Effect = Respond | StartTimer | CancelTimer | Append | SendMarkers
