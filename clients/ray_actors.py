"""The clients as Ray actors: a handle that any task can hold, polls that come as Arrow tables.

    consumer = bradbury.ConsumerActor.remote("flights", group="delays")
    table = ray.get(consumer.poll.remote(max_records=100_000))    # zero-copy from the object store
    ray.get(consumer.commit.remote())

What always holds:
    One call at a time runs in each actor, in the order the handle made them: an actor is the one
    thread that its client is for. Fetching, heartbeats and sending go on between calls, on the
    client's own thread, so an actor that nobody calls for a while stays in its group until
    max_poll_interval_ms.
    An actor that Ray restarts begins as its constructor says: a consumer of a group goes on at the
    committed offsets. A call that was running is not repeated (max_task_retries=0): a poll that was
    lost with its actor has committed nothing.

They take no CPU of Ray's for placement (num_cpus=0), since they wait most of the time; say
`ConsumerActor.options(num_cpus=1)` for one that is to be spread like a task.

Not here: anything that the clients do not do themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import ray

from .consumer import Consumer, Partition
from .producer import Content, Headers, Producer
from .topic_partition import BatchMetadata, RecordMetadata, TopicPartition


class ConsumerProcess:
    """What runs in a ConsumerActor. Arguments and methods are Consumer's, which see."""

    def __init__(self, *topics: str, **options: Any) -> None:
        self._consumer = Consumer(*topics, **options)

    def poll(self, max_records: int | None = None, timeout_ms: int = 1000) -> pa.Table:
        return self._consumer.poll(timeout_ms, max_records=max_records)

    def assign(self, partitions: Iterable[Partition]) -> None:
        self._consumer.assign(partitions)

    def subscribe(self, topics: Iterable[str]) -> None:
        self._consumer.subscribe(topics)

    def assignment(self) -> list[TopicPartition]:
        return self._consumer.assignment()

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(partition, offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        self._consumer.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: Partition) -> None:
        self._consumer.seek_to_end(*partitions)

    def position(self, partition: Partition) -> int:
        return self._consumer.position(partition)

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        self._consumer.commit(offsets)

    def committed(self, *partitions: Partition) -> dict[TopicPartition, int | None]:
        return self._consumer.committed(*partitions)

    def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        return self._consumer.end_offsets(*partitions)

    def lag(self, *partitions: Partition) -> dict[TopicPartition, int]:
        return self._consumer.lag(*partitions)

    def close(self) -> None:
        """Commit and leave the group. The actor itself ends with its last handle, or ray.kill."""
        self._consumer.close()

    def __ray_shutdown__(self) -> None:
        """Ray calls it when the actor ends in order: others get the partitions at once."""
        self._consumer.close()


class ProducerProcess:
    """What runs in a ProducerActor. Arguments are Producer's, which see.

    `send` returns when the record is in the buffer; failures of such records are raised by the next
    `flush`. `send_batch` returns when all its records are acknowledged.
    """

    def __init__(self, bootstrap: str | None = None, **options: Any) -> None:
        self._producer = Producer(bootstrap, **options)
        self._failure: Exception | None = None

    def send(
        self,
        topic: str,
        value: Content = None,
        key: Content = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        wait: bool = False,
    ) -> RecordMetadata | None:
        """Send one record; with `wait`, return where it is once it is acknowledged."""
        future = self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        if wait:
            return future.result()
        future.add_done_callback(lambda done: self._note(done.exception()))
        return None

    def send_batch(self, topic: str, data: Any, **columns: Any) -> BatchMetadata:
        return self._producer.send_batch(topic, data, **columns).result()

    def flush(self, timeout: float | None = None) -> None:
        """Wait for everything sent so far.

        Raises:
            KafkaError, ConnectionFailed: the first failure since the last flush.
        """
        self._producer.flush(timeout)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self, timeout: float | None = None) -> None:
        self._producer.close(timeout)

    def __ray_shutdown__(self) -> None:
        self._producer.close(timeout=10)

    def _note(self, error: Exception | None) -> None:
        self._failure = self._failure or error


_as_actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)

ConsumerActor: Any = _as_actor(ConsumerProcess)
ProducerActor: Any = _as_actor(ProducerProcess)
