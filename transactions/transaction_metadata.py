"""Metadata of one transactional id, as an immutable value; each transition returns the next one.

    in the log     the value after its latest transition that is committed
    pending        the value that is being written; until it is committed no other may follow

Epochs. A producer may use epochs up to MAX_EPOCH - 1: MAX_EPOCH is reserved for fencing it.
With transaction.version 2 each end of a transaction raises the epoch, so that a late batch of the
former transaction is fenced at its partition (KIP-890); at the last epoch the end
rotates the producer id: the next one is current from COMPLETE_* on, with epoch 0.

    version 0, 1   (id 7, epoch 3) --EndTxn--> PREPARE (7, 3)             --> COMPLETE (7, 3)
    version 2      (id 7, epoch 3) --EndTxn--> PREPARE (7, 4)             --> COMPLETE (7, 4)
                   (id 7, MAX - 1) --EndTxn--> PREPARE (7, MAX), next 8   --> COMPLETE (8, 0)

Invariants: the epoch of a producer id never decreases.
Source: apache/kafka transaction-coordinator/.../TransactionMetadata.java; KIP-98, KIP-360, KIP-890.

Not here: which request may cause which transition (transaction_coordinator).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .transaction_state import TransactionState

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
MAX_EPOCH = 2**15 - 1

Partitions = frozenset[tuple[str, int]]
NO_PARTITIONS: Partitions = frozenset()

FIRST_WITH_EPOCH_BUMP = 2
"""The transaction.version from which each end of a transaction raises the epoch."""


class IllegalTransition(Exception):
    """A transition that the rules must never make: a bug."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """State of a transactional id. `client_version`: transaction.version of the client of the
    latest change.

    `previous_producer_id`: the one before the latest transition, which may have rotated it; for a
    client that repeats a request because it received no answer. `next_producer_id`: to be used from
    COMPLETE_* on. Times in ms since 1970.
    """

    producer_id: int
    timeout_ms: int
    last_update_ms: int
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionState = TransactionState.EMPTY
    partitions: Partitions = NO_PARTITIONS
    start_ms: int = NO_TIMESTAMP
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= FIRST_WITH_EPOCH_BUMP

    # --- transitions -----------------------------------------------------------------------------

    def with_next_epoch(
        self, timeout_ms: int, expected_epoch: int | None, *, now_ms: int
    ) -> TransactionMetadata | None:
        """Next state after InitProducerId: a new epoch of the same producer id. None: the producer
        is fenced.

        `expected_epoch`: the epoch of a client that recovers from an error (KIP-360). If it is
        `last_producer_epoch`, the client repeats a request that was carried out, and gets the same
        answer.
        """
        epoch, last = self.producer_epoch + 1, NO_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch == NO_EPOCH or expected_epoch == self.producer_epoch:
                last = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last = self.producer_epoch, self.last_producer_epoch
            else:
                return None
        if epoch == MAX_EPOCH:
            raise IllegalTransition(f"producer {self.producer_id} has no epoch left")
        return self._to(
            TransactionState.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    def with_producer_id(
        self, producer_id: int, timeout_ms: int, *, keeps_last_epoch: bool, now_ms: int
    ) -> TransactionMetadata:
        """Next state after InitProducerId when the epochs of the producer id are exhausted."""
        return self._to(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if keeps_last_epoch else NO_EPOCH,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    def with_partitions(
        self, added: Partitions, client_version: int, *, now_ms: int
    ) -> TransactionMetadata:
        """Next state with added partitions; the first ones begin the transaction."""
        return self._to(
            TransactionState.ONGOING,
            partitions=self.partitions | added,
            start_ms=now_ms if self.state.may_expire else self.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self) -> TransactionMetadata:
        """Next state with the producer of an open transaction fenced, so that it can be aborted."""
        return self._to(
            TransactionState.PREPARE_EPOCH_FENCE,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=NO_EPOCH,
        )

    def prepared(
        self,
        state: TransactionState,
        client_version: int,
        *,
        next_producer_id: int = NO_PRODUCER_ID,
        now_ms: int,
    ) -> TransactionMetadata:
        """Next state when the end is decided: PREPARE_COMMIT or PREPARE_ABORT.

        An abort without an open transaction (version 2) gets `now_ms` as its start time.
        """
        epoch, last = self.producer_epoch, self.last_producer_epoch
        if client_version >= FIRST_WITH_EPOCH_BUMP:
            last = epoch
            if epoch < MAX_EPOCH:
                epoch += 1
            elif state is TransactionState.PREPARE_COMMIT:
                raise IllegalTransition(f"producer {self.producer_id} has no epoch left")
        return self._to(
            state,
            producer_epoch=epoch,
            last_producer_epoch=last,
            next_producer_id=next_producer_id,
            start_ms=now_ms if self.state.may_expire else self.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, *, now_ms: int) -> TransactionMetadata:
        """Next state when all markers are written."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        rotates = self.bumps_epoch and self.next_producer_id != NO_PRODUCER_ID
        return self._to(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            producer_id=self.next_producer_id if rotates else self.producer_id,
            producer_epoch=0 if rotates else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=NO_PARTITIONS,
            last_update_ms=now_ms,
        )

    def dead(self) -> TransactionMetadata:
        """Next state of an expired id; its tombstone is to be written."""
        return self._to(TransactionState.DEAD, partitions=NO_PARTITIONS)

    def _to(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        """Next state. As in Kafka, a transition makes the current producer id the previous one."""
        if not state.may_follow(self.state):
            raise IllegalTransition(f"{self.state.title} to {state.title}")
        return replace(self, previous_producer_id=self.producer_id, state=state, **changes)


def is_exhausted(epoch: int) -> bool:
    """Whether a producer may use no higher epoch: the one above is reserved for fencing it."""
    return epoch >= MAX_EPOCH - 1
