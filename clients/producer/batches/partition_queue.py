"""Queue of one partition's batches: their order, and the sequences that make them idempotent.

Invariants:
    Batches are sent in the order in which they were added. After a failure nothing more is sent
    until all batches in flight are answered; then the failed ones are sent first, in order.
    A batch keeps its (producer id, epoch, sequence) for as long as the broker may have it: sent
    again under the same sequence it is recognised, under a new one it would be appended twice.
    A new epoch begins at sequence 0, and only when no batch is in flight and the next batch is
    known to be absent from the log: never sent, or refused as out of order.
    The first batch of an epoch is appended before the next one is sent: a broker without state of a
    producer accepts any sequence as its first, and so might append a later batch before one that it
    has refused for now (too large as one, not enough replicas). A transaction needs no such wait:
    it fails then, and none of its records are visible.

Unlike Kafka's producer the epoch belongs to the partition, not to the producer: the broker checks
it by partition, so a gap in one does not stop the others. A transactional producer's epoch is the
coordinator's (transaction_manager): there a gap ends the transaction, and the next one's batches
have an epoch of their own. Sources: KIP-98, KIP-360,
TransactionManager and Sender in apache/kafka clients/.../producer/internals.

Not here: sockets, clocks (times are passed in), futures.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ....protocol.records.records import stamp_producer
from .producer_batch import ProducerBatch

MAX_IN_FLIGHT: Final = 5
"""Batches that a broker remembers of each producer, among which it recognises duplicates."""

MAX_EPOCH: Final = 32_767
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class Identity(NamedTuple):
    """A producer id and epoch, from InitProducerId."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class PartitionQueue:
    """Batches of one partition, in memory only.

    identity: producer id and epoch of the sequences; None before the first batch.
    gap: a batch that had a sequence has failed, so the broker may refuse all later sequences.
    known: the broker has appended a batch of this identity.
    transactional: batches have the producer's identity; no epoch begins here.
    """

    topic: str
    partition: int
    max_in_flight: int = MAX_IN_FLIGHT
    transactional: bool = False
    ready: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: list[ProducerBatch] = field(default_factory=list)
    identity: Identity | None = None
    next_sequence: int = 0
    gap: bool = False
    known: bool = False
    recovering: bool = False
    retry_at: float = 0.0
    _arrived: int = 0

    def add(self, batch: ProducerBatch) -> None:
        self._arrived += 1
        batch.order = (self._arrived,)
        self.ready.append(batch)

    def can_send(self, now: float) -> bool:
        if not self.ready or now < self.retry_at or len(self.in_flight) >= self.max_in_flight:
            return False
        if not self.in_flight:
            return True
        if not self.known and self.identity is not None and not self.transactional:
            return False
        return not self.recovering and not (self.gap and self.ready[0].base_sequence < 0)

    def needs_identity(self) -> bool:
        """Whether the next batch waits for a new producer id."""
        if self.transactional or not self.ready or self.ready[0].base_sequence >= 0:
            return False
        return self.identity is None or (self.gap and self.identity.producer_epoch == MAX_EPOCH)

    def take(self, producer: Identity | None) -> ProducerBatch:
        """Return the next batch, stamped; it is in flight now. Needs `can_send`.

        Args:
            producer: the producer's current identity; None when it is not idempotent.
        """
        batch = self.ready[0]
        if producer is not None and batch.base_sequence < 0:
            self._stamp(batch, producer)
        self.ready.popleft()
        self.in_flight.append(batch)
        self.recovering = False
        return batch

    def on_done(self, batch: ProducerBatch) -> None:
        """Remove a batch that the broker has appended."""
        self.in_flight.remove(batch)
        if self.identity == (batch.producer_id, batch.producer_epoch):
            self.known = True

    def on_retry(self, batch: ProducerBatch, *, retry_at: float) -> None:
        """Queue a batch with unknown outcome for a retry, before all later ones."""
        self.in_flight.remove(batch)
        self._put_back(batch)
        self.retry_at = max(self.retry_at, retry_at)

    def on_refused(self, batch: ProducerBatch, *, retry_at: float) -> None:
        """Queue a batch that is certainly not in the log for a retry, under a new epoch."""
        self.on_retry(batch, retry_at=retry_at)
        batch.base_sequence = -1
        self.gap = True

    def on_failed(self, batch: ProducerBatch) -> None:
        """Remove a batch that failed, in flight or not."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.ready.remove(batch)
        if batch.base_sequence >= 0:
            self.gap = True
            self.recovering = True

    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch that is too large by its parts, which take its sequences."""
        self.in_flight.remove(batch)
        sequence = batch.base_sequence
        for number, part in enumerate(parts):
            part.order = (*batch.order, number)
            if sequence >= 0:
                assert self.identity is not None
                self._write_stamp(part, Identity(batch.producer_id, batch.producer_epoch), sequence)
                sequence = (sequence + part.record_count) & _SEQUENCE_MASK
        for part in parts:
            self._put_back(part)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether every batch before it has its outcome."""
        others = [*self.in_flight, *self.ready]
        return all(other.order >= batch.order for other in others)

    def _put_back(self, batch: ProducerBatch) -> None:
        waiting = list(self.ready)
        insort(waiting, batch, key=lambda other: other.order)
        self.ready = deque(waiting)
        self.recovering = True

    def _stamp(self, batch: ProducerBatch, producer: Identity) -> None:
        if self.transactional:
            if self.identity != producer:
                self._begin(producer)
            assert not self.gap, "a transaction goes on after a batch of it has failed"
        elif self.identity is None or (self.gap and self.identity.producer_epoch == MAX_EPOCH):
            assert producer != self.identity, "a used up identity needs a new one"
            self._begin(producer)
        elif self.gap:
            self._begin(Identity(self.identity.producer_id, self.identity.producer_epoch + 1))
        assert self.identity is not None
        self._write_stamp(batch, self.identity, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.record_count) & _SEQUENCE_MASK

    def _begin(self, identity: Identity) -> None:
        assert not self.in_flight, "a new epoch while the old one is in flight"
        self.identity = identity
        self.next_sequence = 0
        self.gap = self.known = False
        for batch in self.ready:
            batch.base_sequence = -1

    def _write_stamp(self, batch: ProducerBatch, identity: Identity, sequence: int) -> None:
        batch.producer_id, batch.producer_epoch = identity
        batch.base_sequence = sequence
        stamp_producer(
            batch.data,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            transactional=self.transactional,
        )
