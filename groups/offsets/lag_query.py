"""Computes consumer group lag: its requests to leaders, and the results.

    ends    the high watermark of every partition with a committed offset
    starts  the log start offset of those that are behind: unread records may be deleted by now
    times   a kilobyte from the first unread record on: the header of its batch says when it was
            written

    lag in records  high watermark - committed offset, as Kafka's tools count it
    lag in seconds  the age of the first unread record; 0 if there is none

The time of a record inside of a batch is interpolated between the batch's first and last times, by
its offset: the records themselves may be compressed, and a metric is not worth decompressing them.
Why not a history of end offsets: docs/design/groups.md.

Invariants:
    committed offsets are collected before ends are requested, so no group is ahead of its log;
    a partition whose leader does not answer is left out, and counted: no number is better than an
    old one.

Each step iterates over all positions: tens of milliseconds for 20,000 of them, so use a thread.

Pure: the time is an argument, the caller sends the requests (actors/coordinators/lag_reader).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from ...protocol.buffer import Buffer
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ...protocol.records.record_batch import HEADER_SIZE, MAGIC, read_header
from ...protocol.topic_partition import TopicPartitionPair

LATEST: Final = -1
EARLIEST: Final = -2
HEADER_BYTES: Final = 1024
"""Bytes fetched of each partition. The first partition of a request is answered with a whole batch
anyway.
"""
PARTITIONS_AT_ONCE: Final = 250
"""Most partitions in one request: an answer of 250 KB, and some milliseconds of its leader's event
loop.
"""

LeaderOf: TypeAlias = Callable[[TopicPartitionPair], int | None]


class GroupPosition(NamedTuple):
    """A committed offset."""

    group: str
    topic: str
    partition: int
    offset: int


class GroupPartitionLag(NamedTuple):
    """Lag of a group in a partition. seconds: None if the time of the first unread record is
    unknown.
    """

    group: str
    topic: str
    partition: int
    records: int
    seconds: float | None


class LagQuery:
    """One computation. Send `ends`, then `starts`, then `times`; `lags` is the result."""

    def __init__(self, positions: Iterable[GroupPosition], leader_of: LeaderOf) -> None:
        self._positions = list(positions)
        self._leader_of = leader_of
        self._ends: dict[TopicPartitionPair, int] = {}
        self._starts: dict[TopicPartitionPair, int] = {}
        self._times: dict[tuple[TopicPartitionPair, int], int] = {}

    def ends(self) -> Iterator[tuple[int, ListOffsetsRequest]]:
        """Requests for high watermarks, as (node, request)."""
        keys = {(one.topic, one.partition) for one in self._positions}
        return self._list_offsets(sorted(keys), LATEST)

    def on_ends(self, answer: ListOffsetsResponse) -> None:
        self._ends.update(_offsets_in(answer))

    def starts(self) -> Iterator[tuple[int, ListOffsetsRequest]]:
        return self._list_offsets(sorted({key for key, _ in self._unread()}), EARLIEST)

    def on_starts(self, answer: ListOffsetsResponse) -> None:
        self._starts.update(_offsets_in(answer))

    def times(self) -> Iterator[tuple[int, FetchRequest]]:
        """Requests for the first unread records. Groups at different offsets of a partition use
        different requests.
        """
        turns: defaultdict[TopicPartitionPair, int] = defaultdict(int)
        by_turn: defaultdict[tuple[int, int], list[tuple[TopicPartitionPair, int]]] = defaultdict(
            list
        )
        for key, offset in sorted({self._first_unread(*one) for one in self._unread()}):
            leader = self._leader_of(key)
            if leader is not None and key in self._starts:
                by_turn[turns[key], leader].append((key, offset))
                turns[key] += 1
        for (_, leader), asked in sorted(by_turn.items()):
            for begin in range(0, len(asked), PARTITIONS_AT_ONCE):
                yield leader, _fetch(asked[begin : begin + PARTITIONS_AT_ONCE])

    def on_times(self, request: FetchRequest, answer: FetchResponse) -> None:
        asked = {
            (topic.topic, one.partition): one.fetch_offset
            for topic in request.topics
            for one in topic.partitions
        }
        for topic in answer.responses:
            for one in topic.partitions:
                key = (topic.topic, one.partition_index)
                if one.error_code or not one.records or key not in asked:
                    continue
                written_ms = written_at(one.records, asked[key])
                if written_ms is not None:
                    self._times[key, asked[key]] = written_ms

    def lags(self, now_ms: int) -> list[GroupPartitionLag]:
        """Lags of all partitions whose high watermark is known."""
        found = []
        for one in self._positions:
            key = (one.topic, one.partition)
            if key in self._ends:
                records = max(0, self._ends[key] - one.offset)
                found.append(GroupPartitionLag(*one[:3], records, self._seconds(one, now_ms)))
        return found

    def _seconds(self, one: GroupPosition, now_ms: int) -> float | None:
        key = (one.topic, one.partition)
        if one.offset >= self._ends[key]:
            return 0.0
        written_ms = self._times.get(self._first_unread(key, one.offset))
        return None if written_ms is None else max(0, now_ms - written_ms) / 1000

    def _unread(self) -> Iterator[tuple[TopicPartitionPair, int]]:
        for one in self._positions:
            key = (one.topic, one.partition)
            if one.offset < self._ends.get(key, -1):
                yield key, one.offset

    def _first_unread(self, key: TopicPartitionPair, offset: int) -> tuple[TopicPartitionPair, int]:
        return key, max(offset, self._starts.get(key, 0))

    def _list_offsets(
        self, keys: Iterable[TopicPartitionPair], timestamp: int
    ) -> Iterator[tuple[int, ListOffsetsRequest]]:
        by_leader: defaultdict[int, list[TopicPartitionPair]] = defaultdict(list)
        for key in keys:
            leader = self._leader_of(key)
            if leader is not None:
                by_leader[leader].append(key)
        for leader, asked in sorted(by_leader.items()):
            for begin in range(0, len(asked), PARTITIONS_AT_ONCE):
                by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
                for topic, partition in asked[begin : begin + PARTITIONS_AT_ONCE]:
                    by_topic[topic].append(
                        ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
                    )
                topics = [ListOffsetsTopic(name=name, partitions=p) for name, p in by_topic.items()]
                yield leader, ListOffsetsRequest(replica_id=-1, topics=topics)


def _fetch(asked: Iterable[tuple[TopicPartitionPair, int]]) -> FetchRequest:
    by_topic: defaultdict[str, list[FetchPartition]] = defaultdict(list)
    for (topic, partition), offset in asked:
        by_topic[topic].append(
            FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=HEADER_BYTES
            )
        )
    return FetchRequest(
        max_bytes=2 * PARTITIONS_AT_ONCE * HEADER_BYTES,
        topics=[FetchTopic(topic=name, partitions=each) for name, each in by_topic.items()],
    )


def _offsets_in(answer: ListOffsetsResponse) -> Iterator[tuple[TopicPartitionPair, int]]:
    for topic in answer.topics:
        for one in topic.partitions:
            if not one.error_code and one.offset >= 0:
                yield (topic.name, one.partition_index), one.offset


def written_at(records: Buffer, offset: int) -> int | None:
    """Time in ms of the record at `offset`, or the next one, by the header of its batch.

    None if the data has no such header: batches before Kafka 0.11, or without timestamps.
    """
    data = memoryview(records)
    if len(data) < HEADER_SIZE:
        return None
    header = read_header(data)
    if header.magic != MAGIC or header.max_timestamp < 0:
        return None
    if header.is_log_append_time or header.base_timestamp < 0:
        return header.max_timestamp
    place = offset - header.base_offset
    if place <= 0 or header.max_timestamp <= header.base_timestamp:
        return header.base_timestamp
    span = header.max_timestamp - header.base_timestamp
    return header.base_timestamp + span * min(place, header.last_offset_delta) // max(
        1, header.last_offset_delta
    )
