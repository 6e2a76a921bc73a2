"""The half of a consumer that has nothing to do with groups: where it reads, and how far it is.

Also how its calls wait: for an answer, for a time, and no longer than until `wakeup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ...protocol.errors import ConnectionFailed, KafkaError, RequestTimedOut
from ..fetch.fetch_state import UNKNOWN_OFFSET, StartAt, StartAtTime, StartPoint
from ..fetch.fetcher import Fetcher
from ..wire.cluster_client import ClusterClient
from ..wire.io_thread import Steps
from ..wire.list_offsets import EARLIEST, LATEST, list_offsets
from ..wire.topic_partition import OffsetAndTimestamp, TopicPartition

T = TypeVar("T")

Partition = TopicPartition | tuple[str, int]


class Wakeup(Exception):
    """A call of a consumer was ended by `wakeup`."""


class ConsumerPositions:
    """Consumer's part that reads given partitions. Made by Consumer only."""

    _client: ClusterClient
    _fetcher: Fetcher
    _isolation: int
    _request_timeout_ms: int
    _woken = False

    def assignment(self) -> list[TopicPartition]:
        """What is read now, in order."""
        return sorted(self._fetcher.states())

    def partitions_for(self, topic: str) -> int:
        """How many partitions `topic` has.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        self._check_open()
        return len(self._run(self._client.topic(topic)).partitions)

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at `offset`, which may lie outside the log: then poll resets or raises.

        Raises:
            ValueError: not assigned, or a negative offset.
        """
        if offset < 0:
            raise ValueError(f"an offset is not negative: {offset}; see seek_to_beginning")
        self._fetcher.seek(partition, offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on at the first record there is, in these partitions or in all."""
        self._restart(partitions, StartAt.EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Go on after the last record there is, in these partitions or in all."""
        self._restart(partitions, StartAt.LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Go on at the first record not before a time, or at the end, in these partitions or all.

        Args:
            timestamp_ms: since 1970.
        """
        if timestamp_ms < 0:
            raise ValueError(f"a time is milliseconds since 1970, not {timestamp_ms}")
        self._restart(partitions, StartAtTime(timestamp_ms))

    def pause(self, *partitions: Partition) -> None:
        """Hand out nothing of these partitions until `resume`; what was fetched is kept."""
        for partition in partitions:
            self._fetcher.set_paused(partition, paused=True)

    def resume(self, *partitions: Partition) -> None:
        for partition in partitions:
            self._fetcher.set_paused(partition, paused=False)

    def paused(self) -> list[TopicPartition]:
        """Those that `pause` holds back, in order. A rebalance that takes one away forgets it."""
        return sorted(key for key, state in self._fetcher.states().items() if state.paused)

    def position(self, partition: Partition) -> int:
        """The offset of the next record to be handed out. It waits until that is known.

        Raises:
            ValueError: not assigned.
            OffsetOutOfRange: there is none, and auto_offset_reset is "none".
            ConnectionFailed: not known within `request_timeout_ms`.
            Wakeup: `wakeup` was called.
        """
        state = self._fetcher.state(partition)
        if state.position == UNKNOWN_OFFSET:
            self._fetcher.release()
            with self._fetcher.condition:
                self._fetcher.condition.wait_for(
                    lambda: (
                        state.position != UNKNOWN_OFFSET or self._fetcher.has_error() or self._woken
                    ),
                    self._request_timeout_ms / 1000,
                )
        if state.position == UNKNOWN_OFFSET:
            self._raise_if_woken()
            raise self._fetcher.take_error() or ConnectionFailed(
                f"no position for {state.topic_partition} within {self._request_timeout_ms} ms"
            )
        return state.position

    def beginning_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """The first offset there is, of these partitions or all assigned."""
        return self._list(partitions, EARLIEST)

    def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """One past the last record that may be read, of these partitions or all assigned."""
        return self._list(partitions, LATEST)

    def offsets_for_times(
        self, timestamps_ms: Mapping[Partition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record not before a time, by partition; None where there is none.

        Args:
            timestamps_ms: since 1970, by partition; they need not be assigned.
        """
        self._check_open()
        wanted = {TopicPartition(*key): timestamp for key, timestamp in timestamps_ms.items()}
        if any(timestamp < 0 for timestamp in wanted.values()):
            raise ValueError("a time is milliseconds since 1970, and not negative")
        found = self._run(list_offsets(self._client, wanted, isolation_level=self._isolation))
        return {
            key: None if answer.offset < 0 else OffsetAndTimestamp(*answer)
            for key, answer in found.items()
        }

    def lag(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """Records between the position and the end, of these assigned partitions or all.

        Cost: a request to each leader; see `current_lag`.
        """
        ends = self._list(partitions, LATEST)
        return {key: max(0, end - self.position(key)) for key, end in ends.items()}

    def current_lag(self, partition: Partition) -> int | None:
        """As `lag`, but as the last fetch saw the end: nothing is asked. None if none has yet.

        Raises:
            ValueError: not assigned.
        """
        state = self._fetcher.state(partition)
        end = state.last_stable_offset if self._isolation else state.high_watermark
        if UNKNOWN_OFFSET in (end, state.position):
            return None
        return max(0, end - state.position)

    def wakeup(self) -> None:
        """End a call that waits, or else the next one, with Wakeup. From any thread or signal."""
        self._woken = True
        self._client.io.call_soon(self._fetcher.notify)  # takes no lock here: signal handlers may

    # --- waiting -----------------------------------------------------------------------------

    def _restart(self, partitions: tuple[Partition, ...], start_at: StartPoint) -> None:
        for partition in partitions or self.assignment():
            self._fetcher.restart(partition, start_at)

    def _list(self, partitions: tuple[Partition, ...], at: int) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = [TopicPartition(*one) for one in partitions] or self.assignment()
        found = self._run(
            list_offsets(self._client, dict.fromkeys(wanted, at), isolation_level=self._isolation)
        )
        return {key: answer.offset for key, answer in found.items()}

    def _run(self, steps: Steps[T]) -> T:
        future = self._client.io.spawn(steps)
        fetcher = self._fetcher  # not self: a callback must not keep the consumer
        future.add_done_callback(lambda _: fetcher.notify())
        with fetcher.condition:
            fetcher.condition.wait_for(
                lambda: future.done() or self._woken, self._request_timeout_ms / 1000
            )
        if not future.done():
            self._raise_if_woken()
            raise RequestTimedOut(f"no result within {self._request_timeout_ms} ms")
        return future.result()

    def _raise_if_woken(self) -> None:
        if self._woken:
            self._woken = False
            raise Wakeup("wakeup() was called")

    def _check_open(self) -> None:
        if self._client.closed:
            raise KafkaError("the consumer is closed")
