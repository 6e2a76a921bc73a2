"""Fetch sessions (KIP-227): from the second fetch on, a request names only the partitions whose
fetch offset or limits differ from the last request, and the response only those that have changed.
For their epochs see protocol/fetch_session_epoch.

A session keeps, per partition, the last request and the last response. It also waits at the
replicas: `dirty` are the partitions that may have something to send. All others were read to their
end and have not changed since: the cost of an incremental fetch depends on the changes alone.

Invariants:
    a partition that is not dirty was read without error, had no records, and has a waiter at its
    replica;
    a partition whose records were sent is moved to the end of `dirty`, so that with a small
    max_bytes every partition gets its turn;
    a cache holds at most `slots` sessions and `most_partitions` partitions.

Pure: time, random numbers and the waking of parked fetches are passed in.
Source: apache/kafka server/.../FetchSession.java (FetchSessionCache, FetchManager), KIP-227.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from ...protocol.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from ...protocol.fetch_session_epoch import next_epoch
from ...protocol.messages.fetch import FetchPartition
from ...protocol.records.fetch_response import FetchedPartition
from ...replication.partition.delayed_fetches import FetchWaiter
from .replica_port import LeaderReplica

FIRST_WITH_TOPIC_IDS: Final = 13
MOST_PARTITIONS: Final = 1_000_000
"""Limit of partitions in all sessions of a cache: about 400 bytes each."""

REFUSED_AGAIN_MS: Final = 1_000
"""Milliseconds that a refusal of a session is remembered, for requests of the same size or less.

With all slots in use every full fetch requests a session, and searching them takes some 100 us.
"""

TopicKey = tuple[str, "UUID"]
PartitionKey = tuple[str, "UUID", int]


class CachedPartition:
    """One partition of a session: the request, the last answer, and a waiter at the replica."""

    __slots__ = (
        "_is_committed",
        "_session",
        "high_watermark",
        "key",
        "log_start_offset",
        "replica",
        "wanted",
    )

    def __init__(self, session: FetchSession, key: PartitionKey, wanted: FetchPartition) -> None:
        self._session = session
        self.key = key
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1
        self.replica: LeaderReplica | None = None
        self._is_committed = False

    def listen(self, replica: LeaderReplica, *, is_committed: bool = False) -> None:
        """Wait at the replica. `is_committed`: the request reads committed transactions."""
        if self.replica is replica and self._is_committed == is_committed:
            return
        if not self._session.is_closed:
            self.ignore()
            self.replica, self._is_committed = replica, is_committed
            replica.park(self, is_follower=self._session.is_follower, is_committed=is_committed)

    def ignore(self) -> None:
        if self.replica is not None:
            self.replica.unpark(self)
            self.replica = None

    # FetchWaiter

    def on_readable(self, size: int) -> None:
        session = self._session
        session.dirty.setdefault(self)
        if session.parked is not None:
            session.parked.on_readable(size)

    def on_changed(self) -> None:
        self._session.dirty.setdefault(self)
        if self._session.parked is not None:
            self._session.parked.on_changed()

    def must_send(self, answer: FetchedPartition) -> bool:
        """Whether an incremental answer contains this partition; keeps what it tells the client."""
        _, error_code, high_watermark, _, log_start_offset, _, _, elsewhere, diverging, _ = answer
        changed = (
            high_watermark != self.high_watermark
            or error_code != 0
            or log_start_offset != self.log_start_offset
            or elsewhere >= 0
            or diverging is not None
            or answer.records_size > 0
        )
        # After an error the next answer without one is always sent, to clear it at the client.
        self.high_watermark = -1 if error_code else high_watermark
        self.log_start_offset = log_start_offset
        return changed


class FetchSession:
    """Session of a consumer or follower. Soft state: if it is lost, the client begins another."""

    __slots__ = (
        "created_ms",
        "dirty",
        "epoch",
        "is_closed",
        "is_follower",
        "last_used_ms",
        "parked",
        "partitions",
        "rules_version",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, *, is_follower: bool, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = 1
        """Epoch that the next request must have."""
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.dirty: dict[CachedPartition, None] = {}
        self.parked: FetchWaiter | None = None
        self.is_closed = False
        self.rules_version = -1
        """Version of the authorizer's rules when its partitions were last read."""

    def put(self, key: PartitionKey, wanted: FetchPartition) -> None:
        """Add a partition, or replace the client's request for it."""
        cached = self.partitions.get(key)
        if cached is None:
            cached = self.partitions[key] = CachedPartition(self, key, wanted)
        else:
            if cached.wanted.current_leader_epoch != wanted.current_leader_epoch:
                # The client has dropped the last answer, which was for another leader epoch.
                cached.high_watermark = -1
            cached.wanted = wanted
        self.dirty.setdefault(cached)

    def forget(self, key: PartitionKey) -> None:
        cached = self.partitions.pop(key, None)
        if cached is not None:
            cached.ignore()
            self.dirty.pop(cached, None)

    def rotate(self, cached: CachedPartition) -> None:
        """Move a partition whose records were sent behind the others, which then come first."""
        if cached in self.dirty:
            del self.dirty[cached]
            self.dirty[cached] = None

    def close(self) -> None:
        self.is_closed = True
        for cached in self.partitions.values():
            cached.ignore()
        parked, self.parked = self.parked, None
        if parked is not None:
            parked.on_changed()


