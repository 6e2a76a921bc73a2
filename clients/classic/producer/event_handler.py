"""Hooks of an asynchronous producer: event handlers send, callback handlers observe (0.7, A12)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ....protocol.topic_partition import TopicPartitionPair
from ..message.serializer import Encoder
from .sync_producer import KeyAndPayload, ProducerRequest, SyncProducer

T = TypeVar("T")


class QueueItem(NamedTuple, Generic[T]):
    """Message in the queue. data: value that is not encoded yet. key: encoded, or None."""

    data: T
    topic: str
    partition: int
    key: bytes | None = None


class EventHandler(ABC, Generic[T]):
    """Handler that sends batches, in the place of DefaultEventHandler. Called by one thread."""

    @abstractmethod
    def handle(
        self, events: Sequence[QueueItem[T]], producer: SyncProducer, encoder: Encoder[T]
    ) -> None:
        """Dispatch one batch. Exceptions are logged, and the batch counts as failed."""

    def close(self) -> None:
        """Called after the last batch."""


class DefaultEventHandler(EventHandler[Any]):
    """Event handler that encodes messages, and sends those of a partition together, in order."""

    def handle(
        self, events: Sequence[QueueItem[Any]], producer: SyncProducer, encoder: Encoder[Any]
    ) -> None:
        messages: dict[TopicPartitionPair, list[KeyAndPayload]] = {}
        for event in events:
            message = event.key, encoder.to_message(event.data)
            messages.setdefault((event.topic, event.partition), []).append(message)
        producer.multi_send(
            ProducerRequest(topic, partition, found)
            for (topic, partition), found in messages.items()
        )


class CallbackHandler(Generic[T]):
    """Handler that observes, and may change, messages. By default hooks change nothing."""

    def before_enqueue(self, item: QueueItem[T]) -> QueueItem[T]:
        """Called by the thread that sends; the returned item goes into the queue."""
        return item

    def after_enqueue(self, item: QueueItem[T], added: bool) -> None:
        """Called by the thread that sends. added: False if the queue was full."""

    def after_dequeuing_existing_data(self, item: QueueItem[T] | None) -> Sequence[QueueItem[T]]:
        """Called by the sender's thread, as are those below; the returned items join the batch.

        Args:
            item: None if `queue.time` is over and there is no message.
        """
        return () if item is None else (item,)

    def before_sending_data(self, items: Sequence[QueueItem[T]]) -> Sequence[QueueItem[T]]:
        """Called before a batch is sent; the returned items are the batch for the event handler."""
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem[T]]:
        """Called at close; the returned items are sent with the last batch."""
        return ()

    def close(self) -> None:
        """Called after everything else."""
