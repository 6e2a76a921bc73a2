"""Fetch (API key 1): slices of the log, at once or when enough is there (a long poll).

Partitions are read in request order into one budget of max_bytes. Until something was found, the
first batch of a partition comes whole however large it is, or a consumer with a small buffer would
never get past it (KIP-74). Answered at once when min_bytes are there, on any error, or when nothing
may be waited for; else parked on (bytes still missing, deadline) and read again when woken.

A consumer that says its rack is sent to a replica there, where replica.selector.class asks for it,
and is answered there with what is known to be committed (KIP-392).

A follower is given what the leader has, committed or not, and by asking says what it has itself;
before it gets records it learns where its log parts from the leader's, if it does.

Without a session every partition of the request is read and answered. In a session (KIP-227, from
version 7) only those that may have changed are read, and only those that did are answered.
Consumers before Kafka 0.11 (versions 0-3) get message sets: see fetch_down_conversion.

Source: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch, FetchSession.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from ..cluster.leader_state import FollowerFetch
from ..protocol.error_code import ErrorCode
from ..protocol.errors import (
    KafkaError,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from ..protocol.fetch_response import Endpoint, FetchedPartition, FetchedTopic
from ..protocol.messages.fetch import FetchPartition, FetchRequest
from ..protocol.schema import ZERO_UUID
from .context import RequestContext
from .fetch_answer import FetchAnswer
from .fetch_down_conversion import FIRST_WITH_BATCHES, MOST_BYTES, as_message_sets
from .fetch_session import (
    FINAL_EPOCH,
    FIRST_WITH_TOPIC_IDS,
    INITIAL_EPOCH,
    NO_SESSION,
    CachedPartition,
    FetchSession,
    PartitionKey,
)
from .replica_port import LeaderReplica

READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
FIRST_WITH_RACK = 11
FIRST_WITH_ZSTD = 10
NOWHERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class _Reading:
    """One pass over the partitions."""

    answer: FetchAnswer
    size: int = 0
    settled: bool = False
    """An error, or more to be read right after this: nothing is gained by waiting."""
    is_held_back: bool = False
    """The partition read last has records for the follower, which a throttle keeps back."""
    replicas: list[LeaderReplica] = field(default_factory=list)


def handle(request: FetchRequest, context: RequestContext) -> FetchAnswer | Awaitable[FetchAnswer]:
    if request.isolation_level not in ISOLATION_LEVELS:
        return _refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, context)
    epoch = request.session_epoch
    if epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
        return _handle_incremental(request, context)
    if request.session_id != NO_SESSION:
        context.node.fetch_sessions.remove(request.session_id)
    reading = _read_all(request, context)
    minimum = min(request.min_bytes, request.max_bytes)
    is_ready = (
        reading.size >= minimum
        or reading.settled
        or request.max_wait_ms <= 0
        or not reading.replicas
    )
    waiting = None if is_ready else _wait(request, context, reading, minimum)
    if context.api_version < FIRST_WITH_BATCHES:
        return _handle_old(request, context, reading, waiting)
    if epoch == FINAL_EPOCH:
        return waiting or reading.answer
    return _begin_session(request, context, reading, waiting)


def _refuse(request: FetchRequest, code: ErrorCode, context: RequestContext) -> FetchAnswer:
    """The whole request; clients of the versions without topic ids look at each partition."""
    topics: list[FetchedTopic] = []
    if context.api_version < FIRST_WITH_TOPIC_IDS:
        topics = [
            FetchedTopic(
                topic.topic,
                topic.topic_id,
                [FetchedPartition(each.partition, code, aborted=()) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    return FetchAnswer(topics, [], code)


async def _handle_old(
    request: FetchRequest,
    context: RequestContext,
    reading: _Reading,
    waiting: Awaitable[FetchAnswer] | None,
) -> FetchAnswer:
    answer = await waiting if waiting is not None else reading.answer
    answer.topics = await as_message_sets(answer.topics, request, context)
    return answer


class _Parked:
    """A byte countdown that the partitions of one fetch share, and a deadline.

    It is parked at once, not when the coroutine that awaits it first runs: an append between the
    two would not wake it. `release` runs once it is over in any way, also when nobody awaited it.
    """

    def __init__(self, missing: int, deadline: float, release: Callable[[_Parked], None]) -> None:
        loop = asyncio.get_running_loop()
        self._missing = missing
        self.woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(deadline, self.on_changed)

        def over(_: asyncio.Future[None]) -> None:
            timer.cancel()
            release(self)

        self.woken.add_done_callback(over)

    def on_readable(self, size: int) -> None:
        self._missing -= size
        if self._missing <= 0:
            self.on_changed()

    def on_changed(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


def _park(reading: _Reading, minimum: int, deadline: float) -> _Parked:
    replicas = reading.replicas

    def release(parked: _Parked) -> None:
        for replica in replicas:
            replica.unpark(parked)

    parked = _Parked(minimum - reading.size, deadline, release)
    for replica in replicas:
        replica.park(parked, is_follower=reading.answer.is_for_follower)
    return parked


def _wait(
    request: FetchRequest, context: RequestContext, reading: _Reading, minimum: int
) -> Awaitable[FetchAnswer]:
    deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
    parked = _park(reading, minimum, deadline)
    return _read_when_woken(request, context, minimum, deadline, parked)


async def _read_when_woken(
    request: FetchRequest,
    context: RequestContext,
    minimum: int,
    deadline: float,
    parked: _Parked,
) -> FetchAnswer:
    loop = asyncio.get_running_loop()
    while True:
        await parked.woken
        reading = _read_all(request, context)
        if reading.size >= minimum or reading.settled or loop.time() >= deadline:
            return reading.answer
        parked = _park(reading, minimum, deadline)


# --- sessions ------------------------------------------------------------------------------------


def _key(topic: str, topic_id: UUID, partition: int, context: RequestContext) -> PartitionKey:
    """By id where the client speaks of ids: the topic of a name may become another one."""
    if context.api_version >= FIRST_WITH_TOPIC_IDS:
        return "", topic_id, partition
    return topic, ZERO_UUID, partition


async def _begin_session(
    request: FetchRequest,
    context: RequestContext,
    reading: _Reading,
    waiting: Awaitable[FetchAnswer] | None,
) -> FetchAnswer:
    """The full answer, and if the cache has room a session that goes on from it."""
    answer = await waiting if waiting is not None else reading.answer
    session = context.node.fetch_sessions.create(
        sum(len(topic.partitions) for topic in request.topics),
        is_follower=_is_follower(request),
        uses_topic_ids=context.api_version >= FIRST_WITH_TOPIC_IDS,
        now_ms=context.node.now_ms(),
    )
    if session is None:
        return answer
    for topic, answered in zip(request.topics, answer.topics, strict=True):
        for wanted, told in zip(topic.partitions, answered.partitions, strict=True):
            key = _key(topic.topic, topic.topic_id, wanted.partition, context)
            session.put(key, wanted)
            session.partitions[key].must_tell(told)
    answer.session_id = session.session_id
    return answer


def _is_follower(request: FetchRequest) -> bool:
    return request.replica_state.replica_id >= 0 or request.replica_id >= 0


def _handle_incremental(
    request: FetchRequest, context: RequestContext
) -> FetchAnswer | Awaitable[FetchAnswer]:
    sessions = context.node.fetch_sessions
    try:
        session = sessions.resume(
            request.session_id,
            request.session_epoch,
            api_version=context.api_version,
            now_ms=context.node.now_ms(),
        )
    except KafkaError as error:
        return FetchAnswer([], [], error.code)
    if session.parked is not None:
        session.parked.on_changed()  # the client has given up on its former request
    for topic in request.topics:
        for wanted in topic.partitions:
            session.put(_key(topic.topic, topic.topic_id, wanted.partition, context), wanted)
    for forgotten in request.forgotten_topics_data:
        for partition in forgotten.partitions:
            session.forget(_key(forgotten.topic, forgotten.topic_id, partition, context))
    if not session.partitions:
        sessions.remove(session.session_id)
        return FetchAnswer([], [])
    sessions.ensure_bound(session)
    reading = _IncrementalReading(session, request, context)
    reading.read()
    if reading.is_ready or request.max_wait_ms <= 0:
        return reading.finish()
    return reading.wait()


class _IncrementalReading:
    """One incremental fetch: passes over what is dirty, until there is enough or time is up."""

    def __init__(
        self, session: FetchSession, request: FetchRequest, context: RequestContext
    ) -> None:
        self._session = session
        self._request = request
        self._context = context
        self._epoch = session.epoch
        self._minimum = min(request.min_bytes, request.max_bytes)
        self._idle: dict[PartitionKey, tuple[CachedPartition, FetchedPartition]] = {}
        self._live: list[tuple[CachedPartition, FetchedPartition]] = []
        self._reading = _Reading(FetchAnswer([], []))

    @property
    def is_ready(self) -> bool:
        return self._reading.size >= self._minimum or self._reading.settled

    def read(self) -> None:
        session, context = self._session, self._context
        self._reading = reading = _Reading(FetchAnswer([], []))
        self._live = live = []
        budget = min(self._request.max_bytes, context.node.config.fetch_max_bytes)
        for key, cached in list(session.dirty.items()):
            name, topic_id, _ = key
            if session.uses_topic_ids:
                name = _topic_name(topic_id, context)
            answer = _read(name, topic_id, cached.wanted, self._request, context, reading, budget)
            self._idle.pop(key, None)
            if answer.error_code or answer.is_elsewhere:
                cached.ignore()
                live.append((cached, answer))
                continue
            cached.listen(reading.replicas[-1])
            if answer.records_size or reading.settled:
                live.append((cached, answer))
                if reading.size >= budget:
                    break  # the others stay dirty and have their turn in the next fetch
            else:
                self._idle[key] = cached, answer
                if not reading.is_held_back:  # else nothing would wake it but new records
                    del session.dirty[key]

    def wait(self) -> Awaitable[FetchAnswer]:
        deadline = asyncio.get_running_loop().time() + self._request.max_wait_ms / 1000
        return self._read_when_woken(deadline, self._park(deadline))

    def _park(self, deadline: float) -> _Parked:
        session = self._session

        def release(parked: _Parked) -> None:
            if session.parked is parked:
                session.parked = None

        parked = _Parked(self._minimum - self._reading.size, deadline, release)
        session.parked = parked
        return parked

    async def _read_when_woken(self, deadline: float, parked: _Parked) -> FetchAnswer:
        loop = asyncio.get_running_loop()
        session = self._session
        while True:
            await parked.woken
            if session.is_closed or session.epoch != self._epoch:
                return self.finish()
            self.read()
            if self.is_ready or loop.time() >= deadline:
                return self.finish()
            parked = self._park(deadline)

    def finish(self) -> FetchAnswer:
        """Those partitions of which there is news, topic by topic."""
        session, context = self._session, self._context
        if session.epoch != self._epoch:
            return FetchAnswer([], [], ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        endpoints: dict[int, Endpoint] = {}
        topics: dict[tuple[str, UUID], list[FetchedPartition]] = {}
        for cached, answer in (*self._live, *self._idle.values()):
            if answer.records_size:
                session.rotate(cached)
            if cached.must_tell(answer):
                topics.setdefault(cached.key[:2], []).append(answer)
                if answer.error_code in MOVED:
                    _add_endpoint(endpoints, answer, context)
        return FetchAnswer(
            [FetchedTopic(name, topic_id, found) for (name, topic_id), found in topics.items()],
            list(endpoints.values()),
            session_id=session.session_id,
            is_for_follower=session.is_follower,
        )


# --- reading -------------------------------------------------------------------------------------


def _topic_name(topic_id: UUID, context: RequestContext) -> str:
    found = context.node.image.topic_by_id(topic_id)
    return "" if found is None else found.name


def _read_all(request: FetchRequest, context: RequestContext) -> _Reading:
    reading = _Reading(FetchAnswer([], [], is_for_follower=_is_follower(request)))
    budget = min(request.max_bytes, context.node.config.fetch_max_bytes)
    if context.api_version < FIRST_WITH_BATCHES:
        budget = min(budget, MOST_BYTES)
    endpoints: dict[int, Endpoint] = {}
    for topic in request.topics:
        name = topic.topic
        if context.api_version >= FIRST_WITH_TOPIC_IDS:
            name = _topic_name(topic.topic_id, context)
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
    reading.is_held_back = False
    try:
        if not topic and context.api_version >= FIRST_WITH_TOPIC_IDS:
            raise UnknownTopicId(f"no topic has the id {topic_id}")
        replica = _replica(topic, wanted, request, context)
        if context.api_version < FIRST_WITH_ZSTD and replica.compression_type == "zstd":
            raise UnsupportedCompressionType("zstd needs Fetch version 10 or newer")
        is_follower = _is_follower(request)
        if is_follower:
            diverging = _on_follower_fetch(replica, request, wanted, context)
        else:
            diverging = _truncated(replica, wanted)
        if diverging is not None:
            reading.settled = True
            return FetchedPartition(wanted.partition, diverging=diverging)
        # The marks are taken before the read, so that a client never sees records beyond them.
        high_watermark = replica.high_watermark
        last_stable_offset = replica.last_stable_offset
        committed = request.isolation_level == READ_COMMITTED
        nearest = _nearest(replica, wanted, request, context)
        if nearest is not None:
            reading.settled = True
            return FetchedPartition(
                wanted.partition,
                ErrorCode.NONE,
                high_watermark,
                last_stable_offset,
                replica.log_start_offset,
                preferred_read_replica=nearest,
            )
        if is_follower:
            follower_id = max(request.replica_id, request.replica_state.replica_id)
            reading.is_held_back = context.node.partitions.throttle.holds_back(
                topic, wanted.partition, follower_id
            )
            up_to = wanted.fetch_offset if reading.is_held_back else replica.log_end_offset
        else:
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
            aborted=() if error.code in NOWHERE else None,
            current_leader=_current_leader(topic, wanted.partition, error, context),
        )
    if is_follower:
        context.node.partitions.throttle.on_sent(topic, wanted.partition, records.size)
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


def _replica(
    topic: str, wanted: FetchPartition, request: FetchRequest, context: RequestContext
) -> LeaderReplica:
    """The leader here; or a follower, for a consumer that knows of such (KIP-392)."""
    partitions = context.node.partitions
    epoch = max(wanted.current_leader_epoch, -1)
    try:
        return partitions.leader_of(topic, wanted.partition, current_leader_epoch=epoch)
    except NotLeaderOrFollower:
        if context.api_version < FIRST_WITH_RACK or _is_follower(request):
            raise
        replica = partitions.follower_of(topic, wanted.partition, current_leader_epoch=epoch)
        if replica is None:
            raise
        if wanted.fetch_offset > replica.log_end_offset:
            raise OffsetNotAvailable(f"offset {wanted.fetch_offset} is not here yet") from None
        return replica


def _truncated(replica: LeaderReplica, wanted: FetchPartition) -> tuple[int, int] | None:
    """(epoch, end offset) where the log parts from what a consumer says it has read (KIP-595)."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = replica.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0:
        return None  # nothing is known of that time
    is_apart = epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset
    return (epoch, end_offset) if is_apart else None


