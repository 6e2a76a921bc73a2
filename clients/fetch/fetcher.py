"""Fetches ahead of the caller: one parked request per leader, answers queued undecoded.

Invariants:
    At most `fetch_max_bytes` wait to be taken, and two answers per partition: while the caller
    decodes one, the next is fetched.
    An answer to a request from before a seek or a new assignment is dropped.
    A partition without a position is not fetched; `find_positions` is called to find it.

Several requests may be open per leader, on separate connections: requests parked at the ends of
some partitions must not delay others.

Source: Fetcher in apache/kafka clients/.../consumer/internals.

Not here: the buffer (fetch_buffer), handling of answers (fetch_responses), partitions without a
position (position_lookup), decoding, positions (consumer).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final

from ...protocol.errors import ConnectionFailed, error_for
from ...protocol.messages.fetch import FetchResponse
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..threads.io_thread import Timer
from ..threads.observed_condition import ObservedCondition
from ..wire.cluster_client import ClusterClient, is_retriable
from ..wire.cluster_view import Broker
from ..wire.connection import Address
from .consumer_metrics import FetchMetrics
from .fetch_buffer import FetchBuffer
from .fetch_failures import FetchFailures
from .fetch_request import FetchConfig, OpenFetch, fetch_request
from .fetch_responses import FetchResponses
from .fetch_state import NEVER, NO_REPLICA, UNKNOWN_OFFSET, FetchState, StartAt, StartPoint
from .position_lookup import FindPositions, PositionLookup

MAX_VERSION: Final = 12
"""Highest version that has topic names; from 13 on requests have topic ids."""

_LANES: Final = ("fetch-0", "fetch-1", "fetch-behind")


class Fetcher:
    """Fetcher of a consumer. `condition` guards it, and is notified whenever poll may continue.

    buffer: fetched records and errors for poll.
    """

    def __init__(
        self,
        client: ClusterClient,
        config: FetchConfig,
        find_positions: FindPositions,
    ) -> None:
        self.condition = ObservedCondition()
        self.metrics = FetchMetrics()
        backoff_ms = client.config.retry_backoff_ms
        self.buffer = FetchBuffer(self.condition, retry_backoff_ms=backoff_ms, on_taken=self._wake)
        self._failures = FetchFailures()
        self._responses = FetchResponses(
            config,
            self.buffer,
            self._failures,
            view=lambda: client.view,
            retry_backoff_ms=backoff_ms,
        )
        self._positions = PositionLookup(
            client.io,
            self.condition,
            self.buffer,
            find_positions,
            retry_backoff_ms=backoff_ms,
            on_end=self._on_positions,
        )
        self._client = client
        self._config = config
        self._backoff_s = backoff_ms / 1000
        self._states: dict[TopicPartition, FetchState] = {}
        self._busy: set[tuple[Address, str]] = set()
        self._pumping = False
        self._timer: Timer | None = None
        client.on_view.append(self._wake)

    # --- from the caller ---------------------------------------------------------------------

    def assign(
        self, partitions: Iterable[TopicPartition], start_at: StartPoint, *, hold: bool = False
    ) -> None:
        """Read exactly these partitions; those already assigned keep their position.

        Args:
            hold: look up positions of new ones only after `release`; they may be sought first.
        """
        with self.condition:
            kept = self._states
            self._states = {}
            for key in partitions:
                new = FetchState(key, self._config.max_partition_bytes, start_at)
                if hold:
                    new.retry_at = NEVER
                self._states[key] = kept.pop(key, new)
            for state in kept.values():
                state.generation += 1
                self._failures.forget(state.topic_partition)
            self.buffer.drop_stale()
        self._wake()

    def end(self) -> None:
        """Stop fetching; the client stays open."""
        self.assign((), StartAt.EARLIEST)
        self._client.io.call_soon(lambda: self._client.on_view.remove(self._wake))

    def release(self) -> None:
        """End the hold of `assign`."""
        with self.condition:
            for state in self._states.values():
                if state.fetch_offset == UNKNOWN_OFFSET and state.retry_at == NEVER:
                    state.retry_at = 0.0
        self._wake()

    def states(self) -> dict[TopicPartition, FetchState]:
        with self.condition:
            return dict(self._states)

    def state(self, key: TopicPartitionPair) -> FetchState:
        """State of a partition. Raises ValueError: it is not assigned."""
        state = self._states.get(TopicPartition(*key))
        if state is None:
            raise ValueError(f"{key[0]}-{key[1]} is not assigned to this consumer")
        return state

    def seek(self, key: TopicPartitionPair, offset: int) -> None:
        with self.condition:
            self.state(key).seek(offset)
            self.buffer.drop_stale()
        self._wake()

    def restart(self, key: TopicPartitionPair, start_at: StartPoint) -> None:
        with self.condition:
            self.state(key).restart(start_at)
            self.buffer.drop_stale()
        self._wake()

    def refetch(self, state: FetchState, offset: int) -> None:
        """Continue fetching at `offset`; the position stays."""
        with self.condition:
            position, epoch, topic_id = state.position, state.position_epoch, state.topic_id
            state.seek(offset)
            state.position, state.position_epoch, state.topic_id = position, epoch, topic_id
            self.buffer.drop_stale()
        self._wake()

    def set_paused(self, key: TopicPartitionPair, *, paused: bool) -> None:
        with self.condition:
            self.state(key).paused = paused
            self.condition.notify_all()
        self._wake()

    def notify(self) -> None:
        """Wake a waiting poll."""
        with self.condition:
            self.condition.notify_all()

    def _wake(self) -> None:
        """Start fetches, if there is anything to fetch. From any thread."""
        if not self._pumping:
            self._pumping = True
            self._client.io.call_soon(self._pump)

    # --- on the I/O thread -------------------------------------------------------------------

    def _pump(self) -> None:
        self._pumping = False
        now = time.monotonic()
        with self.condition:
            self._positions.start(self._states.values(), now)
            asked, stale = self._plan(now)
        for one in asked:
            self._ask(one)
        if stale:
            self._refresh()

    def _plan(self, now: float) -> tuple[list[OpenFetch], bool]:
        """Plan requests by node; return also whether the metadata has to be refreshed."""
        buffered = sum(state.buffered_bytes for state in self._states.values())
        asked: dict[Address, OpenFetch] = {}
        wake_at = self._positions.next_at(now)
        stale = False
        for key, state in self._states.items():
            if state.retry_at > now:
                wake_at = state.retry_at if wake_at is None else min(wake_at, state.retry_at)
                continue
            if (
                state.paused
                or state.fetch_offset == UNKNOWN_OFFSET
                or state.asked == state.generation
                or state.buffered_bytes > state.max_bytes
                or buffered >= self._config.max_bytes
            ):
                continue
            leader = self._client.view.leader(*key)
            if leader is None:
                stale = True
                self._failures.failed(key, "it has no leader", now)
                state.retry_at = now + self._backoff_s
                wake_at = state.retry_at if wake_at is None else min(wake_at, state.retry_at)
                continue
            address = self._source(state, leader, now).address
            if address not in asked:
                # Without known new records the broker parks the request: keep a lane free.
                committed_only = bool(self._config.isolation_level)
                behind = state.is_behind(committed_only=committed_only)
                lanes = _LANES if behind else _LANES[:-1]
                lane = next((lane for lane in lanes if (address, lane) not in self._busy), None)
                if lane is None:
                    continue
                asked[address] = OpenFetch(lane, address, {}, now)
            asked[address].states[key] = (state, state.generation, state.fetch_offset)
            state.asked = state.generation
        for one in asked.values():
            self._busy.add((one.address, one.lane))
        self._set_timer(wake_at, now)
        return list(asked.values()), stale

    def _source(self, state: FetchState, leader: Broker, now: float) -> Broker:
        """Node to fetch from: the leader, or its preferred read replica for some time."""
        if state.replica == NO_REPLICA:
            return leader
        replica = self._client.view.brokers.get(state.replica)
        if replica is None or now >= state.replica_until:
            state.replica = NO_REPLICA
            return leader
        return replica

    def _set_timer(self, wake_at: float | None, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at is not None and wake_at != NEVER:
            self._timer = self._client.io.call_later(max(0.001, wake_at - now), self._wake)

    def _ask(self, asked: OpenFetch) -> None:
        try:
            future = self._client.send(
                asked.address,
                fetch_request(asked, self._client.view, self._config),
                FetchResponse,
                lane=asked.lane,
                timeout_ms=self._client.config.request_timeout_ms + self._config.max_wait_ms,
                max_version=MAX_VERSION,
            )
        except Exception as failure:  # noqa: BLE001 -- poll raises it, and does not wait
            future = Future()
            future.set_exception(failure)
        future.add_done_callback(lambda done: self._on_response(asked, done))

    def _on_response(self, asked: OpenFetch, future: Future[FetchResponse]) -> None:
        error = future.exception()
        refresh = False
        with self.condition:
            self._busy.discard((asked.address, asked.lane))
            for state, generation, _ in asked.states.values():
                if state.asked == generation:
                    state.asked = -1
            if error is None and future.result().error_code:
                error = error_for(future.result().error_code)
            if error is not None:
                refresh = True
                now = time.monotonic()
                for state, _, _ in asked.states.values():
                    state.replica = NO_REPLICA
                    state.retry_at = now + self._backoff_s
                    self._failures.failed(state.topic_partition, error, now)
                if isinstance(error, Exception) and not is_retriable(error):
                    self.buffer.raise_in_poll(
                        error, [state for state, _, _ in asked.states.values()]
                    )
            else:
                try:
                    refresh = self._on_answer(asked, future.result())
                except Exception as failure:  # noqa: BLE001 -- poll raises it, and does not wait
                    states = [state for state, _, _ in asked.states.values()]
                    for state in states:
                        state.retry_at = time.monotonic() + self._backoff_s
                    self.buffer.raise_in_poll(failure, states)
        if refresh:
            self._refresh()
        self._wake()

    def _on_answer(self, asked: OpenFetch, response: FetchResponse) -> bool:
        """Handle an answer; return whether the metadata has to be refreshed."""
        refresh = False
        now = time.monotonic()
        partitions = [
            (TopicPartition(topic.topic, data.partition_index), data)
            for topic in response.responses
            for data in topic.partitions
        ]
        size = sum(len(data.records or b"") for _, data in partitions)
        self.metrics.on_response(now - asked.at, response.throttle_time_ms, size, now)
        for key, data in partitions:
            if key in asked.states:
                refresh |= self._responses.on_partition(*asked.states[key], data)
        return refresh

    # --- shared ------------------------------------------------------------------------------

    def _on_positions(self, is_stale: bool) -> None:
        if is_stale:
            self._refresh()
        self._wake()

    def _refresh(self) -> None:
        try:
            refreshing = self._client.refresh()
        except ConnectionFailed:
            return  # the client was closed while this answer was on its way
        refreshing.add_done_callback(lambda _: self._wake())
