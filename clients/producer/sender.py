"""Sender of a producer on the I/O thread: sends ready batches to leaders, and retries.

Invariants:
    A batch has one outcome, appended or failed; until then it is in its partition's queue.
    At most `max_in_flight` requests are open per connection, and at most one batch of a partition
    in each (Kafka allows no more).
    A batch with an unknown outcome (connection lost, timed out) is sent again under its old
    sequence until its delivery timeout; then the error says that it may have been appended.

    A transactional producer's batches are sent while its transaction is open; batches that are not
    sent when it fails, or is aborted, are dropped.

Source: Sender in apache/kafka clients/.../producer/internals.

Not here: order and sequences (partition_queue), the order of partitions (partition_queues),
encoding (accumulator, lingering_runs), handling of answers (produce_responses), the producer id
(producer_id_lookup), the requests of transactions (producer_transactions).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from ...protocol.buffer import Buffer
from ...protocol.errors import ConnectionFailed
from ...protocol.messages.produce import ProduceRequest, ProduceResponse
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..threads.io_thread import Timer
from ..wire.cluster_client import DATA, ClusterClient
from ..wire.cluster_view import ClusterView
from ..wire.connection import Connection
from ..wire.interceptors import ProducerInterceptors
from ..wire.record_metadata import BatchMetadata
from .batches.accumulator import Accumulator
from .batches.batch_outcomes import BatchOutcomes
from .batches.partition_queue import MAX_IN_FLIGHT, PartitionQueue
from .batches.partition_queues import PartitionQueues
from .batches.producer_batch import AppendedBatch, ProducerBatch
from .batches.producer_metrics import ProducerMetrics
from .lingering_runs import LingeringRuns
from .produce_request import IMPLICIT_VERSION, MAX_VERSION, MIN_VERSION, encode_produce
from .produce_responses import ProduceResponses
from .producer_id_lookup import ProducerIdLookup
from .transactions.producer_transactions import ProducerTransactions
from .transactions.transaction_manager import IMPLICIT_PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """Settings of a sender. acks: 0, 1 or -1 (all)."""

    acks: int
    idempotent: bool
    max_in_flight: int
    max_request_size: int
    linger_ms: int
    delivery_timeout_ms: int
    codec: int


class Sender:
    """`deliver` to `retire` may be called from any thread; the rest runs on the I/O thread."""

    def __init__(
        self,
        client: ClusterClient,
        config: SenderConfig,
        accumulator: Accumulator,
        metrics: ProducerMetrics,
        interceptors: ProducerInterceptors | None,
        transactions: ProducerTransactions | None = None,
    ) -> None:
        self.accumulator = accumulator
        self.client = client
        self.transactions = transactions
        self._config = config
        self._metrics = metrics
        self._interceptors = interceptors
        self._queues = PartitionQueues(
            max_in_flight=MAX_IN_FLIGHT if config.idempotent else config.max_in_flight,
            transactional=transactions is not None,
        )
        self._outcomes = BatchOutcomes(
            self._queues,
            accumulator,
            metrics,
            interceptors,
            delivery_timeout_ms=config.delivery_timeout_ms,
            on_failed=None if transactions is None else transactions.manager.on_send_failed,
            on_done=self._end_if_idle,
        )
        self._responses = ProduceResponses(
            self._queues,
            self._outcomes,
            metrics,
            codec=config.codec,
            transactional=transactions is not None,
            retry_backoff_ms=client.config.retry_backoff_ms,
            on_stale_view=self._refresh,
        )
        self._producer_id = ProducerIdLookup(
            client, self._queues, on_refused=self._abort, on_end=self._pump_soon
        )
        self.runs = LingeringRuns(client.io, accumulator, config.linger_ms, self._end_if_idle)
        self._delivered: deque[list[ProducerBatch]] = deque()
        self._refreshing = False
        self._pumping = False
        self._timer: Timer | None = None
        self._retired: Callable[[], None] | None = None
        client.on_view.append(self._pump_soon)
        accumulator.attach(deliver=self.deliver, on_failed=self.on_failed)
        if transactions is not None:
            transactions.attach(
                drain=self.runs.drain_all, is_flushed=self._is_flushed, on_change=self._pump_soon
            )

    # --- from any thread ---------------------------------------------------------------------

    def deliver(self, batches: list[ProducerBatch]) -> None:
        """Send `batches`, each partition's in this order."""
        self._delivered.append(batches)
        if self.client.io.is_current():
            self._take_delivered()  # with what other threads have delivered before
        else:
            self.client.io.call_soon(self._take_delivered)

    def on_failed(self, topic: str, count: int, error: Exception) -> None:
        """Report records of `topic` that could not be encoded."""
        self._metrics.on_error(topic, count)
        if self.transactions is not None:
            self.transactions.on_send_failed(error)
        if self._interceptors is not None:
            self._interceptors.on_acknowledgement(BatchMetadata(topic, count, ()), error)

    def abort(self, error: Exception) -> None:
        """Fail all records that are not acknowledged yet."""
        self.client.io.call_soon(lambda: self._abort(error))

    def is_idle(self) -> bool:
        """Whether everything that was sent has its outcome, and no transaction is open."""
        if self.transactions is not None and self.transactions.is_open:
            return False
        return not self.accumulator.memory.held

    def retire(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Deliver the remaining records, then close the client; nothing more will be sent. An open
        transaction is aborted, as read_committed consumers wait for its end.
        """
        self.client.io.call_soon(lambda: self._retire(on_end))

    # --- readiness ---------------------------------------------------------------------------

    def _take_delivered(self) -> None:
        while self._delivered:
            for batch in self._delivered.popleft():
                self._queues.add(batch)
        self._pump_soon()

    def _retire(self, on_end: Callable[[], None]) -> None:
        self._retired = on_end
        if self.transactions is not None:
            self.client.io.call_later(self._config.delivery_timeout_ms / 1000, self.client.close)
            if self.transactions.may_abort:
                self.transactions.end(is_commit=False)
        for topic in list(self.accumulator.topics.values()):
            self.runs.drain(topic)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._retired is not None and self.is_idle():
            on_end, self._retired = self._retired, None
            self.client.close()
            on_end()

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            self.client.io.call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        now = time.monotonic()
        if self._queues.has_active():
            # Batches in flight are answered, or time out, first.
            for batch in self._queues.expired(now):
                self._outcomes.time_out(batch)
            if self.transactions is not None:
                self._drop_refused(self.transactions)
            while self._send_round(now):
                pass
            self._set_timer(now)
        if self.transactions is not None:
            self.transactions.pump()
            self._end_if_idle()

    def _is_flushed(self) -> bool:
        return not self.accumulator.has_incomplete()

    def _drop_refused(self, transactions: ProducerTransactions) -> None:
        """Fail batches that are not in flight if the transaction has failed or is being aborted."""
        if transactions.manager.accepts_batches:
            return
        for batch in self._queues.ready():
            if batch.base_sequence >= 0:  # it was sent: it may be appended, now or later
                transactions.manager.on_send_failed(batch.last_error or transactions.refusal())
            self._outcomes.drop(batch, transactions.refusal())

    def _set_timer(self, now: float) -> None:
        """Wake for the next retry or the next delivery time-out, whichever comes first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._queues.next_due(now)
        if due is not None:
            self._timer = self.client.io.call_later(max(0.001, due - now), self._pump_soon)

    def _send_round(self, now: float) -> bool:
        """Send one request to each leader with ready batches; return whether any was sent."""
        requests: dict[Connection, list[tuple[PartitionQueue, int]]] = {}
        sizes: dict[Connection, int] = {}
        stale = False
        for queue in self._queues.in_turn():
            if not queue.can_send(now) or not self._has_identity(queue):
                continue
            leader = self.client.view.leader(queue.topic, queue.partition)
            if leader is None:
                queue.retry_at = now + self.client.config.retry_backoff_ms / 1000
                stale = True
                continue
            connection = self.client.connection(leader.address, DATA)
            size = len(queue.ready[0].data)
            total = sizes.get(connection, 0)
            full = total and total + size > self._config.max_request_size
            if full or connection.in_flight_count >= self._config.max_in_flight:
                continue
            sizes[connection] = total + size
            requests.setdefault(connection, []).append((queue, size))
        for connection, parts in requests.items():
            self._send(connection, [queue for queue, _ in parts])
        if stale:
            self._refresh()
        return bool(requests)

    def _has_identity(self, queue: PartitionQueue) -> bool:
        if self.transactions is not None:
            key = TopicPartition(queue.topic, queue.partition)
            return self.transactions.manager.may_send(key)
        return not self._config.idempotent or self._producer_id.has_one_for(queue)

    # --- requests ----------------------------------------------------------------------------

    def _send(self, connection: Connection, queues: list[PartitionQueue]) -> None:
        identity = self._producer_id.identity if self._config.idempotent else None
        transactional_id = None
        min_version, max_version = MIN_VERSION, MAX_VERSION
        if self.transactions is not None:
            manager = self.transactions.manager
            identity, transactional_id = manager.identity, manager.transactional_id
            if manager.transaction_version >= IMPLICIT_PARTITIONS:
                min_version = IMPLICIT_VERSION
            else:
                max_version = IMPLICIT_VERSION - 1
        batches: dict[TopicPartitionPair, ProducerBatch] = {}
        topics: dict[str, list[tuple[int, Buffer]]] = {}
        for queue in queues:
            batch = self._queues.take(queue, identity)
            batches[TopicPartition(queue.topic, queue.partition)] = batch
            topics.setdefault(queue.topic, []).append((queue.partition, batch.data))
        timeout_ms = self.client.config.request_timeout_ms
        future = connection.request(
            ProduceRequest(),
            ProduceResponse,
            timeout_ms=timeout_ms,
            min_version=min_version,
            max_version=max_version,
            encode=lambda version: encode_produce(
                version,
                topics,
                acks=self._config.acks,
                timeout_ms=timeout_ms,
                transactional_id=transactional_id,
            ),
            expect_response=self._config.acks != 0,
        )
        sent_at = time.monotonic()
        self._metrics.on_send(batches.values(), sent_at)
        future.add_done_callback(lambda done: self._on_response(done, batches, sent_at))

    def _on_response(
        self,
        future: Future[ProduceResponse],
        batches: dict[TopicPartitionPair, ProducerBatch],
        sent_at: float,
    ) -> None:
        error = future.exception()
        if error is None and self._config.acks != 0:
            now = time.monotonic()
            self._metrics.on_response(now - sent_at, future.result().throttle_time_ms, now)
        batches = {key: batch for key, batch in batches.items() if batch.outcome is None}
        if error is not None:
            for batch in batches.values():
                assert isinstance(error, Exception)
                self._responses.on_error(batch, error)
            if isinstance(error, ConnectionFailed):
                self._refresh()
        elif self._config.acks == 0:
            for batch in batches.values():
                self._outcomes.complete(batch, AppendedBatch(-1, -1))
        else:
            self._responses.on_response(future.result(), batches)
        self._pump_soon()

    def _abort(self, error: Exception) -> None:
        for batch in self._queues.incomplete():
            self._outcomes.fail(batch, error)

    # --- leaders -----------------------------------------------------------------------------

    def _refresh(self) -> None:
        if not self._refreshing and not self.client.closed:
            self._refreshing = True
            self.client.refresh().add_done_callback(self._on_refreshed)

    def _on_refreshed(self, future: Future[ClusterView]) -> None:
        self._refreshing = False
        error = future.exception()
        if isinstance(error, Exception):
            self._queues.on_delayed(error)
        self._pump_soon()
