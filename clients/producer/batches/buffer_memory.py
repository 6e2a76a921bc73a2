"""Buffer memory of one producer: bytes of records that it holds, and waiting for room.

Invariants: at most `size` bytes are held at a time; callers that need more wait. A record that
alone is larger is admitted when nothing else is held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ....protocol.errors import RequestTimedOut
from .producer_metrics import ProducerMetrics


class BufferMemory:
    """Memory limit of a producer, guarded by the accumulator's `condition`."""

    def __init__(
        self,
        size: int,
        condition: threading.Condition,
        *,
        max_block_ms: int,
        metrics: ProducerMetrics,
    ) -> None:
        self.size = size
        self.held = 0
        """Bytes of records that are not delivered or failed yet."""
        self.closed: Exception | None = None
        """The error that callers of `hold` get after the producer was closed."""
        self.never_waits: int | None = None
        """Id of a thread that does not wait here, as it has awaited room before (AsyncProducer)."""
        self._condition = condition
        self._max_block_s = max_block_ms / 1000
        self._metrics = metrics

    def hold(self, size: int) -> None:
        """Wait for `size` bytes.

        Raises:
            RequestTimedOut: not free within max_block_ms.
        """
        with self._condition:
            self.hold_locked(size)

    def hold_locked(self, size: int) -> None:
        """`hold`, with the condition held."""
        if self.held + size > self.size and self.held:
            self._wait_for(size)
        if self.closed is not None:
            raise self.closed
        self.held += size

    def has_room(self, size: int) -> bool:
        """Whether `hold` returns at once: there is room, nothing is held, or it is closed."""
        return self.held + size <= self.size or not self.held or self.closed is not None

    def release(self, size: int) -> None:
        with self._condition:
            self.release_locked(size)

    def release_locked(self, size: int) -> None:
        """`release`, with the condition held."""
        self.held -= size
        self._condition.notify_all()

    def _wait_for(self, size: int) -> None:
        if threading.get_ident() == self.never_waits:
            return
        with self.waiting():
            has_room = self._condition.wait_for(lambda: self.has_room(size), self._max_block_s)
        if not has_room:
            raise self.no_room(size)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a caller as waiting for room, and its time, in the metrics."""
        metrics, began = self._metrics, time.monotonic()
        metrics.waiting_count += 1
        try:
            yield
        finally:
            metrics.waiting_count -= 1
            now = time.monotonic()
            metrics.on_buffer_wait(now - began, now)

    def no_room(self, size: int) -> RequestTimedOut:
        """The error of a caller whose wait for memory has timed out."""
        self._metrics.exhausted.record(1, time.monotonic())
        return RequestTimedOut(
            f"no room for {size} bytes within max_block_ms={self._max_block_s * 1000:.0f}: "
            f"{self.held} of buffer_memory={self.size} are waiting to be "
            "acknowledged; send slower, raise buffer_memory, or check that the brokers are up"
        )
