"""The queues of all partitions that a producer sends to, and the order in which they send.

Invariants:
    A batch is in the queue of its partition until it has its outcome.
    A partition whose batch was taken comes after all others that have batches.

Source: RecordAccumulator.topicInfoMap, drainBatchesForOneNode, expiredBatches in apache/kafka
clients/.../producer/internals.

Not here: the order within a partition, sequences (partition_queue); leaders (sender).
"""

from __future__ import annotations

from ....protocol.topic_partition import TopicPartition
from .partition_queue import Identity, PartitionQueue
from .producer_batch import ProducerBatch


class PartitionQueues:
    """Used on the I/O thread. Active are those that have batches, ready or in flight.

    max_in_flight: batches of one partition. transactional: of a producer with transactions.
    """

    def __init__(self, *, max_in_flight: int, transactional: bool) -> None:
        self._max_in_flight = max_in_flight
        self._transactional = transactional
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}

    def add(self, batch: ProducerBatch) -> None:
        key = TopicPartition(batch.topic, batch.partition)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = PartitionQueue(
                *key, max_in_flight=self._max_in_flight, transactional=self._transactional
            )
        queue.add(batch)
        self._active[key] = queue

    def of(self, batch: ProducerBatch) -> PartitionQueue:
        """Queue of a batch that was added."""
        return self._queues[TopicPartition(batch.topic, batch.partition)]

    def take(self, queue: PartitionQueue, producer: Identity | None) -> ProducerBatch:
        """Next batch of `queue`, as PartitionQueue.take; it moves behind the other queues."""
        key = TopicPartition(queue.topic, queue.partition)
        self._active[key] = self._active.pop(key)
        return queue.take(producer)

    def in_turn(self) -> list[PartitionQueue]:
        """Active queues, in the order in which they may send."""
        for key, queue in list(self._active.items()):
            if not queue.ready and not queue.in_flight:
                del self._active[key]
        return list(self._active.values())

    def has_active(self) -> bool:
        """Whether there may be batches."""
        return bool(self._active)

    def has_ready(self) -> bool:
        """Whether a batch waits to be sent."""
        return any(queue.ready for queue in self._active.values())

    def ready(self) -> list[ProducerBatch]:
        """Batches that wait to be sent."""
        return [batch for queue in self._active.values() for batch in queue.ready]

    def incomplete(self) -> list[ProducerBatch]:
        """Batches that wait, or are in flight."""
        return [
            batch for queue in self._queues.values() for batch in (*queue.in_flight, *queue.ready)
        ]

    def expired(self, now: float) -> list[ProducerBatch]:
        """Batches that have waited too long. Those in flight are answered, or time out, first."""
        return [batch for batch in self.ready() if batch.deadline <= now]

    def next_due(self, now: float) -> float | None:
        """Time of the next retry or delivery time-out, whichever comes first; None: neither."""
        active = self._active.values()
        times = [queue.ready[0].deadline for queue in active if queue.ready]
        times += [queue.retry_at for queue in active if queue.retry_at > now]
        return min(times, default=None)

    def on_delayed(self, reason: Exception) -> None:
        """Store the reason of a delay, for the text of a later time-out."""
        for batch in self.ready():
            batch.last_error = batch.last_error or reason
