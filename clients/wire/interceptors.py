"""Interceptors, which observe and may change records: hooks on send, acknowledgement, poll, commit.

    class Count(bradbury.ProducerInterceptor):
        def on_acknowledgement(self, metadata, error):
            acknowledged.labels(metadata.topic).inc(0 if error else metadata.count)

    producer = bradbury.Producer(interceptors=[Count()])

Invariants:
    An exception of an interceptor is logged and not raised: the next interceptor, and the client,
    continue with the value from before it, as in Kafka's clients.
    Interceptors are called in their order, each with the result of the previous one.

Unlike Kafka: they are called once for each acknowledged batch and each polled table, and a table
that is sent whole is passed whole. Only `Producer.send` of single records passes single records.

Source: ProducerInterceptor, ConsumerInterceptor in apache/kafka clients/.../clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, Self, TypeVar

import pyarrow as pa

from ...protocol.topic_partition import TopicPartition
from .record_metadata import BatchMetadata, OffsetAndMetadata

logger = logging.getLogger(__name__)

Content = bytes | bytearray | memoryview | str | None
Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


class ProducerRecord(NamedTuple):
    """One record, as `Producer.send` was given it."""

    topic: str
    value: Content = None
    key: Content = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers | None = None


class ProducerInterceptor:
    """Override what you need. Used from every thread that sends, and from the client's own."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called by `send`, before anything is done; the returned record is sent."""
        return record

    def on_send_batch(self, topic: str, table: pa.Table) -> pa.Table:
        """Called by `send_batch`; the returned table is sent. It may differ in columns and rows."""
        return table

    def on_acknowledgement(self, metadata: BatchMetadata, error: Exception | None) -> None:
        """Called when records are acknowledged, or have failed with `error`; before the futures.

        Called once per record batch, on the client's own thread, which sends nothing meanwhile; and
        by `send` and `send_batch` where they raise.

        Args:
            metadata: `ranges` has the partition, with offsets of -1 where they are not known; it is
                empty where the records had no partition yet.
        """

    def close(self) -> None:
        """Called when the producer is closed."""


class ConsumerInterceptor:
    """Override what you need. Called on the thread that uses the consumer."""

    def on_consume(self, records: pa.Table) -> pa.Table:
        """Called by poll with the records that it is about to return, if there are any.

        Poll returns the result, which may have changed values, further columns and fewer rows;
        omitted rows count as consumed. Iteration passes each piece that it is about to go through,
        and again the rest of a piece that was left early.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called by poll, commit or close when offsets have been stored."""

    def close(self) -> None:
        """Called when the consumer is closed."""


T = TypeVar("T")
I = TypeVar("I", ProducerInterceptor, ConsumerInterceptor)  # noqa: E741 -- a type's letter


class _Interceptors(Generic[I]):
    """All interceptors of one client, as one that never raises."""

    def __init__(self, interceptors: Iterable[I]) -> None:
        self._all: tuple[I, ...] = tuple(interceptors)

    @classmethod
    def of(cls, interceptors: Iterable[I]) -> Self | None:
        """Wrap interceptors; None if there are none, so that calls cost one comparison."""
        one = cls(interceptors)
        return one if one._all else None

    def close(self) -> None:
        self._call("close")

    def _through(self, hook: str, value: T, check: Callable[[T], T], *before: object) -> T:
        """Pass `value` through a hook of all interceptors, in order."""
        for one in self._all:
            try:
                value = check(getattr(one, hook)(*before, value))
            except Exception:
                logger.exception("%s.%s failed and is skipped", type(one).__qualname__, hook)
        return value

    def _call(self, hook: str, *arguments: object) -> None:
        for one in self._all:
            try:
                getattr(one, hook)(*arguments)
            except Exception:
                logger.exception("%s.%s failed and is skipped", type(one).__qualname__, hook)


class ProducerInterceptors(_Interceptors[ProducerInterceptor]):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return self._through("on_send", record, lambda returned: ProducerRecord(*returned))

    def on_send_batch(self, topic: str, table: pa.Table) -> pa.Table:
        return self._through("on_send_batch", table, _table, topic)

    def on_acknowledgement(self, metadata: BatchMetadata, error: Exception | None) -> None:
        self._call("on_acknowledgement", metadata, error)


class ConsumerInterceptors(_Interceptors[ConsumerInterceptor]):
    def on_consume(self, records: pa.Table) -> pa.Table:
        return self._through("on_consume", records, _with_columns)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._call("on_commit", offsets)


def _table(returned: pa.Table) -> pa.Table:
    if isinstance(returned, pa.RecordBatch):
        return pa.Table.from_batches([returned])
    if not isinstance(returned, pa.Table):
        raise TypeError(f"an interceptor returns the table, not {type(returned).__name__}")
    return returned


def _with_columns(returned: pa.Table) -> pa.Table:
    table = _table(returned)
    missing = _COLUMNS - {*table.column_names}
    if missing:
        raise ValueError(f"an interceptor returns all columns; {sorted(missing)} are missing")
    return table


_COLUMNS: Final = frozenset(
    {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
)
