"""Follows one leader: asks it for the records of all partitions that it leads and this node keeps.

One connection, one fetch at a time, in a fetch session (KIP-227): a request names the partitions
whose position has changed, so a thousand idle ones cost nothing. Decisions are cluster/
follower_state's; this class carries them out on the logs.

Order, per answer: append (the page cache survives the death of this process but not of the
machine), then, for topics that ask for it, fsync; only then the next request goes out, which tells
the leader what we have. A new leader epoch is on the disk before a record of it is.

An answer for a position that is no longer ours is dropped: the partition was assigned anew, or
truncated, meanwhile.
Source: AbstractFetcherThread, FetchSessionHandler in apache/kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple, Protocol
from uuid import UUID

from ..cluster.broker_config import BrokerConfig
from ..cluster.follower_state import (
    FetchPosition,
    StartAt,
    Truncate,
    on_diverging,
    on_out_of_range,
)
from ..handlers.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch
from ..protocol.error_code import ErrorCode
from ..protocol.errors import ConnectionFailed, KafkaError, KafkaStorageError, error_for
from ..protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ..protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from .peer_connection import PeerConnection
from .replica import InThread, Replica
from .replication_throttle import ReplicationThrottle

logger = logging.getLogger("bradbury.replication")

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9
FIRST_BACKOFF_SECONDS = 0.05
EXPECTED_UNTIL_SECONDS = 16 * FIRST_BACKOFF_SECONDS
"""The back-off by which an expected error has lasted for about as long, and is told of, once."""
MAX_BACKOFF_SECONDS = 1.0
ANSWER_SECONDS = 30.0
LONGEST_WAIT_MS = 1000
"""Of a throttled partition: then its limit is looked at again, which may be another one."""
ASKED_AGAIN = inf
ROOM_FOR_HEADERS = 16 * 1024**2
"""In an answer, beside its records: some 200,000 partitions."""
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# These end by themselves when newer metadata arrives here or there.
EXPECTED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

PartitionId = tuple[UUID, int]


class Followed(NamedTuple):
    """A partition to follow: its replica here, and in which epoch the leader leads."""

    topic_id: UUID
    replica: Replica
    leader_epoch: int

    @property
    def partition_id(self) -> PartitionId:
        return self.topic_id, self.replica.partition

    @property
    def position(self) -> FetchPosition:
        log = self.replica.log
        return FetchPosition(self.leader_epoch, log.log_end_offset, log.epochs.latest_epoch)

    def __str__(self) -> str:
        return f"{self.replica.topic}-{self.replica.partition}"


class FollowingNode(Protocol):
    """What a fetcher needs of the node it works for."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int:
        """Of this node's registration, as it is known here."""
        ...

    @property
    def config(self) -> BrokerConfig: ...
    def address_of(self, node_id: int) -> tuple[str, int] | None: ...
    def truncate(self, replica: Replica, offset: int) -> None:
        """Drop records, with the checkpoints that must know of it. Raises StorageFailure."""
        ...

    @property
    def throttle(self) -> ReplicationThrottle: ...
    def on_failure(self) -> None:
        """A disk may have failed."""
        ...

    def on_unreachable(self, node_id: int) -> None:
        """A leader has hung up, or does not accept connections."""
        ...


@dataclass(slots=True)
class _Delayed:
    """A partition that had an error: when to ask again, and how long to wait after the next.

    until: ASKED_AGAIN when it has been, and nothing was said of it since.
    """

    until: float
    backoff: float


