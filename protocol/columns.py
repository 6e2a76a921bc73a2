"""Record batches <-> columns: what a fetch brings as Arrow, and Arrow as what a produce sends.

    decode_batches       the records field of a fetch response -> DecodedBatches
    encode_batches       columns -> batches, cut by size and count
    encode_by_partition  columns and a partition for each row -> batches of each partition
    partition_rows       keys -> partitions, as every Kafka client places them

What always holds:
    bytes from a peer decode or raise KafkaError: never another exception, never a read out of
    bounds, never more than `decompress_limit` bytes out of compressed batches;
    what is decoded owns its memory, so the buffer it came from may be reused;
    work is per batch here and per record only in columns_compiled (numba) or its plain twin, which
    answers while the kernels are not loaded and the process has done little yet.

Not here: the loops; single records (records); who calls `warm_up`, and on which thread (clients).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from . import columns_plain
from .columns_arrow import (
    HEADERS_TYPE,
    MAX_COLUMN_BYTES,
    NOT_APPEND_TIME,
    TIMESTAMP_TYPE,
    Int32s,
    Int64s,
    ParsedRecords,
    RecordColumns,
    constant_text,
    empty_headers,
    record_columns,
)
from .compression import compress
from .errors import CorruptMessage, InvalidRecord, MessageTooLarge
from .record_batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    Buffer,
    RecordBatchHeader,
    build_batch,
    compute_crc,
    read_header,
    read_size,
)
from .records import (
    DECOMPRESS_LIMIT,
    LEAST_RECORD_BYTES,
    ControlType,
    Headers,
    control_type,
    parse_records,
    records_of,
)

PLAIN_RECORDS = 200_000
"""Records a process handles plainly before it loads the kernels: about what loading them costs."""

MAX_OFFSET = 2**63 - 1

_compiled: ModuleType | None = None
_plain_records = 0  # threads may lose a count; it only decides when loading pays


def warm_up() -> None:
    """Load the kernels: 0.5-1.2 s from the cache on disk, 3-6 s to compile them the first time.

    Any thread may call it, at any time; others go on plainly meanwhile.
    """
    global _compiled
    from . import columns_compiled

    _compiled = columns_compiled


def kernels_ready() -> bool:
    """Whether work is done by the kernels from now on."""
    return _compiled is not None


def _loops(record_count: int) -> ModuleType:
    global _plain_records
    if _compiled is None:
        _plain_records += record_count
        if _plain_records <= PLAIN_RECORDS:
            return columns_plain
        warm_up()
    assert _compiled is not None
    return _compiled


@dataclass(slots=True, frozen=True)
class DecodedBatches:
    """The records of one partition that a fetch brought, as columns.

    Attributes:
        offsets, timestamps: int64; ms since 1970.
        keys, values: binary arrays, null where the record has none.
        headers: list<struct<key: string, value: binary>>, or None if no record has any.
        timestamp_types: int32, 0 CreateTime or 1 LogAppendTime.
        next_offset: where to fetch next, past skipped control, aborted and compacted records too.
        consumed_bytes: how much of the buffer was looked at. Less than all of it when the last
            batch is cut, or the decompression limit was met: then decode or fetch from there on.
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
        """topic, partition, offset, timestamp, key, value, headers; made anew at each call.

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
                "partition": np.full(count, self.partition, np.int32),
                "offset": self.offsets,
                "timestamp": pa.Array.from_buffers(
                    TIMESTAMP_TYPE, count, [None, pa.py_buffer(self.timestamps)], 0
                ),
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
    aborted: Sequence[tuple[int, int]] | None = None,
    check_crc: bool = True,
    decompress_limit: int = DECOMPRESS_LIMIT,
) -> DecodedBatches:
    """Decode the records field of a fetch response.

    Args:
        buffer: whole batches; the last may be cut off and is then left for the next fetch.
        fetch_offset: records below are skipped (a batch is served whole, KIP-74).
        end_offset: records at or above are left out. None: all are taken.
        aborted: the response's aborted transactions as (producer id, first offset), for a
            read_committed consumer; their records are skipped. None: read_uncommitted.
        check_crc: `check.crcs` of a consumer.
        decompress_limit: most bytes that come out of compressed batches, below 2 GiB. A batch that
            alone exceeds it is refused; further ones are left for the next call.

    Raises:
        CorruptMessage: a wrong length, CRC, count, varint or compressed block.
        InvalidRecord: a magic other than 2, or a batch beyond `decompress_limit`.
        UnsupportedCompressionType: a codec that does not exist.
    Cost: about 5 us a batch and 60 ns a record of 100 bytes with the kernels; 5 us a record
    without.
    """
    view = memoryview(buffer)
    scan = _Scan(
        fetch_offset, end_offset, aborted, check_crc, min(decompress_limit, MAX_COLUMN_BYTES)
    )
    consumed = scan.run(view)
    parsed = scan.parse(view)
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
    """One walk over the batches of a fetch: which to decode, and where their records lie."""

    def __init__(
        self,
        fetch_offset: int,
        end_offset: int | None,
        aborted: Sequence[tuple[int, int]] | None,
        check_crc: bool,
        limit: int,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.end_offset = MAX_OFFSET if end_offset is None else end_offset
        self.check_crc = check_crc
        self.limit = limit
        self.next_offset = fetch_offset
        self.timestamp_types: list[int] = []
        self._aborted = None if aborted is None else _AbortedTransactions(aborted)
        self._batches: list[tuple[int, ...]] = []
        self._blocks: list[Buffer] = []
        self._record_bytes = 0
        self._record_count = 0
        self._any_compressed = False

    def run(self, view: memoryview) -> int:
        """Look at every whole batch; the position after the last one looked at."""
        position = 0
        while len(view) - position >= HEADER_SIZE and self.next_offset < self.end_offset:
            header = read_header(view, position)
            if header.size > len(view) - position:
                break
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
            position += header.size
        return position

    def parse(self, view: memoryview) -> ParsedRecords:
        """The records of the batches that `run` found."""
        if self._any_compressed:
            view = memoryview(self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks))
        batches = np.array(self._batches, np.int64).reshape(len(self._batches), 7)
        if self._any_compressed:
            ends = np.cumsum(batches[:, 1] - batches[:, 0])
            batches[:, 0] = ends - (batches[:, 1] - batches[:, 0])
            batches[:, 1] = ends
        parsed: ParsedRecords = _loops(self._record_count).decode_records(
            np.frombuffer(view, np.uint8),
            batches,
            fetch_offset=self.fetch_offset,
            end_offset=self.end_offset,
        )
        return parsed

    def _take(self, batch: memoryview, header: RecordBatchHeader, position: int) -> bool:
        """Note the batch's records, if they are for the consumer. False if there is no room."""
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
            records = records_of(
                batch, header, decompress_limit=room if self._any_compressed else self.limit
            )
        except InvalidRecord:
            if self._any_compressed:
                return False
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
    if header.magic != MAGIC:
        raise InvalidRecord(f"record batch of magic {header.magic}; only magic 2 is accepted")
    if header.size < HEADER_SIZE:
        raise CorruptMessage(f"a record batch cannot have {header.size} bytes")
    if (
        header.base_offset < 0
        or header.last_offset_delta < 0
        or header.last_offset >= MAX_OFFSET
        or not 0 <= header.record_count <= header.last_offset_delta + 1
    ):
        raise CorruptMessage(
            f"{header.record_count} records at offsets {header.base_offset} to {header.last_offset}"
        )


