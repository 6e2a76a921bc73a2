"""Producers of fetched records, compared with the producer state.

Producers are read from headers when a log is opened or truncated, and a damaged header may name a
producer that never existed, open a transaction that no marker ends, or hide a batch; a snapshot
then stores that. This is checked once the records are restored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...protocol.records.record_batch import TRANSACTIONAL_MASK, RecordBatchHeader
from ..segments.log_segment import LogSegment
from .producer_state import REMEMBERED_BATCHES, ProducerEntry, ProducerState


class HealedSegment(NamedTuple):
    """A repaired segment, the producers of its fetched records, and the time."""

    segment: LogSegment
    producers: HealedProducers
    now_ms: int

    def is_known(self, state: ProducerState, read: range, expiration_ms: int) -> bool:
        """Whether `state` agrees with the restored records. It may not if damaged headers were read
        for it.

        Args:
            read: the offsets whose headers were read for `state`; others were applied on append.
            expiration_ms: producer.id.expiration.ms.
        """
        if self.segment.base_offset >= read.stop:
            return True  # its batches were applied on append
        was_read = self.segment.next_offset > read.start
        if was_read and self.producers.has_transactions:
            return False  # `state` was read while they were missing
        return self.producers.agree(state, self.now_ms - expiration_ms)


class HealedProducers:
    """Producers of the batches that a segment had lost. Memory: a header for each producer."""

    def __init__(self, missing: Sequence[tuple[int, int]]) -> None:
        """`missing`: fetched offsets [from, to), ascending."""
        self._starts = [start for start, _ in missing]
        self._ends = [end for _, end in missing]
        self._last: dict[int, RecordBatchHeader] = {}
        self._transactional: set[int] = set()

    def add(self, headers: Iterable[RecordBatchHeader]) -> None:
        """Add batches, in the order of their offsets."""
        for header in headers:
            if header.producer_id < 0:
                continue
            if header.attributes & TRANSACTIONAL_MASK:
                self._transactional.add(header.producer_id)
            if not header.is_control:
                self._last[header.producer_id] = header

    @property
    def has_transactions(self) -> bool:
        """Whether the batches include records or markers of transactions."""
        return bool(self._transactional)

    def agree(self, state: ProducerState, oldest_ms: int) -> bool:
        """Whether `state` is consistent with the fetched batches. Producers without a write since
        `oldest_ms` may be absent. False if transactions are open that the batches belong to.
        """
        return (
            all(
                producer_id in self._last
                for producer_id, entry in state.entries.items()
                if any(self._is_missing(batch.base_offset) for batch in entry.batches)
            )
            and all(
                self._is_remembered(header, state.entries.get(producer_id), oldest_ms)
                for producer_id, header in self._last.items()
            )
            and not any(
                producer_id in self._transactional or self._is_missing(first_offset)
                for producer_id, first_offset in state.open_transactions.items()
            )
        )

    def _is_missing(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._ends[index]

    def _is_remembered(
        self, header: RecordBatchHeader, entry: ProducerEntry | None, oldest_ms: int
    ) -> bool:
        """Whether the producer's last batch, or later ones, are in the state."""
        if entry is None:
            return header.max_timestamp <= oldest_ms  # as ProducerState.expire
        if entry.epoch != header.producer_epoch:
            is_later = all(not self._is_missing(batch.base_offset) for batch in entry.batches)
            return is_later and entry.epoch > header.producer_epoch
        later = sum(batch.base_offset > header.base_offset for batch in entry.batches)
        return later == REMEMBERED_BATCHES or any(
            (batch.base_offset, batch.last_offset) == (header.base_offset, header.last_offset)
            and (header.base_sequence < 0 or batch.last_sequence == header.last_sequence)
            for batch in entry.batches
        )
