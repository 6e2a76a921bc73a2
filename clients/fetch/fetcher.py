"""Fetches ahead of the caller: one parked request per leader, answers queued undecoded.

What always holds:
    At most `fetch_max_bytes` wait to be taken, and two answers per partition: while the caller
    decodes one, the next is on its way.
    An answer to a request from before a seek or a new assignment is dropped.
    A partition without a position is not fetched; `find_positions` is called for one.

The next fetch offset is read from the headers of the answer's batches, so that the next request is
sent before anything is decoded. Several requests may be open per leader, on separate connections:
requests parked at the ends of some partitions must not delay others.

Source: Fetcher in apache/kafka clients/.../consumer/internals.

Not here: decoding, positions (consumer), start positions (positions).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ConnectionFailed,
    CorruptMessage,
    OffsetOutOfRange,
    error_for,
)
from ...protocol.messages.fetch import FetchResponse, PartitionData
from ..threads.io_thread import Steps, Timer
from ..threads.observed_condition import ObservedCondition
from ..wire.cluster_client import ClusterClient, is_retriable
from ..wire.cluster_view import Broker
from ..wire.connection import Address
from ..wire.record_metadata import TopicPartition, TopicPartitionLike
from .consumer_metrics import FetchMetrics
from .fetch_failures import FetchFailures
from .fetch_request import FetchConfig, OpenFetch, fetch_request, larger_limit, last_batch
from .fetch_state import (
    NEVER,
    NO_REPLICA,
    UNKNOWN_OFFSET,
    FetchedRecords,
    FetchState,
    Position,
    StartAt,
    StartPoint,
)

logger = logging.getLogger(__name__)

MAX_VERSION: Final = 12
"""Highest version that has topic names; from 13 on requests have topic ids."""

REPLICA_SECONDS: Final = 300.0
"""Seconds after which the leader chooses the preferred read replica again (metadata.max.age.ms)."""
_LANES: Final = ("fetch-0", "fetch-1", "fetch-behind")


@dataclass(frozen=True, slots=True)
class _Failure:
    """Error for poll to raise, and its partitions with their generations at that time."""

    error: Exception
    concerned: tuple[tuple[FetchState, int], ...]

    @property
    def is_current(self) -> bool:
        return any(state.generation == generation for state, generation in self.concerned)

    def ask_again(self, at: float) -> None:
        """Raise it again in a later poll, as Java's consumer does, unless there was a seek."""
        for state, generation in self.concerned:
            if state.generation == generation:
                state.retry_at = at


