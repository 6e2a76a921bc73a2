"""The aborted transactions of one segment, so that read_committed can skip their records.

    00000000000000368769.txnindex    34-byte entries  >hqqqq
        version = 0, producer_id, first_offset, last_offset (of the abort marker),
        last_stable_offset when it was written

An entry is in the segment that holds the marker; the transaction may begin in an earlier one.
Source: apache/kafka storage/.../internals/log/AbortedTxn.java, TransactionIndex.java.

Not here: writing entries as markers are appended; transactions are not served yet. The cleaner
reads what is there and keeps it true.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ..disk.file_system import FileSystem, read_file

TRANSACTION_INDEX_SUFFIX = ".txnindex"
VERSION = 0

_ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """Its records are those of `producer_id` in [first_offset, last_offset)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_transaction_index(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(VERSION, *transaction) for transaction in transactions)


def read_transaction_index(file_system: FileSystem, path: str) -> list[AbortedTransaction]:
    """The entries of a file; none if it is absent. Ends before the first that is not whole.

    Raises OSError.
    """
    try:
        content = read_file(file_system, path)
    except FileNotFoundError:
        return []
    transactions: list[AbortedTransaction] = []
    for position in range(0, len(content) - _ENTRY.size + 1, _ENTRY.size):
        version, *fields = _ENTRY.unpack_from(content, position)
        if version != VERSION:
            break
        transactions.append(AbortedTransaction(*fields))
    return transactions
