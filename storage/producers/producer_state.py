"""State of a partition's producers: last batches, for retries, and transactions.

Per producer id: its epoch, its last five batches (a client has at most five in flight), the epoch
of the coordinator that ended its last transaction, and where its open transaction begins.

Invariants: except for verifications under way, the state is a pure function of the log below
`end_offset` (check_* decide, update and end_transaction apply), so a follower that applied the same
batches decides the same when it leads.

A transaction is undecided until its marker is in the log, and unstable until the marker is below
the high watermark. Readers of committed records stop before the first unstable one.
Source: apache/kafka storage/.../internals/log/ProducerStateManager.java, ProducerStateEntry.java,
ProducerAppendInfo.java; KIP-98, KIP-360, KIP-890, KIP-1228.

Not here: the snapshot file (producer_snapshot), the index of aborted transactions.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ...protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from ...protocol.records.end_transaction_marker import EndTransactionMarker
from ...protocol.records.record_batch import NO_SEQUENCE, TRANSACTIONAL_MASK, RecordBatchHeader
from ..segments.transaction_index import AbortedTransaction
from .verification_guard import UNVERIFIED, VerificationGuard

REMEMBERED_BATCHES: Final = 5
SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Mask of sequences, which wrap from 2**31 - 1 to 0."""
NO_COORDINATOR: Final = -1
NO_TIMESTAMP: Final = -1
LATE_BUFFER_MS: Final = 300_000
"""Grace period before a transaction is late; Kafka's
ProducerStateManager.LATE_TRANSACTION_BUFFER_MS, as coordinators check periodically.
"""
BUMPS_EPOCHS: Final = 2
"""First transaction.version in which each transaction has its own epoch."""


