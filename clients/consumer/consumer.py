"""The consumer: polls whole batches as Arrow tables, alone or as a member of a group.

    consumer = Consumer("flights", group="delays", auto_offset_reset="earliest")
    table = consumer.poll()  # waits; topic partition offset timestamp key value headers
    consumer.commit()

Invariants:
    A position is the offset of the next record that poll or iteration returns; returned records are
    consumed. A commit stores positions, so after a crash nothing is skipped: records returned
    since the last commit are returned again (at least once).
    Records of one partition are returned in order, each once between two seeks.

One thread uses a consumer; fetching and heartbeats continue in the background between its calls.

Not here: rebalances (group_member), steps of a poll (poll_steps), positions and lag
(consumer_positions), waiting (thread_waiter), transactions of a producer.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self, Unpack

import pyarrow as pa

from ...protocol.errors import InvalidConfig, InvalidGroupId
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..fetch.fetch_request import FetchConfig
from ..fetch.fetch_state import StartAt
from ..fetch.fetcher import Fetcher
from ..fetch.record_stream import RAISE, ConsumerRecord, RecordStream, records_of
from ..group.assignor import Assignor
from ..group.consumer_coordinator import ConsumerCoordinator
from ..group.group_member import CommitCallback, ConsumerMember, GivenOffsets, Offsets
from ..group.membership import ConsumerGroupMetadata
from ..group.rebalance_listener import RebalanceListener
from ..group.subscription import Subscription
from ..security.security_options import SecurityOptions, given_security
from ..threads.awaitable_future import AwaitableFuture
from ..wire.cluster_client import ClientConfig, ClusterClient
from ..wire.interceptors import ConsumerInterceptor, ConsumerInterceptors
from ..wire.record_metadata import OffsetAndMetadata, OffsetAndTimestamp
from ..wire.sampled_stats import Metrics
from .consumer_config import DEFAULT_STRATEGY, ConsumerConfig
from .consumer_positions import ConsumerPositions
from .poll_steps import SCHEMA, PollSteps
from .positions import PositionFinder
from .thread_waiter import ThreadWaiter, Wakeup

__all__ = ["SCHEMA", "Consumer", "Wakeup"]


class Consumer:
    """Consumer of topics. Not for several threads at once; closes with `close` or `with`.

    Args:
        topics: with a group, the subscription; without, every partition of them is read, and those
            that are added later from their beginning, within `metadata_max_age_ms`.
        pattern: instead of topics: the group's members read every topic whose name it matches.
        listener: called when partitions are assigned, revoked or lost.
        bootstrap: "host:port,..."; without it the environment's BRADBURY_BOOTSTRAP, the Ray cluster
            this process has joined, or the cluster `namespace` that is up on this machine.
        group: the consumer group whose members share the partitions and the committed offsets.
        group_instance_id: makes a static member, which keeps its partitions when it restarts.
        partition_assignment_strategy: assignors in order of preference: names (range, roundrobin,
            sticky, cooperative-sticky) or Assignors. If all are cooperative, a rebalance revokes
            only partitions that move.
        auto_offset_reset: start if no valid offset is committed: "earliest", "latest",
            "by_duration:PT1H" (records of the last hour), or "none" to raise OffsetOutOfRange in
            poll.
        isolation_level: "read_uncommitted", or "read_committed" to leave out records of open and
            aborted transactions.
        enable_auto_commit: commit positions in poll every `auto_commit_interval_ms`, before
            partitions are revoked, and at close. Only with a group.
        max_poll_records: maximum records a poll returns; None for all that have been fetched.
        fetch_min_bytes, fetch_max_wait_ms: a broker answers a fetch with this size, or after this
            time.
        fetch_max_bytes: maximum bytes of a response, and approximately of prefetched records.
        max_partition_fetch_bytes: maximum bytes of a partition in a response; a larger first batch
            is returned, too.
        session_timeout_ms, heartbeat_interval_ms: the group removes this member after this time
            without a heartbeat; heartbeats are sent in the background.
        max_poll_interval_ms: the member leaves after this time without a poll, and rejoins with
            the next poll. Also the time that a rebalance waits for its members.
        client_rack: sent to the leader of the group, whose strategy may use it, and to the
            brokers: with Kafka's rack-aware replica.selector.class it fetches from a replica there.
        allow_auto_create_topics: whether a topic given by name may be created, if the broker
            allows it (auto.create.topics.enable). A pattern creates none.
        interceptors: called with polled records, and with commits; see ConsumerInterceptor.
        security: security_protocol, ssl_* and sasl_*; see SecurityOptions.

    Raises:
        InvalidConfig: settings that contradict one another.
        InvalidGroupId: the group's name is empty.
        ConnectionFailed: no cluster is given or found, or no broker answers.
        AuthenticationFailed: broker and client could not authenticate each other.
        UnknownTopicOrPartition: there is no such topic.
        TypeError: a topic is not a string.
    """

    def __init__(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        bootstrap: str | None = None,
        group: str | None = None,
        group_instance_id: str | None = None,
        partition_assignment_strategy: str | Assignor | Iterable[str | Assignor] = DEFAULT_STRATEGY,
        auto_offset_reset: str = "latest",
        isolation_level: str = "read_uncommitted",
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
        client_rack: str | None = None,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300_000,
        allow_auto_create_topics: bool = False,
        check_crcs: bool = True,
        on_corrupt_record: str = RAISE,
        interceptors: Iterable[ConsumerInterceptor] = (),
        client_id: str = "bradbury-consumer",
        namespace: str | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        config = ConsumerConfig.of(
            topics,
            pattern,
            group=group,
            group_instance_id=group_instance_id,
            auto_offset_reset=auto_offset_reset,
            isolation_level_name=isolation_level,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            partition_assignment_strategy=partition_assignment_strategy,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            max_poll_records=max_poll_records,
            client_rack=client_rack,
        )
        self._isolation = config.isolation_level
        self._request_timeout_ms = request_timeout_ms
        self._client = client = ClusterClient(
            bootstrap,
            namespace=namespace,
            config=ClientConfig(
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                retry_backoff_ms=retry_backoff_ms,
                metadata_max_age_ms=metadata_max_age_ms,
                allow_auto_create_topics=allow_auto_create_topics,
                security=given_security(security, Consumer),
            ),
        )
        # Garbage collection, or the end of the interpreter, ends the thread; only `close` commits.
        self._finalizer = weakref.finalize(self, client.drop)
        finder = PositionFinder(client, reset=config.reset, isolation_level=self._isolation)
        self._fetcher = Fetcher(
            client,
            FetchConfig(
                min_bytes=fetch_min_bytes,
                max_wait_ms=fetch_max_wait_ms,
                max_bytes=fetch_max_bytes,
                max_partition_bytes=max_partition_fetch_bytes,
                isolation_level=self._isolation,
                reset=config.reset,
                rack=client_rack or "",
            ),
            finder.find,
        )
        self._waiter = ThreadWaiter(client, self._fetcher)
        self._positions = ConsumerPositions(
            client, self._fetcher, self._waiter, isolation=config.isolation_level
        )
        self._interceptors = ConsumerInterceptors.of(interceptors)
        self._member: ConsumerMember | None = None
        if config.group is not None:
            self._member = ConsumerMember(
                client,
                ConsumerCoordinator(client, config.group, self._fetcher.notify),
                self._fetcher,
                auto_commit_interval_ms=config.auto_commit_interval_ms,
                interceptors=self._interceptors,
            )
            finder.offsets = self._member.offsets
        self._steps = PollSteps(
            client,
            self._fetcher,
            RecordStream(self._fetcher, check_crcs=check_crcs, on_corrupt_record=on_corrupt_record),
            self._member,
            self._interceptors,
            max_poll_records=max_poll_records,
        )
        try:
            if pattern is not None:
                self.subscribe(pattern=pattern, listener=listener)
            elif topics and group is not None:
                self.subscribe(topics, listener=listener)
            elif topics:
                self.assign(
                    TopicPartition(topic, partition)
                    for topic in topics
                    for partition in range(self.partitions_for(topic))
                )
                self._steps.read_all_of(topics)
        except BaseException:
            client.close()
            raise

    # --- subscription and assignment ---------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share the partitions of `topics` with the other members of the group.

        Replaces a previous subscription, listener or assignment. Partitions are assigned in poll.

        Args:
            topics: names, or a compiled pattern.
            pattern: regular expression for whole names of topics, now and later.

        Raises:
            InvalidGroupId: the consumer has no group.
            InvalidConfig: both or neither are given, or the pattern is not a regular expression.
            UnknownTopicOrPartition: there is no such topic.
        """
        member = self._group("subscribe needs Consumer(group=...); assign works without")
        if (topics is None) == (pattern is None):
            raise InvalidConfig("subscribe needs either topics or a pattern")
        wanted = (
            Subscription.of(topics or ()) if pattern is None else Subscription.matching(pattern)
        )
        if not wanted:
            self.unsubscribe()
            return
        for topic in wanted.topics:
            self.partitions_for(topic)
        member.subscribe(wanted, listener)

    def unsubscribe(self) -> None:
        """Leave the group, or drop the assignment; with auto-commit, commit first."""
        self._waiter.check_open()
        if self._member is not None and self._member.is_subscribed:
            self._member.leave(
                notify=not self._member.is_static,
                reason="the consumer unsubscribed",
                timeout_ms=self._request_timeout_ms,
            )
        else:
            self._steps.read_all_of(())
            self._fetcher.assign([], StartAt.COMMITTED)

    def subscription(self) -> list[str]:
        """Topics that this consumer subscribes to; for a pattern, those it matches."""
        if self._member is None:
            return []
        return list(self._member.coordinator.subscription.topics_in(self._client.view))

    def assign(self, partitions: Iterable[TopicPartitionPair]) -> None:
        """Read exactly these partitions, each from its committed offset or `auto_offset_reset`.

        Partitions that are assigned already keep their position. There is no group membership.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            ValueError: there is no such partition, or the consumer is subscribed.
        """
        if self._member is not None and self._member.is_subscribed:
            raise ValueError("a subscribed consumer cannot assign partitions: unsubscribe first")
        wanted = [TopicPartition(*partition) for partition in partitions]
        for topic, partition in wanted:
            view = self._waiter.run(self._client.topic(topic, partition=partition))
            count = len(view.partitions)
            if not 0 <= partition < count:
                raise ValueError(
                    f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}"
                )
        self._steps.read_all_of(())
        self._fetcher.assign(wanted, StartAt.COMMITTED)

    def assignment(self) -> list[TopicPartition]:
        """Partitions that are assigned now, sorted."""
        return self._positions.assignment()

    def partitions_for(self, topic: str) -> int:
        """Number of partitions of `topic`.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        return self._positions.partitions_for(topic)

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """Let the next poll start a rebalance, for example for a new assignment by a strategy."""
        self._group("a rebalance needs Consumer(group=...)").coordinator.request_rejoin(reason)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The membership of this consumer in its group; generation -1 while it is not a member.

        Raises:
            InvalidGroupId: the consumer has no group.
        """
        return self._group("metadata of a group needs Consumer(group=...)").metadata()

    # --- records -----------------------------------------------------------------------------

    def poll(self, timeout_ms: int | None = None, *, max_records: int | None = None) -> pa.Table:
        """Return fetched records, whole batches, as a table of SCHEMA.

        Polls of a group member also join the group and take part in rebalances, within the same
        time: listeners are called, and positions committed, here.

        Args:
            timeout_ms: maximum wait for a record; then the table is empty. None: it waits until
                there is a record, also while joining the group; `wakeup` and Ctrl-C end it.
            max_records: maximum records to return; None: `max_poll_records`.

        Raises:
            ValueError: it would wait forever, as nothing is subscribed or assigned.
            OffsetOutOfRange: the position is not in the log, and auto_offset_reset is "none".
            CorruptMessage: a batch is damaged; seek past it to continue.
            FencedInstanceId: another consumer has joined with this one's group_instance_id.
            Wakeup: `wakeup` was called.
            KafkaError: the broker, or the group, refuses.
        Cost: about 0.1 us a record of 100 bytes.
        """
        chunks = self._waiter.take(self._steps, timeout_ms, max_records)
        for chunk in chunks:
            chunk.hand_out()
        return self._steps.table_of(chunks)

    def records(self, timeout_ms: int | None = None) -> Iterator[ConsumerRecord]:
        """Yield records, until there is none for `timeout_ms`; None: it never ends.

        The position moves with each record, so a commit between two records covers those returned.
        """
        while True:
            chunks = self._waiter.take(self._steps, timeout_ms, None)
            if not chunks:
                return
            try:
                for chunk in chunks:
                    yield from records_of(self._steps.as_shown(chunk))
            finally:
                self._steps.put_back(chunks)  # records remain if the caller ended the loop early

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over all records, now and in the future; it never ends by itself."""
        return self.records()

    def metrics(self) -> Metrics:
        """Metrics of the consumer, by Kafka's names and groups.

        `metrics()["consumer-fetch-manager-metrics"]["records-lag-max"]`; rates and averages are of
        the last half to whole minute, times in milliseconds; -1 and NaN where there is nothing yet.
        Groups: consumer-metrics; consumer-fetch-manager-metrics, also with ",topic=<name>" and
        ",topic=<name>,partition=<number>"; with a group consumer-coordinator-metrics.
        Cost: some microseconds, and as many for each partition.
        """
        now = time.monotonic()
        states = self._fetcher.states()
        polls, connections = self._steps.metrics.figures(now), self._client.metrics.figures(now)
        found = {
            "consumer-metrics": polls | connections,
            **self._fetcher.metrics.figures(now, states, committed_only=bool(self._isolation)),
        }
        if self._member is not None:
            found["consumer-coordinator-metrics"] = self._member.coordinator.metrics.figures(
                now, assigned_count=len(states)
            )
        return found

    # --- positions ---------------------------------------------------------------------------

    def seek(self, partition: TopicPartitionPair, offset: int) -> None:
        """Continue at `offset`; if that is outside of the log, poll resets the position or raises.

        Raises:
            ValueError: not assigned, or a negative offset.
        """
        self._positions.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartitionPair) -> None:
        """Continue at the first record, in these partitions or all assigned."""
        self._positions.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartitionPair) -> None:
        """Continue after the last record, in these partitions or all assigned."""
        self._positions.seek_to_end(*partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartitionPair) -> None:
        """Continue at the first record from a time on, or at the end, in these partitions or all.

        Args:
            timestamp_ms: milliseconds since 1970.
        """
        self._positions.seek_to_time(timestamp_ms, *partitions)

    def pause(self, *partitions: TopicPartitionPair) -> None:
        """Return no records of these partitions until `resume`; fetched records are kept."""
        self._positions.pause(*partitions)

    def resume(self, *partitions: TopicPartitionPair) -> None:
        self._positions.resume(*partitions)

    def paused(self) -> list[TopicPartition]:
        """Paused partitions, sorted. A partition that is revoked is no longer paused."""
        return self._positions.paused()

    def position(self, partition: TopicPartitionPair) -> int:
        """Offset of the next record to return. Waits until it is known.

        Raises:
            ValueError: not assigned.
            OffsetOutOfRange: no offset is committed, and auto_offset_reset is "none".
            ConnectionFailed: not known within `request_timeout_ms`.
            Wakeup: `wakeup` was called.
        """
        return self._positions.position(partition)

    def beginning_offsets(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        """Log start offset, of these partitions or all assigned."""
        return self._positions.beginning_offsets(*partitions)

    def end_offsets(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        """Offset after the last readable record, of these partitions or all assigned."""
        return self._positions.end_offsets(*partitions)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartitionPair, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offset of the first record from a time on, by partition; None if there is none.

        Args:
            timestamps_ms: ms since 1970, by partition; partitions need not be assigned.
        """
        return self._positions.offsets_for_times(timestamps_ms)

    def lag(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        """Offsets between the position and the end, of these assigned partitions or all.

        Cost: a request to each leader; see `current_lag`.
        """
        return self._positions.lag(*partitions)

    def current_lag(self, partition: TopicPartitionPair) -> int | None:
        """Lag by the end offset of the last fetch, without a request; None before the first fetch.

        Raises:
            ValueError: not assigned.
        """
        return self._positions.current_lag(partition)

    # --- committed offsets -------------------------------------------------------------------

    def commit(self, offsets: GivenOffsets | None = None) -> None:
        """Commit offsets in the group: those given, or all positions.

        It waits, with retries at the current coordinator, for up to `request_timeout_ms`.

        Args:
            offsets: offset of the next record to read by partition, optionally with metadata.

        Raises:
            InvalidGroupId: the consumer has no group.
            IllegalGeneration, UnknownMemberId, FencedInstanceId: this member was removed from the
                group; another member reads its records since the last commit again.
            RebalanceInProgress: a poll has joined a rebalance; poll until it is over, then
                commit the remaining offsets.
        """
        member = self._group("committed offsets need Consumer(group=...)")
        stored = member.positions() if offsets is None else _with_metadata(offsets)
        steps = member.commit(stored, self._request_timeout_ms)
        member.await_pending(self._request_timeout_ms / 1000)
        began_at = time.monotonic()
        try:
            self._waiter.run(steps)
        finally:
            self._steps.metrics.commit_s += time.monotonic() - began_at
        member.call_back()

    def commit_async(
        self,
        offsets: GivenOffsets | None = None,
        callback: CommitCallback | None = None,
    ) -> AwaitableFuture[None]:
        """Commit without waiting and without retries, as a later commit covers a lost one.

        Args:
            callback: called with (offsets, error or None) by a later poll, commit or close. Without
                a callback a failure is logged.

        Returns:
            A future of the commit, with the exceptions of `commit`.

        Raises:
            InvalidGroupId: the consumer has no group.
        """
        member = self._group("committed offsets need Consumer(group=...)")
        stored = member.positions() if offsets is None else _with_metadata(offsets)
        return member.commit_async(stored, callback)

    def committed(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int | None]:
        """Committed offsets of these partitions, or all assigned; None if there is none."""
        found = self.committed_metadata(*partitions)
        return {key: None if stored is None else stored.offset for key, stored in found.items()}

    def committed_metadata(
        self, *partitions: TopicPartitionPair
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Committed offsets with their metadata, of these partitions or all assigned."""
        member = self._group("committed offsets need Consumer(group=...)")
        wanted = [TopicPartition(*one) for one in partitions] or self.assignment()
        began_at = time.monotonic()
        try:
            found = self._waiter.run(member.offsets.committed(wanted))
        finally:
            self._steps.metrics.committed_s += time.monotonic() - began_at
        return {partition: found.get(partition) for partition in wanted}

    # --- the end -----------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End a call that waits, or else the next one, with Wakeup. From any thread or signal
        handler.
        """
        self._waiter.wakeup()

    def close(self, *, leave: bool | None = None, timeout_ms: int = 30_000) -> None:
        """Commit (with enable_auto_commit), leave the group, and close. Idempotent.

        Args:
            leave: whether to send LeaveGroup. None: unless this is a static member, which is
                expected to rejoin within `session_timeout_ms`. False suits a planned restart, True
                a static member that does not rejoin.
            timeout_ms: maximum wait for the coordinator.
        """
        if self._client.closed:
            return
        self._waiter.forget_wakeup()
        member = self._member
        try:
            if member is not None:
                member.leave(
                    notify=not member.is_static if leave is None else leave,
                    reason="the consumer is being closed",
                    timeout_ms=timeout_ms,
                )
                member.call_back()
        finally:
            self._client.close()
            if self._interceptors is not None:
                self._interceptors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _group(self, remedy: str) -> ConsumerMember:
        self._waiter.check_open()
        if self._member is None:
            raise InvalidGroupId(remedy)
        return self._member


def _with_metadata(offsets: GivenOffsets) -> Offsets:
    return {
        TopicPartition(*partition): (
            OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata(*offset)
        )
        for partition, offset in offsets.items()
    }
