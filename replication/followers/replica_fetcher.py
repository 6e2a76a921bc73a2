"""Replica fetcher: follows one leader, for all partitions that it leads and this node keeps.

Here a follower truncates its log, appends to it, and acknowledges records to the leader. One fetch
at a time, in a fetch session (KIP-227): a request names the partitions whose position has changed,
so a thousand idle ones cost nothing. What an answer requires is decided in
cluster/partition/follower_state; this class applies it to the logs.

Order, per answer: append (the page cache survives the death of this process but not of the
machine), then, for topics that require it, fsync; only then the next request is sent, which
acknowledges the records. A new leader epoch is on the disk before a record of it is.

An answer for a former position is dropped: the partition was assigned again, or truncated,
meanwhile.
Source: AbstractFetcherThread, FetchSessionHandler in apache/kafka.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple
from uuid import UUID

from ...cluster.partition.follower_state import (
    FetchPosition,
    Truncate,
    TruncateFullyAndStartAt,
    on_diverging,
    on_first_batch,
    on_out_of_range,
)
from ...protocol.error_code import ErrorCode
from ...protocol.errors import ConnectionFailed, KafkaError, KafkaStorageError, error_for
from ...protocol.fetch_session_epoch import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch
from ...protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ...protocol.records.record_batch import LOG_OVERHEAD, read_size
from ...protocol.topic_partition import TopicIdPartition
from ...storage.log.log_compaction import UnnotedGap
from ..effects import DeadlineMoved, SendFetch, SendListOffsets, SuspectNode, WorkingStep
from ..partition.replica import Replica
from ..procedure import Procedure, ProcedureSteps
from ..storage_work import AssignEpochs, LogFlush, begin_flush
from .following_node import FollowingNode

logger = logging.getLogger(__name__)

FIRST_BACKOFF_MS = 50
EXPECTED_UNTIL_MS = 16 * FIRST_BACKOFF_MS
"""Back-off after which an expected error is logged, once; it has then lasted for about as long."""
MAX_BACKOFF_MS = 1000
LONGEST_THROTTLED_MS = 1000
"""Longest wait of a throttled partition until its limit, which may change, is checked again."""
ASKED_AGAIN = inf
EARLIEST, LATEST = -2, -1
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


class FollowedPartition(NamedTuple):
    """A partition to follow: its replica here, and the leader's epoch."""

    topic_id: UUID
    replica: Replica
    leader_epoch: int

    @property
    def partition_id(self) -> TopicIdPartition:
        return self.topic_id, self.replica.partition

    @property
    def position(self) -> FetchPosition:
        log = self.replica.log
        return FetchPosition(self.leader_epoch, log.log_end_offset, log.epochs.latest_epoch)

    def __str__(self) -> str:
        return str(self.replica)


@dataclass(slots=True)
class _Delayed:
    """A partition that had an error: the time of its next fetch, and the pause after another error.

    until_ms: ASKED_AGAIN once it is fetched again, until the leader's answer for it.
    """

    until_ms: float
    backoff_ms: int


@dataclass(slots=True)
class _OutOfRange:
    """A partition whose position is out of the leader's range, and the known part of that range."""

    followed: FollowedPartition
    offsets: list[int]


