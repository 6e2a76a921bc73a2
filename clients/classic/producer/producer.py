"""Producer: sends values to topics, partitioned by key; synchronous or through a queue (0.7, A11).

    producer = Producer({"broker.list": "localhost:9092"}, encoder=StringEncoder())
    producer.send(ProducerData("flights", "UA1545", ["delayed", "departed"]))

Invariants:
    All data of one ProducerData goes to one partition, in order.
    Synchronous: when `send` returns, its messages are acknowledged. Asynchronous: they are in the
    queue, and in the log some time later; messages that cannot be sent are logged and counted.

Unlike in 0.7 the key is stored with each message, so compaction and joins by key work.

Not here: the queue (async_producer), sending (sync_producer).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from ....protocol.errors import InvalidConfig
from ..message.serializer import DefaultEncoder, Encoder
from .async_producer import AsyncProducer
from .event_handler import CallbackHandler, DefaultEventHandler, EventHandler, QueueItem
from .partitioner import DefaultPartitioner, Partitioner
from .producer_config import ProducerConfig
from .sync_producer import ProducerRequest, SyncProducer

K = TypeVar("K")
T = TypeVar("T")


class ProducerData(NamedTuple, Generic[K, T]):
    """Values for one partition of a topic. data: one value, or a list of them. key: or None."""

    topic: str
    key: K | None
    data: T | Sequence[T]

    @property
    def events(self) -> Sequence[T]:
        data = self.data if isinstance(self.data, list | tuple) else [self.data]
        return cast("Sequence[T]", data)


class _KeyEncoder:
    """Encoder of keys: bytes and str are stored; others only choose the partition, as in 0.7."""

    def to_message(self, event: object) -> bytes | None:
        if isinstance(event, str):
            return event.encode()
        return event if isinstance(event, bytes) else None


class Producer(Generic[K, T]):
    """Producer of 0.7, usable from any thread; closes with `close` or `with`.

    Args:
        config: settings; a mapping has the names of 0.7.
        encoder: encodes values to payloads; by default values are bytes.
        partitioner: chooses partitions by key; by default as every Kafka client does.
        key_encoder: encodes keys to store; by default bytes and str are stored, and keys of other
            types choose the partition only.
        event_handler, callback_handler: handlers of the asynchronous producer.

    Raises:
        InvalidConfig: a setting is unknown, removed or out of bounds, or a handler is given without
            producer.type=async.
        ConnectionFailed: no cluster is given or found.
        TypeError: an encoder, partitioner or handler lacks its method.
    """

    def __init__(
        self,
        config: ProducerConfig | Mapping[str, object],
        *,
        encoder: Encoder[T] | None = None,
        partitioner: Partitioner[K] | None = None,
        key_encoder: Encoder[K] | None = None,
        event_handler: EventHandler[T] | None = None,
        callback_handler: CallbackHandler[T] | None = None,
    ) -> None:
        if not isinstance(config, ProducerConfig):
            config = ProducerConfig.from_properties(config)
        for name, given, method in (
            ("encoder", encoder, "to_message"),
            ("partitioner", partitioner, "partition"),
            ("key_encoder", key_encoder, "to_message"),
            ("event_handler", event_handler, "handle"),
            ("callback_handler", callback_handler, "before_enqueue"),
        ):
            if given is not None and not callable(getattr(given, method, None)):
                raise TypeError(
                    f"{name}={given!r} has no method `{method}`; give an object with one"
                )
        if config.producer_type == "sync" and (event_handler or callback_handler):
            raise InvalidConfig("handlers belong to the queue: set producer.type=async")
        self.config = config
        self._encoder: Encoder[Any] = encoder or DefaultEncoder()
        self._partitioner: Partitioner[Any] = partitioner or DefaultPartitioner()
        self._key_encoder: Encoder[Any] = key_encoder or _KeyEncoder()
        self._sync = SyncProducer(config)
        self._async: AsyncProducer[T] | None = None
        if config.producer_type == "async":
            self._async = AsyncProducer(
                self._sync,
                cast("Encoder[T]", self._encoder),
                event_handler or DefaultEventHandler(),
                callback_handler or CallbackHandler(),
            )

    @property
    def queue_length(self) -> int:
        """Number of messages that wait to be sent."""
        return 0 if self._async is None else self._async.queue_length

    @property
    def dropped_count(self) -> int:
        """Number of messages dropped because the queue was full."""
        return 0 if self._async is None else self._async.dropped_count

    @property
    def failed_count(self) -> int:
        """Number of queued messages that failed; some may be in the log nevertheless."""
        return 0 if self._async is None else self._async.failed_count

    def send(self, data: ProducerData[K, T] | Iterable[ProducerData[K, T]]) -> None:
        """Send one ProducerData or several; the first to a topic waits for its partitions.

        Raises:
            QueueFull, QueueClosed: asynchronous; earlier items of `data` are in the queue.
            UnknownTopicOrPartition: there is no such topic.
            MessageTooLarge: synchronous; a message is larger than `max.message.size`.
            KafkaError, ConnectionFailed: synchronous; not acknowledged; the error message says
                whether the messages may be in the log.
            ValueError: the partitioner chose a partition that does not exist.
            TypeError: the encoder or the partitioner cannot use a value or a key.
        """
        given = [data] if isinstance(data, ProducerData) else list(data)
        for one in given:
            if not isinstance(one, ProducerData):
                raise TypeError(f"send takes ProducerData or a list of them, not {one!r}")
        placed = [self._place(one) for one in cast("list[ProducerData[K, T]]", given)]
        if self._async is not None:
            for one, partition, key in placed:
                for event in one.events:
                    self._async.send(QueueItem(event, one.topic, partition, key))
            return
        self._sync.multi_send(
            [
                ProducerRequest(
                    one.topic,
                    partition,
                    [(key, self._encoder.to_message(event)) for event in one.events],
                )
                for one, partition, key in placed
            ]
        )

    def close(self, timeout: float | None = None) -> None:
        """Send what is queued, at most `timeout` seconds, and end. Idempotent."""
        if self._async is not None:
            self._async.close(timeout)
        else:
            self._sync.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _place(self, data: ProducerData[K, T]) -> tuple[ProducerData[K, T], int, bytes | None]:
        """Choose the partition of `data`, and encode the key to store."""
        count = self._sync.partitions_for(data.topic)
        if data.key is None:
            return data, random.randrange(count), None
        partition = self._partitioner.partition(data.key, count)
        if not isinstance(partition, int | np.integer) or not 0 <= partition < count:
            raise ValueError(
                f"the partitioner chose partition {partition!r} for key {data.key!r}; topic "
                f"{data.topic!r} has 0 to {count - 1}"
            )
        return data, int(partition), self._key_encoder.to_message(data.key)
