"""Records between the caller and the sender: collected, partitioned, encoded, in bounded memory.

Invariants:
    Keys, values and headers are held in bounded memory (buffer_memory).
    Records of one topic are encoded one run after another, under the topic's lock, and handed to
    the sender in that order: records that one thread sends to a partition stay in order.
    The sender's thread never waits for that lock, as callers that wait for memory depend on it.

The thread that fills a run encodes it, so a fast caller pays for its own encoding; runs that linger
are encoded by the sender. Encoding is by columns, except for a few records, for which columns would
cost more.

Not here: sending, retries (sender, partition_queue).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....protocol.columns.columns import (
    EncodedBatch,
    encode_batches,
    encode_by_partition,
    kernels_ready,
    partition_rows,
)
from ....protocol.columns.columns_arrow import HEADERS_TYPE, binary_of
from ....protocol.errors import KafkaError, MessageTooLarge
from ....protocol.partitioner import StickyPartitioner, partition_for_key
from ....protocol.records.records import encode_measured
from ...threads.observed_condition import ObservedCondition
from ...wire.cluster_view import ClusterView
from ...wire.kernels import on_records
from .buffer_memory import BufferMemory
from .deliveries import CollectedRecords
from .producer_batch import Delivery, ProducerBatch, Rows

RECORD_OVERHEAD: Final = 24
"""Bytes of a record besides its key and value: at most 21 in a batch, and some in lists."""

FEW: Final = 8
"""Number of records up to which encoding one by one, at 5 us each, is faster than by columns, which
cost some 100 us for any number of rows."""

Partitioner = Callable[[bytes | None, int], int]
"""Function partitioner(key, number of partitions) that returns a partition."""

Int32s = npt.NDArray[np.int32]


@dataclass(slots=True)
class Columns:
    """One piece of the data to send, as input of the encoder.

    keys: None where no record has one. partitions: -1 where the partitioner decides.
    size: bytes of `buffer_memory` that it holds.
    """

    keys: pa.Array | None
    values: pa.Array
    timestamps: npt.NDArray[np.int64]
    headers: pa.Array | None
    partitions: Int32s | None
    size: int


@dataclass(slots=True)
class TopicBuffer:
    """The open run of a topic and the state of its partitioning, which `lock` guards.

    encoding: the run that is being encoded now.
    """

    name: str
    partition_count: int
    sticky: StickyPartitioner
    lock: threading.Lock = field(default_factory=threading.Lock)
    run: CollectedRecords | None = None
    encoding: CollectedRecords | None = None


class Accumulator:
    """Shared by callers and the sender. `condition` guards memory, open runs and outcomes."""

    def __init__(
        self,
        *,
        memory: BufferMemory,
        condition: ObservedCondition,
        batch_size: int,
        max_request_size: int,
        delivery_timeout_ms: int,
        codec: int,
        partitioner: Partitioner | None,
        view: Callable[[], ClusterView],
    ) -> None:
        self.condition = condition
        self.memory = memory
        self.batch_size = batch_size
        self.topics: dict[str, TopicBuffer] = {}
        self._max_request_size = max_request_size
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self._codec = codec
        self._partitioner = partitioner
        self._view = view
        self._deliver: Callable[[list[ProducerBatch]], None]
        self._on_failed: Callable[[str, int, Exception], None]
        self._incomplete: set[ProducerBatch] = set()

    def attach(
        self,
        *,
        deliver: Callable[[list[ProducerBatch]], None],
        on_failed: Callable[[str, int, Exception], None],
    ) -> None:
        """Set the sender's callbacks. on_failed: called for records that could not be encoded."""
        self._deliver = deliver
        self._on_failed = on_failed

    def open_topic(self, name: str, partition_count: int) -> TopicBuffer:
        with self.condition:
            return self.topics.setdefault(
                name, TopicBuffer(name, partition_count, StickyPartitioner(self.batch_size))
            )

    # --- single records ----------------------------------------------------------------------

    def new_run(self, topic: TopicBuffer) -> CollectedRecords:
        """Begin the run that the next records of `topic` join. Needs `condition`."""
        deadline = time.monotonic() + self._delivery_timeout_s
        run = topic.run = CollectedRecords(topic.name, self.condition, deadline)
        return run

    def drain(self, topic: TopicBuffer, *, wait: bool = True) -> bool:
        """Encode the open run of `topic` for the sender. False: another thread holds its lock."""
        if not topic.lock.acquire(blocking=wait):
            return False
        try:
            self._drain(topic)
        finally:
            topic.lock.release()
        return True

    def _drain(self, topic: TopicBuffer) -> None:
        with self.condition:
            run = topic.encoding = topic.run
            topic.run = None
            self.condition.notify_watcher()
        if run is None:
            return
        try:
            batches = self._encode_run(topic, run)
        except (KafkaError, ValueError, TypeError, pa.ArrowException) as error:
            self.memory.release(run.size)
            self._on_failed(run.topic, len(run.values), error)
            run.fail(error)
        else:
            self._hand_over(run, batches)
        topic.encoding = None

    # --- tables ------------------------------------------------------------------------------

    def send_columns(self, topic: TopicBuffer, columns: Columns, delivery: Delivery) -> None:
        """Encode one piece of a table, after the records that `send` has collected.

        Its memory must be held already; it is released when this raises.
        """
        deadline = time.monotonic() + self._delivery_timeout_s
        with topic.lock:
            self._drain(topic)
            try:
                batches = self._encode(topic, columns, delivery, deadline)
            except BaseException:
                self.memory.release(columns.size)
                raise
            self._hand_over(delivery, batches)

    def send_encoded(
        self, topic: TopicBuffer, partition: int, data: memoryview, count: int, delivery: Delivery
    ) -> None:
        """Deliver one encoded batch, after the records that `send` has collected; its memory is
        held.
        """
        deadline = time.monotonic() + self._delivery_timeout_s
        rows: Rows = np.arange(count, dtype=np.int64)
        batch = ProducerBatch(
            topic.name,
            partition,
            data,
            rows,
            delivery,
            memory=len(data),
            uncompressed_size=None,
            deadline=deadline,
        )
        with topic.lock:
            self._drain(topic)
            self._hand_over(delivery, [batch])

    # --- outcomes ----------------------------------------------------------------------------

    def incomplete(self) -> list[ProducerBatch]:
        with self.condition:
            return list(self._incomplete)

    def has_incomplete(self) -> bool:
        """Whether a batch has no outcome yet."""
        with self.condition:
            return bool(self._incomplete)

    def open_record_count(self) -> int:
        """Number of records without an outcome yet; approximate while records are sent."""
        topics = list(self.topics.values())
        runs = [run for topic in topics for run in (topic.run, topic.encoding) if run is not None]
        return sum(len(run.values) for run in runs) + sum(
            batch.record_count for batch in self.incomplete()
        )

    def on_done(self, batch: ProducerBatch) -> None:
        """Free the memory of a batch with an outcome, and wake waiting threads."""
        with self.condition:
            self._incomplete.discard(batch)
            self.memory.release_locked(batch.memory)

    def on_split(self, batch: ProducerBatch) -> None:
        with self.condition:
            self._incomplete.discard(batch)
            self._incomplete.update(batch.parts or ())

    # --- encoding ----------------------------------------------------------------------------

    def _hand_over(self, delivery: Delivery, batches: list[ProducerBatch]) -> None:
        delivery.on_placed(batches)
        with self.condition:
            self._incomplete.update(batches)
        self._deliver(batches)

    def _encode_run(self, topic: TopicBuffer, run: CollectedRecords) -> list[ProducerBatch]:
        if len(run.values) > FEW or run.size > self.batch_size or self._partitioner is not None:
            return self._encode(topic, _columns_of(run), run, run.deadline)
        return self._encode_few(topic, run)

    def _encode_few(self, topic: TopicBuffer, run: CollectedRecords) -> list[ProducerBatch]:
        """Encode a run record by record. The records fit into one batch per partition."""
        count = len(run.values)
        on_records(count)
        self._look_for_partitions(topic)
        rows_of: dict[int, list[int]] = {}
        for row, partition in enumerate(self._partitions_of_few(topic, run)):
            rows_of.setdefault(partition, []).append(row)
        headers = run.headers or [None] * count
        batches = []
        for partition, rows in sorted(rows_of.items()):
            records = [
                (run.timestamps[row], run.keys[row], run.values[row], headers[row] or ())
                for row in rows
            ]
            encoded = encode_measured(records, codec=self._codec)
            batches.append(
                ProducerBatch(
                    topic.name,
                    partition,
                    memoryview(encoded.batch),
                    np.array(rows, np.int64),
                    run,
                    memory=run.size * len(rows) // count,
                    uncompressed_size=encoded.uncompressed_size,
                    deadline=run.deadline,
                )
            )
        batches[-1].memory += run.size - sum(batch.memory for batch in batches)
        return batches

    def _partitions_of_few(self, topic: TopicBuffer, run: CollectedRecords) -> list[int]:
        """Partition of each row, computed row by row, without a custom partitioner."""
        count = len(run.values)
        partitions = [-1] * count if run.partitions is None else list(run.partitions)
        if max(partitions) >= topic.partition_count:
            raise _no_such_partition(topic, max(partitions))
        for row, key in enumerate(run.keys):
            if partitions[row] < 0 and key is not None:
                partitions[row] = partition_for_key(key, topic.partition_count)
        keyless = [row for row, partition in enumerate(partitions) if partition < 0]
        if keyless:
            sticky = self._sticky(topic, len(keyless), run.size * len(keyless) // count)
            chosen = [sticky] * len(keyless) if isinstance(sticky, int) else sticky.tolist()
            for row, partition in zip(keyless, chosen, strict=True):
                partitions[row] = partition
        return partitions

    def _look_for_partitions(self, topic: TopicBuffer) -> None:
        """Update the number of partitions, which may have grown since the topic was opened."""
        topic.partition_count = max(topic.partition_count, self._view().partition_count(topic.name))

    def _encode(
        self, topic: TopicBuffer, columns: Columns, delivery: Delivery, deadline: float
    ) -> list[ProducerBatch]:
        count = len(columns.values)
        on_records(count)
        self._look_for_partitions(topic)
        partitions = self._partitions(topic, columns)
        batches: list[ProducerBatch] = []

        def add(partition: int, rows: Rows, encoded: list[EncodedBatch]) -> None:
            start = 0
            for batch in encoded:
                if len(batch.batch) > self._max_request_size and batch.record_count == 1:
                    raise MessageTooLarge(
                        f"a record of {len(batch.batch)} bytes is larger than "
                        f"max_request_size={self._max_request_size}; raise that here, and "
                        "max.message.bytes of the topic"
                    )
                part = rows[start : start + batch.record_count]
                start += batch.record_count
                batches.append(
                    ProducerBatch(
                        topic.name,
                        partition,
                        batch.batch,
                        part,
                        delivery,
                        memory=columns.size * len(part) // count,
                        uncompressed_size=batch.uncompressed_size,
                        deadline=deadline,
                    )
                )

        options: dict[str, Any] = {"codec": self._codec, "max_bytes": self.batch_size}
        data = (columns.keys, columns.values, columns.timestamps, columns.headers)
        if isinstance(partitions, int):
            rows: Rows = np.arange(count, dtype=np.int64)
            add(partitions, rows, encode_batches(*data, **options))
        else:
            order: Rows = np.argsort(partitions, kind="stable")
            bounds = np.searchsorted(partitions[order], np.arange(topic.partition_count + 1))
            encoded = encode_by_partition(
                *data, partitions=partitions, partition_count=topic.partition_count, **options
            )
            for partition, found in encoded.items():
                add(partition, order[bounds[partition] : bounds[partition + 1]], found)
        if batches:
            batches[-1].memory += columns.size - sum(batch.memory for batch in batches)
        return batches

    def _partitions(self, topic: TopicBuffer, columns: Columns) -> Int32s | int:
        """The partition of each row, or one partition for all rows."""
        count = len(columns.values)
        given = columns.partitions
        if given is None and columns.keys is None and self._partitioner is None:
            return self._sticky(topic, count, columns.size)
        partitions: Int32s
        if self._partitioner is not None:
            partitions = self._custom(topic, columns)
        elif columns.keys is not None:
            partitions = partition_rows(columns.keys, topic.partition_count)
        else:
            partitions = np.full(count, -1, np.int32)
        if given is not None:
            partitions = np.where(given >= 0, given, partitions).astype(np.int32)
            if len(given) and int(given.max()) >= topic.partition_count:
                raise _no_such_partition(topic, int(given.max()))
        keyless = np.flatnonzero(partitions < 0)
        if len(keyless):
            size = columns.size * len(keyless) // count
            sticky = self._sticky(topic, len(keyless), size)
            partitions[keyless] = sticky
        return partitions

    def _sticky(self, topic: TopicBuffer, count: int, size: int) -> Int32s | int:
        view = self._view()
        available = [
            partition
            for partition in range(topic.partition_count)
            if view.leader(topic.name, partition) is not None
        ] or list(range(topic.partition_count))
        number = random.getrandbits(31)
        runs = topic.sticky.assign_all(count, size, available, random=number)
        if len(runs) == 1 or topic.partition_count == 1:
            return runs[0][0]
        partitions, rows = zip(*runs, strict=True)
        repeated: Int32s = np.repeat(np.array(partitions, np.int32), rows)
        return repeated

    def _custom(self, topic: TopicBuffer, columns: Columns) -> Int32s:
        assert self._partitioner is not None
        count = topic.partition_count
        keys = [None] * len(columns.values) if columns.keys is None else columns.keys.to_pylist()
        partitions = [self._partitioner(key, count) for key in keys]
        for partition in partitions:
            # A fraction is refused, too: numpy would cut it off, and no one would notice.
            if not isinstance(partition, int | np.integer) or not 0 <= partition < count:
                raise ValueError(
                    f"the partitioner chose partition {partition!r} of topic {topic.name!r}, which "
                    f"has 0 to {count - 1}"
                )
        return np.array(partitions, np.int32)


def _no_such_partition(topic: TopicBuffer, partition: int) -> ValueError:
    return ValueError(
        f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {partition}"
    )


def _binary_array(items: list[bytes | None]) -> pa.Array:
    """pa.array takes half as long, but imports pandas, so it is used for many records only."""
    return pa.array(items, pa.binary()) if kernels_ready() else binary_of(items)


def _columns_of(run: CollectedRecords) -> Columns:
    return Columns(
        _binary_array(run.keys) if run.has_keys else None,
        _binary_array(run.values),
        np.array(run.timestamps, np.int64),
        None if run.headers is None else pa.array(run.headers, HEADERS_TYPE),
        None if run.partitions is None else np.array(run.partitions, np.int32),
        run.size,
    )
