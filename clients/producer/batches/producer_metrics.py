"""Metrics of a producer, by the names of Kafka's producers.

Source: SenderMetricsRegistry, KafkaProducerMetrics, BufferPool in apache/kafka
clients/.../producer/internals.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from ...wire.sampled_stats import Average, Figures, Meter, Metrics, SampledStat, tagged
from .producer_batch import ProducerBatch

TRANSACTION_CALLS: Final = ("init", "begin", "send-offsets", "commit", "abort")
"""Transaction calls that are timed, as in the names of metrics (KIP-761)."""


class TopicMetrics:
    """Counters of records sent to one topic."""

    def __init__(self) -> None:
        self.sends = Meter("record-send")
        self.bytes = Meter("byte")
        self.retries = Meter("record-retry")
        self.errors = Meter("record-error")
        self.compression = SampledStat()

    def figures(self, now: float) -> Figures:
        found: Figures = {"compression-rate": self.compression.average(now)}
        for one in (self.sends, self.bytes, self.retries, self.errors):
            found |= one.figures(now)
        return found


class ProducerMetrics:
    """Errors are recorded on any thread, waits for buffer memory under its lock, the rest on the
    I/O thread. delivery_timeout_s: time from the start of a batch to its deadline.
    """

    def __init__(self, delivery_timeout_s: float) -> None:
        self.exhausted = Meter("buffer-exhausted")
        self.waiting_count = 0
        self.buffer_wait_s = 0.0
        self._buffer_waits = SampledStat()
        self.flush_s = 0.0
        self.metadata_wait_s = 0.0
        self._transaction_s = dict.fromkeys(TRANSACTION_CALLS, 0.0)
        self._delivery_timeout_s = delivery_timeout_s
        self._lock = threading.Lock()
        self._topics: defaultdict[str, TopicMetrics] = defaultdict(TopicMetrics)
        self._sends = Meter("record-send")
        self._retries = Meter("record-retry")
        self._errors = Meter("record-error")
        self._splits = Meter("batch-split")
        self._batch_size = Average("batch-size")
        self._queue_time = Average("record-queue-time")
        self._latency = Average("request-latency")
        self._throttled = Average("produce-throttle-time")
        self._per_request = Average("records-per-request", highest=False)
        self._compression = Average("compression-rate", highest=False)

    def on_send(self, batches: Collection[ProducerBatch], now: float) -> None:
        """Record a sent request."""
        records = 0
        for batch in batches:
            count, size = batch.record_count, len(batch.data)
            records += count
            topic = self._topics[batch.topic]
            topic.sends.record(count, now)
            topic.bytes.record(size, now)
            self._batch_size.record(size, now)
            if batch.uncompressed_size is not None:
                compression = size / batch.uncompressed_size
                topic.compression.record(compression, now)
                self._compression.record(compression, now)
            begun = batch.deadline - self._delivery_timeout_s
            self._queue_time.record((now - begun) * 1000, now)
        self._sends.record(records, now)
        self._per_request.record(records, now)

    def on_response(self, latency_s: float, throttle_time_ms: int, now: float) -> None:
        self._latency.record(latency_s * 1000, now)
        self._throttled.record(throttle_time_ms, now)

    def on_retry(self, batch: ProducerBatch) -> None:
        now = time.monotonic()
        self._topics[batch.topic].retries.record(batch.record_count, now)
        self._retries.record(batch.record_count, now)

    def on_buffer_wait(self, seconds: float, now: float) -> None:
        self.buffer_wait_s += seconds
        self._buffer_waits.record(seconds, now)

    def on_split(self) -> None:
        self._splits.record(1, time.monotonic())

    def on_error(self, topic: str, count: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._topics[topic].errors.record(count, now)
            self._errors.record(count, now)

    @contextmanager
    def transaction_call(self, name: str) -> Iterator[None]:
        """Add the time of the block to call `name`, of TRANSACTION_CALLS, also if it raises."""
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._transaction_s[name] += time.monotonic() - began

    def figures(self, now: float) -> Metrics:
        found: Figures = {
            "waiting-threads": self.waiting_count,
            "bufferpool-wait-time-ns-total": self.buffer_wait_s * 1e9,
            "bufferpool-wait-ratio": self._buffer_waits.per_second(now),
            "flush-time-ns-total": self.flush_s * 1e9,
            "metadata-wait-time-ns-total": self.metadata_wait_s * 1e9,
            **{
                f"txn-{name}-time-ns-total": seconds * 1e9
                for name, seconds in self._transaction_s.items()
            },
        }
        for one in (
            self._sends,
            self._retries,
            self._errors,
            self._splits,
            self._batch_size,
            self._queue_time,
            self._latency,
            self._throttled,
            self._per_request,
            self._compression,
            self.exhausted,
        ):
            found |= one.figures(now)
        return {
            "producer-metrics": found,
            **{
                tagged("producer-topic-metrics", {"topic": name}): topic.figures(now)
                for name, topic in list(self._topics.items())
            },
        }
