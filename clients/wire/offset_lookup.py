"""ListOffsets for any number of partitions: grouped by leader, retried until each has an answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition, error_for
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import Steps, wait
from .cluster_client import CONTROL, ClusterClient, is_retriable
from .connection import Address

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_of(moment: datetime) -> int:
    """First timestamp, ms since 1970, that is not before `moment`, which is UTC without a zone.

    Exact: of times as seconds with a fraction every 150th is a millisecond off.
    """
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


class OffsetAt(NamedTuple):
    """Offset found by time. offset: -1: no such record. timestamp: that of the record, or -1."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    client: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = 0,
    timeout_ms: int = 60_000,
) -> Steps[dict[TopicPartition, OffsetAt]]:
    """The offset at a time (ms since 1970: first record at or after it), or at LATEST, EARLIEST.

    Raises:
        UnknownTopicOrPartition: there is no such topic or partition.
        RequestTimedOut: a leader did not answer in time.
        KafkaError: a broker refuses.
    """
    found: dict[TopicPartition, OffsetAt] = {}
    waited_ms = 0
    reason: BaseException | None = None
    for topic, partition in timestamps:
        view = yield from client.topic(topic, partition=partition)
        if partition >= len(view.partitions):
            last = len(view.partitions) - 1
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has partitions 0 to {last}, not {partition}"
            )
    while len(found) < len(timestamps):
        missing = {key: value for key, value in timestamps.items() if key not in found}
        for address, part in _by_leader(client, missing).items():
            try:
                response = yield from wait(_ask(client, address, part, isolation_level))
                reason = _take(response, found) or reason
            except Exception as error:
                if not is_retriable(error):
                    raise
                reason = error
        if len(found) < len(timestamps):
            if waited_ms >= timeout_ms:
                raise RequestTimedOut(f"no offsets within {timeout_ms} ms: {reason or 'no leader'}")
            waited_ms += client.config.retry_backoff_ms
            yield client.config.retry_backoff_ms / 1000
            yield from wait(client.refresh())
            for topic in {topic for topic, _ in timestamps.keys() - found.keys()}:
                yield from client.topic(topic)  # raises if it was deleted meanwhile
    return found


def _by_leader(
    client: ClusterClient, timestamps: Mapping[TopicPartition, int]
) -> dict[Address, dict[TopicPartition, int]]:
    grouped: dict[Address, dict[TopicPartition, int]] = defaultdict(dict)
    for key, timestamp in timestamps.items():
        leader = client.view.leader(*key)
        if leader is not None:
            grouped[leader.address][key] = timestamp
    return grouped


def _ask(
    client: ClusterClient,
    address: Address,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
) -> Future[ListOffsetsResponse]:
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, partition), timestamp in timestamps.items():
        view = client.view.partition(topic, partition)
        topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(
            ListOffsetsPartition(
                partition_index=partition,
                current_leader_epoch=-1 if view is None else view.leader_epoch,
                timestamp=timestamp,
            )
        )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=list(topics.values()),
        timeout_ms=client.config.request_timeout_ms,
    )
    return client.send(address, request, ListOffsetsResponse, lane=CONTROL)


def _take(
    response: ListOffsetsResponse, found: dict[TopicPartition, OffsetAt]
) -> KafkaError | None:
    """Store the answers; return the last retriable error, if any."""
    reason = None
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code == ErrorCode.NONE:
                found[TopicPartition(topic.name, answer.partition_index)] = OffsetAt(
                    answer.offset, answer.timestamp, answer.leader_epoch
                )
                continue
            error = error_for(answer.error_code)
            if not error.retriable:
                raise error_for(
                    answer.error_code, f"{topic.name}-{answer.partition_index}: {error}"
                )
            reason = error
    return reason
