"""Verification of a transaction by its coordinator, under way for one producer in a partition.

Before the first batch of a transaction the leader asks the coordinator to confirm the transaction
(KIP-890). If a marker is written meanwhile, the coordinator's answer is about the previous
transaction: so a marker ends the verification, and a batch is appended only with the guard of the
verification under way. Guards are compared by identity.

Except with transaction.version 2: there each end of a transaction bumps the epoch, so a marker of
the verified epoch ends the previous transaction, and the producer may continue before that marker
is written here. The verification continues. Kafka ends it, and begins another one.
Source: apache/kafka storage/.../internals/log/VerificationGuard.java, VerificationStateEntry.java.
"""

from __future__ import annotations

from typing import Final


class VerificationGuard:
    """State of one verification. Soft state of one leader."""

    __slots__ = ("begun_ms", "lowest_sequence", "producer_epoch", "supports_epoch_bump", "waiting")

    def __init__(
        self, begun_ms: int, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool
    ) -> None:
        self.begun_ms = begun_ms
        self.lowest_sequence = sequence
        """Lowest waiting sequence: no later batch is appended before it."""
        self.producer_epoch = producer_epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.waiting = 0
        """Number of batches that wait for an answer, maintained by the caller: later batches then
        verify, too, even if the transaction is open by then, and so keep their order.
        """

    def is_of_later_than(self, marker_epoch: int) -> bool:
        """Whether the verification is about a transaction after the one that this marker ends."""
        return self.supports_epoch_bump and self.producer_epoch >= marker_epoch

    def lower(self, sequence: int, producer_epoch: int) -> None:
        """Note another batch that waits for the same answer."""
        if producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence


UNVERIFIED: Final = VerificationGuard(0, 0, 0, supports_epoch_bump=False)
"""Stands for a guard when transaction.partition.verification.enable is off."""
