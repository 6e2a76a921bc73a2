"""Decoding of the records field of a fetch response to DecodedBatches.

One pass over the batch headers checks lengths and CRCs, omits batches that the consumer must not
see (control batches, aborted transactions) and decompresses the rest; then one call of the loops
parses the records of all batches at once. Small batches are common, so there is no call for each.

Not here: the loops (columns_compiled, columns_plain).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..buffer import Buffer
from ..errors import CorruptMessage, InvalidRecord
from ..records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    RecordBatchHeader,
    compute_crc,
    read_size,
    walk_batches,
)
from ..records.records import (
    DECOMPRESS_LIMIT,
    LEAST_RECORD_BYTES,
    ControlType,
    control_type,
    parse_records,
    records_of,
)
from .columns_arrow import (
    MAX_COLUMN_BYTES,
    NOT_APPEND_TIME,
    TIMESTAMP_TYPE,
    Int32s,
    Int64s,
    ParsedRecords,
    constant_text,
    empty_headers,
    number_array,
)
from .columns_loops import loops_for

MAX_OFFSET = 2**63 - 1


@dataclass(slots=True, frozen=True, eq=False)
class DecodedBatches:
    """Fetched records of one partition, as columns.

    Attributes:
        offsets, timestamps: int64; ms since 1970.
        keys, values: binary arrays, null where the record has none; with `value_views` the values
            are a binary_view array.
        headers: list<struct<key: string, value: binary>>, or None if no record has any.
        timestamp_types: int32, 0 CreateTime or 1 LogAppendTime.
        next_offset: where to fetch next, past skipped control, aborted and compacted records too.
        consumed_bytes: bytes of the buffer that were decoded or skipped. Less than all if the last
            batch is cut off, or the decompression limit was reached: then decode or fetch the rest.
        needed_bytes: size of the first batch when the buffer was too small for it, else 0.
    """

    topic: str
    partition: int
    offsets: Int64s
    timestamps: Int64s
    timestamp_types: Int32s
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    next_offset: int
    consumed_bytes: int
    needed_bytes: int

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def table(self) -> pa.Table:
        """Table of topic, partition, offset, timestamp, key, value, headers; made again at each
        call.

        The topic is a plain string in each row, not a dictionary: that costs a memcpy of its length
        a row, and grouping, joining and concatenating polls work without unifying dictionaries. A
        record without headers has an empty list.
        """
        count = len(self)
        most = max(1, MAX_COLUMN_BYTES // max(1, len(self.topic.encode())))
        names = constant_text(self.topic, min(count, most))
        topics = [
            names.slice(0, min(most, count - start)) for start in range(0, max(count, 1), most)
        ]
        return pa.table(
            {
                "topic": pa.chunked_array(topics, pa.string()),
                "partition": number_array(np.full(count, self.partition, np.int32), pa.int32()),
                "offset": number_array(self.offsets, pa.int64()),
                "timestamp": number_array(self.timestamps, TIMESTAMP_TYPE),
                "key": self.keys,
                "value": self.values,
                "headers": empty_headers(count) if self.headers is None else self.headers,
            }
        )


def decode_batches(
    buffer: Buffer,
    *,
    topic: str,
    partition: int,
    fetch_offset: int,
    end_offset: int | None = None,
    aborted: Sequence[tuple[int, int]] | AbortedProducers | None = None,
    check_crc: bool = True,
    decompress_limit: int = DECOMPRESS_LIMIT,
    value_views: bool = False,
) -> DecodedBatches:
    """Decode the records field of a fetch response.

    Args:
        buffer: whole batches; the last may be cut off and is then left for the next fetch.
        fetch_offset: records below are skipped (a batch is served whole, KIP-74).
        end_offset: records at or above are omitted. None: all are taken.
        aborted: the response's aborted transactions as (producer id, first offset), for a
            read_committed consumer; their records are skipped. None: read_uncommitted. If a
            response is decoded in several calls, pass one AbortedProducers to all of them: the list
            applies from the first batch of the response on.
        check_crc: `check.crcs` of a consumer.
        decompress_limit: maximum bytes that compressed batches decompress to, below 2 GiB. A batch
            that alone exceeds it is refused; further ones are left for the next call.
        value_views: values that are not compressed are not copied: the array references `buffer`.

    Raises:
        CorruptMessage: a wrong length, CRC, count, varint or compressed block.
        InvalidRecord: a magic other than 2, or a batch beyond `decompress_limit`.
        UnsupportedCompressionType: a codec that does not exist.
    Cost: 20 us, 5 us a batch and 60 ns a record of 100 bytes with the kernels; 0.5-1 us a record
    without them. Decompression comes on top: 0.5 ns a byte. Runs mostly without the GIL.
    """
    view = memoryview(buffer)[:MAX_COLUMN_BYTES]  # positions in it are int32
    scan = _Scan(
        fetch_offset, end_offset, aborted, check_crc, min(decompress_limit, MAX_COLUMN_BYTES)
    )
    consumed = scan.run(view)
    parsed = scan.parse(view, value_views=value_views)
    types = np.array(scan.timestamp_types, np.int32)
    return DecodedBatches(
        topic,
        partition,
        parsed.offsets,
        parsed.timestamps,
        np.repeat(types, parsed.rows_per_batch),
        parsed.keys,
        parsed.values,
        parsed.headers,
        scan.next_offset,
        consumed,
        _first_size(view) if not consumed else 0,
    )


def _first_size(view: memoryview) -> int:
    return read_size(view)[1] if len(view) >= LOG_OVERHEAD else 0


class _Scan:
    """One pass over the batches of a fetch: selects those to decode, and finds their records."""

    def __init__(
        self,
        fetch_offset: int,
        end_offset: int | None,
        aborted: Sequence[tuple[int, int]] | AbortedProducers | None,
        check_crc: bool,
        limit: int,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.end_offset = MAX_OFFSET if end_offset is None else end_offset
        self.check_crc = check_crc
        self.limit = limit
        self.next_offset = fetch_offset
        self.timestamp_types: list[int] = []
        self._aborted = (
            aborted
            if aborted is None or isinstance(aborted, AbortedProducers)
            else AbortedProducers(aborted)
        )
        self._batches: list[tuple[int, ...]] = []
        self._blocks: list[Buffer] = []
        self._record_bytes = 0
        self._record_count = 0
        self._any_compressed = False

    def run(self, view: memoryview) -> int:
        """Scan the whole batches; returns the position after the last one that was consumed."""
        end = 0
        if self.next_offset >= self.end_offset:
            return end
        for position, header in walk_batches(view, strict=True):
            _check_header(header)
            if header.last_offset >= self.fetch_offset:
                if header.base_offset >= self.end_offset:
                    self.next_offset = self.end_offset
                    break
                batch = view[position : position + header.size]
                if self.check_crc and compute_crc(batch) != header.crc:
                    raise CorruptMessage(
                        f"the CRC of the batch at offset {header.base_offset} is wrong"
                    )
                if not self._take(batch, header, position):
                    break
                self.next_offset = min(header.next_offset, self.end_offset)
            end = position + header.size
            if self.next_offset >= self.end_offset:
                break
        return end

    def parse(self, view: memoryview, *, value_views: bool) -> ParsedRecords:
        """Records of the batches that `run` found."""
        if self._any_compressed:
            view = memoryview(self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks))
        batches = np.array(self._batches, np.int64).reshape(len(self._batches), 7)
        if self._any_compressed:
            ends = np.cumsum(batches[:, 1] - batches[:, 0])
            batches[:, 0] = ends - (batches[:, 1] - batches[:, 0])
            batches[:, 1] = ends
        parsed: ParsedRecords = loops_for(self._record_count).decode_records(
            np.frombuffer(view, np.uint8),
            batches,
            fetch_offset=self.fetch_offset,
            end_offset=self.end_offset,
            value_views=value_views,
        )
        return parsed

    def _take(self, batch: memoryview, header: RecordBatchHeader, position: int) -> bool:
        """Add the batch's records, if the consumer may see them. False: beyond the limit."""
        if header.is_control:
            if self._aborted is not None:
                self._aborted.on_control_batch(batch, header)
            return True
        if self._aborted is not None and self._aborted.contains(header):
            return True
        room = self.limit - self._record_bytes
        if self._batches and header.size > room:
            return False
        try:
            records = records_of(batch, header, decompress_limit=room)
        except InvalidRecord:
            if self._batches:
                return False  # the next call has the whole limit for it, or refuses it
            raise
        if header.record_count * LEAST_RECORD_BYTES > len(records):
            raise CorruptMessage(f"{len(records)} bytes cannot hold {header.record_count} records")
        if header.codec:
            self._any_compressed = True
        start = position + HEADER_SIZE
        append_time = header.max_timestamp if header.is_log_append_time else NOT_APPEND_TIME
        self._batches.append(
            (
                start,
                start + len(records),
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                append_time,
            )
        )
        self._blocks.append(records)
        self._record_bytes += len(records)
        self._record_count += header.record_count
        self.timestamp_types.append(int(header.is_log_append_time))
        return True


