"""A stream of a connector: a blocking iterator over the partitions assigned to it.

Invariants:
    A stream is one member of the group, so a partition is in one stream only, of all connectors
    and of all other clients in the group.
    Only messages that the iterator has returned are consumed: fetched messages in the stream are
    never committed.
    Members live as long as their process (0.7): the connector polls the group between two calls
    of the iterator, however long a message is processed. Messages of a partition that is revoked
    meanwhile are not returned any more.

The iterator's thread and the connector's take turns with one bradbury.Consumer, which does
fetching, rebalances and commits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final, Generic, Self, TypeVar

from ....protocol.errors import ConnectionFailed, KafkaError
from ....protocol.topic_partition import TopicPartitionPair
from ...consumer.consumer import Consumer
from ...fetch.record_stream import ConsumerRecord
from ..message.errors import ConsumerTimeoutException
from ..message.message import Message, MessageAndMetadata
from ..message.serializer import Decoder
from .turns import Turns

T = TypeVar("T")

logger = logging.getLogger(__name__)

SLICE_MS: Final = 100
"""Milliseconds that the iterator holds the consumer at a time, while other threads wait for it."""


class KafkaStream(Generic[T]):
    """Stream of messages for one thread. Ends with the connector.

    Made by a ConsumerConnector. client_id: distinguishes the member from others of its group.
    """

    def __init__(
        self, consumer: Consumer, decoder: Decoder[T], *, client_id: str, consumer_timeout_ms: int
    ) -> None:
        self.client_id = client_id
        self.connector: object = None  # kept alive by its streams
        self._consumer = consumer
        self._decoder = decoder
        self._timeout_s = consumer_timeout_ms / 1000 if consumer_timeout_ms >= 0 else None
        self._turns = Turns()
        self._records: Iterator[ConsumerRecord] = iter(())
        self._error: Exception | None = None
        self._ending = False
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageAndMetadata[T]:
        """Wait for the next message.

        Raises:
            ConsumerTimeoutException: there was none within `consumer.timeout.ms`.
            OffsetOutOfRange: with autooffset.reset=none.
            KafkaError: the broker or the group refuses; it can be called again.
        """
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            left_ms = SLICE_MS
            if deadline is not None:
                left_ms = min(SLICE_MS, max(0, int((deadline - time.monotonic()) * 1000)))
            record = self._take(left_ms)
            if record is not None:
                return MessageAndMetadata(
                    self._decoder.to_event(Message(record.value, record.key, record.timestamp)),
                    record.topic,
                    record.partition,
                    record.offset,
                    record.key,
                    record.timestamp,
                )
            if deadline is not None and time.monotonic() >= deadline:
                raise ConsumerTimeoutException(
                    f"no message within consumer.timeout.ms={(self._timeout_s or 0) * 1000:.0f}"
                )

    def assignment(self) -> list[TopicPartitionPair]:
        """Partitions that are assigned to this stream now."""
        self._turns.enter()
        try:
            return [] if self._ended else [*self._consumer.assignment()]
        finally:
            self._turns.leave()

    # --- for the connector -------------------------------------------------------------------

    def commit(self) -> None:
        """Commit consumed offsets. Raises KafkaError: the group has removed the member."""
        self._turns.enter()
        try:
            if not self._ended:
                self._consumer.commit()
        finally:
            self._turns.leave()

    def poll_group(self) -> None:
        """Take part in rebalances and auto-commit, unless the iterator does it now."""
        if not self._turns.try_enter():
            return
        try:
            if self._ending:
                self._end()
            else:
                self._poll_nothing()
        except (KafkaError, ConnectionFailed, ValueError) as error:
            self._error = error  # raised on the iterator's thread
        finally:
            self._turns.leave()

    def shutdown(self) -> None:
        """Commit (with auto-commit), leave the group; the iterator ends."""
        self._ending = True
        self._turns.enter()
        try:
            if self._turns.depth == 1:  # else: a signal handler, within the iterator's turn
                self._end()
        finally:
            self._turns.leave()

    @property
    def has_ended(self) -> bool:
        return self._ended

    # --- within a turn -----------------------------------------------------------------------

    def _take(self, timeout_ms: int) -> ConsumerRecord | None:
        self._turns.enter()
        try:
            if self._ending:
                self._end()
                raise StopIteration
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            record = next(self._records, None)
            if record is None:
                self._records = self._consumer.records(timeout_ms)
                record = next(self._records, None)
            return record
        finally:
            self._turns.leave()

    def _poll_nothing(self) -> None:
        """Poll without returning records, for rebalances and auto-commits."""
        consumer = self._consumer
        consumer.pause(*consumer.assignment())
        try:
            table = consumer.poll(0)
        finally:
            consumer.resume(*consumer.assignment())
        if table.num_rows:  # of a partition that was assigned in this poll, and so was not paused
            firsts = table.group_by(["topic", "partition"]).aggregate([("offset", "min")])
            for row in firsts.to_pylist():
                consumer.seek((row["topic"], row["partition"]), row["offset_min"])

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._records = iter(())  # ends the generator, so that its remaining records are put back
        self._consumer.close()
