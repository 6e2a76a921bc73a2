"""The queue of a producer and the thread that empties it (0.7's AsyncProducer, ProducerSendThread).

Invariants:
    Messages are sent in the order of the queue, when there are `batch.size` of them or
    `queue.time` is over; messages that are in the queue at close are sent.
    If a handler or hook raises, only its batch fails, which is logged and counted.
    A close without brokers ends: the second batch that is not acknowledged within
    `delivery.timeout.ms` is the last one that waits.

Not here: partitions (producer), sending (sync_producer).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ....protocol.errors import RequestTimedOut
from ..message.errors import QueueFull
from ..message.serializer import Encoder
from .event_handler import CallbackHandler, EventHandler, QueueItem
from .event_queue import EventQueue
from .sync_producer import SyncProducer

T = TypeVar("T")

logger = logging.getLogger(__name__)

IDLE_S: Final = 0.1
"""Minimum seconds that the thread waits for the first message of a batch."""


class AsyncProducer(Generic[T]):
    """Queue and sender thread of a producer, usable from any thread, with `producer.config`."""

    def __init__(
        self,
        producer: SyncProducer,
        encoder: Encoder[T],
        event_handler: EventHandler[T],
        callback_handler: CallbackHandler[T],
    ) -> None:
        config = producer.config
        self.dropped_count = 0
        self._producer = producer
        self._callbacks = callback_handler
        self._enqueue_timeout_ms = config.enqueue_timeout_ms
        self._queue: EventQueue[QueueItem[T]] = EventQueue(config.queue_size)
        self._sender = _Sender(self._queue, producer, encoder, event_handler, callback_handler)
        self._thread = threading.Thread(
            target=self._sender.run, name=f"{config.client_id}-sender", daemon=True
        )
        self._thread.start()
        # If garbage-collected without close, the thread sends what is queued, and ends.
        self._finalizer = weakref.finalize(self, self._queue.close)

    @property
    def queue_length(self) -> int:
        return len(self._queue)

    @property
    def failed_count(self) -> int:
        """Number of messages in failed batches; some may be in the log nevertheless."""
        return self._sender.failed_count

    def send(self, item: QueueItem[T]) -> None:
        """Put one message into the queue.

        Raises:
            QueueFull: no room within `queue.enqueueTimeout.ms`; the message is dropped.
            QueueClosed: after close.
        """
        item = self._callbacks.before_enqueue(item)
        own = (
            threading.current_thread() is self._thread
        )  # in a handler: only this thread can make room
        added = self._queue.put(item, 0 if own else self._enqueue_timeout_ms)
        self._callbacks.after_enqueue(item, added)
        if not added:
            self.dropped_count += 1
            raise QueueFull(
                f"the queue is full with {len(self._queue)} messages (queue.size), and had no room "
                f"within queue.enqueueTimeout.ms={self._enqueue_timeout_ms}; send slower, or check "
                "that the brokers are up"
            )

    def close(self, timeout: float | None = None) -> None:
        """Send what is queued, at most `timeout` seconds, then fail the rest. Idempotent.

        The rest fails also when a batch is given up for which all of `delivery.timeout.ms` has
        passed since the close.
        """
        self._finalizer()
        if self._thread is threading.current_thread():
            return  # in a handler: the thread ends when it returns
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._producer.close(0)
            self._thread.join(timeout)  # it ends soon: nothing can be sent any more


class _Sender(Generic[T]):
    """Loop of the thread. It has no reference to the AsyncProducer, which can be collected."""

    def __init__(
        self,
        queue: EventQueue[QueueItem[T]],
        producer: SyncProducer,
        encoder: Encoder[T],
        event_handler: EventHandler[T],
        callback_handler: CallbackHandler[T],
    ) -> None:
        self.failed_count = 0
        self._queue = queue
        self._producer = producer
        self._encoder = encoder
        self._handler = event_handler
        self._callbacks = callback_handler
        self._queue_time_s = producer.config.queue_time_ms / 1000
        self._batch_size = producer.config.batch_size

    def run(self) -> None:
        events: list[QueueItem[T]] = []
        due = time.monotonic() + self._queue_time_s
        while not self._queue.is_finished:
            # Without a queue time, or after it, messages are sent at once; IDLE_S limits polling.
            until = due if events else max(due, time.monotonic() + IDLE_S)
            taken: Sequence[QueueItem[T] | None]
            taken = self._queue.take(max(1, self._batch_size - len(events)), until)
            for item in taken or (None,):
                hook = partial(self._callbacks.after_dequeuing_existing_data, item)
                events += self._guarded(hook, count=item is not None)
            if not taken or len(events) >= self._batch_size:
                self._dispatch(events)
                events = []
                due = time.monotonic() + self._queue_time_s
        events += self._guarded(self._callbacks.last_batch_before_close, count=0)
        self._dispatch(events)
        self._guarded(self._handler.close, count=0)
        self._guarded(self._callbacks.close, count=0)
        self._producer.close()

    def _dispatch(self, events: list[QueueItem[T]]) -> None:
        is_closing = self._queue.is_closed

        def send() -> None:
            batch = self._callbacks.before_sending_data(events)
            if not batch:
                return
            try:
                self._handler.handle(batch, self._producer, self._encoder)
            except RequestTimedOut:
                if is_closing:  # else close would wait so long for each of perhaps 50 batches
                    self._producer.close(0)
                raise

        if events:
            self._guarded(send, count=len(events))

    def _guarded(self, call: Callable[[], Any], *, count: int) -> Sequence[QueueItem[T]]:
        """Return the result of `call`; () if it raises, which counts as `count` failed messages."""
        try:
            return call() or ()
        except Exception:
            self.failed_count += count
            logger.exception(
                "%d messages may not have been sent: a handler of the producer failed", count
            )
            return ()