def _check_header(header: RecordBatchHeader) -> None:
    if (
        header.base_offset < 0
        or header.last_offset_delta < 0
        or header.last_offset >= MAX_OFFSET
        or not 0 <= header.record_count <= header.last_offset_delta + 1
    ):
        raise CorruptMessage(
            f"{header.record_count} records at offsets {header.base_offset} to {header.last_offset}"
        )


class AbortedProducers:
    """Producers with an open aborted transaction, at the current batch; batches in offset order.

    Source: apache/kafka clients/.../consumer/internals/CompletedFetch.java.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._pending = sorted(
            ((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True
        )
        self._producers: set[int] = set()

    def contains(self, header: RecordBatchHeader) -> bool:
        if not header.is_transactional:
            return False
        self._begin(header.last_offset)
        return header.producer_id in self._producers

    def on_control_batch(self, batch: memoryview, header: RecordBatchHeader) -> None:
        """End the producer's aborted transaction, at an abort marker."""
        self._begin(header.last_offset)
        records = records_of(batch, header, decompress_limit=DECOMPRESS_LIMIT)
        for record in parse_records(records, header.record_count, header.last_offset_delta):
            if control_type(record.key) is ControlType.ABORT:
                self._producers.discard(header.producer_id)

    def _begin(self, last_offset: int) -> None:
        while self._pending and self._pending[-1][0] <= last_offset:
            self._producers.add(self._pending.pop()[1])