class _AbortedTransactions:
    """Which batches belong to aborted transactions, while batches go by in order of offset.

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
        """An abort marker ends the producer's aborted transaction."""
        self._begin(header.last_offset)
        records = records_of(batch, header, decompress_limit=DECOMPRESS_LIMIT)
        for record in parse_records(records, header.record_count, header.last_offset_delta):
            if control_type(record.key) is ControlType.ABORT:
                self._producers.discard(header.producer_id)

    def _begin(self, last_offset: int) -> None:
        while self._pending and self._pending[-1][0] <= last_offset:
            self._producers.add(self._pending.pop()[1])


class EncodedBatch(NamedTuple):
    """One batch ready to send.

    `batch` is writable (records.stamp_producer gives it a producer later). Uncompressed batches of
    one call share one buffer, which lives as long as any of them.
    """

    batch: memoryview
    record_count: int
    max_timestamp: int


class Producer(NamedTuple):
    """Who writes a batch: from InitProducerId, and the sequence of the next record."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False


NO_PRODUCER = Producer()


def encode_batch(
    keys: pa.Array | None,
    values: pa.Array | None,
    timestamps: Int64s | pa.Array | int,
    headers: pa.Array | None = None,
    *,
    codec: int = 0,
    max_bytes: int | None = None,
    producer: Producer = NO_PRODUCER,
) -> memoryview:
    """All rows as one batch. Arguments and errors as encode_batches.

    Raises:
        ValueError: there are no rows.
        MessageTooLarge: they take more than `max_bytes` (2 GiB if None) before compression.
    """
    batches = encode_batches(
        keys, values, timestamps, headers, codec=codec, max_bytes=max_bytes, producer=producer
    )
    if not batches:
        raise ValueError("a record batch needs a record")
    if len(batches) > 1 or (
        max_bytes is not None and not codec and len(batches[0].batch) > max_bytes
    ):
        raise MessageTooLarge(f"the records take more than {max_bytes} bytes")
    return batches[0].batch


def encode_batches(
    keys: pa.Array | None,
    values: pa.Array | None,
    timestamps: Int64s | pa.Array | int,
    headers: pa.Array | None = None,
    *,
    rows: Int64s | None = None,
    codec: int = 0,
    max_bytes: int | None = None,
    max_records: int | None = None,
    producer: Producer = NO_PRODUCER,
) -> list[EncodedBatch]:
    """Columns as batches, rows in order.

    Args:
        keys, values, timestamps, headers: as columns_arrow.record_columns takes them.
        rows: which rows, in which order; None for all.
        max_bytes: most bytes of a batch before compression (`batch.size`). A record that is larger
            has a batch of its own: compare its size with `max.request.size`.
        max_records: most records of a batch.
        producer: the sequences of the batches follow on one another, modulo 2**31.

    Raises:
        ValueError: see record_columns; or a row that is none.
        MessageTooLarge: a column or a record has 2 GiB or more.
        UnsupportedCompressionType: `codec` is not 0-4.
    Cost: about 4 us a batch and 100 ns a record of 100 bytes with the kernels.
    """
    columns = record_columns(keys, values, timestamps, headers)
    row_count = len(columns.timestamps)
    if rows is None:
        rows = np.arange(row_count, dtype=np.int64)
    else:
        rows = np.ascontiguousarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < row_count:
            raise ValueError(f"a row is not in [0, {row_count})")
    return _encode(columns, rows, codec, max_bytes, max_records, producer)


def encode_by_partition(
    keys: pa.Array | None,
    values: pa.Array | None,
    timestamps: Int64s | pa.Array | int,
    headers: pa.Array | None = None,
    *,
    partitions: Int32s | pa.Array,
    partition_count: int,
    codec: int = 0,
    max_bytes: int | None = None,
    max_records: int | None = None,
) -> dict[int, list[EncodedBatch]]:
    """The batches of each partition that has rows; rows of one partition keep their order.

    Args:
        partitions: one in [0, partition_count) for each row.
        others: as encode_batches. Producers number sequences by partition: stamp_producer.

    Raises:
        ValueError: a partition out of range; others as encode_batches.
    """
    columns = record_columns(keys, values, timestamps, headers)
    numbers = np.ascontiguousarray(partitions, np.int32)
    if len(numbers) != len(columns.timestamps):
        raise ValueError(f"{len(numbers)} partitions for {len(columns.timestamps)} rows")
    order, ends = _loops(len(numbers)).group_rows(numbers, partition_count)
    return {
        partition: _encode(columns, order[start:end], codec, max_bytes, max_records, NO_PRODUCER)
        for partition, (start, end) in enumerate(
            zip(ends.tolist(), ends[1:].tolist(), strict=False)
        )
        if start < end
    }


def columns_of(
    records: Sequence[tuple[bytes | None, bytes | None, int, Headers | None]],
) -> tuple[pa.Array, pa.Array, Int64s, pa.Array | None]:
    """(keys, values, timestamps, headers) for an encoder, from (key, value, timestamp, headers).

    Cost: about 0.15 us a record without headers, 1 us with.
    """
    if not records:
        return pa.array([], pa.binary()), pa.array([], pa.binary()), np.empty(0, np.int64), None
    keys, values, timestamps, headers = zip(*records, strict=True)
    return (
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        np.array(timestamps, np.int64),
        pa.array(headers, HEADERS_TYPE) if any(headers) else None,
    )


def partition_rows(keys: pa.Array, partition_count: int) -> Int32s:
    """The partition of each key, as Kafka's default partitioner places it; -1 where it is null."""
    columns = record_columns(keys, None, 0)
    hashes: Int32s = _loops(len(keys)).hash_keys(columns.keys)
    return np.where(hashes < 0, np.int32(-1), hashes % np.int32(partition_count))


