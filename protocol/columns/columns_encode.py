"""Encoding of Arrow columns to record batches, cut by size and count, as one run of rows or by
partition.

The loops write the records of all batches into one buffer and leave room for the batch headers,
which are filled in here. Compressed batches get separate buffers.

Not here: the loops (columns_compiled, columns_plain); when a batch is sent (clients).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import MessageTooLarge
from ..records.compression import compress
from ..records.record_batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    build_batch,
    compute_crc,
)
from ..records.records import Headers
from .columns_arrow import (
    MAX_COLUMN_BYTES,
    Int32s,
    Int64s,
    RecordColumns,
    RecordRun,
    binary_of,
    headers_of,
    record_columns,
)
from .columns_loops import loops_for


class EncodedBatch(NamedTuple):
    """One batch ready to send.

    `batch` is writable (records.stamp_producer sets its producer later). Uncompressed batches of
    one call share one buffer, which lives as long as any of them.
    """

    batch: memoryview
    record_count: int
    max_timestamp: int
    uncompressed_size: int
    """Size in bytes that the batch has, or would have, without compression."""


class ProducerSequence(NamedTuple):
    """Producer id and epoch, from InitProducerId, and the sequence of a batch's first record."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False


NO_PRODUCER = ProducerSequence()


def encode_batch(
    keys: pa.Array | None,
    values: pa.Array | None,
    timestamps: Int64s | pa.Array | int,
    headers: pa.Array | None = None,
    *,
    codec: int = 0,
    max_bytes: int | None = None,
    producer: ProducerSequence = NO_PRODUCER,
) -> memoryview:
    """Encode all rows as one batch. Arguments and errors as in encode_batches.

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
    producer: ProducerSequence = NO_PRODUCER,
) -> list[EncodedBatch]:
    """Encode columns as batches, rows in order.

    Args:
        keys, values, timestamps, headers: as columns_arrow.record_columns takes them.
        rows: which rows, in which order; None for all.
        max_bytes: most bytes of a batch before compression (`batch.size`). A record that is larger
            has its own batch: compare its size with `max.request.size`.
        max_records: most records of a batch.
        producer: of the first batch; sequences continue over the batches, modulo 2**31.

    Raises:
        ValueError: see record_columns; or a row out of range.
        MessageTooLarge: a column or a record has 2 GiB or more.
        UnsupportedCompressionType: `codec` is not 0-4.
    Cost: 15 us, 5 us a batch and 180 ns a record of 100 bytes with the kernels; 0.7 us a record
    without them. Compression comes on top.
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
    """Encode the batches of each partition that has rows; rows of one partition keep their order.

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
    order, ends = loops_for(len(numbers)).group_rows(numbers, partition_count)
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
    """Columns (keys, values, timestamps, headers) for an encoder, from (key, value, timestamp,
    headers).

    Cost: 0.2-0.4 us a record, 0.6 us with a header.
    """
    # Four passes: zip(*records), a call with as many arguments as records, is four times as slow.
    keys, values, timestamps, headers = (list(map(itemgetter(i), records)) for i in range(4))
    return (
        binary_of(keys),
        binary_of(values),
        np.array(timestamps, np.int64),
        headers_of(headers),
    )


def partition_rows(keys: pa.Array, partition_count: int) -> Int32s:
    """Partition of each key, by Kafka's default partitioner; -1 where the key is null."""
    columns = record_columns(keys, None, 0)
    hashes: Int32s = loops_for(len(keys)).hash_keys(columns.keys)
    return np.where(hashes < 0, np.int32(-1), hashes % np.int32(partition_count))


def _encode(
    columns: RecordColumns,
    rows: Int64s,
    codec: int,
    max_bytes: int | None,
    max_records: int | None,
    producer: ProducerSequence,
) -> list[EncodedBatch]:
    buffer, runs = loops_for(len(rows)).encode_rows(
        columns,
        rows,
        max_bytes=MAX_COLUMN_BYTES if max_bytes is None else max_bytes,
        max_records=MAX_COLUMN_BYTES if max_records is None else max_records,
    )
    view = memoryview(buffer)
    batches: list[EncodedBatch] = []
    for run in runs:
        if run.end - run.start > MAX_COLUMN_BYTES - HEADER_SIZE:
            raise MessageTooLarge(f"a record of {run.end - run.start} bytes is 2 GiB or more")
        if codec:
            batch = _compressed_batch(view[run.start : run.end], run, codec, producer)
        else:
            batch = view[run.start - HEADER_SIZE : run.end]
            _fill_header(batch, run, producer)
        size = HEADER_SIZE + run.end - run.start
        batches.append(EncodedBatch(batch, run.record_count, run.max_timestamp, size))
        if producer.base_sequence != NO_SEQUENCE:
            sequence = (producer.base_sequence + run.record_count) & 0x7FFFFFFF
            producer = producer._replace(base_sequence=sequence)
    return batches


def _compressed_batch(
    records: memoryview, run: RecordRun, codec: int, producer: ProducerSequence
) -> memoryview:
    return memoryview(
        build_batch(
            compress(codec, records),
            record_count=run.record_count,
            base_timestamp=run.base_timestamp,
            max_timestamp=run.max_timestamp,
            attributes=codec | (TRANSACTIONAL_MASK if producer.transactional else 0),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.base_sequence,
        )
    )


def _fill_header(batch: memoryview, run: RecordRun, producer: ProducerSequence) -> None:
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD,
        -1,
        MAGIC,
        0,
        TRANSACTIONAL_MASK if producer.transactional else 0,
        run.record_count - 1,
        run.base_timestamp,
        run.max_timestamp,
        producer.producer_id,
        producer.producer_epoch,
        producer.base_sequence,
        run.record_count,
    )
    batch[17:21] = compute_crc(batch).to_bytes(4, "big")
