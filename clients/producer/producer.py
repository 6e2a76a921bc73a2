"""The producer: records in, futures out. From a flush on, records are handled as columns.

    producer = Producer("localhost:9092")
    producer.send("flights", key=b"UA1545", value=b"{}").result().offset
    producer.send_batch("flights", table).result().ranges

Invariants:
    Records that one thread sends to one partition are appended in that order, once each
    (idempotent, the default), through lost connections and restarted brokers.
    Every future completes: with the record's offset, or with an error, which says whether the
    record may be in the log nevertheless.

Not here: the calls of transactions (transaction_calls); which settings are allowed together
(producer_settings).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from ...protocol.buffer import Buffer
from ...protocol.errors import (
    InvalidConfig,
    KafkaError,
    MessageTooLarge,
    RequestTimedOut,
)
from ...protocol.records.compression import CompressionType
from ...protocol.topic_partition import TopicPartitionPair
from ..group.membership import ConsumerGroupMetadata
from ..security.security_options import SecurityOptions, given_security
from ..threads.awaitable_future import AwaitableFuture
from ..threads.observed_condition import ObservedCondition
from ..wire.cluster_client import ClientConfig, ClusterClient, unknown_topic
from ..wire.interceptors import (
    Content,
    Headers,
    ProducerInterceptor,
    ProducerInterceptors,
    ProducerRecord,
)
from ..wire.record_metadata import BatchMetadata
from ..wire.sampled_stats import Metrics
from . import producer_end
from .batches.accumulator import RECORD_OVERHEAD, Accumulator, Partitioner, TopicBuffer
from .batches.buffer_memory import BufferMemory
from .batches.deliveries import RecordFuture, TableDelivery
from .batches.producer_batch import producer_copy
from .batches.producer_columns import columns_of, pieces_of, tables_of
from .batches.producer_metrics import ProducerMetrics
from .batches.record_content import bytes_of, header_pairs
from .producer_settings import check_delivery, check_positive, check_times
from .sender import Sender, SenderConfig
from .transactions.producer_transactions import GivenOffset, ProducerTransactions
from .transactions.transaction_calls import TransactionCalls
from .transactions.transaction_manager import TransactionManager


class Producer:
    """Sends records to topics. Usable from any number of threads; closes with `close` or `with`.

    Args:
        bootstrap: "host:port,..."; without it the environment's BRADBURY_BOOTSTRAP, the Ray cluster
            this process has joined, or the cluster `namespace` that is up on this machine.
        acks: "all", 1 or 0.
        enable_idempotence: append each record once, in order. None: if acks is "all" and at most 5
            requests are in flight.
        linger_ms: maximum time that a run of records waits for more records before it is encoded.
        batch_size: maximum bytes of a record batch before compression.
        buffer_memory: maximum bytes of unacknowledged records; `send` blocks beyond it.
        max_block_ms: maximum time that `send` blocks, and that it waits for a topic's metadata.
        max_request_size: maximum bytes of a record, and of a request unless a batch is larger.
        compression_type: none, gzip, snappy, lz4 or zstd.
        partitioner: "murmur2", as Java and kafka-python place keys; or a function
            (key, number of partitions) -> partition, called once a record.
        delivery_timeout_ms: time from `send` after which a record fails; it bounds the retries.
        request_timeout_ms: time without an answer after which a connection is closed.
        max_in_flight: open requests per connection; at most 5 when idempotent.
        transactional_id: records are sent in transactions (`transaction`, or `begin` and `commit`).
            A producer that initializes this id fences all others that have it, and aborts their
            open transactions: use the same id after a restart, and another for each producer.
        transaction_timeout_ms: the brokers abort a transaction that is open for longer.
        allow_auto_create_topics: whether sending to a missing topic may create it, if the broker
            does that (auto.create.topics.enable); off, as a misspelt name would create a topic.
        interceptors: called with records that are sent and acknowledged; see ProducerInterceptor.
        security: security_protocol, ssl_* and sasl_*; see SecurityOptions.

    Raises:
        InvalidConfig: settings that contradict one another.
        ConnectionFailed: no cluster is given or found.
    """

    _accumulator_class = Accumulator

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        acks: Literal["all"] | int = "all",
        enable_idempotence: bool | None = None,
        linger_ms: int = 5,
        batch_size: int = 256 * 1024,
        buffer_memory: int = 64 * 1024 * 1024,
        max_block_ms: int = 60_000,
        max_request_size: int = 1024 * 1024,
        compression_type: str = "none",
        partitioner: str | Partitioner = "murmur2",
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300_000,
        max_in_flight: int = 5,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        allow_auto_create_topics: bool = False,
        interceptors: Iterable[ProducerInterceptor] = (),
        client_id: str = "bradbury-producer",
        namespace: str | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        acks_code, enable_idempotence = check_delivery(
            acks, enable_idempotence, max_in_flight, transactional_id
        )
        check_times(delivery_timeout_ms, linger_ms, request_timeout_ms)
        if isinstance(partitioner, str) and partitioner != "murmur2":
            raise InvalidConfig(f'partitioner={partitioner!r}: use "murmur2" or give a function')
        check_positive(
            batch_size=batch_size,
            buffer_memory=buffer_memory,
            max_request_size=max_request_size,
            max_in_flight=max_in_flight,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        codec = CompressionType.from_name(compression_type)
        self._max_request_size = max_request_size
        self._max_block_ms = max_block_ms
        self._client = ClusterClient(
            bootstrap,
            namespace=namespace,
            config=ClientConfig(
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                retry_backoff_ms=retry_backoff_ms,
                metadata_max_age_ms=metadata_max_age_ms,
                allow_auto_create_topics=allow_auto_create_topics,
                security=given_security(security, Producer),
            ),
        )
        self._interceptors = ProducerInterceptors.of(interceptors)
        self._record_interceptors = self._interceptors
        self._metrics = metrics = ProducerMetrics(delivery_timeout_ms / 1000)
        self._transactions: ProducerTransactions | None = None
        if transactional_id is not None:
            self._transactions = ProducerTransactions(
                self._client,
                TransactionManager(
                    transactional_id, transaction_timeout_ms, retry_backoff_ms=retry_backoff_ms
                ),
                max_block_ms=max_block_ms,
                metrics=metrics,
            )
        self.transaction_calls = TransactionCalls(self._transactions)
        client = self._client
        self._condition = ObservedCondition(threading.Lock())
        self._memory = BufferMemory(
            buffer_memory, self._condition, max_block_ms=max_block_ms, metrics=metrics
        )
        self._accumulator = self._accumulator_class(
            memory=self._memory,
            condition=self._condition,
            batch_size=min(batch_size, max_request_size),
            max_request_size=max_request_size,
            delivery_timeout_ms=delivery_timeout_ms,
            codec=codec,
            partitioner=None if isinstance(partitioner, str) else partitioner,
            view=lambda: client.view,
        )
        self._sender = Sender(
            self._client,
            SenderConfig(
                acks=acks_code,
                idempotent=enable_idempotence,
                max_in_flight=max_in_flight,
                max_request_size=max_request_size,
                linger_ms=linger_ms,
                delivery_timeout_ms=delivery_timeout_ms,
                codec=codec,
            ),
            self._accumulator,
            metrics,
            self._interceptors,
            self._transactions,
        )
        self._topics = self._accumulator.topics
        producer_end.watch(self._sender)
        self._finalizer = weakref.finalize(self, producer_end.on_dropped, self._sender)
        self._finalizer.atexit = False  # producer_end handles the end of the interpreter, too

    def send(
        self,
        topic: str,
        value: Content = None,
        key: Content = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordFuture:
        """Send one record; it is sent with others after `linger_ms`, or when a batch is full.

        Args:
            value, key: text is encoded as UTF-8. A None value is a tombstone.
            partition: overrides the partitioner.
            timestamp_ms: milliseconds since 1970; None for now.

        Raises:
            MessageTooLarge: larger than `max_request_size`.
            RequestTimedOut: no room in the buffer within `max_block_ms`.
            UnknownTopicOrPartition: there is no such topic.
            InvalidTxnState, TransactionAbortable, ProducerFenced: as `send_offsets`, where the
                producer has a transactional_id.
        Cost: about 2 us; it blocks only for room, and once per topic for its partitions.
        """
        if self._transactions is not None:
            self._transactions.manager.check_open()
        if self._record_interceptors is not None:
            topic, value, key, partition, timestamp_ms, headers = self._record_interceptors.on_send(
                ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            )
        try:
            if type(value) is not bytes and value is not None:
                value = bytes_of(value, "value")
            if type(key) is not bytes and key is not None:
                key = bytes_of(key, "key")
            size = RECORD_OVERHEAD
            if value is not None:
                size += len(value)
            if key is not None:
                size += len(key)
            pairs = None if headers is None else header_pairs(headers)
            if pairs:
                size += sum(len(name) + len(content or b"") + 8 for name, content in pairs)
            if size > self._max_request_size:
                raise MessageTooLarge(
                    f"a record of about {size} bytes is larger than max_request_size="
                    f"{self._max_request_size}; raise that here, and max.message.bytes of the topic"
                )
            buffer = self._topics.get(topic) or self._open_topic(topic)
            if partition is not None:
                self._check_partition(buffer, partition)
            if timestamp_ms is None:
                timestamp_ms = time_ns() // 1_000_000
            accumulator = self._accumulator
            begun = False
            with self._condition:
                self._memory.hold_locked(size)
                run = buffer.run
                if run is None:
                    run = accumulator.new_run(buffer)
                    begun = True
                row = len(run.values)
                run.values.append(value)
                run.keys.append(key)
                run.timestamps.append(timestamp_ms)
                if key is not None:
                    run.has_keys = True
                if run.headers is not None or pairs:
                    if run.headers is None:
                        run.headers = [None] * row
                    run.headers.append(pairs)
                if run.partitions is not None or partition is not None:
                    if run.partitions is None:
                        run.partitions = [-1] * row
                    run.partitions.append(-1 if partition is None else partition)
                run.size += size
                full = run.size >= accumulator.batch_size
            if full:
                accumulator.drain(buffer)
            elif begun:
                self._sender.runs.linger(buffer)
            return RecordFuture(run, row)
        except Exception as error:
            self._on_not_sent(topic, 1, error)
            raise

    def send_batch(
        self,
        topic: str,
        data: Any,
        *,
        key: str = "key",
        value: str = "value",
        partition: int | str | None = None,
        timestamp: str = "timestamp",
        headers: str = "headers",
    ) -> AwaitableFuture[BatchMetadata]:
        """Send many records: no Python runs per record.

        Args:
            data: a pyarrow Table or RecordBatch, or a list of values or of (key, value) pairs.
            key, value, timestamp, headers: the columns to take; only `value` must be there. Keys
                and values are binary or string. Timestamps are Arrow timestamps or milliseconds;
                now where the column is missing.
            partition: one partition for all, or the column that has it; None: the partitioner.

        Returns:
            A future that is done when all are acknowledged, or fails with the first failure. Then
            some may have been appended.

        Raises:
            ValueError: a column is missing or of another type; a partition does not exist.
            RequestTimedOut, UnknownTopicOrPartition: as `send`.
        Cost: about 0.2 us a record of 100 bytes, on the caller's thread. It blocks for room.
        """
        if self._transactions is not None:
            self._transactions.manager.check_open()
        accumulator = self._accumulator
        delivery = TableDelivery(topic)
        try:
            buffer = self._topics.get(topic) or self._open_topic(topic)
            if isinstance(partition, int):
                self._check_partition(buffer, partition)
            piece_bytes = min(
                accumulator.batch_size * buffer.partition_count, self._memory.size // 4 or 1
            )
            for table in tables_of(data, key=key, value=value):
                if self._interceptors is not None:
                    table = self._interceptors.on_send_batch(topic, table)
                delivery.add(table.num_rows)
                columns = columns_of(
                    table,
                    key=key,
                    value=value,
                    partition=partition,
                    timestamp=timestamp,
                    headers=headers,
                    now_ms=int(time.time() * 1000),
                )
                for piece in pieces_of(columns, piece_bytes):
                    self._memory.hold(piece.size)
                    accumulator.send_columns(buffer, piece, delivery)
        except BaseException as error:
            if isinstance(error, Exception):
                self._on_not_sent(topic, delivery.unplaced_count, error)
            delivery.seal(error if isinstance(error, Exception) else None)
            raise
        delivery.seal()
        return delivery.future

    def send_encoded(
        self, topic: str, batches: Sequence[Buffer], *, partition: int
    ) -> AwaitableFuture[BatchMetadata]:
        """Send whole record batches as they are, compressed or not; they are copied, not decoded.

        Args:
            batches: of magic 2, without gaps between their offsets, CreateTime, no control batches.
                Their offsets, producer and sequences are replaced.

        Returns:
            As `send_batch`.

        Raises:
            ValueError: such a batch cannot be sent by a producer; the partition does not exist.
            RequestTimedOut, UnknownTopicOrPartition: as `send`.
        """
        if self._transactions is not None:
            self._transactions.manager.check_open()
        buffer = self._topics.get(topic) or self._open_topic(topic)
        self._check_partition(buffer, partition)
        copies = [producer_copy(batch) for batch in batches]
        delivery = TableDelivery(topic)
        delivery.add(sum(header.record_count for header, _ in copies))
        try:
            for header, batch in copies:
                self._memory.hold(len(batch))
                self._accumulator.send_encoded(
                    buffer, partition, batch, header.record_count, delivery
                )
        except BaseException as error:
            if self._transactions is not None and isinstance(error, Exception):
                self._transactions.on_send_failed(error)
            delivery.seal(error if isinstance(error, Exception) else None)
            raise
        delivery.seal()
        return delivery.future

    def partitions_for(self, topic: str) -> int:
        """Number of partitions of `topic`.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        return (self._topics.get(topic) or self._open_topic(topic)).partition_count

    def metrics(self) -> Metrics:
        """Metrics of the producer, by Kafka's names and groups.

        `metrics()["producer-metrics"]["record-send-total"]`; rates and averages are of the last
        half to whole minute, times in milliseconds. Groups: producer-metrics, and
        "producer-topic-metrics,topic=<name>". Cost: some microseconds.
        """
        now = time.monotonic()
        held, size = self._memory.held, self._memory.size
        found = self._metrics.figures(now)
        found["producer-metrics"] |= {
            "buffer-total-bytes": size,
            "buffer-available-bytes": max(0, size - held),
            **self._client.figures(now),
        }
        return found

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or failed, at most `timeout` seconds.

        Failures are in the futures; it raises none of them.

        Raises:
            RequestTimedOut: some are still open.
        """
        for buffer in list(self._topics.values()):
            self._accumulator.drain(buffer)
        waiting = self._accumulator.incomplete()
        began = time.monotonic()
        with self._condition:
            done = self._condition.wait_for(
                lambda: all(batch.is_done() for batch in waiting), timeout
            )
            self._metrics.flush_s += time.monotonic() - began
            if not done:
                count = sum(batch.record_count for batch in waiting if not batch.is_done())
                raise RequestTimedOut(f"{count} records are not acknowledged within {timeout} s")

    # --- transactions ------------------------------------------------------------------------
    # Times are seconds; None is max_block_ms. A call that times out continues: repeat it to wait.

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id: its former producer is fenced, its open transaction
        aborted.

        The first begin() calls it, too; an explicit call reports errors early.

        Raises:
            InvalidTxnState: the producer has no transactional_id.
            RequestTimedOut: no coordinator was there in time, or it is still aborting.
            TransactionalIdAuthorizationFailed, InvalidTransactionTimeout: the brokers refuse.
            UnsupportedVersion: the brokers are too old.
        """
        self.transaction_calls.init_transactions(timeout)

    def begin(self, timeout: float | None = None) -> None:
        """Begin a transaction: records sent from here on are part of it.

        Raises:
            InvalidTxnState: a transaction is open already.
            TransactionAbortable: the previous transaction has failed: abort() it.
            ProducerFenced, ApplicationRecoverable: close() this producer.
            As init_transactions, the first time.
        """
        self.transaction_calls.begin(timeout)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartitionPair, GivenOffset],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a group's offsets with this transaction, and only with it.

        Args:
            offsets: by partition the offset of the next record to be read.
            group: `consumer.group_metadata()`, which fences a member that the group has removed
                (KIP-447); or a group's name, for offsets of no member.

        Raises:
            InvalidTxnState: no transaction is open.
            TransactionAbortable: it has failed, or the group has removed this member.
            ProducerFenced, ApplicationRecoverable: close() this producer.
            RequestTimedOut: no coordinator answered in time.
        """
        self.transaction_calls.send_offsets(offsets, group, timeout)

    def commit(self, timeout: float | None = None) -> None:
        """Send collected records, wait until all are in the log, and commit the transaction.

        Raises:
            TransactionAbortable: a record is not in the log: abort() the transaction.
            InvalidTxnState: no transaction is open.
            ProducerFenced, ApplicationRecoverable: close() this producer; either nothing is
                committed, or the whole transaction was before.
            RequestTimedOut: the commit has not ended: call commit() again.
        """
        self.transaction_calls.commit(timeout)

    def abort(self, timeout: float | None = None) -> None:
        """Abort the transaction; records that are not sent yet are dropped.

        Raises:
            InvalidTxnState: no transaction is open.
            ProducerFenced, ApplicationRecoverable: close() this producer; its transaction is
                aborted.
            RequestTimedOut: it has not ended: call abort() again.
        """
        self.transaction_calls.abort(timeout)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction, commit it at the end of the block, abort it if the block raises.

        If the commit fails, the transaction is aborted, too, so the block can be repeated after
        TransactionAbortable. If the commit times out, it is not aborted: call commit() again. If
        the block has ended its transaction itself, nothing is done.

        Raises:
            The exceptions of the block, of begin() and of commit(). If a batch was refused as
            fenced (InvalidProducerEpoch), it raises ProducerFenced, or TransactionAbortable if the
            producer can continue: the abort of the transaction shows which.
        """
        with self.transaction_calls.transaction():
            yield self

    def close(self, timeout: float | None = None) -> None:
        """Flush, at most `timeout` seconds, then fail what is left and end. Idempotent.

        A transaction that is open is aborted.
        """
        if self._client.closed:
            return
        error = KafkaError("the producer is closed")
        try:
            if self._transactions is not None and self._transactions.may_abort:
                self.transaction_calls.abort_at_close(timeout)
            self.flush(timeout)
        except RequestTimedOut as reason:
            error = RequestTimedOut(f"the producer was closed: {reason}")
        finally:
            with self._condition:
                self._memory.closed = error
                self._condition.notify_all()
            self._sender.abort(error)
            producer_end.unwatch(self._sender)
            self._client.close()
            if self._interceptors is not None:
                self._interceptors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open_topic(self, topic: str) -> TopicBuffer:
        return self._accumulator.open_topic(topic, self._count_partitions(topic, 0))

    def _count_partitions(self, topic: str, partition: int) -> int:
        """Number of partitions; metadata is requested if `partition` is not known."""
        if self._client.closed:
            raise self._memory.closed or KafkaError("the producer is closed")
        timeout_ms, began = self._max_block_ms, time.monotonic()
        steps = self._client.topic(topic, partition=partition, timeout_ms=timeout_ms)
        try:
            view = self._client.run(steps, timeout_ms)
        except RequestTimedOut:
            if self._client.is_gone(topic):
                raise unknown_topic(topic, self._client.config) from None
            raise RequestTimedOut(
                f"topic {topic!r}: no metadata of its partitions within "
                f"max_block_ms={timeout_ms}; check that the brokers are up, or raise it"
            ) from None
        finally:
            self._metrics.metadata_wait_s += time.monotonic() - began
        return len(view.partitions)

    def _on_not_sent(self, topic: str, count: int, error: Exception) -> None:
        if self._transactions is not None:
            self._transactions.on_send_failed(error)
        if self._interceptors is not None:
            self._interceptors.on_acknowledgement(BatchMetadata(topic, count, ()), error)

    def _check_partition(self, buffer: TopicBuffer, partition: int) -> None:
        if not 0 <= partition < buffer.partition_count:
            count = self._count_partitions(buffer.name, partition)
            if not 0 <= partition < count:
                raise ValueError(
                    f"topic {buffer.name!r} has partitions 0 to {count - 1}, not {partition}"
                )


__all__: Sequence[str] = ["Content", "Headers", "Producer"]
