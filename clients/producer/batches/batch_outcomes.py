"""Outcomes of a producer's batches: each batch has one, and it is reported to all parts concerned.

These are its partition's queue, the accumulator, which frees its memory, metrics, interceptors, the
futures of its records, and for a failure the transaction.

Source: Sender.completeBatch, failBatch, RecordAccumulator.splitAndReenqueue in apache/kafka
clients/.../producer/internals.

Not here: the choice of the outcome (produce_responses).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ....protocol.errors import RequestTimedOut
from ...wire.interceptors import ProducerInterceptors
from ...wire.record_metadata import BatchMetadata, OffsetRange
from .accumulator import Accumulator
from .partition_queues import PartitionQueues
from .producer_batch import AppendedBatch, ProducerBatch
from .producer_metrics import ProducerMetrics

logger = logging.getLogger(__name__)

_NOTHING: Final = memoryview(b"")


class BatchOutcomes:
    """Used on the I/O thread.

    on_failed: called first with the error of each batch that fails; None: there is no transaction.
    on_done: called last, when a batch has any outcome.
    """

    def __init__(
        self,
        queues: PartitionQueues,
        accumulator: Accumulator,
        metrics: ProducerMetrics,
        interceptors: ProducerInterceptors | None,
        *,
        delivery_timeout_ms: int,
        on_failed: Callable[[Exception], None] | None,
        on_done: Callable[[], None],
    ) -> None:
        self._queues = queues
        self._accumulator = accumulator
        self._metrics = metrics
        self._interceptors = interceptors
        self._delivery_timeout_ms = delivery_timeout_ms
        self._on_failed = on_failed
        self._on_done = on_done

    def complete(self, batch: ProducerBatch, appended: AppendedBatch) -> None:
        """Complete a batch that the leader has appended."""
        self._queues.of(batch).on_done(batch)
        self._finish(batch, appended)

    def fail(self, batch: ProducerBatch, error: Exception) -> None:
        """Fail a batch that was refused permanently, has timed out, or whose producer is closed."""
        count = batch.record_count
        if self._on_failed is None:
            logger.warning("%d records were not delivered: %s", count, error)
        else:
            # Not a warning: the application gets the error from commit() and sends the records
            # again, or it is fenced, and another instance does.
            self._on_failed(error)
            logger.info("%d records of a transaction were not delivered: %s", count, error)
        self.drop(batch, error)

    def time_out(self, batch: ProducerBatch) -> None:
        """Expire a batch: delivery_timeout_ms is over."""
        fate = "it may have been appended" if batch.base_sequence >= 0 else "it was never sent"
        self.fail(
            batch,
            RequestTimedOut(
                f"{batch.topic}-{batch.partition}: not acknowledged within "
                f"delivery_timeout_ms={self._delivery_timeout_ms}; {fate}; "
                f"last reason: {batch.last_error or 'no leader is known'}"
            ),
        )

    def drop(self, batch: ProducerBatch, error: Exception) -> None:
        """Drop a batch; the failure or abort of its transaction is reported already."""
        self._queues.of(batch).on_failed(batch)
        self._metrics.on_error(batch.topic, batch.record_count)
        self._finish(batch, error)

    def split(self, batch: ProducerBatch, codec: int) -> None:
        """Split a batch that the leader has refused as too large, and queue its halves."""
        parts = batch.split(codec)
        self._accumulator.on_split(batch)
        self._metrics.on_split()
        self._queues.of(batch).on_split(batch, parts)

    def _finish(self, batch: ProducerBatch, outcome: AppendedBatch | Exception) -> None:
        if self._interceptors is not None:
            _tell(self._interceptors, batch, outcome)
        batch.outcome = outcome
        batch.data = _NOTHING
        self._accumulator.on_done(batch)
        batch.delivery.on_done(batch, outcome)
        self._on_done()


def _tell(
    interceptors: ProducerInterceptors, batch: ProducerBatch, outcome: AppendedBatch | Exception
) -> None:
    count, start, error = batch.record_count, -1, None
    if isinstance(outcome, Exception):
        error = outcome
    else:
        start = outcome.base_offset
    span = OffsetRange(batch.partition, start, -1 if start < 0 else start + count)
    interceptors.on_acknowledgement(BatchMetadata(batch.topic, count, (span,)), error)
