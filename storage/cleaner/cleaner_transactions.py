"""Which batches of transactions a cleaning may drop: aborted data, and markers nobody needs.

Told of every batch in the order of the log. Soft state of one walk; it is asked again from the
start for the next.

    data of an aborted transaction     goes at once, whatever its keys
    a marker (commit or abort)         may go when no data of its transaction was met before it, and
                                       then only after the delete horizon, like a tombstone: a
                                       reader may be between the data that went and the marker
    an entry of the transaction index  stays as long as its marker and some of its data

Nothing at or above the last stable offset is cleaned, so every transaction met here is decided.
Source: CleanedTransactionMetadata in apache/kafka LogCleaner.scala.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

from ...protocol.buffer import Buffer
from ...protocol.errors import CorruptMessage
from ...protocol.records.record_batch import HEADER_SIZE, RecordBatchHeader
from ...protocol.varint import decode_varint, decode_varlong
from ..segments.transaction_index import AbortedTransaction

ABORT, COMMIT = 0, 1

_CONTROL_KEY = Struct(">hh")


class CleanedTransactions:
    """The transactions that are open at one point of a walk through the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(
            set(aborted), key=lambda transaction: transaction.first_offset, reverse=True
        )
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        """Producers of which an open transaction has data that was met, aborted or not."""
        self.retained: list[AbortedTransaction] = []
        """Entries for the index of what is being written; the caller takes them away."""

    def on_batch(self, header: RecordBatchHeader) -> bool:
        """Whether this batch of data belongs to an aborted transaction."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def on_control_batch(self, header: RecordBatchHeader, batch: Buffer) -> bool:
        """Whether no data of this marker's transaction is left. Raises CorruptMessage."""
        self._open_up_to(header.last_offset)
        if header.record_count == 0:
            return True  # emptied by an earlier cleaning
        kind = control_type(batch)
        if kind not in (ABORT, COMMIT):
            return False
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if kind == ABORT:
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


def control_type(batch: Buffer) -> int:
    """0 abort, 1 commit, else another marker: the type in the key of the first record.

    Raises CorruptMessage.
    """
    try:
        _, position = decode_varint(batch, HEADER_SIZE)
        _, position = decode_varlong(batch, position + 1)
        _, position = decode_varint(batch, position)
        _, position = decode_varint(batch, position)
        _, kind = _CONTROL_KEY.unpack_from(batch, position)
    except error:
        raise CorruptMessage("the marker of a control batch is cut off") from None
    return int(kind)
