"""What the idempotent producers of one partition have written last, to recognise their retries.

Per producer id: its epoch and its last five batches, because a client has at most five in flight.

What always holds: this is a pure function of the log below `end_offset` (check decides, update
applies), so a follower that applied the same batches can lead with the same answers.
Source: apache/kafka storage/.../internals/log/ProducerStateManager.java, ProducerStateEntry.java,
ProducerAppendInfo.java; KIP-98, KIP-360.

Not here: the snapshot file (producer_snapshot), transactions.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...protocol.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from ...protocol.records.record_batch import (
    CONTROL_MASK,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    RecordBatchHeader,
)

REMEMBERED_BATCHES = 5
SEQUENCE_MASK = 0x7FFFFFFF
"""Sequences wrap from 2**31 - 1 to 0."""


class WrittenBatch(NamedTuple):
    """A batch in the log, as its producer's retry must be answered."""

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


class ProducerEntry:
    """One producer id: its epoch and its last batches, oldest first, at least one."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED_BATCHES)


class ProducerState:
    """All producers of one partition. `entries` is read by the snapshot writer."""

    __slots__ = ("end_offset", "entries", "open_transactions")

    def __init__(self, end_offset: int = 0) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, int] = {}
        """By producer id, the first offset of its transaction that no marker has ended yet."""
        self.end_offset = end_offset
        """The batches below are in this state."""

    def check(self, header: RecordBatchHeader) -> WrittenBatch | None:
        """Whether a leader may append this batch of an idempotent producer (producer_id >= 0).

        Returns:
            The batch that was written before, if this one is its retry: append nothing and answer
            with its offsets. None: append.

        Raises:
            InvalidProducerEpoch: a newer incarnation of the producer has written.
            OutOfOrderSequenceNumber: batches are missing before this one, or it repeats one that
                is older than the last five.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None  # expired or never seen: any sequence may begin (KIP-360)
        first_sequence = header.base_sequence
        if header.producer_epoch == entry.epoch:
            last = entry.batches[-1].last_sequence
            if first_sequence == (last + 1) & SEQUENCE_MASK:
                return None
            last_sequence = header.last_sequence
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} sent sequence {first_sequence} after {last}"
            )
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {entry.epoch}, "
                f"this batch has {header.producer_epoch}"
            )
        if first_sequence != 0:
            raise OutOfOrderSequenceNumber(
                f"epoch {header.producer_epoch} of producer {header.producer_id} "
                f"begins with sequence {first_sequence}, not 0"
            )
        return None

    def update(self, header: RecordBatchHeader, last_offset: int, timestamp: int) -> None:
        """Apply a batch that is in the log now; it may have no producer id.

        Sequences are taken as they are: the leader has checked them, and a follower must hold what
        the leader holds. Batches come in the order of their offsets.
        """
        self.end_offset = last_offset + 1
        producer_id = header.producer_id
        if header.attributes & TRANSACTIONAL_MASK:
            if header.attributes & CONTROL_MASK:
                self.open_transactions.pop(producer_id, None)
            else:
                first_offset = last_offset - header.last_offset_delta
                self.open_transactions.setdefault(producer_id, first_offset)
        if producer_id < 0 or header.base_sequence == NO_SEQUENCE:
            return
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self.entries[producer_id] = ProducerEntry(header.producer_epoch)
        delta = header.last_offset_delta
        last_sequence = (header.base_sequence + delta) & SEQUENCE_MASK
        entry.batches.append(WrittenBatch(last_sequence, last_offset, delta, timestamp))

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers whose last batch is `expiration_ms` old; returns how many.

        Age is by the batch's timestamp, as in Kafka, so that replicas agree.
        """
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if now_ms - entry.batches[-1].timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)
