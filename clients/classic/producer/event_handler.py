"""What one may hang into an asynchronous producer: what sends, and what looks on (0.7, A12)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ....protocol.topic_partition import TopicPartition
from ..message.serializer import Encoder
from .sync_producer import KeyAndPayload, ProducerRequest, SyncProducer

T = TypeVar("T")


class QueueItem(NamedTuple, Generic[T]):
    """One message in the queue. data: as it was sent, not encoded yet. key: encoded, or None."""

    data: T
    topic: str
    partition: int
    key: bytes | None = None


class EventHandler(ABC, Generic[T]):
    """Takes the place of DefaultEventHandler, which sends. Called by one thread."""

    @abstractmethod
    def handle(
        self, events: Sequence[QueueItem[T]], producer: SyncProducer, encoder: Encoder[T]
    ) -> None:
        """Dispatch one batch. What it raises is logged, and the batch counts as failed."""

    def close(self) -> None:
        """After the last batch."""


class DefaultEventHandler(EventHandler[Any]):
    """Encodes, and sends what goes to one partition together and in order."""

    def handle(
        self, events: Sequence[QueueItem[Any]], producer: SyncProducer, encoder: Encoder[Any]
    ) -> None:
        messages: dict[TopicPartition, list[KeyAndPayload]] = {}
        for event in events:
            message = event.key, encoder.to_message(event.data)
            messages.setdefault((event.topic, event.partition), []).append(message)
        producer.multi_send(
            ProducerRequest(topic, partition, found)
            for (topic, partition), found in messages.items()
        )


class CallbackHandler(Generic[T]):
    """Looks on, and may change what passes. Each hook lets everything through by itself."""

    def before_enqueue(self, item: QueueItem[T]) -> QueueItem[T]:
        """Called by the thread that sends; what it returns goes into the queue."""
        return item

    def after_enqueue(self, item: QueueItem[T], added: bool) -> None:
        """Called by the thread that sends. added: False if the queue was full."""

    def after_dequeuing_existing_data(self, item: QueueItem[T] | None) -> Sequence[QueueItem[T]]:
        """Called by the sender's thread, as are those below; what it returns joins the batch.

        Args:
            item: None when `queue.time` is over and nothing came.
        """
        return () if item is None else (item,)

    def before_sending_data(self, items: Sequence[QueueItem[T]]) -> Sequence[QueueItem[T]]:
        """What it returns is the batch that the event handler gets."""
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem[T]]:
        """What it returns is sent with the last batch."""
        return ()

    def close(self) -> None:
        """After everything else."""
