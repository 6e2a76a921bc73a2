"""One Fetch request to one node, and what can be read off its answer at once.

Every client's request is built here: consumers, the classic SimpleConsumer, Admin, Spark's readers.
Not here: which node is asked, and when (fetcher); decoding (record_stream).
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
from ..wire.cluster_view import ClusterView
from ..wire.connection import Address
from ..wire.record_metadata import TopicPartition
from .fetch_state import NO_REPLICA, UNKNOWN_EPOCH, FetchState, StartPoint

MAX_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """reset: None means that a lost or missing position is an error. isolation_level: 0 or 1.

    rack: of this consumer; brokers may send it to a replica there (KIP-392).
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
    """One open request: what it asks for, and at which generation and offset.

    at: when it was sent, time.monotonic().
    """

    lane: str
    address: Address
    states: dict[TopicPartition, tuple[FetchState, int, int]]
    at: float


class PartitionFetch(NamedTuple):
    """What to ask of one partition. An epoch of -1 is not checked by the broker."""

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
    """A Fetch request without a session, for the partitions of one leader, in their order."""
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
    """The request of a consumer's open fetch."""
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
    """The last whole batch of an answer, or None if there is none."""
    last = None
    for _, header in walk_batches(records):
        last = header
    return last


def larger_limit(records: memoryview, max_bytes: int, key: TopicPartition, offset: int) -> int:
    """The bytes to ask for after an answer without one whole batch: an old broker cut the first.

    Raises:
        CorruptMessage: it would come cut again, however much is asked for.
    """
    size = read_size(records)[1] if len(records) >= LOG_OVERHEAD else HEADER_SIZE
    if size < HEADER_SIZE:
        raise CorruptMessage(f"{key}: the batch at offset {offset} says that it has {size} bytes")
    if max_bytes >= MAX_BYTES:
        raise CorruptMessage(
            f"{key}: of the batch at offset {offset}, which says that it has {size} bytes, "
            f"only {len(records)} come"
        )
    return min(MAX_BYTES, 2 * max_bytes)
