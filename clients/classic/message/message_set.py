"""A message set: the bytes of one fetched partition, decoded one batch after another.

Invariants:
    Batches are decoded, and their CRCs checked, one at a time during the iteration.
    A batch that is cut off at the end is left for the next fetch, whose offset is the last one that
    was returned, or `next_offset`.
    Messages below the requested offset, which a batch may begin with, are left out.

Today a record batch takes the place of 0.7's compressed message; it is returned whole or not at
all.

Not here: requests (simple_consumer), the format of a batch (protocol/columns/columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ....protocol.buffer import Buffer
from ....protocol.columns.columns import AbortedProducers, decode_batches
from ....protocol.errors import CorruptMessage, KafkaError
from ....protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    RecordBatchHeader,
    read_size,
    walk_batches,
)
from ...wire.kernels import on_records
from .errors import InvalidMessageSize
from .message import Message, MessageAndOffset


class MessageSet:
    """Messages of one fetched partition, iterable any number of times.

    Args:
        initial_offset: the offset of the request.
        max_size: maximum bytes of the request; a larger first batch is an error, as in 0.7.
        high_watermark: the end of the log when it was fetched.
        error: error of the partition, which the iteration raises.
        aborted: (producer id, first offset) of aborted transactions in the fetch response, whose
            messages are left out; None: read_uncommitted, so none are left out.
    """

    def __init__(
        self,
        records: Buffer,
        *,
        topic: str,
        partition: int,
        initial_offset: int,
        max_size: int,
        high_watermark: int = -1,
        error: Exception | None = None,
        aborted: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.initial_offset = initial_offset
        self.high_watermark = high_watermark
        self._aborted = aborted
        self._records = memoryview(records)
        self.valid_bytes = 0
        self.next_offset = initial_offset
        self.error = error or self._walk(max_size)

    @property
    def size_in_bytes(self) -> int:
        return len(self._records)

    @property
    def is_cut(self) -> bool:
        """Whether the last batch is incomplete: continue with a fetch at `next_offset`."""
        return self.valid_bytes < len(self._records)

    def __iter__(self) -> Iterator[MessageAndOffset]:
        """Yield each message, with the offset to fetch after it.

        Raises:
            InvalidMessageSize: the first batch is larger than `max_size`.
            CorruptMessage: a batch is damaged; messages before it were valid.
            KafkaError: the broker refused this partition.
        """
        if self.error is not None:
            raise self.error
        aborted = AbortedProducers(self._aborted or ())
        for position, header in walk_batches(self._records[: self.valid_bytes]):
            batch = self._records[position : position + header.size]
            if header.is_control:
                aborted.on_control_batch(batch, header)
            elif not aborted.contains(header):
                yield from self._open(batch, header)

    def _open(self, batch: memoryview, header: RecordBatchHeader) -> Iterator[MessageAndOffset]:
        on_records(max(0, header.record_count))
        decoded = decode_batches(
            batch,
            topic=self.topic,
            partition=self.partition,
            fetch_offset=self.initial_offset,
        )
        table = decoded.table
        for offset, timestamp, key, payload in zip(
            table.column("offset").to_pylist(),
            table.column("timestamp").cast(pa.int64()).to_pylist(),
            table.column("key").to_pylist(),
            table.column("value").to_pylist(),
            strict=True,
        ):
            yield MessageAndOffset(Message(payload, key, timestamp), offset + 1)

    def _walk(self, max_size: int) -> KafkaError | None:
        """Find the last complete batch, by the headers alone."""
        records = self._records
        first_size = read_size(records)[1] if len(records) >= LOG_OVERHEAD else len(records)
        for position, header in walk_batches(records):
            self.valid_bytes = position + header.size
            self.next_offset = max(self.next_offset, header.next_offset)
        if len(records) and (first_size > max_size or not self.valid_bytes):
            self.valid_bytes, self.next_offset = 0, self.initial_offset
            where = f"{self.topic}-{self.partition}: the messages at offset {self.initial_offset}"
            if len(records) >= LOG_OVERHEAD and first_size < HEADER_SIZE:
                return CorruptMessage(f"{where} have an invalid size of {first_size} bytes")
            size = f"{first_size}" if len(records) >= LOG_OVERHEAD else f"more than {first_size}"
            return InvalidMessageSize(
                f"{where} take {size} bytes, and max_size is {max_size}; fetch with more"
            )
        return None
