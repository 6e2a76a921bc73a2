"""One encoded record batch in flight, and the futures of its outcome."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ....protocol.buffer import Buffer
from ....protocol.columns.columns import decode_batches, encode_batches
from ....protocol.records.record_batch import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RecordBatchHeader,
    check_batch,
    stamp,
)
from ....protocol.records.records import stamp_producer

Rows = npt.NDArray[np.int64]


class AppendedBatch(NamedTuple):
    """Result of an appended batch. base_offset: -1 if unknown (acks=0, or an old duplicate).

    append_time_ms: the broker's on a LogAppendTime topic, else -1.
    """

    base_offset: int
    append_time_ms: int


class Delivery(Protocol):
    """Source of the records in batches. Called on the I/O thread, or on the encoding caller's."""

    def on_placed(self, batches: list[ProducerBatch]) -> None: ...

    def on_done(self, batch: ProducerBatch, outcome: AppendedBatch | Exception) -> None: ...

    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None: ...


class ProducerBatch:
    """Batch that is encoded once; only the producer's fields in its header are written again.

    rows: which rows of its delivery it holds, in order.
    memory: bytes it holds of the producer's `buffer_memory`.
    uncompressed_size: bytes of `data` without compression; None: unknown, as it came compressed.
    deadline: time.monotonic() seconds at which its delivery times out.
    order: its place among the batches of its partition.
    base_sequence: -1 until it is first sent by an idempotent producer.
    """

    __slots__ = (
        "base_sequence",
        "data",
        "deadline",
        "delivery",
        "last_error",
        "memory",
        "order",
        "outcome",
        "partition",
        "parts",
        "producer_epoch",
        "producer_id",
        "record_count",
        "rows",
        "topic",
        "uncompressed_size",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        data: memoryview,
        rows: Rows,
        delivery: Delivery,
        *,
        memory: int,
        uncompressed_size: int | None,
        deadline: float,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.data = data
        self.rows = rows
        self.record_count = len(rows)
        self.delivery = delivery
        self.memory = memory
        self.uncompressed_size = uncompressed_size
        self.deadline = deadline
        self.order: tuple[int, ...] = ()
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.outcome: AppendedBatch | Exception | None = None
        self.parts: list[ProducerBatch] | None = None
        self.last_error: Exception | None = None

    def is_done(self) -> bool:
        if self.parts is not None:
            return all(part.is_done() for part in self.parts)
        return self.outcome is not None

    def split(self, codec: int) -> list[ProducerBatch]:
        """Split in halves, as the topic's max.message.bytes or segment.bytes refuses the whole.

        Source: ProducerBatch.split in apache/kafka clients/.../producer/internals.
        """
        half = self.record_count // 2
        columns = decode_batches(self.data, topic="", partition=0, fetch_offset=0)
        parts = []
        for start, end in ((0, half), (half, self.record_count)):
            length = end - start
            encoded = encode_batches(
                columns.keys.slice(start, length),
                columns.values.slice(start, length),
                columns.timestamps[start:end],
                None if columns.headers is None else columns.headers.slice(start, length),
                codec=codec,
            )[0]
            parts.append(
                ProducerBatch(
                    self.topic,
                    self.partition,
                    encoded.batch,
                    self.rows[start:end],
                    self.delivery,
                    memory=self.memory * length // self.record_count,
                    uncompressed_size=encoded.uncompressed_size,
                    deadline=self.deadline,
                )
            )
        parts[0].memory += self.memory - sum(part.memory for part in parts)
        self.delivery.on_split(self, parts)
        self.parts = parts
        return parts

    def __repr__(self) -> str:
        return (
            f"<{self.record_count} records for {self.topic}-{self.partition}, "
            f"sequence {self.base_sequence}>"
        )


def producer_copy(batch: Buffer) -> tuple[RecordBatchHeader, memoryview]:
    """Copy a batch of a log as its producer sent it: no offsets, epoch, producer or transaction.

    Raises:
        ValueError: no producer may send such a batch: it has gaps, is a control batch, or has
            LogAppendTime.
        CorruptMessage, InvalidRecord: it is damaged, or of magic 0 or 1.
    """
    header = check_batch(batch)
    if header.record_count != header.last_offset_delta + 1:
        raise ValueError(
            f"the batch at {header.base_offset} has gaps: {header.record_count} records "
            f"for {header.last_offset_delta + 1} offsets"
        )
    if header.is_control or header.is_log_append_time:
        kind = "a control batch" if header.is_control else "LogAppendTime"
        raise ValueError(f"the batch at {header.base_offset} is {kind}; a producer sends none")
    copy = memoryview(bytearray(batch))
    stamp(copy, base_offset=0, leader_epoch=-1)
    stamp_producer(copy, producer_id=NO_PRODUCER_ID, producer_epoch=-1, base_sequence=NO_SEQUENCE)
    return header, copy
