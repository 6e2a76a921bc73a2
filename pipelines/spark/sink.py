"""Writing: DataFrame rows to topics, at least once, as columns from Spark's Arrow to the producer.

    value      string or binary, required            key        string or binary
    topic      string, unless the option `topic` says it; the option wins
    partition  int; null, or no such column: murmur2 of the key, as every Kafka client does
    headers    array<struct<key: string, value: binary>>

Any other column is omitted, as Spark's own sink does. Unlike Spark's Kafka sink, a topic that is
not there is made only where `kafka.allow.auto.create.topics` says so: a typo makes none.

What always holds:
    A task hands its message to Spark only after every record is acknowledged (acks=all unless an
    option says less) by an idempotent producer: a retry inside a task writes nothing twice.
    A task that Spark runs again writes its rows again: at least once, like Spark's Kafka sink.
    The iterator is always drained on success; a worker whose iterator is not is thrown away.

Sources: KafkaWriter, KafkaRowWriter in apache/spark connector/kafka-0-10-sql.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from ...clients.producer.producer import Producer
from ...clients.wire.record_metadata import BatchMetadata
from ...protocol.errors import UnknownTopicOrPartition
from ...protocol.topic_partition import TopicPartition
from . import worker
from .arrow import HEADERS
from .spark_failure import errors_in_one_line, unknown_topic
from .spark_options import FetchOptions, WriteOptions

MAX_OPEN_BATCHES: Final = 64
OR_LET_THE_WRITE: Final = (
    ', or let the write do so with .option("kafka.allow.auto.create.topics", "true")'
)

_CONTENT: Final[tuple[DataType, ...]] = (StringType(), BinaryType())
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "value": _CONTENT,
    "key": _CONTENT,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
}


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote. ends: one past the last offset for each (topic, partition)."""

    row_count: int
    ends: dict[TopicPartition, int] = field(default_factory=dict)


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ValueError if rows of this schema cannot be written: Spark itself never looks."""
    names = set(schema.fieldNames())
    if "value" not in names:
        raise ValueError(
            f"Required attribute 'value' not found among {', '.join(schema.fieldNames())}"
        )
    if topic is None and "topic" not in names:
        raise ValueError(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic."
        )
    for one in schema.fields:
        accepted = _TYPES.get(one.name)
        text = one.dataType.simpleString()
        if accepted and text not in [kind.simpleString() for kind in accepted]:
            wanted = " or ".join(kind.simpleString() for kind in accepted)
            raise ValueError(f"{one.name} attribute unsupported type {text}: it must be {wanted}")


def check_topic(options: WriteOptions) -> None:
    """Raise UnknownTopicOrPartition for a topic that neither exists nor may be made.

    Asked where a query is planned, before any task fails over it, and once a process: a stream
    plans each of its batches again. Topics that rows name are asked for by the tasks.
    """
    topic = options.topic
    if topic is None or options.producer.get("allow_auto_create_topics"):
        return
    client = worker.reading_client(options.bootstrap, FetchOptions())
    try:
        client.run(client.topic(topic))
    except UnknownTopicOrPartition:
        raise unknown_topic(topic, OR_LET_THE_WRITE) from None


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @errors_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: what the messages name is in the log."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be done: what was acknowledged stays in the log."""


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @errors_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: what the messages name is in the log."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be done: what was acknowledged stays in the log."""


def write_rows(options: WriteOptions, iterator: Iterator[pa.RecordBatch]) -> Written:
    """Send all rows and wait until they are acknowledged.

    Raises:
        ValueError: a row without a topic, or with a partition that does not exist.
        KafkaError: what was not delivered, and why. Rows before it may be in the log.
    """
    producer: Producer | None = None
    worker.freeze()
    open_batches: deque[Future[BatchMetadata]] = deque()
    ends: Counter[TopicPartition] = Counter()
    row_count = 0
    try:
        for batch in iterator:
            if producer is None:
                producer = worker.producer(options.bootstrap, options.producer)
            row_count += batch.num_rows
            for topic, rows in _by_topic(batch, options.topic):
                open_batches.append(_send(producer, topic, rows, options))
            while len(open_batches) > MAX_OPEN_BATCHES:
                _take(open_batches.popleft(), ends)
        if producer is not None:
            producer.flush()
        while open_batches:
            _take(open_batches.popleft(), ends)
    except BaseException:
        worker.forget_producer(options.bootstrap, options.producer)
        raise
    return Written(row_count, dict(ends))


def _send(
    producer: Producer, topic: str, rows: pa.RecordBatch, options: WriteOptions
) -> Future[BatchMetadata]:
    names = rows.schema.names
    try:
        count = producer.partitions_for(topic)
    except UnknownTopicOrPartition:
        if options.producer.get("allow_auto_create_topics"):
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
    return producer.send_batch(topic, rows.select(kept), partition=partition)


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order."""
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


def _take(done: Future[BatchMetadata], ends: Counter[TopicPartition]) -> None:
    metadata = done.result()
    for one in metadata.ranges:
        key = (metadata.topic, one.partition)
        ends[key] = max(ends[key], one.end)
