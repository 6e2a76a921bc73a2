"""Aborted transactions that a read_committed reader must skip.

A fetch response has them next to the records; the consumer omits the records of these transactions.
Source: LocalLog.collectAbortedTransactions in apache/kafka.
"""

from __future__ import annotations

from ..disk.storage_failure import refused_or_failed
from ..segments.transaction_index import AbortedTransaction
from .partition_log import PartitionLog


def find_aborted(log: PartitionLog, fetch_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Aborted transactions with records in [fetch_offset, end_offset), in the order of their
    markers.

    Cost: visits the segments from `fetch_offset` on, up to the one whose index shows that no more
    follow; reads only the indexes that exist.

    Raises:
        KafkaStorageError: the machine is out of descriptors.
        StorageFailure: the disk failed.
    """
    found: list[AbortedTransaction] = []
    try:
        for segment in log.segments.from_offset(fetch_offset):
            more, is_complete = segment.transaction_index.find(fetch_offset, end_offset)
            found += more
            if is_complete:
                break
    except OSError as error:
        raise refused_or_failed(log.health, f"reading {log.directory}", error) from error
    return found
