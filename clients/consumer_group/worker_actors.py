"""The clients as Ray actors: handles that any task can hold, polls that return Arrow tables.

    consumer = bradbury.ConsumerActor.remote("flights", group="delays")
    table = ray.get(consumer.poll.remote(max_records=100_000))  # waits; zero-copy from the store
    ray.get(consumer.commit.remote())

Invariants:
    An actor runs one call at a time, in the order of the handle, as its client is for one thread.
    Only `wakeup`, which ends the running call, and `metrics` overtake waiting calls: a poll without
    a timeout waits for records, and so do the calls after it.
    Fetching, heartbeats and sending continue between calls, on the client's own thread, so an
    actor that is not called for a while stays in its group until max_poll_interval_ms.
    An actor that Ray restarts starts with its constructor's arguments: a consumer of a group
    continues at the committed offsets; later `subscribe`, `assign`, `seek` and `pause` are lost.
    A call that was running is not repeated (max_task_retries=0): a poll that was lost with its
    actor has committed nothing.
    A producer with a transactional_id that Ray restarts takes it over at once: an open transaction
    of its former process, or of a process that Ray believes dead, is aborted, and that process is
    fenced. Calls of that transaction that reach the new process fail with InvalidTxnState, so half
    of a transaction is never committed.
    Listeners, callbacks and strategies are pickled and run in the actor. They cannot wait for calls
    of its handle, as they run within one.

They reserve no CPU in Ray (num_cpus=0), since they wait most of the time; use
`ConsumerActor.options(num_cpus=1)` to place one like a task.

Not here: functions that the clients do not have; single records, as a call for each would be slow
(use poll's table); many members behind one handle (group).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import ray

from ...discovery.ray_connection import join_for_clients
from ...protocol.errors import ConnectionFailed, KafkaError, RequestTimedOut
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..consumer.consumer import Consumer
from ..group.group_member import CommitCallback, GivenOffsets
from ..group.membership import ConsumerGroupMetadata
from ..group.rebalance_listener import RebalanceListener
from ..producer.producer import Content, Headers, Producer
from ..producer.transactions.producer_transactions import GivenOffset
from ..security.security_options import refuse_secrets_for_actors
from ..wire.record_metadata import (
    BatchMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
)
from ..wire.sampled_stats import Metrics

logger = logging.getLogger(__name__)


class ConsumerProcess:
    """Code of a ConsumerActor. Arguments and methods are those of Consumer."""

    def __init__(self, *topics: str, **options: Any) -> None:
        self._shown = ", ".join((*topics, *filter(None, [options.get("group")])))
        self._consumer = Consumer(*topics, **options)

    def __repr__(self) -> str:
        """Name shown in Ray's dashboard, with its topics and group."""
        return f"{type(self).__name__}({self._shown})"

    # --- subscription and assignment ---------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        self._consumer.subscribe(topics, pattern=pattern, listener=listener)

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def subscription(self) -> list[str]:
        return self._consumer.subscription()

    def assign(self, partitions: Iterable[TopicPartitionPair]) -> None:
        self._consumer.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        return self._consumer.assignment()

    def partitions_for(self, topic: str) -> int:
        return self._consumer.partitions_for(topic)

    def pause(self, *partitions: TopicPartitionPair) -> None:
        self._consumer.pause(*partitions)

    def resume(self, *partitions: TopicPartitionPair) -> None:
        self._consumer.resume(*partitions)

    def paused(self) -> list[TopicPartition]:
        return self._consumer.paused()

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        self._consumer.enforce_rebalance(reason)

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._consumer.group_metadata()

    # --- records and positions ---------------------------------------------------------------

    def poll(self, max_records: int | None = None, timeout_ms: int | None = None) -> pa.Table:
        """Poll records. Without `timeout_ms` it waits until there is one, and so do later calls;
        `wakeup` ends it.
        """
        return self._consumer.poll(timeout_ms, max_records=max_records)

    @ray.method(concurrency_group="control")
    def wakeup(self) -> None:
        """End the running call, or else the next one that waits, with Wakeup. Runs at once."""
        self._consumer.wakeup()

    def seek(self, partition: TopicPartitionPair, offset: int) -> None:
        self._consumer.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartitionPair) -> None:
        self._consumer.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartitionPair) -> None:
        self._consumer.seek_to_end(*partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartitionPair) -> None:
        self._consumer.seek_to_time(timestamp_ms, *partitions)

    def position(self, partition: TopicPartitionPair) -> int:
        return self._consumer.position(partition)

    def beginning_offsets(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        return self._consumer.beginning_offsets(*partitions)

    def end_offsets(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        return self._consumer.end_offsets(*partitions)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartitionPair, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._consumer.offsets_for_times(timestamps_ms)

    def lag(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        return self._consumer.lag(*partitions)

    def current_lag(self, partition: TopicPartitionPair) -> int | None:
        return self._consumer.current_lag(partition)

    @ray.method(concurrency_group="control")
    def metrics(self) -> Metrics:
        """Metrics of the client; answered at once, also while another call waits."""
        return self._consumer.metrics()

    # --- committed offsets -------------------------------------------------------------------

    def commit(self, offsets: GivenOffsets | None = None) -> None:
        self._consumer.commit(offsets)

    def commit_async(
        self, offsets: GivenOffsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Send a commit without waiting. The callback is called in the actor, by a later call."""
        self._consumer.commit_async(offsets, callback)

    def committed(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int | None]:
        return self._consumer.committed(*partitions)

    def committed_metadata(
        self, *partitions: TopicPartitionPair
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._consumer.committed_metadata(*partitions)

    # --- the end -----------------------------------------------------------------------------

    def close(self, *, leave: bool | None = None, timeout_ms: int = 30_000) -> None:
        """Commit and leave the group. The actor itself ends with its last handle, or ray.kill."""
        self._consumer.close(leave=leave, timeout_ms=timeout_ms)

    def __ray_shutdown__(self) -> None:
        """Leave the group when Ray shuts the actor down: others get the partitions at once."""
        self._consumer.close()


class ProducerProcess:
    """Code of a ProducerActor. Arguments are those of Producer.

    `send` returns when the record is in the buffer; failures of such records are raised by the next
    `flush`, or by `commit`. `send_batch` returns when all its records are acknowledged.
    """

    def __init__(self, bootstrap: str | None = None, **options: Any) -> None:
        self._shown = options.get("transactional_id") or options.get("client_id") or ""
        self._producer = Producer(bootstrap, **options)
        self._failure: Exception | None = None
        self._is_taking_over = False
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        if restarted and options.get("transactional_id") is not None:
            self._take_over()

    def __repr__(self) -> str:
        """Name shown in Ray's dashboard, with its transactional id or client id."""
        return f"{type(self).__name__}({self._shown})"

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
        """Send one record; with `wait`, return its metadata once it is acknowledged."""
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
        """Wait until all records sent so far are acknowledged or failed.

        Raises:
            KafkaError, ConnectionFailed: the first failure since the last flush.
        """
        self._producer.flush(timeout)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def partitions_for(self, topic: str) -> int:
        return self._producer.partitions_for(topic)

    @ray.method(concurrency_group="control")
    def metrics(self) -> Metrics:
        """Metrics of the client; answered at once, also while another call waits."""
        return self._producer.metrics()

    def close(self, timeout: float | None = None) -> None:
        self._producer.close(timeout)

    # --- transactions ------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """See Producer. After a restart it waits until the former transaction has ended."""
        self._producer.init_transactions(timeout)
        self._is_taking_over = False

    def begin(self, timeout: float | None = None) -> None:
        if self._is_taking_over:
            self.init_transactions(timeout)
        self._producer.begin(timeout)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartitionPair, GivenOffset],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        self._producer.send_offsets(offsets, group, timeout)

    def commit(self, timeout: float | None = None) -> None:
        """See Producer. If the actor dies meanwhile the outcome is unknown."""
        self._producer.commit(timeout)

    def abort(self, timeout: float | None = None) -> None:
        self._producer.abort(timeout)
        self._failure = None  # failures of aborted records do not matter

    def _take_over(self) -> None:
        """Start init_transactions without waiting: a failed constructor would prevent restarts."""
        self._is_taking_over = True
        try:
            self._producer.init_transactions(timeout=0)
        except RequestTimedOut:
            pass  # it continues; begin() waits for its end
        except (KafkaError, ConnectionFailed) as error:
            logger.warning(
                "init_transactions failed: %s; the next transaction raises the error", error
            )

    # --- the end -----------------------------------------------------------------------------

    def __ray_shutdown__(self) -> None:
        """Abort an open transaction when Ray shuts the actor down."""
        self._producer.close(timeout=10)

    def _note(self, error: Exception | None) -> None:
        self._failure = self._failure or error


class ClientActorClass:
    """Actor class as made by `ray.remote`, for the Ray cluster where the brokers are up.

    In a process that is not connected to Ray, Ray would start another cluster for the first actor;
    this class joins the cluster that clients find (see bradbury.connect). Raises UpError if there
    is none.
    """

    def __init__(self, actor_class: Any, *, bootstrap_comes_first: bool = False) -> None:
        self._actor_class = actor_class
        self._bootstrap_comes_first = bootstrap_comes_first

    def remote(self, *arguments: Any, **options: Any) -> Any:
        """Create an actor with the client's arguments; return its handle.

        Raises:
            InvalidConfig: a secret in clear text.
            UpError: no cluster is found.
        """
        refuse_secrets_for_actors(options)
        bootstrap = options.get("bootstrap")
        if arguments and self._bootstrap_comes_first:
            bootstrap = arguments[0]
        join_for_clients(bootstrap, options.get("namespace"))
        return self._actor_class.remote(*arguments, **options)

    def options(self, **options: Any) -> ClientActorClass:
        """Return this class with Ray's actor options, e.g. name, num_cpus, lifetime."""
        return ClientActorClass(
            self._actor_class.options(**options), bootstrap_comes_first=self._bootstrap_comes_first
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._actor_class, name)


_AS_ACTOR: dict[str, Any] = {
    "num_cpus": 0,
    "max_restarts": -1,
    "max_task_retries": 0,
    "concurrency_groups": {"control": 1},
}

ConsumerActor = ClientActorClass(ray.remote(**_AS_ACTOR)(ConsumerProcess))
ProducerActor = ClientActorClass(
    ray.remote(**_AS_ACTOR)(ProducerProcess), bootstrap_comes_first=True
)
