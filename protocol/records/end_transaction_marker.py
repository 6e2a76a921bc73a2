"""Record of a control batch that ends a transaction: its result, and its coordinator epoch.

    key    version i16 = 0, type i16 (0 abort, 1 commit)
    value  version i16 = 0, coordinator_epoch i32

Written by records.encode_control_batch. Source: apache/kafka clients/.../common/record/
EndTransactionMarker.java, ControlRecordType.java.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ..buffer import Buffer
from ..errors import CorruptMessage
from .record_batch import read_header
from .records import ControlType, control_type, iterate_records

MOST_MARKER_BYTES = 64 * 1024
"""Maximum bytes of the records of a control batch, which is one record without headers."""
_VALUE = Struct(">hi")


class EndTransactionMarker(NamedTuple):
    """Result of a producer's transaction in a partition."""

    is_commit: bool
    coordinator_epoch: int


def read_marker(batch: Buffer) -> EndTransactionMarker | None:
    """Marker in one whole control batch, whose CRC is not checked.

    None: not the marker of a transaction: the control record has another type, or compaction has
    removed it from the batch.

    Raises:
        CorruptMessage, InvalidRecord: the record does not match the header.
    """
    if read_header(batch).record_count == 0:
        return None
    for record in iterate_records(batch, decompress_limit=MOST_MARKER_BYTES, check_crc=False):
        kind = control_type(record.key)
        if kind is None:
            return None
        if record.value is None or len(record.value) < _VALUE.size:
            raise CorruptMessage("the marker of a transaction has no coordinator epoch")
        _, coordinator_epoch = _VALUE.unpack_from(record.value)
        return EndTransactionMarker(kind is ControlType.COMMIT, coordinator_epoch)
    return None
