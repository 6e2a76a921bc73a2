"""Fetch requests to one node, and checks of their answers before decoding.

Every client's request is built here: consumers, the classic SimpleConsumer, Admin, Spark's readers.
Not here: the choice of node and time (fetcher); decoding (record_stream).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...protocol.errors import CorruptMessage
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ...protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    RecordBatchHeader,
    read_size,
    walk_batches,
)
from ...protocol.topic_partition import TopicPartition
from ..wire.cluster_view import ClusterView
from ..wire.connection import Address
from .fetch_state import NO_REPLICA, UNKNOWN_EPOCH, FetchState, StartPoint

MAX_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """Settings of fetches. reset: None: a lost or missing position is an error.

    isolation_level: 0 or 1. rack: that of this consumer, to fetch from a replica there (KIP-392).
    """

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    max_partition_bytes: int
    isolation_level: int
    reset: StartPoint | None
    rack: str = ""


@dataclass(slots=True, eq=False)
class OpenFetch:
    """Open request, with the generation and offset of each partition.

    at: time it was sent, time.monotonic().
    """

    lane: str
    address: Address
    states: dict[TopicPartition, tuple[FetchState, int, int]]
    at: float


class PartitionFetch(NamedTuple):
    """Fetch of one partition. An epoch of -1 is not checked by the broker."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = UNKNOWN_EPOCH
    last_fetched_epoch: int = UNKNOWN_EPOCH


def build_fetch_request(
    partitions: Iterable[PartitionFetch],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = MAX_BYTES,
    isolation_level: int = 0,
    rack: str = "",
) -> FetchRequest:
    """Build a Fetch request without a session, for partitions of one leader, in order."""
    topics: dict[str, FetchTopic] = {}
    for one in partitions:
        topic, partition = one.topic_partition
        topics.setdefault(topic, FetchTopic(topic=topic)).partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=one.offset,
                last_fetched_epoch=one.last_fetched_epoch,
                partition_max_bytes=one.max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=list(topics.values()),
        rack_id=rack,
    )


def fetch_request(asked: OpenFetch, view: ClusterView, config: FetchConfig) -> FetchRequest:
    """Build the request of a consumer's open fetch."""
    return build_fetch_request(
        [
            _partition_fetch(key, state, offset, view)
            for key, (state, _, offset) in asked.states.items()
        ],
        max_wait_ms=config.max_wait_ms,
        min_bytes=config.min_bytes,
        max_bytes=config.max_bytes,
        isolation_level=config.isolation_level,
        rack=config.rack,
    )


def _partition_fetch(
    key: TopicPartition, state: FetchState, offset: int, view: ClusterView
) -> PartitionFetch:
    partition = view.partition(*key)
    return PartitionFetch(
        key,
        offset,
        state.max_bytes,
        UNKNOWN_EPOCH if partition is None else partition.leader_epoch,
        # A replica may not know yet that the leader's log has changed.
        state.fetch_epoch if state.replica == NO_REPLICA else UNKNOWN_EPOCH,
    )


def last_batch(records: memoryview) -> RecordBatchHeader | None:
    """Header of the last complete batch of an answer, or None if there is none."""
    last = None
    for _, header in walk_batches(records):
        last = header
    return last


def larger_limit(records: memoryview, max_bytes: int, key: TopicPartition, offset: int) -> int:
    """Byte limit for a retry after an answer whose only batch is cut off, as by old brokers.

    Raises:
        CorruptMessage: a larger limit would not help.
    """
    size = read_size(records)[1] if len(records) >= LOG_OVERHEAD else HEADER_SIZE
    if size < HEADER_SIZE:
        raise CorruptMessage(
            f"{key}: the batch at offset {offset} has an invalid size of {size} bytes"
        )
    if max_bytes >= MAX_BYTES:
        raise CorruptMessage(
            f"{key}: the batch at offset {offset} has {size} bytes by its header, but the broker "
            f"returns only {len(records)}"
        )
    return min(MAX_BYTES, 2 * max_bytes)
