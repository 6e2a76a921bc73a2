"""Runs of records that wait up to linger_ms for more records of their topic, and are then encoded.

Invariants: the I/O thread never waits for a topic's lock (see accumulator); it tries again a
millisecond later.
"""

from __future__ import annotations

from collections.abc import Callable

from ..threads.io_thread import IoThread, Steps
from .batches.accumulator import Accumulator, TopicBuffer

AGAIN_S = 0.001


class LingeringRuns:
    """`linger` and `drain_soon` may be called from any thread; the rest runs on the I/O thread."""

    def __init__(
        self,
        io: IoThread,
        accumulator: Accumulator,
        linger_ms: int,
        on_drained: Callable[[], None],
    ) -> None:
        """`on_drained`: called on the I/O thread when a run was encoded there."""
        self._io = io
        self._accumulator = accumulator
        self._linger_s = linger_ms / 1000
        self._on_drained = on_drained

    def linger(self, topic: TopicBuffer) -> None:
        """Encode the open run of `topic`, which has just begun, when linger_ms are over."""
        if not self._linger_s:
            self.drain_soon(topic)  # without a timer, which costs an iteration of the loop
        else:
            self._io.call_soon(lambda: self._drain_in(topic, self._linger_s))

    def drain_soon(self, topic: TopicBuffer) -> None:
        """Encode the open run of `topic` on the I/O thread."""
        self._io.call_soon(lambda: self.drain(topic))

    def drain(self, topic: TopicBuffer) -> None:
        """Encode the open run of `topic`, now or when no caller holds its lock any more."""
        if self._accumulator.drain(topic, wait=False):
            self._on_drained()
        else:
            self._drain_in(topic, AGAIN_S)

    def drain_all(self) -> Steps[None]:
        """Steps that end when everything collected before is encoded."""
        for topic in list(self._accumulator.topics.values()):
            while not self._accumulator.drain(topic, wait=False):
                yield AGAIN_S

    def _drain_in(self, topic: TopicBuffer, delay_s: float) -> None:
        self._io.call_later(delay_s, lambda: self.drain(topic))
