"""One Fetch request: what a consumer asks of one node, and what it reads off the answer at once.

Not here: whom to ask and when (fetcher), decoding (record_stream).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ...protocol.records.record_batch import RecordBatchHeader, walk_batches
from ..wire.connection import Address
from ..wire.metadata import ClusterView
from ..wire.topic_partition import TopicPartition
from .fetch_state import NO_REPLICA, UNKNOWN_EPOCH, FetchState, StartPoint


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
class Asked:
    """One open request: what it asks for, and at which generation and offset.

    at: when it was sent, time.monotonic().
    """

    lane: str
    address: Address
    states: dict[TopicPartition, tuple[FetchState, int, int]]
    at: float


def fetch_request(asked: Asked, view: ClusterView, config: FetchConfig) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for key, (state, _, offset) in asked.states.items():
        partition = view.partition(*key)
        topics.setdefault(key.topic, FetchTopic(topic=key.topic)).partitions.append(
            FetchPartition(
                partition=key.partition,
                current_leader_epoch=-1 if partition is None else partition.leader_epoch,
                fetch_offset=offset,
                # A replica may not have heard yet what the leader's log has become.
                last_fetched_epoch=(
                    state.fetch_epoch if state.replica == NO_REPLICA else UNKNOWN_EPOCH
                ),
                partition_max_bytes=state.max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=config.max_wait_ms,
        min_bytes=config.min_bytes,
        max_bytes=config.max_bytes,
        isolation_level=config.isolation_level,
        topics=list(topics.values()),
        rack_id=config.rack,
    )


def last_batch(records: memoryview) -> RecordBatchHeader | None:
    """The last whole batch of an answer, or None if there is none."""
    last = None
    for _, header in walk_batches(records):
        last = header
    return last
