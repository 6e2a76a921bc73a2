"""Lookup of the positions of partitions that have none: one at a time, for all of them.

Invariants:
    A partition that was sought, or revoked, since the lookup began keeps its new state.
    A partition without any position is not looked up again until poll has raised the error, or a
    seek.

Source: OffsetFetcher.resetPositionsIfNeeded in apache/kafka clients/.../consumer/internals.

Not here: the source of a position (consumer.positions).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from ...protocol.errors import OffsetOutOfRange
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import IoThread, Steps
from ..threads.observed_condition import ObservedCondition
from ..wire.cluster_client import is_retriable
from .fetch_buffer import FetchBuffer
from .fetch_state import NEVER, UNKNOWN_OFFSET, FetchState, Position

FindPositions = Callable[[list[FetchState]], Steps[dict[TopicPartition, Position]]]
"""Steps that find positions; those that have none are left out."""


class PositionLookup:
    """Used on the I/O thread. `condition` guards the states.

    on_end: called after each lookup, without the condition; its argument: whether the known leaders
        may be outdated.
    """

    def __init__(
        self,
        io: IoThread,
        condition: ObservedCondition,
        buffer: FetchBuffer,
        find: FindPositions,
        *,
        retry_backoff_ms: int,
        on_end: Callable[[bool], None],
    ) -> None:
        self._io = io
        self._condition = condition
        self._buffer = buffer
        self._find = find
        self._retry_backoff_ms = retry_backoff_ms
        self._on_end = on_end
        self._finding = False
        self._find_at = 0.0

    def next_at(self, now: float) -> float | None:
        """Time of the next lookup after a backoff; None: no backoff, or a lookup is in progress."""
        return self._find_at if not self._finding and self._find_at > now else None

    def start(self, states: Iterable[FetchState], now: float) -> None:
        """Look for the positions that are missing, if it is time to. Needs `condition`."""
        if self._finding or now < self._find_at:
            return
        missing = [
            state
            for state in states
            if state.fetch_offset == UNKNOWN_OFFSET and state.retry_at <= now
        ]
        if missing:
            self._finding = True
            asked = [(state, state.generation) for state in missing]
            future = self._io.spawn(self._find(missing))
            future.add_done_callback(lambda done: self._on_found(asked, done))

    def _on_found(
        self, asked: list[tuple[FetchState, int]], future: Future[dict[TopicPartition, Position]]
    ) -> None:
        error = future.exception()
        is_stale = False
        with self._condition:
            self._finding = False
            # partitions that were sought, or revoked, since the request are left out
            states = [state for state, generation in asked if state.generation == generation]
            if isinstance(error, Exception):
                self._find_at = time.monotonic() + self._retry_backoff_ms / 1000
                is_stale = is_retriable(error)
                if not is_stale:
                    self._give_up(states, error)
            elif error is None:
                found = future.result()
                for state in states:
                    position = found.get(state.topic_partition)
                    if position is not None:
                        state.seek(*position)
                self._without_position([s for s in states if s.topic_partition not in found])
            self._condition.notify_all()
        self._on_end(is_stale)

    def _without_position(self, states: list[FetchState]) -> None:
        if states:
            names = ", ".join(str(state.topic_partition) for state in states)
            self._give_up(
                states,
                OffsetOutOfRange(
                    f"{names}: no offset is committed; seek, "
                    'or set auto_offset_reset="earliest" or "latest"'
                ),
            )

    def _give_up(self, states: list[FetchState], error: Exception) -> None:
        if states:
            self._buffer.raise_in_poll(error, states)
        for state in states:
            state.retry_at = NEVER  # until poll has raised it, a seek, or a new assignment