def _nearest(
    replica: LeaderReplica, wanted: FetchPartition, request: FetchRequest, context: RequestContext
) -> int | None:
    """A node of the consumer's rack to read from, if this is none."""
    if not request.rack_id or not context.node.config.replica_selector_class:
        return None
    nodes = context.node.image.nodes
    own = nodes.get(context.node.node_id)
    if _is_follower(request) or own is None or own.rack == request.rack_id:
        return None
    for node_id in replica.in_sync_with(wanted.fetch_offset):
        node = nodes.get(node_id)
        if node is not None and not node.fenced and node.rack == request.rack_id:
            return node_id
    return None


def _on_follower_fetch(
    replica: LeaderReplica, request: FetchRequest, wanted: FetchPartition, context: RequestContext
) -> tuple[int, int] | None:
    """One that says no epoch cannot be told that it knows a newer one than we do."""
    try:
        return replica.on_follower_fetch(_follower_fetch(request, wanted, context))
    except UnknownLeaderEpoch as error:
        if wanted.current_leader_epoch >= 0:
            raise
        raise NotLeaderOrFollower(str(error)) from None


def _follower_fetch(
    request: FetchRequest, wanted: FetchPartition, context: RequestContext
) -> FollowerFetch:
    """Raises NotLeaderOrFollower: from before the follower's latest registration (KIP-903)."""
    state = request.replica_state
    node_id = max(request.replica_id, state.replica_id)
    known = context.node.image.nodes.get(node_id)
    if known is not None and -1 < state.replica_epoch < known.epoch:
        raise NotLeaderOrFollower(
            f"node {node_id} was registered anew in epoch {known.epoch}, "
            f"and asks in epoch {state.replica_epoch}"
        )
    context.node.partitions.follower_asks(node_id, context.peer)
    return FollowerFetch(
        node_id,
        state.replica_epoch,
        wanted.fetch_offset,
        wanted.last_fetched_epoch,
        wanted.log_start_offset,
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
