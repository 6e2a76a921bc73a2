"""One Fetch from request to response, with the rules of waiting: steps, without a clock.

Answered at once when min_bytes are available, on any error, or if there is no replica or time to
wait for; else parked until the missing bytes are appended or the time is up, and then read again.

Without a session every partition of the request is read and answered. In a session (KIP-227, from
version 7) only those that may have changed are read, and only those that did are answered.

The driver calls `finish` if the fetch is ready; else `park`, and when the fetch is woken, or its
time is up, `resume`; if that returns False, `park` again.
Source: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch, FetchSession.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.fetch_session_epoch import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from ...protocol.messages.fetch import FetchRequest
from ...protocol.records.fetch_response import Endpoint, FetchedPartition, FetchedTopic
from ...protocol.schema import ZERO_UUID
from ..ports.context import RequestContext
from ..ports.fetch_answer import FetchAnswer
from ..ports.fetch_session import (
    FIRST_WITH_TOPIC_IDS,
    CachedPartition,
    FetchSession,
    PartitionKey,
)
from .fetch_reading import (
    ISOLATION_LEVELS,
    STALE_LEADER_ERRORS,
    Reading,
    add_endpoint,
    read_all,
    read_partition,
    topic_name,
)


class ParkedFetch:
    """A byte countdown that the partitions of one fetch share; see delayed_fetches.FetchWaiter.

    `wake` is called when enough bytes may be available; it must not resume the fetch at once.
    """

    __slots__ = ("_missing", "_wake")

    def __init__(self, missing: int, wake: Callable[[], None]) -> None:
        self._missing = missing
        self._wake = wake

    def on_readable(self, size: int) -> None:
        self._missing -= size
        if self._missing <= 0:
            self._wake()

    def on_changed(self) -> None:
        self._wake()


def begin_fetch(request: FetchRequest, context: RequestContext) -> PendingFetch | FetchAnswer:
    """Read a first time. Returns an answer to a refused request, or if no partition is left."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return _refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, context)
    epoch = request.session_epoch
    if epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
        return _begin_incremental(request, context)
    if request.session_id != NO_SESSION:
        context.node.fetch_sessions.remove(request.session_id)
    return FullFetch(request, context)


def _refuse(request: FetchRequest, code: ErrorCode, context: RequestContext) -> FetchAnswer:
    """Refuse the whole request; without topic ids the error is also in each partition."""
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


class FullFetch:
    """Fetch that reads and answers every partition; a session may begin with it."""

    __slots__ = ("_context", "_minimum", "_reading", "_request")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self._request = request
        self._context = context
        self._minimum = min(request.min_bytes, request.max_bytes)
        self._reading = read_all(request, context)

    @property
    def is_ready(self) -> bool:
        reading = self._reading
        return (
            reading.size >= self._minimum
            or reading.must_respond_now
            or self._request.max_wait_ms <= 0
            or not reading.replicas
        )

    def park(self, wake: Callable[[], None]) -> ParkedFetch:
        """Call `wake` when more may be readable than was read last."""
        reading = self._reading
        parked = ParkedFetch(self._minimum - reading.size, wake)
        for replica in reading.replicas:
            replica.park(
                parked, is_follower=reading.is_for_follower, is_committed=reading.is_committed
            )
        return parked

    def unpark(self, parked: ParkedFetch) -> None:
        """Stop waiting."""
        for replica in self._reading.replicas:
            replica.unpark(parked)

    def resume(self, *, is_late: bool) -> bool:
        """Read again; True if `finish` is to be called next (always if late), False if `park`."""
        self._reading = reading = read_all(self._request, self._context)
        return reading.size >= self._minimum or reading.must_respond_now or is_late

    def found(self) -> list[FetchedTopic]:
        """Content of the answer, if it were made now."""
        return self._reading.topics

    def give_back(self) -> FetchAnswer:
        """Called instead of `finish`: returns an empty answer, and begins no session."""
        return FetchAnswer([], [], is_for_follower=self._reading.is_for_follower)

    def finish(self) -> FetchAnswer:
        """Make the full answer, and, if the cache has room, a session that continues from it."""
        request, context, reading = self._request, self._context, self._reading
        answer = FetchAnswer(
            reading.topics, reading.endpoints, is_for_follower=reading.is_for_follower
        )
        if request.session_epoch == FINAL_EPOCH:
            return answer
        session = context.node.fetch_sessions.create(
            sum(len(topic.partitions) for topic in request.topics),
            is_follower=reading.is_for_follower,
            uses_topic_ids=context.api_version >= FIRST_WITH_TOPIC_IDS,
            now_ms=context.node.now_ms(),
        )
        if session is None:
            return answer
        for topic, answered in zip(request.topics, answer.topics, strict=True):
            for wanted, fetched in zip(topic.partitions, answered.partitions, strict=True):
                key = _key(topic.topic, topic.topic_id, wanted.partition, context)
                session.put(key, wanted)
                session.partitions[key].must_send(fetched)
        answer.session_id = session.session_id
        return answer


