"""End of a producer's current transaction: by EndTxn, by a new producer epoch, by both, or by none.

    EndTxn           something was sent, and the coordinator knows the producer
    InitProducerId   it does not; or the next transaction is of the other generation; or a batch may
                     be late, and the coordinator did not raise the epoch with EndTxn

Source: transactionStarted, epochBumpRequired of TransactionManager in apache/kafka
clients/.../producer/internals (KIP-360, KIP-890).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionCompletion:
    """How one transaction ends; each has its own.

    is_started: the coordinator may know of the transaction.
    needs_new_epoch: a batch or offsets may be late, and must not join the next transaction.
    without_request: the coordinator does not know the transaction.
    is_sent, is_done: EndTxn was sent; the transaction has ended, except for a new epoch.
    """

    is_started: bool = False
    needs_new_epoch: bool = False
    without_request: bool = False
    is_sent: bool = False
    is_done: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether the end has begun: no batch or offset can join the transaction any more."""
        return self.is_sent or self.is_done

    @property
    def needs_request(self) -> bool:
        """Whether EndTxn is to be sent."""
        return self.is_started and not self.is_done and not self.without_request

    def needs_initialization(self, *, was_explicit: bool, is_upgrade: bool) -> bool:
        """Whether InitProducerId has to follow.

        Args:
            was_explicit: the coordinator did not raise the epoch (below transaction.version 2).
            is_upgrade: the next transaction is the first of transaction.version 2: batches of this
                one must not reach partitions that the next one writes to.
        """
        return self.without_request or is_upgrade or (self.needs_new_epoch and was_explicit)
