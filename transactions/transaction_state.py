"""States of a transactional id, and the transitions between them.

    EMPTY --AddPartitionsToTxn--> ONGOING --EndTxn--> PREPARE_COMMIT --markers--> COMPLETE_COMMIT
                                  ONGOING --EndTxn--> PREPARE_ABORT  --markers--> COMPLETE_ABORT
    ONGOING --InitProducerId, timeout--> PREPARE_EPOCH_FENCE --> PREPARE_ABORT

From COMPLETE_* the next transaction begins. With transaction.version 2 an abort is also allowed if
no transaction is open (KIP-890). PREPARE_EPOCH_FENCE is passed within one step on the way to
PREPARE_ABORT, and DEAD is only pending, until the tombstone of an expired id is committed: neither
is in the log.
Source: apache/kafka transaction-coordinator/.../TransactionState.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class TransactionState(IntEnum):
    """State of a transactional id; the number is the one in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Name as in Kafka's tools and DescribeTransactions: "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    def may_follow(self, previous: TransactionState) -> bool:
        return previous in _PREVIOUS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided and its markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Whether an id in this state expires after transactional.id.expiration.ms."""
        return self in _AT_REST


_AT_REST = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _AT_REST,
    TransactionState.ONGOING: _AT_REST | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _AT_REST
    | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _AT_REST,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}
