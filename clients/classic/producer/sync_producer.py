"""SyncProducer: sends payloads to partitions and waits; event handlers send with it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, cast

from ...producer.producer import Producer
from ...wire.record_metadata import BatchMetadata
from ..message.errors import QueueClosed
from .producer_config import ProducerConfig

KeyAndPayload = tuple[bytes | None, bytes | None]


class ProducerRequest(NamedTuple):
    """Messages (key, payload) for one partition, in order."""

    topic: str
    partition: int
    messages: Sequence[KeyAndPayload]


class SyncProducer:
    """Sender of 0.7, usable from any thread.

    It uses a bradbury.Producer, or two with compressed.topics: one of them compresses.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._producers: dict[str, Producer] = {}
        self._closed = False
        self._producer(config.compression_codec)  # now, so that an invalid address raises here

    def partitions_for(self, topic: str) -> int:
        """Number of partitions of `topic`.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            QueueClosed: the producer is closed.
        """
        return self._producer_for(topic).partitions_for(topic)

    def send(self, topic: str, partition: int, messages: Sequence[KeyAndPayload]) -> None:
        """Send the messages of one request; see `multi_send`."""
        self.multi_send([ProducerRequest(topic, partition, messages)])

    def multi_send(self, requests: Iterable[ProducerRequest]) -> None:
        """Send all requests concurrently, and wait until they are acknowledged.

        Raises:
            KafkaError, ConnectionFailed: the first failure, when all have ended; the other requests
                may be in the log.
            MessageTooLarge: a message is larger than `max.message.size`.
            ValueError: there is no such partition.
            QueueClosed: the producer is closed.
        """
        sent: list[Future[BatchMetadata]] = []
        failure: BaseException | None = None
        for request in requests:
            if request.messages:
                try:
                    sent.append(self._send(request))
                except Exception as error:  # noqa: BLE001 -- raised below, when all have ended
                    failure = failure or error
        for future in sent:
            failure = failure or future.exception()
        if failure is not None:
            raise failure

    def close(self, timeout: float | None = None) -> None:
        """Close, after at most `timeout` seconds for messages in flight. Idempotent."""
        with self._lock:
            self._closed = True
            producers = list(self._producers.values())
        for producer in producers:
            producer.close(timeout)

    def _send(self, request: ProducerRequest) -> Future[BatchMetadata]:
        messages: list[Any] = list(request.messages)
        if all(key is None for key, _ in messages):
            messages = [payload for _, payload in messages]
        return self._producer_for(request.topic).send_batch(
            request.topic, messages, partition=request.partition
        )

    def _producer_for(self, topic: str) -> Producer:
        topics = self.config.compressed_topics
        compressed = not topics or topic in topics
        return self._producer(self.config.compression_codec if compressed else "none")

    def _producer(self, codec: str) -> Producer:
        config = self.config
        with self._lock:
            if self._closed:
                raise QueueClosed("the producer is closed")
            producer = self._producers.get(codec)
            if producer is None:
                producer = self._producers[codec] = Producer(
                    config.bootstrap,
                    namespace=config.namespace,
                    acks=cast("Any", config.acks),
                    linger_ms=0,
                    max_block_ms=config.socket_timeout_ms,
                    max_request_size=config.max_message_size,
                    compression_type=codec,
                    delivery_timeout_ms=config.delivery_timeout_ms,
                    request_timeout_ms=config.socket_timeout_ms,
                    metadata_max_age_ms=config.topic_refresh_interval_ms,
                    client_id=config.client_id,
                    allow_auto_create_topics=config.allow_auto_create_topics,
                )
        return producer