def _encode(
    columns: RecordColumns,
    rows: Int64s,
    codec: int,
    max_bytes: int | None,
    max_records: int | None,
    producer: Producer,
) -> list[EncodedBatch]:
    buffer, runs = _loops(len(rows)).encode_rows(
        columns,
        rows,
        max_bytes=MAX_COLUMN_BYTES if max_bytes is None else max_bytes,
        max_records=MAX_COLUMN_BYTES if max_records is None else max_records,
    )
    view = memoryview(buffer)
    attributes = codec | (TRANSACTIONAL_MASK if producer.transactional else 0)
    sequence = producer.base_sequence
    batches: list[EncodedBatch] = []
    for run in runs:
        if run.end - run.start > MAX_COLUMN_BYTES - HEADER_SIZE:
            raise MessageTooLarge(f"a record of {run.end - run.start} bytes is 2 GiB or more")
        if codec:
            records = compress(codec, view[run.start : run.end])
            batch = memoryview(
                build_batch(
                    records,
                    record_count=run.record_count,
                    base_timestamp=run.base_timestamp,
                    max_timestamp=run.max_timestamp,
                    attributes=attributes,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=sequence,
                )
            )
        else:
            batch = view[run.start - HEADER_SIZE : run.end]
            HEADER.pack_into(
                batch,
                0,
                0,
                len(batch) - LOG_OVERHEAD,
                -1,
                MAGIC,
                0,
                attributes,
                run.record_count - 1,
                run.base_timestamp,
                run.max_timestamp,
                producer.producer_id,
                producer.producer_epoch,
                sequence,
                run.record_count,
            )
            batch[17:21] = compute_crc(batch).to_bytes(4, "big")
        batches.append(EncodedBatch(batch, run.record_count, run.max_timestamp))
        if sequence != NO_SEQUENCE:
            sequence = (sequence + run.record_count) & 0x7FFFFFFF
    return batches
