"""Transactional batches that a cleaning may drop: aborted data, and markers that are not needed.

Every batch is passed to it in the order of the log. The state belongs to one pass over the log; the
next pass starts with a new object.

    data of an aborted transaction     is removed at once, whatever its keys
    a marker (commit or abort)         may be removed if no data of its transaction is before it in
                                       the log, and only after the delete horizon, like a tombstone:
                                       a reader may be between the removed data and the marker
    an entry of the transaction index  stays as long as its marker and some of its data

Nothing at or above the last stable offset is cleaned, so every transaction here has ended.
Source: CleanedTransactionMetadata in apache/kafka LogCleaner.scala.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.buffer import Buffer
from ...protocol.records.end_transaction_marker import read_marker
from ...protocol.records.record_batch import RecordBatchHeader
from ..segments.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Transactions that are open at one point of a pass through the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(
            set(aborted), key=lambda transaction: transaction.first_offset, reverse=True
        )
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        """Producers whose open transaction has data before this point, aborted or not."""
        self.retained: list[AbortedTransaction] = []
        """Entries for the transaction index of the written segment; the caller takes them."""

    def on_batch(self, header: RecordBatchHeader) -> bool:
        """Whether this batch of data belongs to an aborted transaction."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def on_control_batch(self, header: RecordBatchHeader, batch: Buffer) -> bool:
        """Whether no data of this marker's transaction is left.

        Raises CorruptMessage, InvalidRecord.
        """
        self._open_up_to(header.last_offset)
        if header.record_count == 0:
            return True  # emptied by an earlier cleaning
        marker = read_marker(batch)
        if marker is None:
            return False
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if not marker.is_commit:
            transaction = self._aborted.pop(header.producer_id, None)
            if transaction is None:
                return True
            if had_data:
                self.retained.append(transaction)
        return not had_data

    def _open_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._aborted.setdefault(transaction.producer_id, transaction)
