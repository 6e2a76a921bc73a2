"""Sender of a task's rows to a producer, by topic, as columns, for both delivery guarantees.

Invariants:
    At most MAX_OPEN_BATCHES are unacknowledged; `finish` returns when all are acknowledged.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ....clients.producer.producer import Producer
from ....clients.wire.record_metadata import BatchMetadata
from ....protocol.errors import UnknownTopicOrPartition
from ....protocol.topic_partition import TopicPartitionPair
from ..options.spark_options import WriteOptions
from ..tasks.spark_failure import unknown_topic

MAX_OPEN_BATCHES: Final = 64
OR_LET_THE_WRITE: Final = (
    ', or let the write do so with .option("kafka.allow.auto.create.topics", "true")'
)


class RowSender:
    """Sender of rows. row_count: number of rows sent so far."""

    def __init__(self, producer: Producer, options: WriteOptions) -> None:
        self._producer = producer
        self._options = options
        self._open: deque[Future[BatchMetadata]] = deque()
        self._ends: Counter[TopicPartitionPair] = Counter()
        self.row_count = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch. Raises what `finish` does."""
        self.row_count += batch.num_rows
        for topic, rows in _by_topic(batch, self._options.topic):
            self._open.append(self._send(topic, rows))
        while len(self._open) > MAX_OPEN_BATCHES:
            self._take(self._open.popleft())

    def finish(self) -> dict[TopicPartitionPair, int]:
        """Wait until all is acknowledged; returns one past the last offset, by partition.

        Raises:
            ValueError: a row without a topic, or with a partition that does not exist.
            KafkaError: rows were not delivered. Earlier rows may be in the log.
        """
        self._producer.flush()
        while self._open:
            self._take(self._open.popleft())
        return dict(self._ends)

    def _send(self, topic: str, rows: pa.RecordBatch) -> Future[BatchMetadata]:
        names = rows.schema.names
        try:
            count = self._producer.partitions_for(topic)
        except UnknownTopicOrPartition:
            if self._options.producer.get("allow_auto_create_topics"):
                raise
            raise unknown_topic(topic, OR_LET_THE_WRITE) from None
        kept = [name for name in ("key", "value", "headers", "partition") if name in names]
        partition = "partition" if "partition" in names else None
        if partition is not None:
            numbers = rows.column("partition")
            bounds = pc.min_max(numbers).as_py()
            if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < count:
                wrong = bounds["min"] if bounds["min"] < 0 else bounds["max"]
                raise ValueError(f"topic {topic!r} has partitions 0 to {count - 1}, not {wrong}")
            if numbers.null_count == len(numbers):
                partition = None
        return self._producer.send_batch(topic, rows.select(kept), partition=partition)

    def _take(self, done: Future[BatchMetadata]) -> None:
        metadata = done.result()
        for one in metadata.ranges:
            key = (metadata.topic, one.partition)
            self._ends[key] = max(self._ends[key], one.end)


def content_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of all keys and values of a batch."""
    total = 0
    for name in ("key", "value"):
        if name in batch.schema.names:
            total += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
    return total


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of each topic, in their order."""
    if not batch.num_rows:
        return
    if topic is not None:
        yield topic, batch
        return
    names = batch.column("topic")
    if names.null_count:
        raise ValueError(
            "null topic present in the data. Use the topic option for setting a topic."
        )
    topics = pc.unique(names).to_pylist()
    for name in topics:
        yield name, batch if len(topics) == 1 else batch.filter(pc.equal(names, name))
