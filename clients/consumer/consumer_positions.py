"""Positions of a consumer: seek, pause, positions, offsets by time, lag.

Not here: groups and their committed offsets (group_member); the start position of a partition
(positions).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import ConnectionFailed
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..fetch.fetch_state import UNKNOWN_OFFSET, StartAt, StartAtTime, StartPoint
from ..fetch.fetcher import Fetcher
from ..wire.cluster_client import ClusterClient
from ..wire.offset_lookup import EARLIEST, LATEST, list_offsets
from ..wire.record_metadata import OffsetAndTimestamp
from .thread_waiter import ThreadWaiter


class ConsumerPositions:
    """Positions of one consumer's partitions. isolation: 0, or 1 for read_committed.

    They are stored in the fetcher's states, which poll advances.
    """

    def __init__(
        self, client: ClusterClient, fetcher: Fetcher, waiter: ThreadWaiter, *, isolation: int
    ) -> None:
        self._client = client
        self._fetcher = fetcher
        self._waiter = waiter
        self._isolation = isolation

    def assignment(self) -> list[TopicPartition]:
        """See Consumer.assignment."""
        return sorted(self._fetcher.states())

    def partitions_for(self, topic: str) -> int:
        """See Consumer.partitions_for."""
        self._waiter.check_open()
        return len(self._waiter.run(self._client.topic(topic)).partitions)

    def seek(self, partition: TopicPartitionPair, offset: int) -> None:
        """See Consumer.seek."""
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; use 0 or more, or seek_to_beginning")
        self._fetcher.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartitionPair) -> None:
        """See Consumer.seek_to_beginning."""
        self._restart(partitions, StartAt.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartitionPair) -> None:
        """See Consumer.seek_to_end."""
        self._restart(partitions, StartAt.LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartitionPair) -> None:
        """See Consumer.seek_to_time."""
        if timestamp_ms < 0:
            raise ValueError(f"timestamp_ms={timestamp_ms}: use milliseconds since 1970")
        self._restart(partitions, StartAtTime(timestamp_ms))

    def pause(self, *partitions: TopicPartitionPair) -> None:
        """See Consumer.pause."""
        for partition in partitions:
            self._fetcher.set_paused(partition, paused=True)

    def resume(self, *partitions: TopicPartitionPair) -> None:
        """See Consumer.resume."""
        for partition in partitions:
            self._fetcher.set_paused(partition, paused=False)

    def paused(self) -> list[TopicPartition]:
        """See Consumer.paused."""
        return sorted(key for key, state in self._fetcher.states().items() if state.paused)

    def position(self, partition: TopicPartitionPair) -> int:
        """See Consumer.position."""
        state = self._fetcher.state(partition)
        if state.position == UNKNOWN_OFFSET:
            self._fetcher.release()
            self._waiter.wait_for(
                lambda: state.position != UNKNOWN_OFFSET or self._fetcher.buffer.has_error()
            )
        if state.position == UNKNOWN_OFFSET:
            self._waiter.raise_if_woken()
            raise self._fetcher.buffer.take_error() or ConnectionFailed(
                f"no position for {state.topic_partition} within "
                f"{self._waiter.request_timeout_ms} ms"
            )
        return state.position

    def beginning_offsets(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        """See Consumer.beginning_offsets."""
        return self._list(partitions, EARLIEST)

    def end_offsets(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        """See Consumer.end_offsets."""
        return self._list(partitions, LATEST)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartitionPair, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See Consumer.offsets_for_times."""
        self._waiter.check_open()
        wanted = {TopicPartition(*key): timestamp for key, timestamp in timestamps_ms.items()}
        if any(timestamp < 0 for timestamp in wanted.values()):
            raise ValueError("timestamps_ms has a negative time; use milliseconds since 1970")
        found = self._waiter.run(
            list_offsets(self._client, wanted, isolation_level=self._isolation)
        )
        return {
            key: None if answer.offset < 0 else OffsetAndTimestamp(*answer)
            for key, answer in found.items()
        }

    def lag(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        """See Consumer.lag."""
        ends = self._list(partitions, LATEST)
        return {key: max(0, end - self.position(key)) for key, end in ends.items()}

    def current_lag(self, partition: TopicPartitionPair) -> int | None:
        """See Consumer.current_lag."""
        state = self._fetcher.state(partition)
        end = state.last_stable_offset if self._isolation else state.high_watermark
        if UNKNOWN_OFFSET in (end, state.position):
            return None
        return max(0, end - state.position)

    def _restart(self, partitions: tuple[TopicPartitionPair, ...], start_at: StartPoint) -> None:
        for partition in partitions or self.assignment():
            self._fetcher.restart(partition, start_at)

    def _list(
        self, partitions: tuple[TopicPartitionPair, ...], at: int
    ) -> dict[TopicPartition, int]:
        self._waiter.check_open()
        wanted = [TopicPartition(*one) for one in partitions] or self.assignment()
        found = self._waiter.run(
            list_offsets(self._client, dict.fromkeys(wanted, at), isolation_level=self._isolation)
        )
        return {key: answer.offset for key, answer in found.items()}
