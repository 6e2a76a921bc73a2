"""Sink that writes DataFrame rows to topics, as columns from Spark's Arrow to the producer.

    value      string or binary, required            key        string or binary
    topic      string, unless the option `topic` is set, which takes precedence
        partition  int; null, or no such column: murmur2 of the key, as every Kafka client does
    headers    array<struct<key: string, value: binary>>

Any other column is ignored, as by Spark's own sink. Unlike with Spark's Kafka sink, a missing topic
is created only with `kafka.allow.auto.create.topics`: a typo creates none.

Invariants:
    A task returns its message to Spark only after every record is acknowledged (acks=all unless an
    option sets less) by an idempotent producer: a retry inside a task writes nothing twice.
    With at-least-once, a task that Spark runs again writes its rows again, as with Spark's sink.
    The iterator is always drained on success; otherwise Spark discards the worker.

Sources: KafkaWriter, KafkaRowWriter in apache/spark connector/kafka-0-10-sql.

Not here: exactly-once, the default of streams (transactional_sink).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from ....protocol.errors import UnknownTopicOrPartition
from ....protocol.topic_partition import TopicPartitionPair
from ...ranges.reading_client import reading_client
from ..options.spark_options import WriteOptions
from ..tasks import worker
from ..tasks.arrow import HEADERS
from ..tasks.spark_failure import errors_in_one_line, unknown_topic
from .row_sender import OR_LET_THE_WRITE, RowSender
from .transactional_sink import Written, abort_batch, record_batch, write_exactly_once

_CONTENT: Final[tuple[DataType, ...]] = (StringType(), BinaryType())
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "value": _CONTENT,
    "key": _CONTENT,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ValueError if rows of this schema cannot be written: Spark itself does not check."""
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
    """Raise UnknownTopicOrPartition for a topic that neither exists nor may be created.

    Called when a query is planned, before tasks start; its metadata is cached by the process, as a
    stream plans each of its batches. Topics named by rows are checked by the tasks.
    """
    topic = options.topic
    if topic is None or options.producer.get("allow_auto_create_topics"):
        return
    client = reading_client(options.bootstrap, options.fetch)
    try:
        client.run(client.topic(topic))
    except UnknownTopicOrPartition:
        raise unknown_topic(topic, OR_LET_THE_WRITE) from None


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch query. Its job id is made in the driver: all attempts of tasks share it."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job_id = uuid.uuid4().hex

    @errors_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, self._job_id, iterator)

    @errors_in_one_line()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record the batch with exactly-once; the rows of the messages are in the log already."""
        worker.freeze_if_kept()  # foreachBatch calls it for each of its batches
        if self._options.exactly_once:
            record_batch(self._options, messages)

    @errors_in_one_line()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what tasks have left open; acknowledged or committed rows stay in the log."""
        if self._options.exactly_once:
            abort_batch(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @errors_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, None, iterator)

    @errors_in_one_line()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Record the batch with exactly-once; the rows of the messages are in the log already."""
        if self._options.exactly_once:
            record_batch(self._options, messages)

    @errors_in_one_line()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort what tasks have left open; acknowledged or committed rows stay in the log."""
        if self._options.exactly_once:
            abort_batch(self._options, messages)


def write_rows(
    options: WriteOptions, job_id: str | None, iterator: Iterator[pa.RecordBatch]
) -> Written:
    """Send all rows and wait until they are acknowledged, or committed.

    job_id: unique id of a batch write; None in a stream.

    Raises:
        ValueError, KafkaError: as RowSender.finish, and as write_exactly_once.
    """
    worker.freeze()
    if options.exactly_once:
        return write_exactly_once(options, job_id, iterator)
    return _write_at_least_once(options, iterator)


def _write_at_least_once(options: WriteOptions, iterator: Iterator[pa.RecordBatch]) -> Written:
    sender: RowSender | None = None
    ends: dict[TopicPartitionPair, int] = {}
    try:
        for batch in iterator:
            if sender is None:
                producer = worker.producer(options.bootstrap, options.producer_settings)
                sender = RowSender(producer, options)
            sender.send(batch)
        if sender is not None:
            ends = sender.finish()
    except BaseException:
        worker.forget_producer(options.bootstrap, options.producer_settings)
        raise
    return Written(0 if sender is None else sender.row_count, ends)