def _key(topic: str, topic_id: UUID, partition: int, context: RequestContext) -> PartitionKey:
    """Key of a partition: its topic id if the client gave one, else the name."""
    if context.api_version >= FIRST_WITH_TOPIC_IDS:
        return "", topic_id, partition
    return topic, ZERO_UUID, partition


def _begin_incremental(
    request: FetchRequest, context: RequestContext
) -> PendingFetch | FetchAnswer:
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
        session.parked.on_changed()  # the client does not wait for its previous request
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
    authorizer = context.authorizer
    if authorizer is not None and session.rules_version != authorizer.version:
        session.rules_version = authorizer.version
        session.dirty.update(dict.fromkeys(session.partitions.values()))  # each may be refused now
    return IncrementalFetch(session, request, context)


class IncrementalFetch:
    """Fetch in a session: reads the dirty partitions until there is enough or time is up."""

    __slots__ = ("_context", "_epoch", "_idle", "_live", "_minimum", "_reading", "_session")

    def __init__(
        self, session: FetchSession, request: FetchRequest, context: RequestContext
    ) -> None:
        self._session = session
        self._context = context
        self._epoch = session.epoch
        self._minimum = min(request.min_bytes, request.max_bytes)
        self._idle: dict[CachedPartition, FetchedPartition] = {}
        self._live: list[tuple[CachedPartition, FetchedPartition]] = []
        self._reading = Reading(request, context)
        self._read()

    @property
    def is_ready(self) -> bool:
        return self._has_enough or self._reading.request.max_wait_ms <= 0

    @property
    def _has_enough(self) -> bool:
        return self._reading.size >= self._minimum or self._reading.must_respond_now

    def _read(self) -> None:
        session, reading = self._session, self._reading
        self._live = live = []
        reading.begin()
        if not session.dirty:
            return
        for cached in list(session.dirty):
            name, topic_id, _ = cached.key
            if session.uses_topic_ids:
                name = topic_name(topic_id, self._context)
            answer = read_partition(name, topic_id, cached.wanted, reading)
            self._idle.pop(cached, None)
            if answer.error_code or answer.is_elsewhere:
                cached.ignore()
                live.append((cached, answer))
                continue
            cached.listen(reading.replicas[-1], is_committed=reading.is_committed)
            if reading.must_respond_now or answer.records_size:
                live.append((cached, answer))
                if reading.size >= reading.budget:
                    break  # the others stay dirty and are read first in the next fetch
            else:
                self._idle[cached] = answer
                if not reading.is_throttled:  # the end of throttling wakes no waiter
                    del session.dirty[cached]

    def park(self, wake: Callable[[], None]) -> ParkedFetch:
        """See FullFetch.park. The session listens at the replicas."""
        parked = ParkedFetch(self._minimum - self._reading.size, wake)
        self._session.parked = parked
        return parked

    def unpark(self, parked: ParkedFetch) -> None:
        if self._session.parked is parked:
            self._session.parked = None

    def resume(self, *, is_late: bool) -> bool:
        """See FullFetch.resume."""
        session = self._session
        if session.is_closed or session.epoch != self._epoch:
            return True
        self._read()
        return self._has_enough or is_late

    def found(self) -> list[FetchedTopic]:
        """Content of the answer; see FullFetch.found. Partitions with only new offsets are left
        out.
        """
        return _by_topic(self._live)

    def give_back(self) -> FetchAnswer:
        """See FullFetch.give_back. All partitions that were read stay dirty: they were not sent."""
        session = self._session
        if session.epoch != self._epoch:
            return FetchAnswer([], [], ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for cached in self._idle:
            session.dirty.setdefault(cached)
        return FetchAnswer(
            [], [], session_id=session.session_id, is_for_follower=session.is_follower
        )

    def finish(self) -> FetchAnswer:
        """Make the answer: the partitions that have changed, by topic."""
        session, context = self._session, self._context
        if session.epoch != self._epoch:
            return FetchAnswer([], [], ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        endpoints: dict[int, Endpoint] = {}
        changed: list[tuple[CachedPartition, FetchedPartition]] = []
        for found in (self._live, self._idle.items()):
            for cached, answer in found:
                if answer.records_size:
                    session.rotate(cached)
                if cached.must_send(answer):
                    changed.append((cached, answer))
                    if answer.error_code in STALE_LEADER_ERRORS:
                        add_endpoint(endpoints, answer, context)
        return FetchAnswer(
            _by_topic(changed),
            list(endpoints.values()),
            session_id=session.session_id,
            is_for_follower=session.is_follower,
        )


def _by_topic(found: list[tuple[CachedPartition, FetchedPartition]]) -> list[FetchedTopic]:
    if len(found) == 1:  # most answers; hashing the key of a topic is slow
        (cached, answer) = found[0]
        return [FetchedTopic(cached.key[0], cached.key[1], [answer])]
    topics: dict[tuple[str, UUID], list[FetchedPartition]] = {}
    for cached, answer in found:
        topics.setdefault(cached.key[:2], []).append(answer)
    return [FetchedTopic(name, topic_id, each) for (name, topic_id), each in topics.items()]


PendingFetch = FullFetch | IncrementalFetch
