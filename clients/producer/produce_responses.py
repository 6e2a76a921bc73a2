"""Handling of the answer to a batch, or of its absence: complete, retry, split or fail the batch.

Invariants:
    A batch that may succeed later is retried, in order and under its old sequence, until its
    delivery timeout.
    A batch gets a new sequence only if it is certain that the leader's log does not have it.

Source: Sender.handleProduceResponse, completeBatch, canRetry, TransactionManager.canRetry in
apache/kafka clients/.../producer/internals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import ConcurrentTransactions, ConnectionFailed, KafkaError, error_for
from ...protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from ...protocol.topic_partition import TopicPartitionPair
from ..wire.cluster_client import is_retriable
from .batches.batch_outcomes import BatchOutcomes
from .batches.partition_queue import PartitionQueue
from .batches.partition_queues import PartitionQueues
from .batches.producer_batch import AppendedBatch, ProducerBatch
from .batches.producer_metrics import ProducerMetrics
from .transactions.transaction_manager import CONCURRENT_BACKOFF_MS

_STALE_VIEW: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
"""Errors about max.message.bytes or segment.bytes: checked before anything is written."""


class ProduceResponses:
    """Used on the I/O thread.

    codec: of batches that are split. transactional: of a producer with transactions.
    on_stale_view: called when the known leaders may be outdated.
    """

    def __init__(
        self,
        queues: PartitionQueues,
        outcomes: BatchOutcomes,
        metrics: ProducerMetrics,
        *,
        codec: int,
        transactional: bool,
        retry_backoff_ms: int,
        on_stale_view: Callable[[], None],
    ) -> None:
        self._queues = queues
        self._outcomes = outcomes
        self._metrics = metrics
        self._codec = codec
        self._transactional = transactional
        self._retry_backoff_ms = retry_backoff_ms
        self._on_stale_view = on_stale_view

    def on_response(
        self, response: ProduceResponse, batches: dict[TopicPartitionPair, ProducerBatch]
    ) -> None:
        """Handle the answer to a request with `batches`."""
        for topic in response.responses:
            for answer in topic.partition_responses:
                batch = batches.pop((topic.name, answer.index), None)
                if batch is not None:
                    self._on_answer(batch, answer)
        for batch in batches.values():
            self.on_error(batch, ConnectionFailed("the broker's answer omits the partition"))

    def on_error(self, batch: ProducerBatch, error: Exception) -> None:
        """Handle the refusal of a batch, or the loss of its answer."""
        batch.last_error = error
        if isinstance(error, KafkaError) and error.code in _STALE_VIEW:
            self._on_stale_view()
        if not is_retriable(error):
            self._outcomes.fail(batch, error)
        elif time.monotonic() >= batch.deadline:
            self._outcomes.time_out(batch)
        else:
            self._metrics.on_retry(batch)
            self._queues.of(batch).on_retry(batch, retry_at=self._retry_at(error))

    def _on_answer(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            appended = AppendedBatch(answer.base_offset, answer.log_append_time_ms)
            self._outcomes.complete(batch, appended)
            return
        texts = [one.batch_index_error_message for one in answer.record_errors]
        text = answer.error_message or next(filter(None, texts), None)
        error = error_for(code, f"{batch.topic}-{batch.partition}: {text or error_for(code)}")
        queue = self._queues.of(batch)
        if code in _TOO_LARGE and batch.record_count > 1:
            self._outcomes.split(batch, self._codec)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.base_sequence >= 0:
            self._on_out_of_order(queue, batch, error)
        elif code == ErrorCode.UNKNOWN_PRODUCER_ID and not self._transactional:
            queue.on_refused(batch, retry_at=self._retry_at())
        else:
            self.on_error(batch, error)

    def _on_out_of_order(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError
    ) -> None:
        """Handle an out-of-order error: an earlier batch failed, or the broker has lost records."""
        if not queue.is_first(batch):
            queue.on_retry(batch, retry_at=0.0)
        elif queue.gap and not self._transactional:
            queue.on_refused(batch, retry_at=0.0)
        else:
            self._outcomes.fail(batch, error)

    def _retry_at(self, error: Exception | None = None) -> float:
        backoff_ms = self._retry_backoff_ms
        if isinstance(error, ConcurrentTransactions):
            backoff_ms = min(backoff_ms, CONCURRENT_BACKOFF_MS)
        return time.monotonic() + backoff_ms / 1000