class Fetcher:
    """Fetcher of a consumer. `condition` guards it, and is notified whenever poll may continue."""

    def __init__(
        self,
        client: ClusterClient,
        config: FetchConfig,
        find_positions: Callable[[list[FetchState]], Steps[dict[TopicPartition, Position]]],
    ) -> None:
        self.condition = ObservedCondition()
        self.metrics = FetchMetrics()
        self._failures = FetchFailures()
        self._client = client
        self._config = config
        self._find_positions = find_positions
        self._states: dict[TopicPartition, FetchState] = {}
        self._completed: deque[FetchedRecords] = deque()
        self._errors: deque[_Failure] = deque(
            maxlen=100
        )  # bounded, as there may be no poll for a while
        self._busy: set[tuple[Address, str]] = set()
        self._finding = False
        self._find_at = 0.0
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
            self._drop_stale()
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

    def state(self, key: TopicPartitionLike) -> FetchState:
        """State of a partition. Raises ValueError: it is not assigned."""
        state = self._states.get(TopicPartition(*key))
        if state is None:
            raise ValueError(f"{key[0]}-{key[1]} is not assigned to this consumer")
        return state

    def seek(self, key: TopicPartitionLike, offset: int) -> None:
        with self.condition:
            self.state(key).seek(offset)
            self._drop_stale()
        self._wake()

    def restart(self, key: TopicPartitionLike, start_at: StartPoint) -> None:
        with self.condition:
            self.state(key).restart(start_at)
            self._drop_stale()
        self._wake()

    def refetch(self, state: FetchState, offset: int) -> None:
        """Continue fetching at `offset`; the position stays."""
        with self.condition:
            position, epoch = state.position, state.position_epoch
            state.seek(offset)
            state.position, state.position_epoch = position, epoch
            self._drop_stale()
        self._wake()

    def set_paused(self, key: TopicPartitionLike, *, paused: bool) -> None:
        with self.condition:
            self.state(key).paused = paused
            self.condition.notify_all()
        self._wake()

    def take(self) -> FetchedRecords | None:
        """Return the oldest answer of a partition that is not paused."""
        with self.condition:
            for number, fetched in enumerate(self._completed):
                if not fetched.state.paused:
                    del self._completed[number]
                    fetched.state.buffered_bytes -= len(fetched.records)
                    break
            else:
                return None
        self._wake()
        return fetched

    def take_error(self) -> Exception | None:
        with self.condition:
            while self._errors:
                failure = self._errors.popleft()
                if failure.is_current:
                    failure.ask_again(time.monotonic() + self._backoff_s)
                    break
            else:
                return None
        self._wake()
        return failure.error

    def ready_count(self) -> int:
        """Number of answers that `take` can return now."""
        with self.condition:
            return sum(not one.state.paused for one in self._completed)

    def has_error(self) -> bool:
        with self.condition:
            return any(failure.is_current for failure in self._errors)

    def is_ready(self) -> bool:
        """Whether `take` or `take_error` would return something. Needs `condition`."""
        return any(failure.is_current for failure in self._errors) or any(
            not one.state.paused for one in self._completed
        )

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
            self._start_finding(now)
            asked, stale = self._plan(now)
        for one in asked:
            self._ask(one)
        if stale:
            self._refresh()

    def _plan(self, now: float) -> tuple[list[OpenFetch], bool]:
        """Plan requests by node; return also whether the metadata has to be refreshed."""
        buffered = sum(state.buffered_bytes for state in self._states.values())
        asked: dict[Address, OpenFetch] = {}
        wake_at = self._find_at if not self._finding and self._find_at > now else None
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
                    self._raise_in_poll(error, [state for state, _, _ in asked.states.values()])
            else:
                try:
                    refresh = self._on_answer(asked, future.result())
                except Exception as failure:  # noqa: BLE001 -- poll raises it, and does not wait
                    states = [state for state, _, _ in asked.states.values()]
                    for state in states:
                        state.retry_at = time.monotonic() + self._backoff_s
                    self._raise_in_poll(failure, states)
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
                refresh |= self._on_partition(*asked.states[key], data)
        return refresh

    def _on_partition(
        self, state: FetchState, generation: int, fetch_offset: int, data: PartitionData
    ) -> bool:
        """Handle an answer; return whether the metadata has to be refreshed."""
        if generation != state.generation:
            return False
        if data.error_code:
            return self._on_partition_error(state, fetch_offset, data)
        if data.preferred_read_replica >= 0:
            state.replica = data.preferred_read_replica
            state.replica_until = time.monotonic() + REPLICA_SECONDS
            return False
        if data.diverging_epoch.end_offset >= 0:
            self._on_truncation(state, fetch_offset, data.diverging_epoch.end_offset)
            return False
        self._failures.succeeded(state.topic_partition)
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        records = data.records
        if not records:
            return False
        assert isinstance(records, memoryview)
        last = last_batch(records)
        if last is None:
            self._on_cut(state, fetch_offset, records)
            return False
        next_offset = last.next_offset
        state.fetch_offset = max(fetch_offset, next_offset)
        state.fetch_epoch = last.leader_epoch
        state.max_bytes = self._config.max_partition_bytes
        state.buffered_bytes += len(records)
        aborted = None
        if self._config.isolation_level:
            aborted = [
                (one.producer_id, one.first_offset) for one in data.aborted_transactions or ()
            ]
        self._completed.append(
            FetchedRecords(
                state, generation, fetch_offset, next_offset, records, aborted, last.leader_epoch
            )
        )
        self.condition.notify_all()
        return False

    def _on_cut(self, state: FetchState, fetch_offset: int, records: memoryview) -> None:
        try:
            state.max_bytes = larger_limit(
                records, state.max_bytes, state.topic_partition, fetch_offset
            )
        except CorruptMessage as error:
            state.retry_at = time.monotonic() + self._backoff_s
            self._raise_in_poll(error, [state])

    def _on_partition_error(
        self, state: FetchState, fetch_offset: int, data: PartitionData
    ) -> bool:
        code, key = data.error_code, state.topic_partition
        state.retry_at = time.monotonic() + self._backoff_s
        if state.replica != NO_REPLICA:  # fall back to the leader
            state.replica = NO_REPLICA
            return True
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.buffered_bytes or state.position != fetch_offset:
                return False  # what is buffered comes first; then it is asked, and answered, again
            if self._config.reset is None:
                self._raise_in_poll(
                    OffsetOutOfRange(
                        f"{key}: offset {fetch_offset} is not, or no longer, in the log; seek, "
                        'or set auto_offset_reset="earliest" or "latest"'
                    ),
                    [state],
                )
                state.retry_at = NEVER  # until poll has raised it, or a seek
            else:
                state.restart(self._config.reset)
            return False
        error = error_for(code)
        if not error.retriable or code == ErrorCode.CORRUPT_MESSAGE:
            # As Kafka's consumer: the broker knows of no copy that could be read instead.
            self._raise_in_poll(error_for(code, f"{key}: {error}"), [state])
        else:
            self._failures.failed(key, error, time.monotonic())
        return True

    def _on_truncation(self, state: FetchState, fetch_offset: int, end_offset: int) -> None:
        """Handle a truncation: the leader's log ends before fetch_offset (unclean election, ...).

        Source: SubscriptionState.maybeCompleteValidation, LogTruncationException (KIP-320).
        """
        key = state.topic_partition
        if state.buffered_bytes or state.position != fetch_offset:
            state.retry_at = time.monotonic() + self._backoff_s
            return  # what is buffered comes first; then it is asked, and answered, again
        known = min(end_offset, fetch_offset)
        said = (
            f"{key}: the log was truncated to offset {known}, below the fetch offset {fetch_offset}"
        )
        if self._config.reset is None:
            self._raise_in_poll(
                OffsetOutOfRange(
                    f"{said}, since replicas with the records are lost; seek, to {known} for "
                    'example, or set auto_offset_reset="earliest" or "latest"'
                ),
                [state],
            )
            state.retry_at = NEVER  # until poll has raised it, or a seek
            return
        logger.warning("%s, since replicas with the records are lost; continuing there", said)
        state.seek(known)

    def _raise_in_poll(self, error: Exception, states: Iterable[FetchState]) -> None:
        """Let poll raise `error`, unless all of `states` are sought or revoked before."""
        concerned = tuple((state, state.generation) for state in states)
        self._errors.append(_Failure(error, concerned))
        self.condition.notify_all()

    # --- positions ---------------------------------------------------------------------------

    def _start_finding(self, now: float) -> None:
        if self._finding or now < self._find_at:
            return
        missing = [state for state in self._states.values() if state.fetch_offset == UNKNOWN_OFFSET]
        missing = [state for state in missing if state.retry_at <= now]
        if missing:
            self._finding = True
            asked = [(state, state.generation) for state in missing]
            future = self._client.io.spawn(self._find_positions(missing))
            future.add_done_callback(lambda done: self._on_found(asked, done))

    def _on_found(
        self, asked: list[tuple[FetchState, int]], future: Future[dict[TopicPartition, Position]]
    ) -> None:
        error = future.exception()
        refresh = False
        with self.condition:
            self._finding = False
            # one that was sought, or revoked, since the request is not concerned
            states = [state for state, generation in asked if state.generation == generation]
            if isinstance(error, Exception):
                self._find_at = time.monotonic() + self._backoff_s
                refresh = is_retriable(error)
                if not refresh:
                    self._give_up_finding(states, error)
            elif error is None:
                found = future.result()
                for state in states:
                    position = found.get(state.topic_partition)
                    if position is not None:
                        state.seek(*position)
                self._without_position([s for s in states if s.topic_partition not in found])
            self.condition.notify_all()
        if refresh:
            self._refresh()
        self._wake()

    def _without_position(self, states: list[FetchState]) -> None:
        if states:
            names = ", ".join(str(state.topic_partition) for state in states)
            self._give_up_finding(
                states,
                OffsetOutOfRange(
                    f"{names}: no offset is committed; seek, "
                    'or set auto_offset_reset="earliest" or "latest"'
                ),
            )

    def _give_up_finding(self, states: list[FetchState], error: Exception) -> None:
        if states:
            self._raise_in_poll(error, states)
        for state in states:
            state.retry_at = NEVER  # until poll has raised it, a seek, or a new assignment

    # --- shared ------------------------------------------------------------------------------

    @property
    def _backoff_s(self) -> float:
        return self._client.config.retry_backoff_ms / 1000

    def _refresh(self) -> None:
        try:
            refreshing = self._client.refresh()
        except ConnectionFailed:
            return  # the client was closed while this answer was on its way
        refreshing.add_done_callback(lambda _: self._wake())

    def _drop_stale(self) -> None:
        self._completed = deque(fetched for fetched in self._completed if fetched.is_current)
        self.condition.notify_all()
