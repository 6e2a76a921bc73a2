"""Fetch (API key 1): slices of the log, at once or when enough is there (a long poll).

Partitions are read in request order into one budget of max_bytes. Until something was found, the
first batch of a partition comes whole however large it is, or a consumer with a small buffer would
never get past it (KIP-74). Answered at once when min_bytes are there, on any error, or when nothing
may be waited for; else parked on (bytes still missing, deadline) and read again when woken.

Sessions (KIP-227) are declined: session id 0 and a full answer, empty partitions included, which
clients accept for ever. Source: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages,
DelayedFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from uuid import UUID

from ..protocol.error_code import ErrorCode
from ..protocol.errors import KafkaError, UnknownTopicId
from ..protocol.fetch_response import Endpoint, FetchedPartition, FetchedTopic
from ..protocol.messages.fetch import FetchPartition, FetchRequest
from .context import LeaderReplica, RequestContext

READ_COMMITTED = 1
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class FetchAnswer:
    """What fetch_response.write_fetch_response is called with."""

    topics: list[FetchedTopic]
    endpoints: list[Endpoint]
    error_code: int = 0


@dataclass(slots=True)
class _Reading:
    """One pass over the partitions."""

    answer: FetchAnswer
    size: int
    settled: bool
    """An error, or more to be read right after this: nothing is gained by waiting."""
    replicas: list[LeaderReplica]


def handle(request: FetchRequest, context: RequestContext) -> FetchAnswer | Awaitable[FetchAnswer]:
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchAnswer([], [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    reading = _read_all(request, context)
    minimum = min(request.min_bytes, request.max_bytes)
    if (
        reading.size >= minimum
        or reading.settled
        or request.max_wait_ms <= 0
        or not reading.replicas
    ):
        return reading.answer
    return _wait(request, context, reading, minimum)


class _Parked:
    """A byte countdown that the partitions of one fetch share."""

    def __init__(self, missing: int) -> None:
        self._missing = missing
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_readable(self, size: int) -> None:
        self._missing -= size
        if self._missing <= 0:
            self.on_changed()

    def on_changed(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


async def _wait(
    request: FetchRequest, context: RequestContext, reading: _Reading, minimum: int
) -> FetchAnswer:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    while True:
        parked = _Parked(minimum - reading.size)
        for replica in reading.replicas:
            replica.park(parked)
        timer = loop.call_at(deadline, parked.on_changed)
        try:
            await parked.woken
        finally:
            timer.cancel()
            for replica in reading.replicas:
                replica.unpark(parked)
        reading = _read_all(request, context)
        if reading.size >= minimum or reading.settled or loop.time() >= deadline:
            return reading.answer


def _read_all(request: FetchRequest, context: RequestContext) -> _Reading:
    reading = _Reading(FetchAnswer([], []), 0, settled=False, replicas=[])
    budget = min(request.max_bytes, context.node.config.fetch_max_bytes)
    endpoints: dict[int, Endpoint] = {}
    for topic in request.topics:
        name = topic.topic
        if context.api_version >= 13:
            found = context.node.image.topic_by_id(topic.topic_id)
            name = "" if found is None else found.name
        partitions = []
        for wanted in topic.partitions:
            partition = _read(name, topic.topic_id, wanted, request, context, reading, budget)
            partitions.append(partition)
            if partition.error_code in MOVED:
                _add_endpoint(endpoints, partition, context)
        reading.answer.topics.append(FetchedTopic(name, topic.topic_id, partitions))
    reading.answer.endpoints = list(endpoints.values())
    return reading


def _read(
    topic: str,
    topic_id: UUID,
    wanted: FetchPartition,
    request: FetchRequest,
    context: RequestContext,
    reading: _Reading,
    budget: int,
) -> FetchedPartition:
    try:
        if not topic:
            raise UnknownTopicId(f"no topic has the id {topic_id}")
        replica = context.node.partitions.leader_of(
            topic, wanted.partition, current_leader_epoch=wanted.current_leader_epoch
        )
        # The marks are taken before the read, so that a client never sees records beyond them.
        high_watermark = replica.high_watermark
        last_stable_offset = replica.last_stable_offset
        committed = request.isolation_level == READ_COMMITTED
        up_to = last_stable_offset if committed else high_watermark
        remaining = budget - reading.size
        records = replica.read(
            wanted.fetch_offset,
            max_bytes=max(0, min(wanted.partition_max_bytes, remaining)),
            up_to=up_to,
            min_one_batch=reading.size == 0,
        )
        if records.is_limited or 0 <= records.next_offset < up_to:
            reading.settled = True
    except KafkaError as error:
        reading.settled = True
        return FetchedPartition(
            wanted.partition,
            error.code,
            current_leader=_current_leader(topic, wanted.partition, error, context),
        )
    reading.size += records.size
    reading.replicas.append(replica)
    return FetchedPartition(
        wanted.partition,
        ErrorCode.NONE,
        high_watermark,
        last_stable_offset,
        replica.log_start_offset,
        () if committed else None,
        records,
    )


def _current_leader(
    topic: str, partition: int, error: KafkaError, context: RequestContext
) -> tuple[int, int] | None:
    if error.code not in MOVED:
        return None
    image = context.node.image.partition(topic, partition)
    return None if image is None else (image.leader, image.leader_epoch)


def _add_endpoint(
    endpoints: dict[int, Endpoint], partition: FetchedPartition, context: RequestContext
) -> None:
    if partition.current_leader is None:
        return
    node = context.node.image.nodes.get(partition.current_leader[0])
    if node is not None:
        endpoints[node.node_id] = Endpoint(node.node_id, node.host, node.port, node.rack)
