"""The consumer of a member, which polls all the time; other threads may wake it from a poll.

Invariants:
    A wake-up that comes before a poll ends that poll at once, and not the requests after it.
    A request that a wake-up interrupts nevertheless is repeated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final, TypeVar

import pyarrow as pa

from ...protocol.errors import ConnectionFailed, KafkaError, RequestTimedOut
from ...protocol.topic_partition import TopicPartition
from ..consumer.consumer import Consumer, Wakeup
from ..consumer.poll_steps import EMPTY
from ..group.rebalance_listener import RebalanceListener
from ..wire.cluster_client import is_retriable
from .processing.member_config import MemberConfig

T = TypeVar("T")

logger = logging.getLogger(__name__)

POLL_MS: Final = 1_000
BACKOFF_S: Final = 0.2


class MemberConsumer:
    """Used by the thread that owns the consumer; `wake` may be called from any thread.

    current: the consumer, from `connect` to `close`.
    """

    def __init__(self, config: MemberConfig, stopping: threading.Event) -> None:
        self.current: Consumer | None = None
        self._config = config
        self._stopping = stopping
        self._wake_lock = threading.Lock()
        self._may_wake = False
        self._changed = False

    def connect(self, listener: RebalanceListener) -> Consumer | None:
        """Create the consumer, with retries until a broker answers; None if stopped before."""
        while not self._stopping.is_set():
            consumer: Consumer | None = None
            try:
                consumer = Consumer(
                    group=self._config.group,
                    group_instance_id=self._config.instance_id,
                    enable_auto_commit=False,
                    **self._config.consumer_options,
                )
                consumer.subscribe(self._config.topics, listener=listener)
                self.current = consumer
                return consumer
            except (ConnectionFailed, RequestTimedOut) as error:
                logger.warning("member %s: %s; trying again", self._config.instance_id, error)
                if consumer is not None:
                    consumer.close()
                self._stopping.wait(BACKOFF_S)
        return None

    def close(self) -> None:
        """Leave the group, and close the consumer.

        A static member that does not leave would keep its partitions until its session times out.
        For a fenced member this raises, as another process has its name.
        """
        consumer = self._connected()
        undisturbed(lambda: consumer.close(leave=True))
        self.current = None

    # --- polls and wake-ups --------------------------------------------------------------------

    def wake(self) -> None:
        """End a waiting poll, for offsets to commit, for room, or for a stop. From any thread."""
        with self._wake_lock:
            self._changed = True
            if self._may_wake and self.current is not None:
                self._may_wake = False
                self.current.wakeup()

    def begin_step(self) -> None:
        """Begin to read the state: a change after this call ends the next poll."""
        self._changed = False

    def poll(self) -> pa.Table:
        """Poll until there are records, a wake-up, or POLL_MS are over."""
        consumer = self._connected()
        with self._wake_lock:
            self._may_wake = not self._changed
        wait_ms = POLL_MS if self._may_wake else 0
        try:
            return consumer.poll(wait_ms, max_records=self._config.batch_records)
        except Wakeup:
            return EMPTY
        finally:
            self._may_wake = False

    def calm(self) -> None:
        """Disable wake-ups until the next poll, as the following requests have to be completed."""
        with self._wake_lock:
            self._may_wake = False

    # --- requests ------------------------------------------------------------------------------

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        """Raises KafkaError, ConnectionFailed: not committed."""
        consumer = self._connected()
        undisturbed(lambda: consumer.commit(offsets))

    def committed(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Committed offsets of the group, retried without a limit, as reading depends on them."""
        consumer = self._connected()
        while True:
            try:
                return undisturbed(lambda: consumer.committed(*keys))
            except (KafkaError, ConnectionFailed) as error:
                if not is_retriable(error) or self._stopping.wait(BACKOFF_S):
                    raise
                logger.warning("member %s: %s; trying again", self._config.instance_id, error)

    def _connected(self) -> Consumer:
        assert self.current is not None, "it is connected, and not closed"
        return self.current


def undisturbed(call: Callable[[], T]) -> T:
    """Call, and retry if a wakeup in progress interrupts the call."""
    while True:
        try:
            return call()
        except Wakeup:
            continue
