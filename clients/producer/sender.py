"""Sender of a producer on the I/O thread: sends ready batches to leaders, and retries.

What always holds:
    A batch has one outcome: appended, or failed for good; till then it is in a partition's queue.
    At most `max_in_flight` requests are open per connection, and at most one batch of a partition
    in each (Kafka allows no more).
    A batch whose fate is unknown (connection lost, timed out) is sent again under its old sequence
    until its delivery time is over; then its failure says that it may be there.

    A transactional producer's batches leave while its transaction is open; what has not left when
    that fails, or is aborted, never does.

Source: Sender, TransactionManager in apache/kafka clients/.../producer/internals.

Not here: order and sequences (partition_queue), encoding (accumulator, lingering_runs), ends of
batches (completed_batches), the requests of transactions (producer_transactions).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from ...protocol.buffer import Buffer
from ...protocol.columns.columns import decode_batches, encode_batches
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ConcurrentTransactions,
    ConnectionFailed,
    KafkaError,
    error_for,
)
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from ..threads.io_thread import Steps, Timer
from ..wire.cluster_client import DATA, ClusterClient, is_retriable
from ..wire.cluster_view import ClusterView
from ..wire.connection import Connection
from ..wire.interceptors import ProducerInterceptors
from ..wire.record_metadata import BatchMetadata, TopicPartition, TopicPartitionLike
from .batches.accumulator import Accumulator
from .batches.partition_queue import MAX_IN_FLIGHT, Identity, PartitionQueue
from .batches.producer_batch import AppendedBatch, ProducerBatch
from .batches.producer_metrics import ProducerMetrics
from .completed_batches import CompletedBatches, delivery_timed_out
from .lingering_runs import LingeringRuns
from .produce_request import IMPLICIT_VERSION, MAX_VERSION, MIN_VERSION, encode_produce
from .transactions.producer_transactions import ProducerTransactions
from .transactions.transaction_manager import CONCURRENT_BACKOFF_MS, IMPLICIT_PARTITIONS

_NO_TRANSACTION_TIMEOUT: Final = 2**31 - 1

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
    """`deliver` and `abort` may come from any thread; the rest is the I/O thread's."""

    def __init__(
        self,
        client: ClusterClient,
        config: SenderConfig,
        metrics: ProducerMetrics,
        interceptors: ProducerInterceptors | None,
        transactions: ProducerTransactions | None = None,
    ) -> None:
        self.accumulator: Accumulator | None = None
        self.client = client
        self.transactions = transactions
        self._config = config
        self._metrics = metrics
        self._interceptors = interceptors
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        self._delivered: deque[list[ProducerBatch]] = deque()
        self._identity: Identity | None = None
        self._identifying: Future[None] | None = None
        self._refreshing = False
        self._pumping = False
        self._timer: Timer | None = None
        self._retired: Callable[[], None] | None = None

        def accumulator() -> Accumulator:
            assert self.accumulator is not None
            return self.accumulator

        self.runs = LingeringRuns(client.io, accumulator, config.linger_ms, self._end_if_idle)
        self._completed = CompletedBatches(
            accumulator,
            lambda batch: self._queues[TopicPartition(batch.topic, batch.partition)],
            metrics,
            interceptors,
            transactions,
            self._end_if_idle,
        )
        client.on_view.append(self._pump_soon)
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
        """Fail all that is not acknowledged yet."""
        self.client.io.call_soon(lambda: self._abort(error))

    def is_idle(self) -> bool:
        """Whether everything that was sent has its outcome, and no transaction is open."""
        if self.transactions is not None and self.transactions.is_open:
            return False
        return self.accumulator is None or not self.accumulator.memory.held

    def retire(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Nothing more will be sent: deliver what there is, then close the client. An open
        transaction is aborted: those who read committed records only wait for its end.
        """
        self.client.io.call_soon(lambda: self._retire(on_end))

    # --- readiness ---------------------------------------------------------------------------

    def _take_delivered(self) -> None:
        while self._delivered:
            for batch in self._delivered.popleft():
                key = TopicPartition(batch.topic, batch.partition)
                queue = self._queues.get(key)
                if queue is None:
                    limit = MAX_IN_FLIGHT if self._config.idempotent else self._config.max_in_flight
                    queue = self._queues[key] = PartitionQueue(
                        *key, max_in_flight=limit, transactional=self.transactions is not None
                    )
                queue.add(batch)
                self._active[key] = queue
        self._pump_soon()

    def _retire(self, on_end: Callable[[], None]) -> None:
        assert self.accumulator is not None
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
        if self._active:
            self._expire(now)
            if self.transactions is not None:
                self._drop_refused(self.transactions)
            while self._send_round(now):
                pass
            self._set_timer(now)
        if self.transactions is not None:
            self.transactions.pump()
            if self._retired is not None:
                self._end_if_idle()

    def _is_flushed(self) -> bool:
        return self.accumulator is None or not self.accumulator.has_incomplete()

    def _drop_refused(self, transactions: ProducerTransactions) -> None:
        """Fail what is not on its way when the transaction has failed, or is being aborted."""
        if transactions.manager.accepts_batches:
            return
        for queue in self._active.values():
            for batch in list(queue.ready):
                if batch.base_sequence >= 0:  # it was sent: the broker may have it, or get it
                    transactions.manager.on_send_failed(batch.last_error or transactions.refusal())
                self._completed.give_up(batch, transactions.refusal())

    def _set_timer(self, now: float) -> None:
        """Wake for the next retry or the next delivery time-out, whichever comes first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times = [queue.ready[0].deadline for queue in self._active.values() if queue.ready]
        times += [queue.retry_at for queue in self._active.values() if queue.retry_at > now]
        if times:
            delay_s = max(0.001, min(times) - now)
            self._timer = self.client.io.call_later(delay_s, self._pump_soon)

    def _send_round(self, now: float) -> bool:
        """One request to each leader that has something ready; whether any was sent."""
        requests: dict[Connection, list[tuple[PartitionQueue, int]]] = {}
        sizes: dict[Connection, int] = {}
        stale = False
        for key, queue in list(self._active.items()):
            if not queue.ready and not queue.in_flight:
                del self._active[key]
                continue
            if not queue.can_send(now) or not self._has_identity(queue):
                continue
            leader = self.client.view.leader(*key)
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
        if not self._config.idempotent or not queue.needs_identity():
            return True
        if self._identity is not None and (
            queue.identity is None or queue.identity.producer_id != self._identity.producer_id
        ):
            return True
        if self._identifying is None:
            self._identifying = self.client.io.spawn(self._identify())
        return False

    # --- requests ----------------------------------------------------------------------------

    def _send(self, connection: Connection, queues: list[PartitionQueue]) -> None:
        identity = self._identity if self._config.idempotent else None
        transactional_id = None
        min_version, max_version = MIN_VERSION, MAX_VERSION
        if self.transactions is not None:
            manager = self.transactions.manager
            identity, transactional_id = manager.identity, manager.transactional_id
            if manager.transaction_version >= IMPLICIT_PARTITIONS:
                min_version = IMPLICIT_VERSION
            else:
                max_version = IMPLICIT_VERSION - 1
        batches: dict[TopicPartitionLike, ProducerBatch] = {}
        topics: dict[str, list[tuple[int, Buffer]]] = {}
        for queue in queues:
            batch = queue.take(identity)
            key = TopicPartition(queue.topic, queue.partition)
            batches[key] = batch
            topics.setdefault(queue.topic, []).append((queue.partition, batch.data))
            self._active[key] = self._active.pop(key)  # the others go first next time
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
        batches: dict[TopicPartitionLike, ProducerBatch],
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
                self._on_error(batch, error)
            if isinstance(error, ConnectionFailed):
                self._refresh()
        elif self._config.acks == 0:
            for batch in batches.values():
                self._completed.complete(batch, AppendedBatch(-1, -1))
        else:
            self._on_answers(future.result(), batches)
        self._pump_soon()

    def _on_answers(
        self, response: ProduceResponse, batches: dict[TopicPartitionLike, ProducerBatch]
    ) -> None:
        for topic in response.responses:
            for answer in topic.partition_responses:
                batch = batches.pop((topic.name, answer.index), None)
                if batch is not None:
                    self._on_answer(batch, answer)
        for batch in batches.values():
            self._on_error(batch, ConnectionFailed("the broker's answer omits the partition"))

    def _on_answer(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._completed.complete(
                batch, AppendedBatch(answer.base_offset, answer.log_append_time_ms)
            )
            return
        texts = [one.batch_index_error_message for one in answer.record_errors]
        text = answer.error_message or next(filter(None, texts), None)
        error = error_for(code, f"{batch.topic}-{batch.partition}: {text or error_for(code)}")
        queue = self._queues[TopicPartition(batch.topic, batch.partition)]
        if code in _TOO_LARGE and batch.record_count > 1:
            self._split(queue, batch)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.base_sequence >= 0:
            self._on_out_of_order(queue, batch, error)
        elif code == ErrorCode.UNKNOWN_PRODUCER_ID and self.transactions is None:
            queue.on_refused(batch, retry_at=self._retry_at())
        else:
            self._on_error(batch, error)

    def _on_out_of_order(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError
    ) -> None:
        """Handle an out-of-order refusal: after an earlier failure, or the broker lost records."""
        if not queue.is_first(batch):
            queue.on_retry(batch, retry_at=0.0)
        elif queue.gap and self.transactions is None:
            queue.on_refused(batch, retry_at=0.0)
        else:
            self._completed.fail(batch, error)

    def _on_error(self, batch: ProducerBatch, error: Exception) -> None:
        batch.last_error = error
        if isinstance(error, KafkaError) and error.code in _STALE_VIEW:
            self._refresh()
        if not is_retriable(error):
            self._completed.fail(batch, error)
        elif time.monotonic() >= batch.deadline:
            self._completed.fail(batch, delivery_timed_out(batch, self._config.delivery_timeout_ms))
        else:
            queue = self._queues[TopicPartition(batch.topic, batch.partition)]
            self._metrics.on_retry(batch)
            queue.on_retry(batch, retry_at=self._retry_at(error))

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Halve a batch that the topic's max.message.bytes or segment.bytes refuses; the broker has
        none of it.
        """
        assert self.accumulator is not None
        half = batch.record_count // 2
        columns = decode_batches(batch.data, topic="", partition=0, fetch_offset=0)
        parts = []
        for start, end in ((0, half), (half, batch.record_count)):
            length = end - start
            encoded = encode_batches(
                columns.keys.slice(start, length),
                columns.values.slice(start, length),
                columns.timestamps[start:end],
                None if columns.headers is None else columns.headers.slice(start, length),
                codec=self._config.codec,
            )[0]
            parts.append(
                ProducerBatch(
                    batch.topic,
                    batch.partition,
                    encoded.batch,
                    batch.rows[start:end],
                    batch.delivery,
                    memory=batch.memory * length // batch.record_count,
                    deadline=batch.deadline,
                )
            )
        parts[0].memory += batch.memory - sum(part.memory for part in parts)
        batch.delivery.on_split(batch, parts)
        batch.parts = parts
        self.accumulator.on_split(batch)
        self._metrics.on_split()
        queue.on_split(batch, parts)

    # --- ends of batches ---------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        """Give up what waited too long. What is in flight first gets its answer or time-out."""
        for queue in self._active.values():
            for batch in [batch for batch in queue.ready if batch.deadline <= now]:
                self._completed.fail(
                    batch, delivery_timed_out(batch, self._config.delivery_timeout_ms)
                )

    def _abort(self, error: Exception) -> None:
        for queue in self._queues.values():
            for batch in [*queue.in_flight, *queue.ready]:
                self._completed.fail(batch, error)
        self._active.clear()

    # --- what sending needs ------------------------------------------------------------------

    def _retry_at(self, error: Exception | None = None) -> float:
        backoff_ms = self.client.config.retry_backoff_ms
        if isinstance(error, ConcurrentTransactions):
            backoff_ms = min(backoff_ms, CONCURRENT_BACKOFF_MS)
        return time.monotonic() + backoff_ms / 1000

    def _refresh(self) -> None:
        if not self._refreshing and not self.client.closed:
            self._refreshing = True
            self.client.refresh().add_done_callback(self._on_refreshed)

    def _on_refreshed(self, future: Future[ClusterView]) -> None:
        self._refreshing = False
        error = future.exception()
        if isinstance(error, Exception):
            self._note(self._active.values(), error)
        self._pump_soon()

    def _note(self, queues: Iterable[PartitionQueue], error: Exception) -> None:
        """Store the reason of a delay, for the text of a later timeout."""
        for queue in queues:
            for batch in queue.ready:
                batch.last_error = batch.last_error or error

    def _identify(self) -> Steps[None]:
        """Get a producer id, for as long as there are batches that wait for it."""
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT
        )
        try:
            while any(queue.ready for queue in self._active.values()):
                try:
                    response = yield from self.client.send_to_any(request, InitProducerIdResponse)
                    if response.error_code:
                        raise error_for(response.error_code)
                except (KafkaError, ConnectionFailed) as error:
                    self._note(self._active.values(), error)
                    if not is_retriable(error):
                        self._abort(error)
                        return
                    yield self.client.config.retry_backoff_ms / 1000
                else:
                    self._identity = Identity(response.producer_id, response.producer_epoch)
                    return
        finally:
            self._identifying = None
            self._pump_soon()