class WrittenBatch(NamedTuple):
    """A batch in the log, with the fields of the response to its retry."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class UnstableTransaction(NamedTuple):
    """A decided transaction whose marker may not be committed yet."""

    marker_offset: int
    first_offset: int


class ProducerEntry:
    """One producer id: its epoch and its last batches, oldest first.

    `batches` is empty if the epoch has only markers.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "timestamp")

    def __init__(
        self, epoch: int, *, coordinator_epoch: int = NO_COORDINATOR, timestamp: int = NO_TIMESTAMP
    ) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self.coordinator_epoch = coordinator_epoch
        """Epoch of the coordinator that wrote its last marker."""
        self.timestamp = timestamp
        """Timestamp of its last batch or marker."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """State of all producers of one partition. `entries` is read by the snapshot writer."""

    __slots__ = (
        "_answered",
        "_verifications",
        "end_offset",
        "entries",
        "open_transactions",
        "unstable",
    )

    def __init__(self, end_offset: int = 0) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, int] = {}
        """First offset of each open transaction, by producer id.

        In the order of these offsets, as each is added when it is the end of the log.
        """
        self.end_offset = end_offset
        """Offset up to which the batches of the log are in this state."""
        self.unstable: deque[UnstableTransaction] = deque()
        """Decided transactions that may determine the last stable offset; both fields ascend."""
        self._verifications: dict[int, VerificationGuard] = {}
        # Guards of open transactions, while batches wait that were received before these opened.
        self._answered: dict[int, VerificationGuard] = {}

    # --- whether a leader may append -------------------------------------------------------------

    def check(
        self, header: RecordBatchHeader, guard: VerificationGuard | None = None
    ) -> WrittenBatch | None:
        """Check whether a leader may append this batch of a client's producer (producer_id >= 0).

        Args:
            header: of a batch without markers.
            guard: returned by begin_verification for this batch, after the coordinator has
                confirmed the transaction; None if there was nothing to verify.

        Returns:
            The batch that was written before, if this one is its retry: append nothing and answer
            with its offsets. None: append.

        Raises:
            InvalidProducerEpoch: a newer incarnation of the producer has written.
            OutOfOrderSequenceNumber: batches are missing before this one, or it repeats one that
                is older than the last five.
            InvalidTxnState: its transaction was not confirmed by the coordinator, or it is of none
                while its producer has one open here.
        """
        entry = self.entries.get(header.producer_id)
        first_sequence = header.base_sequence
        is_next = False
        if entry is not None and header.producer_epoch == entry.epoch:
            batches = entry.batches
            last = batches[-1].last_sequence if batches else NO_SEQUENCE
            is_next = first_sequence == (last + 1) & SEQUENCE_MASK
            if not is_next:
                last_sequence = header.last_sequence
                for batch in batches:
                    if (
                        batch.last_sequence == last_sequence
                        and batch.first_sequence == first_sequence
                    ):
                        return batch
        if header.attributes & TRANSACTIONAL_MASK:
            self._check_verified(header, guard)
        elif self.open_transactions:
            self._check_without_transaction(header, entry)
        if self._verifications:
            self._check_lowest_sequence(header, entry)
        if entry is None or is_next:
            return None  # an expired or unknown producer may begin anywhere (KIP-360)
        if header.producer_epoch == entry.epoch:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} sent sequence {first_sequence} "
                f"after {entry.last_sequence}"
            )
        _check_epoch(header, entry)
        if first_sequence != 0:
            raise OutOfOrderSequenceNumber(
                f"epoch {header.producer_epoch} of producer {header.producer_id} "
                f"begins with sequence {first_sequence}, not 0"
            )
        return None

    def check_own(self, header: RecordBatchHeader, guard: VerificationGuard | None = None) -> None:
        """Check a batch that a coordinator writes in a producer's name, without sequence.

        Raises:
            InvalidProducerEpoch, InvalidTxnState: as check.
        """
        entry = self.entries.get(header.producer_id)
        if header.attributes & TRANSACTIONAL_MASK:
            self._check_verified(header, guard)
        if entry is not None:
            _check_epoch(header, entry)
        if not header.attributes & TRANSACTIONAL_MASK:
            self._check_without_transaction(header, entry)

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Check whether a leader may append a marker, even if the producer has no open transaction.

        From transaction.version 2 on a marker has a higher epoch than the records: one of the same
        epoch is late, and would end the transaction after its own (KIP-1228). Without a transaction
        it is a repetition, which does no harm.

        Raises:
            InvalidProducerEpoch: a newer incarnation of the producer has written, or see above.
            TransactionCoordinatorFenced: a later coordinator has written a marker.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        is_late = (
            producer_epoch == entry.epoch
            and transaction_version >= BUMPS_EPOCHS
            and producer_id in self.open_transactions
        )
        if producer_epoch < entry.epoch or is_late:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {entry.epoch}, this marker has {producer_epoch}"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a coordinator of epoch {entry.coordinator_epoch} has written for producer "
                f"{producer_id}, this one is of {coordinator_epoch}"
            )

    def _check_verified(self, header: RecordBatchHeader, guard: VerificationGuard | None) -> None:
        """Check that the coordinator was asked before the first records of a transaction.

        A marker removes the guard: the coordinator's answer was about the previous transaction.
        """
        producer_id = header.producer_id
        if guard is UNVERIFIED or self.has_open_transaction(producer_id, header.producer_epoch):
            return
        if guard is None or self._verifications.get(producer_id) is not guard:
            raise InvalidTxnState(f"producer {producer_id} has no verified transaction here")

    def _check_without_transaction(
        self, header: RecordBatchHeader, entry: ProducerEntry | None
    ) -> None:
        producer_id = header.producer_id
        if producer_id in self.open_transactions:
            if entry is not None:
                _check_epoch(header, entry)
            raise InvalidTxnState(
                f"producer {producer_id} has a transaction open here, this batch is of none"
            )

    def _check_lowest_sequence(
        self, header: RecordBatchHeader, entry: ProducerEntry | None
    ) -> None:
        """Check that no batch with a lower sequence waits for a retry, after its verification
        failed.
        """
        guard = self._verifications.get(header.producer_id)
        if guard is None:
            return
        if entry is not None:
            _check_epoch(header, entry)
        first_sequence = header.base_sequence
        if guard.supports_epoch_bump and first_sequence and (entry is None or not entry.batches):
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} begins with sequence {first_sequence}, not 0"
            )
        if first_sequence > guard.lowest_sequence:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} sent sequence {first_sequence} "
                f"before {guard.lowest_sequence}"
            )

    # --- verification ----------------------------------------------------------------------------

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this epoch of the producer has a transaction open here."""
        if producer_id not in self.open_transactions:
            return False
        entry = self.entries.get(producer_id)
        return entry is not None and entry.epoch == producer_epoch

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        *,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> VerificationGuard | None:
        """Begin the verification of a transaction, before its first batch; None: not needed.

        Args:
            producer_id, producer_epoch: the batch's.
            sequence: the batch's first; NO_SEQUENCE if a coordinator writes it.
            supports_epoch_bump: its client follows transaction.version 2.
            now_ms: the time now.

        Returns:
            The guard for check, once the coordinator has confirmed the transaction; None: the
            transaction is open here, and no batch before this one waits.
        """
        if self.has_open_transaction(producer_id, producer_epoch):
            guard = self._answered.get(producer_id)
            if guard is None or guard.waiting:
                return guard
            del self._answered[producer_id]
            return None
        guard = self._verifications.get(producer_id)
        if guard is None:
            guard = self._verifications[producer_id] = VerificationGuard(
                now_ms, sequence, producer_epoch, supports_epoch_bump=supports_epoch_bump
            )
        guard.lower(sequence, producer_epoch)
        return guard

    def take_questions(self, other: ProducerState) -> None:
        """Take over the verifications of `other`, which has the same records."""
        self._verifications.update(other._verifications)
        self._answered.update(other._answered)

    # --- what is in the log ----------------------------------------------------------------------

    def update(self, header: RecordBatchHeader, last_offset: int, timestamp: int) -> None:
        """Apply a batch without marker that was appended; it may have no producer id.

        Sequences are not checked: the leader has checked them, and a follower must store what the
        leader stores. Batches are applied in the order of their offsets.
        """
        self.end_offset = last_offset + 1
        producer_id = header.producer_id
        if producer_id < 0:
            return
        entry = self._entry(producer_id, header.producer_epoch)
        delta, sequence = header.last_offset_delta, header.base_sequence
        last_sequence = NO_SEQUENCE if sequence < 0 else (sequence + delta) & SEQUENCE_MASK
        entry.timestamp = timestamp
        entry.batches.append(WrittenBatch(last_sequence, last_offset, delta, timestamp))
        if header.attributes & TRANSACTIONAL_MASK:
            guard = self._verifications.pop(producer_id, None)
            if guard is not None and guard.waiting:
                self._answered[producer_id] = guard
            self.open_transactions.setdefault(producer_id, last_offset - delta)

    def end_transaction(
        self,
        header: RecordBatchHeader,
        marker: EndTransactionMarker | None,
        offset: int,
        timestamp: int,
    ) -> AbortedTransaction | None:
        """Apply a control batch that was appended at `offset`.

        `marker`: its content; None leaves the transaction open. Returns the entry for the
        transaction index if a transaction was aborted.
        """
        self.end_offset = offset + 1
        producer_id = header.producer_id
        if producer_id < 0 or header.producer_epoch < 0:
            return None
        entry = self._entry(producer_id, header.producer_epoch)
        entry.timestamp = timestamp
        if marker is None:
            return None
        entry.coordinator_epoch = marker.coordinator_epoch
        guard = self._verifications.get(producer_id)
        if guard is not None and not guard.is_of_later_than(header.producer_epoch):
            del self._verifications[producer_id]
        self._answered.pop(producer_id, None)
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is None:
            return None
        self._add_unstable(UnstableTransaction(offset, first_offset))
        if marker.is_commit:
            return None
        last_stable_offset = next(iter(self.open_transactions.values()), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def _entry(self, producer_id: int, producer_epoch: int) -> ProducerEntry:
        """Entry of the producer, in this epoch; created if there is none."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_epoch)
        elif entry.epoch != producer_epoch:
            entry.epoch = producer_epoch
            entry.batches.clear()
        return entry

    def _add_unstable(self, transaction: UnstableTransaction) -> None:
        unstable = self.unstable
        while unstable and unstable[-1].first_offset > transaction.first_offset:
            unstable.pop()  # its marker is earlier, so it cannot limit the LSO any more
        unstable.append(transaction)

    # --- what is stable --------------------------------------------------------------------------

    def stable_end(self, high_watermark: int) -> int:
        """End of the records that are committed and belong to no undecided transaction."""
        unstable = self.unstable
        while unstable and unstable[0].marker_offset < high_watermark:
            unstable.popleft()
        end = high_watermark
        if unstable and unstable[0].first_offset < end:
            end = unstable[0].first_offset
        for first_offset in self.open_transactions.values():
            return min(first_offset, end)
        return end

    def has_late_transaction(self, now_ms: int, max_transaction_ms: int) -> bool:
        """Whether the oldest open transaction should have ended long ago, and will not end by
        itself.

        Its producer wrote nothing for LATE_BUFFER_MS longer than any transaction may be open.
        """
        for producer_id in self.open_transactions:
            entry = self.entries.get(producer_id)
            since_ms = NO_TIMESTAMP if entry is None else entry.timestamp
            return since_ms > 0 and now_ms - since_ms > max_transaction_ms + LATE_BUFFER_MS
        return False

    # --- forgetting ------------------------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers whose last batch or marker is `expiration_ms` old; returns their number.

        Age is by the batch's timestamp, as in Kafka, so that replicas agree. A producer with an
        open transaction is kept: its marker needs the entry.
        """
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if now_ms - entry.timestamp >= expiration_ms
            and producer_id not in self.open_transactions
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        for producer_id, guard in list(self._verifications.items()):
            if now_ms - guard.begun_ms >= expiration_ms:
                del self._verifications[producer_id]
        return len(expired)


def _check_epoch(header: RecordBatchHeader, entry: ProducerEntry) -> None:
    if header.producer_epoch < entry.epoch:
        raise InvalidProducerEpoch(
            f"producer {header.producer_id} has epoch {entry.epoch}, "
            f"this batch has {header.producer_epoch}"
        )
