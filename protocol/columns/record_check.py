"""Check that consumers can read the records of a producer's batch.

Checked are every length, that the offset deltas are 0, 1, ..., and that no bytes are left over, as
by record_walk.scan_records: by a compiled loop once it is loaded (30 ns a record), in plain Python
before (2 us). Like Kafka's broker it accepts any bytes as header keys.

Not here: when the loop is loaded (kernel_loading), the rules of a topic about its records
(storage/log/batch_validation).
"""

from __future__ import annotations

from collections.abc import Callable

from ..buffer import Buffer
from ..errors import CorruptMessage, InvalidRecord
from ..records.record_batch import CODEC_MASK, HEADER_SIZE, RecordBatchHeader
from ..records.record_walk import scan_records
from ..records.records import LEAST_RECORD_BYTES, records_of

_compiled: Callable[[Buffer, int], bool] | None = None


def load_record_check() -> None:
    """Load the compiled loop. Any thread may call it; other threads continue."""
    global _compiled
    from .record_check_kernel import check

    _compiled = check


def is_record_check_loaded() -> bool:
    return _compiled is not None


def check_records(batch: Buffer, header: RecordBatchHeader, *, limit: int) -> None:
    """Raise unless the records of `batch` match its header.

    `limit`: bytes they may decompress to.

    Raises:
        TooLarge: they decompress to more.
        InvalidRecord, CorruptMessage: they cannot be read.
    """
    if header.attributes & CODEC_MASK:
        records = records_of(batch, header, decompress_limit=limit)
    else:
        records = memoryview(batch)[HEADER_SIZE:]
    count = header.record_count
    if count * LEAST_RECORD_BYTES > len(records):
        raise InvalidRecord(f"{len(records)} bytes cannot hold {count} records")
    if _compiled is not None and _compiled(records, count):
        return
    for _ in scan_records(records, count):  # raises the error with its reason
        pass
    if _compiled is not None:
        raise CorruptMessage("the records of a batch are malformed")