class FetchSessionCache:
    """Fetch sessions of one node."""

    def __init__(
        self,
        slots: int,
        eviction_ms: int,
        *,
        random_id: Callable[[], int],
        most_partitions: int = MOST_PARTITIONS,
    ) -> None:
        """A cache without sessions.

        Args:
            slots: max.incremental.fetch.session.cache.slots.
            eviction_ms: min.incremental.fetch.session.eviction.ms. A session unused for so long is
                evicted for any new one; one in use for so long, for a larger one.
            random_id: draws from [1, 2**31 - 1].
            most_partitions: limit of partitions in all sessions.
        """
        self._random_id = random_id
        self._most_partitions = most_partitions
        self._slots = slots
        self._eviction_ms = eviction_ms
        # In order of last use, the oldest first: a used session moves to the end of the dict.
        self._sessions: dict[int, FetchSession] = {}
        # The largest request refused last (is_follower, size), and until when smaller ones are.
        self._refused, self._refused_until_ms = (False, 0), 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def resume(self, session_id: int, epoch: int, *, api_version: int, now_ms: int) -> FetchSession:
        """Session of an incremental request, with its epoch advanced.

        Raises:
            FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}"
            )
        if session.uses_topic_ids != (api_version >= FIRST_WITH_TOPIC_IDS):
            raise FetchSessionTopicIdError(
                "topic names and topic ids are mixed in one fetch session"
            )
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def create(
        self,
        size: int,
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """Make a session for `size` partitions; None if no session may be evicted for it."""
        if not self._make_room(size, is_follower=is_follower, now_ms=now_ms):
            return None
        session_id = self._random_id()
        while session_id in self._sessions:
            session_id = self._random_id()
        session = FetchSession(
            session_id, is_follower=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        self._sessions[session_id] = session
        return session

    def ensure_bound(self, session: FetchSession) -> None:
        """Evict least recently used sessions, after this one may have grown beyond the limit."""
        if len(session.partitions) < self._most_partitions // max(1, len(self._sessions)):
            return
        for other in list(self._sessions.values()):
            if other is not session and self.partition_count > self._most_partitions:
                self.remove(other.session_id)
                self.evictions += 1
        if len(session.partitions) > self._most_partitions:
            self.remove(session.session_id)

    def _make_room(self, size: int, *, is_follower: bool, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return self.partition_count + size <= self._most_partitions
        if not self._sessions:
            return False
        victim = next(iter(self._sessions.values()))
        if now_ms - victim.last_used_ms <= self._eviction_ms:
            asked = is_follower, size
            if now_ms < self._refused_until_ms and asked <= self._refused:
                return False
            smallest = self._smallest_evictable(is_follower=is_follower)
            if smallest is None or asked <= (smallest.is_follower, len(smallest.partitions)):
                self._refused, self._refused_until_ms = asked, now_ms + REFUSED_AGAIN_MS
                return False
            victim = smallest
        if self.partition_count - len(victim.partitions) + size > self._most_partitions:
            return False
        self.remove(victim.session_id)
        self.evictions += 1
        return True

    def _smallest_evictable(self, *, is_follower: bool) -> FetchSession | None:
        """Find the smallest evictable session: old enough, or, for a follower, any consumer's."""
        candidates = [
            session
            for session in self._sessions.values()
            if session.last_used_ms - session.created_ms > self._eviction_ms
            or (is_follower and not session.is_follower)
        ]
        return min(
            candidates,
            key=lambda each: (each.is_follower, len(each.partitions), each.session_id),
            default=None,
        )
