"""Ends of batches: appended, failed for good, or given up. Each batch has one, told to all.

Told are its partition's queue, metrics, interceptors, the accumulator, whose memory it frees, and
who sent it. Source: Sender.completeBatch and failBatch in apache/kafka clients/.../producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...protocol.errors import RequestTimedOut
from ..wire.interceptors import ProducerInterceptors
from ..wire.record_metadata import BatchMetadata, OffsetRange
from .batches.accumulator import Accumulator
from .batches.partition_queue import PartitionQueue
from .batches.producer_batch import AppendedBatch, ProducerBatch
from .batches.producer_metrics import ProducerMetrics
from .transactions.producer_transactions import ProducerTransactions

logger = logging.getLogger(__name__)

_NOTHING: Final = memoryview(b"")


class CompletedBatches:
    """The I/O thread's."""

    def __init__(
        self,
        accumulator: Callable[[], Accumulator],
        queue_of: Callable[[ProducerBatch], PartitionQueue],
        metrics: ProducerMetrics,
        interceptors: ProducerInterceptors | None,
        transactions: ProducerTransactions | None,
        on_completed: Callable[[], None],
    ) -> None:
        """`on_completed`: called after each batch."""
        self._accumulator = accumulator
        self._queue_of = queue_of
        self._metrics = metrics
        self._interceptors = interceptors
        self._transactions = transactions
        self._on_completed = on_completed

    def complete(self, batch: ProducerBatch, outcome: AppendedBatch) -> None:
        """The batch was appended."""
        self._queue_of(batch).on_done(batch)
        self._end(batch, outcome)

    def fail(self, batch: ProducerBatch, error: Exception) -> None:
        """The batch has failed for good, and with it the transaction that it is of."""
        if self._transactions is not None:
            self._transactions.manager.on_send_failed(error)
        logger.warning("%d records were not delivered: %s", batch.record_count, error)
        self.give_up(batch, error)

    def give_up(self, batch: ProducerBatch, error: Exception) -> None:
        """The batch is not sent any more."""
        self._queue_of(batch).on_failed(batch)
        self._metrics.on_error(batch.topic, batch.record_count)
        self._end(batch, error)

    def _end(self, batch: ProducerBatch, outcome: AppendedBatch | Exception) -> None:
        if self._interceptors is not None:
            _acknowledge(self._interceptors, batch, outcome)
        batch.outcome = outcome
        batch.data = _NOTHING
        self._accumulator().on_done(batch)
        batch.delivery.on_done(batch, outcome)
        self._on_completed()


def _acknowledge(
    interceptors: ProducerInterceptors, batch: ProducerBatch, outcome: AppendedBatch | Exception
) -> None:
    count, start, error = batch.record_count, -1, None
    if isinstance(outcome, Exception):
        error = outcome
    else:
        start = outcome.base_offset
    span = OffsetRange(batch.partition, start, -1 if start < 0 else start + count)
    interceptors.on_acknowledgement(BatchMetadata(batch.topic, count, (span,)), error)


def delivery_timed_out(batch: ProducerBatch, delivery_timeout_ms: int) -> RequestTimedOut:
    """The error of a batch whose delivery time is over: whether it may be there, and why."""
    fate = "it may have been appended" if batch.base_sequence >= 0 else "it was never sent"
    return RequestTimedOut(
        f"{batch.topic}-{batch.partition}: not acknowledged within "
        f"delivery_timeout_ms={delivery_timeout_ms}; {fate}; "
        f"last reason: {batch.last_error or 'no leader is known'}"
    )
