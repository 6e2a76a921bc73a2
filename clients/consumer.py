"""The consumer: polls whole batches as Arrow tables, alone or as a member of a group.

    consumer = Consumer("flights", group="delays", auto_offset_reset="earliest")
    table = consumer.poll(timeout_ms=1000)  # topic partition offset timestamp key value headers
    consumer.commit()

What always holds:
    A position is the offset of the next record that poll or iteration hands out; what was handed
    out is consumed. A commit stores positions, so after a crash nothing is skipped: what was
    handed out since the last commit comes again (at least once).
    Records of one partition come in order, each once between two seeks.

One thread uses a consumer; fetching and heartbeats go on in the background between its calls.

Not here: transactions of a producer, pattern subscription, rebalance listeners, other assignors.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

import pyarrow as pa

from ..protocol.columns import decode_batches
from ..protocol.errors import ConnectionFailed, InvalidConfig, InvalidGroupId, KafkaError
from .bootstrap import NAMESPACE
from .cluster_client import ClientConfig, ClusterClient
from .coordinator import Coordinator, GroupConfig
from .fetch_state import UNKNOWN_OFFSET, StartAt
from .fetcher import FetchConfig, Fetcher
from .group_offsets import GroupOffsets
from .io_thread import Steps
from .list_offsets import EARLIEST, LATEST, list_offsets
from .positions import PositionFinder
from .record_stream import Chunk, ConsumerRecord, RecordStream, records_of
from .topic_partition import TopicPartition

T = TypeVar("T")

logger = logging.getLogger(__name__)

Partition = TopicPartition | tuple[str, int]

SCHEMA: Final[pa.Schema] = decode_batches(b"", topic="", partition=0, fetch_offset=0).table.schema
"""Of every table that poll returns: topic, partition, offset, timestamp, key, value, headers."""

_ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
_RESET: Final = {"earliest": StartAt.EARLIEST, "latest": StartAt.LATEST, "none": None}


class Consumer:
    """Reads topics. Not for several threads at once; closes with `close` or `with`.

    Args:
        topics: with a group, the subscription; without, every partition of them is assigned, as
            they are now.
        bootstrap: "host:port,..."; without it the environment's BRADBURY_BOOTSTRAP, or inside a Ray
            cluster the controller actor in `namespace`.
        group: the consumer group whose members share the partitions and the committed offsets.
        auto_offset_reset: where to read where nothing is committed, or what is committed is gone:
            "earliest", "latest", or "none" to raise OffsetOutOfRange in poll.
        isolation_level: "read_uncommitted", or "read_committed" to leave out what is not decided or
            aborted.
        enable_auto_commit: commit what was handed out: in poll every `auto_commit_interval_ms`,
            before a rebalance, and at close. Only with a group.
        max_poll_records: most records a poll returns; None for all that have been fetched.
        fetch_min_bytes, fetch_max_wait_ms: a broker answers when it has so much, or after so long.
        fetch_max_bytes: most bytes of one answer, and about of what is fetched ahead.
        max_partition_fetch_bytes: most bytes of one partition in one answer; a larger batch comes
            nevertheless.
        session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms: when the group gives up
            this member: without a heartbeat, without a poll.
        group_instance_id: makes a static member, which keeps its partitions when it restarts.

    Raises:
        InvalidConfig: settings that contradict one another.
        ConnectionFailed: no cluster is named anywhere, or none answers.
        UnknownTopicOrPartition: there is no such topic.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap: str | None = None,
        group: str | None = None,
        auto_offset_reset: Literal["latest", "earliest", "none"] = "latest",
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        max_poll_records: int | None = None,
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        max_partition_fetch_bytes: int = 1024 * 1024,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        group_instance_id: str | None = None,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300_000,
        check_crcs: bool = True,
        client_id: str = "bradbury-consumer",
        namespace: str = NAMESPACE,
    ) -> None:
        if auto_offset_reset not in _RESET:
            raise InvalidConfig(f"auto_offset_reset={auto_offset_reset!r}: earliest, latest, none")
        if isolation_level not in _ISOLATION:
            raise InvalidConfig(f"isolation_level={isolation_level!r}: say one of {[*_ISOLATION]}")
        if group is None and group_instance_id is not None:
            raise InvalidConfig("group_instance_id needs a group")
        if heartbeat_interval_ms >= session_timeout_ms:
            raise InvalidConfig("heartbeat_interval_ms must be less than session_timeout_ms")
        self._reset = _RESET[auto_offset_reset]
        self._isolation = _ISOLATION[isolation_level]
        self._max_poll_records = max_poll_records
        self._request_timeout_ms = request_timeout_ms
        self._auto_commit_s = auto_commit_interval_ms / 1000
        self._auto_commit = enable_auto_commit and group is not None
        self._commit_at = time.monotonic() + self._auto_commit_s
        self._client = client = ClusterClient(
            bootstrap,
            namespace=namespace,
            config=ClientConfig(
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                retry_backoff_ms=retry_backoff_ms,
                metadata_max_age_ms=metadata_max_age_ms,
            ),
        )
        # A dropped consumer, or the end of the interpreter, ends the thread; only `close` commits.
        self._finalizer = weakref.finalize(self, client.close)
        self._coordinator: Coordinator | None = None
        self._offsets: GroupOffsets | None = None
        finder = PositionFinder(client, reset=self._reset, isolation_level=self._isolation)
        self._fetcher = Fetcher(
            client,
            FetchConfig(
                min_bytes=fetch_min_bytes,
                max_wait_ms=fetch_max_wait_ms,
                max_bytes=fetch_max_bytes,
                max_partition_bytes=max_partition_fetch_bytes,
                isolation_level=self._isolation,
                reset=self._reset,
            ),
            finder.find,
        )
        self._stream = RecordStream(self._fetcher, check_crcs=check_crcs)
        if group is not None:
            self._coordinator = Coordinator(
                client,
                GroupConfig(
                    group_id=group,
                    group_instance_id=group_instance_id,
                    session_timeout_ms=session_timeout_ms,
                    heartbeat_interval_ms=heartbeat_interval_ms,
                    max_poll_interval_ms=max_poll_interval_ms,
                ),
                self._fetcher.notify,
            )
            self._offsets = finder.offsets = GroupOffsets(client, self._coordinator)
        try:
            if topics and group is not None:
                self.subscribe(topics)
            elif topics:
                self.assign(
                    TopicPartition(topic, partition)
                    for topic in topics
                    for partition in range(self.partitions_for(topic))
                )
        except BaseException:
            self._finalizer()
            raise

    # --- what to read ------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Share the partitions of `topics` with the other members of the group.

        Replaces the subscription or assignment before. Partitions come in poll.

        Raises:
            InvalidGroupId: the consumer has no group.
            UnknownTopicOrPartition: there is no such topic.
        """
        topics = [topics] if isinstance(topics, str) else list(topics)
        if self._coordinator is None:
            raise InvalidGroupId("subscribe needs Consumer(group=...); assign works without")
        for topic in topics:
            self.partitions_for(topic)
        self._coordinator.subscribe(topics)

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions, each from its committed offset or `auto_offset_reset`.

        Those read already keep their position. It has nothing to do with other members.

        Raises:
            UnknownTopicOrPartition: there is no such topic or partition.
            ValueError: the consumer is subscribed.
        """
        if self._coordinator is not None and self._coordinator.topics:
            raise ValueError("a subscribed consumer is given its partitions; it cannot assign any")
        wanted = [TopicPartition(*partition) for partition in partitions]
        for topic, partition in wanted:
            count = self.partitions_for(topic)
            if not 0 <= partition < count:
                raise ValueError(
                    f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}"
                )
        self._fetcher.assign(wanted, StartAt.COMMITTED)

    def assignment(self) -> list[TopicPartition]:
        return sorted(self._fetcher.states())

    def partitions_for(self, topic: str) -> int:
        """How many partitions `topic` has.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        self._check_open()
        return len(self._run(self._client.topic(topic)).partitions)

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at `offset`, which may lie outside the log: then poll resets or raises.

        Raises:
            ValueError: not assigned, or a negative offset.
        """
        if offset < 0:
            raise ValueError(f"an offset is not negative: {offset}; see seek_to_beginning")
        self._fetcher.seek(partition, offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on at the first record there is, in these partitions or in all."""
        self._restart(partitions, StartAt.EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Go on after the last record there is, in these partitions or in all."""
        self._restart(partitions, StartAt.LATEST)

    def pause(self, *partitions: Partition) -> None:
        """Hand out nothing of these partitions until `resume`; what was fetched is kept."""
        for partition in partitions:
            self._fetcher.set_paused(partition, paused=True)

    def resume(self, *partitions: Partition) -> None:
        for partition in partitions:
            self._fetcher.set_paused(partition, paused=False)

    # --- records -----------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 1000, *, max_records: int | None = None) -> pa.Table:
        """The records that have been fetched, whole batches; SCHEMA, and empty after `timeout_ms`.

        The first polls of a group member also join the group, within the same time.

        Args:
            max_records: most records to return; `max_poll_records` if None. The rest comes next.

        Raises:
            OffsetOutOfRange: the position is not in the log, and auto_offset_reset is "none".
            CorruptMessage: a batch is damaged; seek past it to go on.
            KafkaError: the broker, or the group, refuses.
        Cost: about 0.1 us a record of 100 bytes.
        """
        chunks = self._take(timeout_ms, max_records or self._max_poll_records)
        for chunk in chunks:
            chunk.state.position = chunk.next_offset
        if not chunks:
            return SCHEMA.empty_table()
        return pa.concat_tables([chunk.table for chunk in chunks])

    def records(self, timeout_ms: int = 1000) -> Iterator[ConsumerRecord]:
        """One record after another, until none comes for `timeout_ms`.

        The position moves with each record, so a commit between two covers what was handed out.
        """
        while True:
            chunks = self._take(timeout_ms, self._max_poll_records)
            if not chunks:
                return
            try:
                for chunk in chunks:
                    yield from records_of(chunk)
            finally:
                self._stream.put_back(chunks)  # of which, if the caller left early, some is left

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Every record there is and will be; it never ends by itself."""
        while True:
            yield from self.records()

    # --- positions ---------------------------------------------------------------------------

    def position(self, partition: Partition) -> int:
        """The offset of the next record to be handed out. It waits until that is known.

        Raises:
            ValueError: not assigned.
            OffsetOutOfRange: there is none, and auto_offset_reset is "none".
            RequestTimedOut: not known within `request_timeout_ms`.
        """
        state = self._fetcher.state(partition)
        with self._fetcher.condition:
            self._fetcher.condition.wait_for(
                lambda: state.position != UNKNOWN_OFFSET or self._fetcher.has_error(),
                self._request_timeout_ms / 1000,
            )
        if state.position == UNKNOWN_OFFSET:
            raise self._fetcher.take_error() or ConnectionFailed(
                f"no position for {state.topic_partition} within {self._request_timeout_ms} ms"
            )
        return state.position

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Store positions in the group: those given, or those of everything handed out.

        Args:
            offsets: by partition, the offset of the next record to be read.

        Raises:
            InvalidGroupId: the consumer has no group.
            IllegalGeneration, UnknownMemberId, RebalanceInProgress: the group has gone on without
                this member; what it read since the last commit is read again by another.
        """
        committed = self._group_offsets
        if offsets is None:
            stored = self._positions()
        else:
            stored = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._run(committed.commit(stored))

    def committed(self, *partitions: Partition) -> dict[TopicPartition, int | None]:
        """What the group has stored for these partitions, or all assigned; None for nothing."""
        wanted = [TopicPartition(*one) for one in partitions] or self.assignment()
        found = self._run(self._group_offsets.committed(wanted))
        return {partition: found.get(partition) for partition in wanted}

    def beginning_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """The first offset there is, of these partitions or all assigned."""
        return self._list(partitions, EARLIEST)

    def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """One past the last record that may be read, of these partitions or all assigned."""
        return self._list(partitions, LATEST)

    def lag(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """Records between the position and the end, of these assigned partitions or all."""
        ends = self._list(partitions, LATEST)
        return {key: max(0, end - self.position(key)) for key, end in ends.items()}

    def close(self) -> None:
        """Commit (with enable_auto_commit), leave the group, end. Idempotent."""
        if self._client.closed:
            return
        try:
            if self._coordinator is not None and self._coordinator.topics:
                if not self._coordinator.is_joining:
                    self._commit_quietly()
                self._coordinator.leave(timeout_ms=5_000)
            elif self._auto_commit:
                self._commit_quietly()
        finally:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- how a poll goes ---------------------------------------------------------------------

    def _take(self, timeout_ms: int, max_records: int | None) -> list[Chunk]:
        """What can be handed out, waited for; empty after `timeout_ms`."""
        self._check_open()
        deadline = time.monotonic() + timeout_ms / 1000
        self._maybe_auto_commit()
        while True:
            self._see_to_group(deadline)
            chunks = self._stream.take(max_records)
            if chunks:
                return chunks
            error = self._fetcher.take_error()
            if error is not None:
                raise error
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return []
            with self._fetcher.condition:
                self._fetcher.condition.wait_for(self._may_go_on, left_s)

    def _may_go_on(self) -> bool:
        coordinator = self._coordinator
        return (
            self._fetcher.is_ready()
            or self._stream.is_ready()
            or (coordinator is not None and coordinator.needs_attention())
        )

    def _see_to_group(self, deadline: float) -> None:
        """Begin and end rebalances."""
        coordinator = self._coordinator
        if coordinator is None or not coordinator.topics:
            return
        coordinator.on_poll()
        while coordinator.needs_attention() or coordinator.is_joining:
            if not coordinator.is_joining:
                if not coordinator.lost:
                    self._commit_quietly()
                self._fetcher.assign([], StartAt.COMMITTED)
                coordinator.start_join()
            assignment = coordinator.joined(max(0.0, deadline - time.monotonic()))
            if assignment is None:
                return
            self._fetcher.assign(assignment, StartAt.COMMITTED)

    def _maybe_auto_commit(self) -> None:
        now = time.monotonic()
        if self._auto_commit and now >= self._commit_at and self._offsets is not None:
            self._commit_at = now + self._auto_commit_s
            future = self._client.io.spawn(self._offsets.commit(self._positions()))
            future.add_done_callback(_log_failed_commit)

    def _commit_quietly(self) -> None:
        if not self._auto_commit or self._offsets is None:
            return
        try:
            self._run(self._offsets.commit(self._positions()))
        except (KafkaError, ConnectionFailed) as error:
            logger.warning("positions are not committed: %s; they are read again", error)

    def _positions(self) -> dict[TopicPartition, int]:
        return {
            key: state.position
            for key, state in self._fetcher.states().items()
            if state.position != UNKNOWN_OFFSET
        }

    def _restart(self, partitions: tuple[Partition, ...], start_at: StartAt) -> None:
        for partition in partitions or self.assignment():
            self._fetcher.restart(partition, start_at)

    def _list(self, partitions: tuple[Partition, ...], at: int) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = [TopicPartition(*one) for one in partitions] or self.assignment()
        found = self._run(
            list_offsets(self._client, dict.fromkeys(wanted, at), isolation_level=self._isolation)
        )
        return {key: answer.offset for key, answer in found.items()}

    @property
    def _group_offsets(self) -> GroupOffsets:
        self._check_open()
        if self._offsets is None:
            raise InvalidGroupId("committed offsets need Consumer(group=...)")
        return self._offsets

    def _run(self, steps: Steps[T]) -> T:
        return self._client.run(steps, self._request_timeout_ms)

    def _check_open(self) -> None:
        if self._client.closed:
            raise KafkaError("the consumer is closed")


def _log_failed_commit(future: Future[None]) -> None:
    error = future.exception()
    if error is not None:
        logger.warning("positions are not committed: %s; the next commit covers them", error)