class ReplicaFetcher:
    """Made when the first partition is to be followed; `close` ends it."""

    def __init__(self, node: FollowingNode, leader_id: int, in_thread: InThread) -> None:
        self._node = node
        self._leader_id = leader_id
        self._in_thread = in_thread
        self._partitions: dict[PartitionId, Followed] = {}
        self._asked: dict[PartitionId, FetchPosition] = {}
        """What the leader was told last, of all partitions of the session."""
        self._dirty: dict[PartitionId, None] = {}
        """Partitions that the next request must name, in order."""
        self._delayed: dict[PartitionId, _Delayed] = {}
        self._forgotten: set[PartitionId] = set()
        self._session = (NO_SESSION, INITIAL_EPOCH)
        self._has_partitions = asyncio.Event()
        self._processing = asyncio.Lock()
        self._backoff = FIRST_BACKOFF_SECONDS
        self._failure: str | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    # --- what to follow --------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._partitions

    def follow(self, followed: Followed) -> None:
        """Begin, or go on in another leader epoch. Done again, it changes nothing."""
        known = self._partitions.get(followed.partition_id)
        if known == followed:
            return
        self._partitions[followed.partition_id] = followed
        self._delayed.pop(followed.partition_id, None)
        self._dirty[followed.partition_id] = None
        self._has_partitions.set()

    def leave(self, partition_id: PartitionId) -> None:
        if self._partitions.pop(partition_id, None) is None:
            return
        self._dirty.pop(partition_id, None)
        self._delayed.pop(partition_id, None)
        if self._asked.pop(partition_id, None) is not None:
            self._forgotten.add(partition_id)
        if not self._partitions:
            self._has_partitions.clear()

    async def settle(self) -> None:
        """Returns when nothing is being done to a partition that was left."""
        async with self._processing:
            pass

    async def close(self) -> None:
        for partition_id in list(self._partitions):
            self.leave(partition_id)
        await self.settle()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # --- asking ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._has_partitions.wait()
            try:
                await self._converse()
            except ConnectionFailed as error:
                if self._failure is None:
                    logger.warning("node %d cannot be followed: %s", self._leader_id, error)
                self._failure = str(error)
                self._node.on_unreachable(self._leader_id)
            except Exception:
                logger.exception("following node %d failed", self._leader_id)
            await asyncio.sleep(self._backoff)
            self._backoff = min(2 * self._backoff, MAX_BACKOFF_SECONDS)

    async def _converse(self) -> None:
        """Fetch on one connection until it fails, or nothing is to be followed any more."""
        config = self._node.config
        address = self._node.address_of(self._leader_id)
        if address is None:
            raise ConnectionFailed("its address is not known")
        connection = await PeerConnection.open(
            *address,
            client_id=f"follower-{self._node.node_id}",
            # A batch may be larger than all limits, but no larger than a request can be.
            max_answer_bytes=config.replica_fetch_response_max_bytes
            + config.socket_request_max_bytes
            + ROOM_FOR_HEADERS,
        )
        try:
            self._begin_session()
            while self._partitions:
                if not await self._has_question():
                    continue
                if not_durable := self._not_durable():
                    async with self._processing:
                        await self._flush(not_durable)
                    continue
                request = self._next_request()
                answer = await connection.request(
                    request,
                    FetchResponse,
                    FETCH_VERSION,
                    timeout_seconds=request.max_wait_ms / 1000 + ANSWER_SECONDS,
                    is_used_up=True,
                )
                self._backoff = FIRST_BACKOFF_SECONDS
                if self._failure is not None:
                    logger.info("node %d is followed again", self._leader_id)
                    self._failure = None
                async with self._processing:
                    await self._process(answer, connection)
        finally:
            connection.close()

    async def _has_question(self) -> bool:
        """A request about no partition would be answered at once, and so would the next."""
        if self._asked or self._dirty or self._forgotten:
            return True
        now = asyncio.get_running_loop().time()
        wait = min((each.until for each in self._delayed.values()), default=now) - now
        if wait <= 0:
            return True
        await asyncio.sleep(min(wait, FIRST_BACKOFF_SECONDS))  # another one may be followed now
        return False

    def _begin_session(self) -> None:
        self._session = (NO_SESSION, INITIAL_EPOCH)
        self._asked.clear()
        self._forgotten.clear()
        self._ask_for_all()

    def _ask_for_all(self) -> None:
        for partition_id in self._partitions:
            delayed = self._delayed.get(partition_id)
            if delayed is None or delayed.until == ASKED_AGAIN:
                self._dirty[partition_id] = None

    def _not_durable(self) -> list[Followed]:
        """About to be asked for, which claims all that they have; but their topic wants it on the
        disk, and it is only in the page cache, as a former life of this process has left it.
        """
        return [
            followed
            for partition_id in self._dirty
            if (followed := self._partitions[partition_id]).replica.log.unflushed_records
            >= followed.replica.log.config.flush_messages
            and followed.replica.log.health.failure is None
        ]

    def _next_request(self) -> FetchRequest:
        node, config = self._node, self._node.config
        now = asyncio.get_running_loop().time()
        for partition_id, delayed in self._delayed.items():
            if delayed.until <= now:
                self._dirty[partition_id] = None
                delayed.until = ASKED_AGAIN
        self._leave_out_throttled(now)
        topics: dict[UUID, list[FetchPartition]] = {}
        for partition_id in self._dirty:
            followed = self._partitions[partition_id]
            position = followed.position
            self._asked[partition_id] = position
            topics.setdefault(followed.topic_id, []).append(
                FetchPartition(
                    partition=followed.replica.partition,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=followed.replica.log.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                )
            )
            self._forgotten.discard(partition_id)
        self._dirty.clear()
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, partition in self._forgotten:
            forgotten.setdefault(topic_id, []).append(partition)
        self._forgotten.clear()
        session_id, session_epoch = self._session
        return FetchRequest(
            replica_state=ReplicaState(replica_id=node.node_id, replica_epoch=node.broker_epoch),
            max_wait_ms=self._wait_ms(now),
            min_bytes=1,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in forgotten.items()
            ]
            if session_epoch > INITIAL_EPOCH
            else [],
        )

    def _leave_out_throttled(self, now: float) -> None:
        for partition_id in list(self._dirty):
            replica = self._partitions[partition_id].replica
            wait_ms = self._node.throttle.wait_to_receive_ms(replica)
            if wait_ms > 0:
                wait = min(wait_ms, LONGEST_WAIT_MS) / 1000
                self._delayed[partition_id] = _Delayed(now + wait, FIRST_BACKOFF_SECONDS)
                self._leave_out(partition_id)

    def _wait_ms(self, now: float) -> int:
        """No longer than until a partition that had an error is to be asked for again."""
        wait = self._node.config.replica_fetch_wait_max_ms
        waiting = [
            delayed.until
            for partition_id, delayed in self._delayed.items()
            if partition_id not in self._asked
        ]
        if waiting:
            wait = min(wait, max(1, int((min(waiting) - now) * 1000)))
        return wait

    # --- the answer ------------------------------------------------------------------------------

    async def _process(self, answer: FetchResponse, connection: PeerConnection) -> None:
        if answer.error_code in SESSION_ERRORS:
            self._begin_session()
            return
        if answer.error_code:
            raise ConnectionFailed(f"it answers {error_for(answer.error_code)!r}")
        to_flush: list[Followed] = []
        for topic in answer.responses:
            for data in topic.partitions:
                partition_id = topic.topic_id, data.partition_index
                followed = self._partitions.get(partition_id)
                if followed is None or self._asked.get(partition_id) != followed.position:
                    continue
                try:
                    await self._take(followed, data, connection)
                except KafkaStorageError as error:
                    self._node.on_failure()
                    self._delay(followed, str(error))
                except KafkaError as error:
                    self._delay(followed, f"what it sent cannot be appended: {error}")
                else:
                    log = followed.replica.log
                    if log.unflushed_records >= log.config.flush_messages:
                        to_flush.append(followed)
        if to_flush:
            await self._flush(to_flush)
        self._go_on(answer.session_id)

    def _go_on(self, session_id: int) -> None:
        if session_id == NO_SESSION:
            # Either it was over, as nothing was left in it; or the leader has no room for one, and
            # is told of all, each time.
            was_in_one = self._session[1] > INITIAL_EPOCH
            self._session = (NO_SESSION, INITIAL_EPOCH if was_in_one else FINAL_EPOCH)
            self._ask_for_all()
            return
        self._session = (session_id, next_epoch(self._session[1]))

    async def _flush(self, followed: Sequence[Followed]) -> None:
        outcomes = await asyncio.gather(
            *(each.replica.flush() for each in followed), return_exceptions=True
        )
        for each, outcome in zip(followed, outcomes, strict=True):
            if isinstance(outcome, KafkaStorageError):
                self._delay(each, str(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _take(
        self, followed: Followed, data: PartitionData, connection: PeerConnection
    ) -> None:
        """Do what the leader's answer says. Raises KafkaError: nothing was appended."""
        replica, log = followed.replica, followed.replica.log
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._on_out_of_range(followed, connection)
            return
        if data.error_code:
            error = error_for(data.error_code)
            self._delay(followed, repr(error), is_expected=error.code in EXPECTED)
            return
        self._delayed.pop(followed.partition_id, None)
        if data.diverging_epoch.end_offset >= 0:
            step = on_diverging(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            self._truncate(followed, step)
            return
        if data.records:
            if log.epochs.latest_epoch < followed.leader_epoch:
                epochs = log.new_epochs(data.records, up_to=followed.leader_epoch)
                if epochs:
                    await self._in_thread(partial(log.assign_epochs, epochs))
                    if self._partitions.get(followed.partition_id) is not followed:
                        return
            replica.append_as_follower(data.records)
            self._node.throttle.on_received(replica, len(data.records))
            self._dirty[followed.partition_id] = None
        if replica.follow_marks(data.high_watermark, data.log_start_offset):
            self._dirty[followed.partition_id] = None

    def _truncate(self, followed: Followed, step: Truncate | StartAt) -> None:
        log = followed.replica.log
        logger.info(
            "%s parts from node %d's log: %s (it ended at %d, high watermark %d)",
            followed,
            self._leader_id,
            step,
            log.log_end_offset,
            log.high_watermark,
        )
        if step.offset < log.high_watermark:
            logger.warning(
                "%s loses records below its high watermark %d: its leader was elected uncleanly",
                followed,
                log.high_watermark,
            )
        if isinstance(step, StartAt):
            log.truncate_fully_and_start_at(step.offset)
            log.high_watermark = step.offset
        else:
            self._node.truncate(followed.replica, step.offset)
        self._dirty[followed.partition_id] = None

    async def _on_out_of_range(self, followed: Followed, connection: PeerConnection) -> None:
        start, end = [
            await self._ask_offset(followed, timestamp, connection) for timestamp in (-2, -1)
        ]
        if self._partitions.get(followed.partition_id) is not followed:
            return
        if start < 0 or end < 0:
            self._delay(followed, "it does not tell its offsets", is_expected=True)
            return
        step = on_out_of_range(followed.replica.log, start, end)
        if step is not None:
            self._truncate(followed, step)
        else:
            self._delay(followed, "OFFSET_OUT_OF_RANGE", is_expected=True)

    async def _ask_offset(
        self, followed: Followed, timestamp: int, connection: PeerConnection
    ) -> int:
        """Of the leader's log; -1 if it does not say."""
        request = ListOffsetsRequest(
            replica_id=self._node.node_id,
            topics=[
                ListOffsetsTopic(
                    name=followed.replica.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=followed.replica.partition,
                            current_leader_epoch=followed.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        answer = await connection.request(
            request, ListOffsetsResponse, LIST_OFFSETS_VERSION, timeout_seconds=ANSWER_SECONDS
        )
        [told] = answer.topics[0].partitions
        return -1 if told.error_code else told.offset

    def _delay(self, followed: Followed, reason: str, *, is_expected: bool = False) -> None:
        """Leave a partition out for a while; the leader forgets it meanwhile."""
        partition_id = followed.partition_id
        before = self._delayed.get(partition_id)
        backoff = FIRST_BACKOFF_SECONDS if before is None else before.backoff
        # What is expected comes right by itself as soon as both nodes know the same metadata.
        if backoff == EXPECTED_UNTIL_SECONDS if is_expected else before is None:
            logger.log(
                logging.INFO if is_expected else logging.WARNING,
                "%s cannot follow node %d: %s",
                followed,
                self._leader_id,
                reason,
            )
        now = asyncio.get_running_loop().time()
        self._delayed[partition_id] = _Delayed(now + backoff, min(2 * backoff, MAX_BACKOFF_SECONDS))
        self._leave_out(partition_id)

    def _leave_out(self, partition_id: PartitionId) -> None:
        """The leader forgets it until it is asked for again."""
        self._dirty.pop(partition_id, None)
        if self._asked.pop(partition_id, None) is not None:
            self._forgotten.add(partition_id)


class ReplicaFetchers:
    """The fetchers of one node, one for each leader that it follows."""

    def __init__(self, make: Callable[[int], ReplicaFetcher]) -> None:
        self._make = make
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[PartitionId, int] = {}

    def follow(self, followed: Followed, leader_id: int) -> None:
        """Follow this leader from now on, and no other one."""
        before = self._leaders.get(followed.partition_id)
        if before is not None and before != leader_id:
            self._fetchers[before].leave(followed.partition_id)
        if leader_id not in self._fetchers:
            self._fetchers[leader_id] = self._make(leader_id)
        self._leaders[followed.partition_id] = leader_id
        self._fetchers[leader_id].follow(followed)

    def drop(self, partition_id: PartitionId) -> None:
        """Ask for it no more; something may still be done to it."""
        leader_id = self._leaders.pop(partition_id, None)
        if leader_id is not None:
            self._fetchers[leader_id].leave(partition_id)

    async def leave(self, partition_ids: Sequence[PartitionId]) -> None:
        """Follow nobody. Returns when nothing is done to these partitions any more."""
        concerned = set()
        for partition_id in partition_ids:
            leader_id = self._leaders.pop(partition_id, None)
            if leader_id is not None:
                concerned.add(leader_id)
                self._fetchers[leader_id].leave(partition_id)
        for leader_id in concerned:
            await self._fetchers[leader_id].settle()

    async def close_empty(self) -> None:
        for leader_id, fetcher in list(self._fetchers.items()):
            if fetcher.is_empty:
                del self._fetchers[leader_id]
                await fetcher.close()

    async def close(self) -> None:
        fetchers, self._fetchers = self._fetchers, {}
        self._leaders.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers.values()))