class ReplicaFetcher:
    """Fetcher of one leader. Its state is in memory only. Sends nothing while a request is
    unanswered.
    """

    def __init__(self, node: FollowingNode, leader_id: int) -> None:
        self.leader_id = leader_id
        self._node = node
        self._effects = node.effects
        self._partitions: dict[TopicIdPartition, FollowedPartition] = {}
        self._asked: dict[TopicIdPartition, FetchPosition] = {}
        """Positions that the leader was sent last, of all partitions of the session."""
        self._dirty: dict[TopicIdPartition, None] = {}
        """Partitions that the next request must name, in order."""
        self._delayed: dict[TopicIdPartition, _Delayed] = {}
        self._forgotten: dict[TopicIdPartition, None] = {}
        self._session = (NO_SESSION, INITIAL_EPOCH)
        self._broker_epoch = node.broker_epoch
        """Broker epoch of this node with which the session was opened."""
        self._is_waiting = False
        """Whether a request to the leader is unanswered."""
        self._working: Procedure | None = None
        self._settled: list[tuple[object, WorkingStep]] = []
        self._out_of_range: deque[_OutOfRange] = deque()
        self._resume_ms = 0
        self._backoff_ms = FIRST_BACKOFF_MS
        self._failure: str | None = None

    # --- what to follow --------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._partitions

    @property
    def is_working(self) -> bool:
        """Whether its logs are being changed."""
        return self._working is not None

    def follow(self, followed: FollowedPartition) -> None:
        """Begin to follow, or continue in another leader epoch. Repeating it changes nothing."""
        partition_id = followed.partition_id
        if self._partitions.get(partition_id) == followed:
            return
        self._partitions[partition_id] = followed
        self._delayed.pop(partition_id, None)
        self._dirty[partition_id] = None
        self._effects.append(DeadlineMoved(self))

    def leave(self, partition_id: TopicIdPartition) -> None:
        """Stop following; its log may still be changed while is_working."""
        if self._partitions.pop(partition_id, None) is None:
            return
        self._delayed.pop(partition_id, None)
        self._leave_out(partition_id)

    # --- fetching --------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """See effects.TickingStep."""
        if self._is_waiting or self._working is not None or not self._partitions:
            return None
        due = 0.0
        if not (self._out_of_range or self._has_fetch):
            due = min((each.until_ms for each in self._delayed.values()), default=inf)
        return None if due == inf else max(self._resume_ms, ceil(due))

    @property
    def _has_fetch(self) -> bool:
        """Whether the session has partitions, or a fetch would change that; a fetch of an empty
        session would be answered at once, as would the next.
        """
        return bool(self._asked or self._dirty or self._forgotten)

    def on_tick(self, now_ms: int) -> None:
        """Send a fetch, if none is unanswered and it is due."""
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None or now_ms < deadline_ms:
            return
        if self._out_of_range:
            self._ask_for_offset()
            return
        if self._broker_epoch != self._node.broker_epoch:
            # In a session the leader processes only partitions that a request names: it would not
            # learn the new broker epoch for idle ones, and they could not join the ISR.
            self._broker_epoch = self._node.broker_epoch
            self._begin_session(instead_of=self._session[0])
        for partition_id, delayed in self._delayed.items():
            if delayed.until_ms <= now_ms:
                self._dirty[partition_id] = None
                delayed.until_ms = ASKED_AGAIN
        self._leave_out_throttled(now_ms)
        if not self._has_fetch:
            return
        not_durable = self._not_durable()
        if not_durable:
            self._work(self._flush(not_durable), now_ms)
            return
        self._is_waiting = True
        self._effects.append(SendFetch(self, self._next_request(now_ms)))

    def _begin_session(self, *, instead_of: int = NO_SESSION) -> None:
        self._session = (instead_of, INITIAL_EPOCH)
        self._asked.clear()
        self._forgotten.clear()
        self._ask_for_all()

    def _ask_for_all(self) -> None:
        for partition_id in self._partitions:
            delayed = self._delayed.get(partition_id)
            if delayed is None or delayed.until_ms == ASKED_AGAIN:
                self._dirty[partition_id] = None

    def _not_durable(self) -> list[FollowedPartition]:
        """Partitions with records that are not durable though their topic requires it, as a former
        process of this node left them in the page cache. A fetch acknowledges them, so they must be
        flushed before.
        """
        return [
            followed
            for partition_id in self._dirty
            if _must_flush(followed := self._partitions[partition_id])
            and followed.replica.log.health.is_online
        ]

    def _next_request(self, now_ms: int) -> FetchRequest:
        node, config = self._node, self._node.config
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
            self._forgotten.pop(partition_id, None)
        self._dirty.clear()
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, partition in self._forgotten:
            forgotten.setdefault(topic_id, []).append(partition)
        self._forgotten.clear()
        session_id, session_epoch = self._session
        return FetchRequest(
            replica_state=ReplicaState(replica_id=node.node_id, replica_epoch=node.broker_epoch),
            max_wait_ms=self._wait_ms(now_ms),
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

    def _leave_out_throttled(self, now_ms: int) -> None:
        for partition_id in list(self._dirty):
            wait_ms = self._node.throttle.wait_to_receive_ms(self._partitions[partition_id].replica)
            if wait_ms > 0:
                until_ms = now_ms + min(wait_ms, LONGEST_THROTTLED_MS)
                self._delayed[partition_id] = _Delayed(until_ms, FIRST_BACKOFF_MS)
                self._leave_out(partition_id)

    def _wait_ms(self, now_ms: int) -> int:
        """Time in ms that the leader may wait; at most until a delayed partition is due."""
        wait_ms = self._node.config.replica_fetch_wait_max_ms
        waiting = [
            delayed.until_ms
            for partition_id, delayed in self._delayed.items()
            if partition_id not in self._asked
        ]
        if waiting:
            wait_ms = min(wait_ms, max(1, int(min(min(waiting) - now_ms, wait_ms))))
        return wait_ms

    # --- answers ---------------------------------------------------------------------------------

    def on_unreachable(self, error: Exception, now_ms: int) -> None:
        """Called when there is no answer; the connection is lost."""
        self._is_waiting = False
        self._fail(error, now_ms)

    def _fail(self, error: Exception, now_ms: int) -> None:
        """Handle a failed request: the next fetch begins a session, on a new connection, after a
        pause.
        """
        if not isinstance(error, ConnectionFailed):
            logger.error("the fetcher of node %d failed", self.leader_id, exc_info=error)
        else:
            if self._failure is None:
                logger.warning("fetching from node %d failed: %s", self.leader_id, error)
            self._failure = str(error)
            self._effects.append(SuspectNode(self.leader_id))
        self._out_of_range.clear()
        self._begin_session()
        self._resume_ms = now_ms + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, MAX_BACKOFF_MS)

    def on_fetched(self, answer: FetchResponse, now_ms: int, wall_ms: int) -> None:
        """Called with the answer to the last fetch."""
        self._is_waiting = False
        self._backoff_ms = FIRST_BACKOFF_MS
        if self._failure is not None:
            logger.info("fetching from node %d recovered", self.leader_id)
            self._failure = None
        if answer.error_code in SESSION_ERRORS:
            self._begin_session()
        elif answer.error_code:
            self._fail(
                ConnectionFailed(f"the leader returned {error_for(answer.error_code)!r}"), now_ms
            )
        else:
            self._work(self._process(answer, wall_ms), now_ms)

    def _work(self, steps: ProcedureSteps, now_ms: int) -> None:
        self._working = Procedure(self._effects, steps, now_ms, self._on_worked)
        self._working.begin()

    def _on_worked(self, error: Exception | None) -> None:
        working, self._working = self._working, None
        assert working is not None
        if error is not None:
            self._fail(error, working.now_ms)
        settled, self._settled = self._settled, []
        for condition, step in settled:
            step.on_work_done(condition, None, working.now_ms)
        self._effects.append(DeadlineMoved(self))

    @property
    def _now_ms(self) -> int:
        assert self._working is not None
        return self._working.now_ms

    def _process(self, answer: FetchResponse, wall_ms: int) -> ProcedureSteps:
        to_flush: list[FollowedPartition] = []
        for topic in answer.responses:
            for data in topic.partitions:
                partition_id = topic.topic_id, data.partition_index
                followed = self._partitions.get(partition_id)
                if followed is None:
                    continue
                if self._asked.get(partition_id) != followed.position:
                    self._dirty[partition_id] = None  # the leader has to learn the position
                    continue
                try:
                    yield from self._take(followed, data, wall_ms)
                except KafkaStorageError as error:
                    self._node.on_storage_failure()
                    self._delay(followed, str(error), self._now_ms)
                except KafkaError as error:
                    reason = f"appending the fetched records failed: {error}"
                    self._delay(followed, reason, self._now_ms)
                else:
                    if _must_flush(followed):
                        to_flush.append(followed)
        yield from self._flush(to_flush)
        self._go_on(answer.session_id)

    def _go_on(self, session_id: int) -> None:
        if session_id == NO_SESSION:
            # Either the session has ended, as no partition was left in it; or the leader has no
            # room for one, and every fetch names all partitions.
            was_in_one = self._session[1] > INITIAL_EPOCH
            self._session = (NO_SESSION, INITIAL_EPOCH if was_in_one else FINAL_EPOCH)
            self._ask_for_all()
            return
        self._session = (session_id, next_epoch(self._session[1]))

    def _flush(self, all_followed: Iterable[FollowedPartition]) -> ProcedureSteps:
        """Flush before the next fetch, which acknowledges records, where the topic requires
        durability.
        """
        begun: list[tuple[FollowedPartition, LogFlush]] = []
        for followed in all_followed:
            try:
                flush = begin_flush(followed.replica.log)
            except KafkaStorageError as error:
                self._node.on_storage_failure()
                self._delay(followed, str(error), self._now_ms)
            else:
                if flush is not None:
                    begun.append((followed, flush))
        if not begun:
            return
        outcomes = yield [flush for _, flush in begun]
        for (followed, flush), failure in zip(begun, outcomes, strict=True):
            if failure is None:
                flush.complete()
            elif isinstance(failure, KafkaStorageError):
                self._node.on_storage_failure()
                self._delay(followed, str(failure), self._now_ms)
            else:
                raise failure

    def _take(
        self, followed: FollowedPartition, data: PartitionData, wall_ms: int
    ) -> ProcedureSteps:
        """Apply the leader's answer for a partition. Raises KafkaError: nothing was appended."""
        replica, log = followed.replica, followed.replica.log
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range.append(_OutOfRange(followed, []))
            return
        if data.error_code:
            error = error_for(data.error_code)
            self._delay(followed, repr(error), self._now_ms, is_expected=error.code in EXPECTED)
            return
        self._delayed.pop(followed.partition_id, None)
        if data.diverging_epoch.end_offset >= 0:
            step = on_diverging(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            self._truncate(followed, step)
            return
        if data.records:
            is_cut = len(data.records) < LOG_OVERHEAD  # by the size limit of the answer
            first_offset = log.log_end_offset if is_cut else read_size(data.records)[0]
            unaligned = on_first_batch(log, first_offset, data.log_start_offset)
            if unaligned is not None:
                self._truncate(followed, unaligned)
                return
            if log.epochs.latest_epoch < followed.leader_epoch:
                epochs = log.epochs.new_epochs(data.records, up_to=followed.leader_epoch)
                if epochs:
                    [failure] = yield [AssignEpochs(log, epochs)]
                    if failure is not None:
                        raise failure
                    if self._partitions.get(followed.partition_id) is not followed:
                        return
            try:
                replica.append_as_follower(data.records, wall_ms)
            except UnnotedGap:
                yield from self._node.note_gaps(log)
                self._dirty[followed.partition_id] = None  # fetched again
                return
            self._node.throttle.on_received(replica, len(data.records))
            self._dirty[followed.partition_id] = None
        if replica.update_watermarks(data.high_watermark, data.log_start_offset):
            self._dirty[followed.partition_id] = None

    def _truncate(
        self, followed: FollowedPartition, step: Truncate | TruncateFullyAndStartAt
    ) -> None:
        log = followed.replica.log
        logger.info(
            "%s diverges from its leader's log on node %d: %s (end offset %d, high watermark %d)",
            followed,
            self.leader_id,
            step,
            log.log_end_offset,
            log.high_watermark,
        )
        if step.offset < log.high_watermark:
            logger.warning(
                "truncating %s below its high watermark %d: unclean leader election",
                followed,
                log.high_watermark,
            )
        if isinstance(step, TruncateFullyAndStartAt):
            log.truncate_fully_and_start_at(step.offset)
            log.high_watermark = step.offset
        else:
            self._node.truncate(followed.replica, step.offset)
        self._dirty[followed.partition_id] = None

    # --- where the leader has nothing at our position --------------------------------------------

    def _ask_for_offset(self) -> None:
        """Ask for the leader's log start, then for its log end."""
        asked = self._out_of_range[0]
        followed = asked.followed
        if self._partitions.get(followed.partition_id) is not followed:
            self._out_of_range.popleft()
            self._effects.append(DeadlineMoved(self))
            return
        timestamp = LATEST if asked.offsets else EARLIEST
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
        self._is_waiting = True
        self._effects.append(SendListOffsets(self, request))

    def on_offsets(self, answer: ListOffsetsResponse, now_ms: int) -> None:
        """Called with the leader's answer to one of the two ListOffsets requests."""
        self._is_waiting = False
        [found] = answer.topics[0].partitions
        asked = self._out_of_range[0]
        asked.offsets.append(-1 if found.error_code else found.offset)
        if len(asked.offsets) < 2:
            return
        followed, (start, end) = asked.followed, asked.offsets
        self._out_of_range.popleft()
        if self._partitions.get(followed.partition_id) is not followed:
            return
        if start < 0 or end < 0:
            self._delay(followed, "the leader returned no offsets", now_ms, is_expected=True)
            return
        step = on_out_of_range(followed.replica.log, start, end)
        if step is None:
            self._delay(followed, "OFFSET_OUT_OF_RANGE", now_ms, is_expected=True)
            return
        self._delayed.pop(followed.partition_id, None)
        try:
            self._truncate(followed, step)
        except KafkaStorageError as error:
            self._node.on_storage_failure()
            self._delay(followed, str(error), now_ms)

    # --- leaving partitions out ------------------------------------------------------------------

    def _delay(
        self, followed: FollowedPartition, reason: str, now_ms: int, *, is_expected: bool = False
    ) -> None:
        """Delay a partition after an error; the leader drops it from the session meanwhile."""
        partition_id = followed.partition_id
        before = self._delayed.get(partition_id)
        backoff_ms = FIRST_BACKOFF_MS if before is None else before.backoff_ms
        # An expected error ends by itself as soon as both nodes have applied the same metadata.
        if backoff_ms == EXPECTED_UNTIL_MS if is_expected else before is None:
            logger.log(
                logging.INFO if is_expected else logging.WARNING,
                "%s cannot follow node %d: %s",
                followed,
                self.leader_id,
                reason,
            )
        if self._partitions.get(partition_id) is followed:
            again_ms = min(2 * backoff_ms, MAX_BACKOFF_MS)
            self._delayed[partition_id] = _Delayed(now_ms + backoff_ms, again_ms)
            self._leave_out(partition_id)

    def _leave_out(self, partition_id: TopicIdPartition) -> None:
        """Remove a partition from the session until it is fetched again."""
        self._dirty.pop(partition_id, None)
        if self._asked.pop(partition_id, None) is not None:
            self._forgotten[partition_id] = None

    # --- waiting for its work to end -------------------------------------------------------------

    def when_settled(self, condition: object, step: WorkingStep) -> None:
        """Notify `step` that `condition` is met, once its logs are no longer being changed."""
        self._settled.append((condition, step))


def _must_flush(followed: FollowedPartition) -> bool:
    log = followed.replica.log
    return log.flushing.unflushed_records >= log.config.flush_messages
