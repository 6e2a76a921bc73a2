"""Counts and checksums of records, column by column, independent of batches. Pure.

RecordChecksum    all of them, in their order
LatestPerKey      the latest record of each key, which compaction keeps
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.columns.columns import HEADERS_TYPE, DecodedBatches

_COLUMNS: Final = ("timestamp", "key", "value", "headers")
_MOST_ROWS: Final = 500_000
"""Rows that LatestPerKey collects before it drops all but the latest of each key."""


class Checksum(NamedTuple):
    """Count and checksum. sum: of keys, values, timestamps and headers, as hexadecimal text."""

    records: int
    sum: str


class RecordChecksum:
    """Checksum of records in their order. Offsets, batches and compression have no influence."""

    def __init__(self) -> None:
        self._records = 0
        self._sums: dict[str, Any] = {}

    def add(self, decoded: DecodedBatches) -> None:
        count = len(decoded)
        self._records += count
        self._sum("timestamp", decoded.timestamps.astype(np.int64, copy=False).tobytes())
        self._add_binary("key", decoded.keys)
        self._add_binary("value", decoded.values)
        if decoded.headers is None:
            self._sum("headers", bytes(4 * count))
            return
        lengths = pc.fill_null(pc.list_value_length(decoded.headers), 0)
        self._sum("headers", _fixed(lengths.cast(pa.int32()), 4))
        rows = decoded.headers.flatten()
        self._add_binary("header key", rows.field("key"))
        self._add_binary("header value", rows.field("value"))

    def result(self) -> Checksum:
        whole = hashlib.blake2b(digest_size=16)
        for name in sorted(self._sums):
            whole.update(f"{name} {self._sums[name].hexdigest()} ".encode())
        return Checksum(self._records, whole.hexdigest())

    def _add_binary(self, name: str, array: pa.Array) -> None:
        """Add a binary column: its lengths, -1 for null, and the bytes of all its values."""
        self._sum(f"{name} length", _fixed(pc.fill_null(pc.binary_length(array), -1), 4))
        if array.null_count:
            array = array.drop_null()
        if len(array):
            _, ends, content = array.buffers()
            at = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
            if content is not None:
                self._sum(name, memoryview(content)[int(at[0]) : int(at[-1])])

    def _sum(self, name: str, content: bytes | memoryview) -> None:
        if len(content):
            if name not in self._sums:
                self._sums[name] = hashlib.blake2b(digest_size=16)
            self._sums[name].update(content)


def _fixed(array: pa.Array, width: int) -> memoryview:
    start = array.offset * width
    return memoryview(array.buffers()[1])[start : start + len(array) * width]


class LatestPerKey:
    """Checksum of the latest record of each key, all held in memory.

    Tombstones are left out: each side removes them at its own time.
    """

    def __init__(self) -> None:
        self._kept: pa.Table | None = None
        self._new: list[pa.Table] = []
        self._rows = 0

    def add(self, decoded: DecodedBatches) -> None:
        if not len(decoded):
            return
        headers = decoded.headers
        if headers is None:
            headers = pa.nulls(len(decoded), HEADERS_TYPE)
        columns = [pa.array(decoded.timestamps), decoded.keys, decoded.values, headers]
        self._new.append(pa.table(dict(zip(_COLUMNS, columns, strict=True))))
        self._rows += len(decoded)
        if self._rows > _MOST_ROWS:
            self._keep_latest()

    def result(self) -> Checksum:
        self._keep_latest()
        kept = self._kept
        if kept is None:
            return RecordChecksum().result()
        kept = kept.filter(pc.is_valid(kept["value"])).sort_by("key")
        total = RecordChecksum()
        for part in kept.to_batches():
            total.add(_as_decoded(part))
        return total.result()

    def _keep_latest(self) -> None:
        tables = ([] if self._kept is None else [self._kept]) + self._new
        if not tables:
            return
        table = pa.concat_tables(tables)
        numbered = pa.table({"key": table["key"], "row": pa.array(np.arange(len(table)))})
        latest = numbered.group_by("key").aggregate([("row", "max")])["row_max"]
        self._kept = table.take(latest)
        self._new, self._rows = [], 0


def _as_decoded(batch: pa.RecordBatch) -> DecodedBatches:
    headers = batch.column("headers")
    timestamps = np.frombuffer(_fixed(batch.column("timestamp"), 8), np.int64)
    return DecodedBatches(
        topic="",
        partition=0,
        offsets=timestamps,
        timestamps=timestamps,
        timestamp_types=np.zeros(len(batch), np.int32),
        keys=batch.column("key"),
        values=batch.column("value"),
        headers=headers,
        next_offset=0,
        consumed_bytes=0,
        needed_bytes=0,
    )
