"""Group membership on a consumer's own thread: rebalances inside poll, and commits.

    poll ──► rejoin needed? ──► commit what was handed out, revoke ──► join in the background ──┐
      ▲                                                                                         │
      └──────────── assigned ◄── revoke what moves (cooperative) ◄── commit what moves ◄────────┘

Invariants:
    No step waits: a rebalance that a poll does not complete in time continues in the next poll.
    Only calls that a listener makes wait.
    While a commit before a revocation is in flight, polls return no records, and running iterators
    none of the revoked partitions, so the committed offsets are those of the returned records. The
    commit fails after `max_poll_interval_ms`.
    In an eager group nothing is read during a rebalance. In a cooperative group, kept partitions
    are read all the time, and those that move are committed and revoked before this member joins
    again.
    From JoinGroup to the assignment nothing can be committed; with auto-commit, positions are
    committed just before. Until JoinGroup is sent, commits are sent, too, and before it.
    Partitions of a member that the group has removed are lost, not revoked, and not committed.

Source: ConsumerCoordinator.onJoinPrepare, onJoinComplete, onLeavePrepare; KIP-429.

Not here: the requests (group_join, heartbeats, group_offsets).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from ...protocol.errors import (
    ConnectionFailed,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..fetch.fetch_state import UNKNOWN_OFFSET, StartAt
from ..fetch.fetcher import Fetcher
from ..threads.awaitable_future import AwaitableFuture
from ..threads.io_thread import Steps
from ..wire.cluster_client import CONTROL, ClusterClient, is_retriable
from ..wire.coordinator_lookup import COORDINATOR_MOVED
from ..wire.interceptors import ConsumerInterceptors
from ..wire.record_metadata import OffsetAndMetadata
from .consumer_coordinator import ConsumerCoordinator
from .consumer_protocol import NO_GENERATION
from .membership import ConsumerGroupMetadata, Joined, Membership
from .offset_committer import OffsetCommitter
from .rebalance_listener import RebalanceListener
from .subscription import Subscription

logger = logging.getLogger(__name__)

LEAVING_COMMIT_MS: Final = 5_000
"""Milliseconds that a leaving consumer waits for a rebalance before its last commit."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
GivenOffsets = (
    Mapping[TopicPartition, int | OffsetAndMetadata]
    | Mapping[TopicPartitionPair, int | OffsetAndMetadata]
    | Mapping[TopicPartitionPair, int | OffsetAndMetadata]
)
CommitCallback = Callable[[Offsets, Exception | None], None]
"""Function callback(offsets, error), called after a commit; error: None if it succeeded."""


class ConsumerMember:
    """Group member of a consumer, used by its thread. auto_commit_interval_ms: or None."""

    def __init__(
        self,
        client: ClusterClient,
        coordinator: ConsumerCoordinator,
        fetcher: Fetcher,
        *,
        auto_commit_interval_ms: int | None,
        interceptors: ConsumerInterceptors | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.offsets = OffsetCommitter(client, coordinator)
        if interceptors is not None:
            self.offsets.on_committed = self._note_committed
        self._interceptors = interceptors
        self._client = client
        self._fetcher = fetcher
        self._listener: RebalanceListener | None = None
        self._auto_commit_s = (
            None if auto_commit_interval_ms is None else auto_commit_interval_ms / 1000
        )
        self._auto_commit_at = time.monotonic() + (self._auto_commit_s or 0.0)
        self._auto_committing: Future[None] | None = None
        self._last_commit: Future[None] | None = None  # before a revocation
        self._prepared = False
        self._joined: Joined | None = None
        self._owned_generation = NO_GENERATION
        self._pending: set[Future[None]] = set()
        self._completed: deque[tuple[CommitCallback, Offsets, Exception | None]] = deque()

    # --- membership --------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        return bool(self.coordinator.subscription)

    @property
    def is_static(self) -> bool:
        return self.coordinator.config.group_instance_id is not None

    def metadata(self) -> ConsumerGroupMetadata:
        config, membership = self.coordinator.config, self.coordinator.membership
        return ConsumerGroupMetadata(
            config.group_id, membership.generation, membership.member_id, config.group_instance_id
        )

    def subscribe(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        if not self.is_subscribed:
            self._fetcher.assign([], StartAt.COMMITTED)  # drops partitions of `assign`
        self._listener = listener
        self._prepared = False
        self._client.want_all(wanted=subscription.pattern is not None)
        self.coordinator.subscribe(subscription)

    def leave(self, *, notify: bool, reason: str, timeout_ms: int) -> None:
        """Commit, revoke all partitions and leave; with `notify` LeaveGroup is sent.

        Raises whatever the listener raises, once all is done.
        """
        owned = self._owned()
        deadline = time.monotonic() + timeout_ms / 1000
        self._commit_now(owned, timeout_ms)
        failure: Exception | None = None
        if owned:
            failure = self._revoke(
                owned, lost=self.coordinator.membership.generation == NO_GENERATION
            )
        self._fetcher.assign([], StartAt.COMMITTED)
        left_ms = int((deadline - time.monotonic()) * 1000)
        self.coordinator.leave(notify=notify, reason=reason, timeout_ms=max(1_000, left_ms))
        self._client.want_all(wanted=False)
        self._joined = self._last_commit = None
        self._prepared = False
        if failure is not None:
            raise failure

    # --- in poll -----------------------------------------------------------------------------

    @property
    def holds_back(self) -> bool:
        """Whether no records may be returned now, as positions are being committed."""
        return self._last_commit is not None

    def needs_attention(self) -> bool:
        """Whether a poll that waits should call `poll` again. Needs the fetcher's condition."""
        if self._completed:
            return True
        if not self.is_subscribed:
            return False
        if self._last_commit is not None:
            return self._last_commit.done()
        return self.coordinator.needs_attention()

    def longest_wait_s(self) -> float:
        """Maximum seconds that a waiting poll waits before it calls `poll` again, which keeps the
        member in the group and auto-commits.
        """
        longest = self.coordinator.config.max_poll_interval_ms / 3000
        if self._auto_commit_s is not None:
            longest = min(longest, max(0.05, self._auto_commit_at - time.monotonic()))
        return longest

    def poll(self) -> None:
        """Continue a rebalance as far as possible without waiting; auto-commit if it is due.

        Raises:
            KafkaError: the coordinator refuses this member.
            Exception: whatever the listener, a commit's callback or a custom assignor raises.
        """
        self.call_back()
        if self.is_subscribed:
            coordinator = self.coordinator
            coordinator.heartbeats.polled()
            coordinator.raise_failure()
            while self._step():
                pass
        self._maybe_auto_commit()

    def _step(self) -> bool:
        """Do one step; return whether there may be another one now."""
        coordinator = self.coordinator
        if self._joined is None and coordinator.is_joining:
            if not coordinator.needs_attention():
                return False
            self._joined = coordinator.take_joined()
            return True
        if self._joined is not None:
            return self._complete(self._joined)
        if not coordinator.rejoin_needed or not self._prepare():
            return False
        owned = tuple(self._owned())
        generation = self._owned_generation if owned else coordinator.membership.generation
        self._prepared = False
        if coordinator.membership.generation != NO_GENERATION:
            self._auto_commit()  # of partitions that this member keeps; not waited for
        coordinator.start_join(owned, generation)
        return True

    def _prepare(self) -> bool:
        """Revoke partitions, as required before JoinGroup; return whether that is done."""
        if self._prepared:
            return True  # a listener has raised; the partitions are revoked nevertheless
        coordinator, owned = self.coordinator, self._owned()
        cooperative = coordinator.config.cooperative
        leaving = owned
        if cooperative and coordinator.membership.generation != NO_GENERATION:
            leaving = [one for one in owned if not coordinator.subscription.covers(one.topic)]
        if not self._committed(leaving):
            return False
        if coordinator.membership.generation == NO_GENERATION:
            leaving = owned
        self._prepared = True
        if not cooperative or leaving:
            lost = coordinator.membership.generation == NO_GENERATION
            failure = None
            if leaving or not lost:
                failure = self._revoke(leaving, lost=lost)
            gone = set(leaving)
            self._fetcher.assign([one for one in owned if one not in gone], StartAt.COMMITTED)
            if failure is not None:
                raise failure
        return True

    def _complete(self, joined: Joined) -> bool:
        """Apply the new assignment; return whether there may be another step now."""
        coordinator, owned = self.coordinator, self._owned()
        given = set(joined.partitions)
        if not all(coordinator.subscription.covers(one.topic) for one in given):
            self._joined = None
            coordinator.request_rejoin("the assignment is for another subscription")
            return True
        revoked = [one for one in owned if one not in given]
        if not self._committed(revoked):
            return False
        self._joined = None
        if coordinator.membership.generation == NO_GENERATION:
            return True  # lost meanwhile: the next step calls on_partitions_lost
        failure = None
        if revoked:
            failure = self._revoke(revoked, lost=False)
            coordinator.request_rejoin("partitions have been revoked and can be given on")
        before = set(owned)
        added = sorted(given - before)
        self._fetcher.assign(sorted(given), StartAt.COMMITTED, hold=self._listener is not None)
        self._owned_generation = joined.generation
        if self._auto_commit_s is not None:
            self._auto_commit_at = time.monotonic() + self._auto_commit_s
        logger.info(
            "group %r: generation %d, reading %d partitions (%d new, %d revoked)",
            coordinator.config.group_id,
            joined.generation,
            len(given),
            len(added),
            len(revoked),
        )
        try:
            if self._listener is not None:
                began_at = time.monotonic()
                self._listener.on_partitions_assigned(added)
                now = time.monotonic()
                coordinator.metrics.assigned_latency.record((now - began_at) * 1000, now)
        finally:
            self._fetcher.release()
            if failure is not None:
                raise failure
        return True

    def _revoke(self, partitions: Sequence[TopicPartition], *, lost: bool) -> Exception | None:
        """Call the listener; return its exception, to be raised after the rebalance goes on."""
        if lost:
            logger.warning(
                "group %r: %d partitions are lost: the group rebalanced without this member",
                self.coordinator.config.group_id,
                len(partitions),
            )
        if self._listener is None:
            return None
        metrics = self.coordinator.metrics
        began_at = time.monotonic()
        try:
            if lost:
                self._listener.on_partitions_lost(partitions)
            else:
                self._listener.on_partitions_revoked(partitions)
            now = time.monotonic()
            latency = metrics.lost_latency if lost else metrics.revoked_latency
            latency.record((now - began_at) * 1000, now)
        except Exception as error:  # noqa: BLE001 -- the application's; poll raises it afterwards
            return error
        return None

    def _owned(self) -> list[TopicPartition]:
        return sorted(self._fetcher.states())

    # --- commits -----------------------------------------------------------------------------

    def positions(self, partitions: Iterable[TopicPartition] | None = None) -> Offsets:
        """Next offsets to be returned, of all assigned partitions or of `partitions`."""
        states = self._fetcher.states()
        wanted = states if partitions is None else partitions
        return {
            one: OffsetAndMetadata(states[one].position, leader_epoch=states[one].position_epoch)
            for one in wanted
            if one in states and states[one].position != UNKNOWN_OFFSET
        }

    def _worth_committing(self) -> Offsets:
        """Positions, without those of deleted topics, whose commits would be refused."""
        return {
            key: stored
            for key, stored in self.positions().items()
            if not self._client.is_gone(key.topic)
        }

    def commit(self, offsets: Offsets, timeout_ms: int) -> Steps[None]:
        """Steps that commit, at the current coordinator. An empty commit is never refused.

        Raises:
            RebalanceInProgress, UnknownMemberId: as ConsumerCoordinator.commit_membership.
        """
        member = self.coordinator.commit_membership() if offsets else Membership()
        return self.offsets.commit(offsets, member, timeout_ms)

    def commit_async(
        self, offsets: Offsets, callback: CommitCallback | None
    ) -> AwaitableFuture[None]:
        """Commit without waiting; `callback` is called by a later poll, commit or close.

        Its errors are those of `commit`, and only the future and the callback report them.
        """
        callback = callback or _log_failure
        try:
            member = self.coordinator.commit_membership() if offsets else Membership()
        except KafkaError as error:
            future: AwaitableFuture[None] = AwaitableFuture()
            future.set_exception(error)
            self._completed.append((callback, offsets, error))
            return future
        return self._send(offsets, member, callback)

    def _send(
        self, offsets: Offsets, member: Membership, callback: CommitCallback | None
    ) -> AwaitableFuture[None]:
        future = self._client.io.spawn(self.offsets.commit_once(offsets, member))
        self._pending.add(future)

        def on_done(done: Future[None]) -> None:
            self._pending.discard(done)
            error = done.exception()
            if isinstance(error, Exception) and _code_is_moved(error):
                self.coordinator.lookup.forget()
            if callback is not None:
                failure = error if isinstance(error, Exception) else None
                self._completed.append((callback, offsets, failure))
                self._fetcher.notify()

        future.add_done_callback(on_done)
        return future

    def _note_committed(self, offsets: Offsets) -> None:
        """Have the interceptors called on the consumer's thread, as callbacks are."""
        assert self._interceptors is not None
        on_commit = self._interceptors.on_commit
        self._completed.append((lambda stored, _: on_commit(stored), offsets, None))
        self._fetcher.notify()

    def await_pending(self, timeout_s: float) -> None:
        """Wait until earlier commits are done, as they must not overwrite a later one."""
        deadline = time.monotonic() + timeout_s
        for future in list(self._pending):
            try:
                future.exception(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                return

    def call_back(self) -> None:
        while self._completed:
            callback, offsets, error = self._completed.popleft()
            callback(offsets, error)

    def _committed(self, partitions: Sequence[TopicPartition]) -> bool:
        """Commit positions before `partitions` are revoked; return whether it has ended, well or
        not.

        All positions: those of kept partitions are committed, too. Another thread, or the
        application between two records, may have polled while an iterator returns records of
        `partitions`: the next owner reads from the offsets committed here, so the iterator must
        return no more of them.
        """
        commit = self._last_commit
        if commit is None:
            if self._auto_commit_s is None or not partitions:
                return True
            timeout_ms = self.coordinator.config.max_poll_interval_ms
            try:
                commit = self._client.io.spawn(self.commit(self._worth_committing(), timeout_ms))
            except (KafkaError, ConnectionFailed) as error:
                logger.warning("offsets were not committed: %s; records are read again", error)
                return True
            self._stop_handing_out(partitions)
            self._last_commit = commit
            commit.add_done_callback(lambda _: self._fetcher.notify())
        if not commit.done():
            return False
        self._last_commit = None
        failure = commit.exception()
        if failure is not None:
            logger.warning("offsets were not committed: %s; records are read again", failure)
        return True

    def _stop_handing_out(self, partitions: Iterable[TopicPartition]) -> None:
        states = self._fetcher.states()
        for one in partitions:
            state = states.get(one)
            if state is not None and state.position != UNKNOWN_OFFSET:
                self._fetcher.refetch(state, state.position)

    def _maybe_auto_commit(self) -> None:
        now = time.monotonic()
        if self._auto_commit_s is None or now < self._auto_commit_at or self.holds_back:
            return
        if self._auto_committing is not None and not self._auto_committing.done():
            return
        self._auto_commit()

    def _auto_commit(self) -> None:
        """Commit positions without waiting, if auto-commit is enabled."""
        if self._auto_commit_s is None:
            return
        self._auto_commit_at = time.monotonic() + self._auto_commit_s
        offsets = self._worth_committing()
        if not offsets:
            return
        try:
            member = self.coordinator.commit_membership()
        except KafkaError:
            return  # in a rebalance, or lost: there is another commit before any revocation
        self._auto_committing = self._send(offsets, member, None)
        self._auto_committing.add_done_callback(self._on_auto_committed)

    def _on_auto_committed(self, future: Future[None]) -> None:
        error = future.exception()
        if error is None:
            return
        logger.warning("offsets were not committed: %s; the next commit covers them", error)
        if is_retriable(error):
            self._auto_commit_at = time.monotonic() + self._client.config.retry_backoff_ms / 1000

    def _commit_now(self, owned: Sequence[TopicPartition], timeout_ms: int) -> None:
        """Commit positions, with auto-commit, before the consumer leaves the group."""
        if self._auto_commit_s is None or not owned:
            return
        deadline = time.monotonic() + min(timeout_ms, LEAVING_COMMIT_MS) / 1000
        self.await_pending(timeout_ms / 1000)
        try:
            while not self._commit_leaving(timeout_ms, deadline):
                with self._fetcher.condition:
                    self._fetcher.condition.wait(0.02)
        except (KafkaError, ConnectionFailed) as error:
            logger.warning("offsets were not committed: %s; records are read again", error)

    def _commit_leaving(self, timeout_ms: int, deadline: float) -> bool:
        """Commit before leaving, in a rebalance under the old generation; return whether it is
        done.

        Raises:
            KafkaError, ConnectionFailed: the commit fails.
        """
        coordinator, offsets = self.coordinator, self._worth_committing()
        try:
            if not coordinator.is_waiting:
                self._client.run(self.commit(offsets, timeout_ms), timeout_ms)
            elif coordinator.membership.generation == NO_GENERATION:
                raise UnknownMemberId("the group has removed this member")
            else:
                # Not in the group's lane, where the join is parked.
                steps = self.offsets.commit_once(offsets, coordinator.membership, lane=CONTROL)
                self._client.run(steps, timeout_ms)
        except RebalanceInProgress:
            if time.monotonic() >= deadline:
                raise
            return False
        return True


def _log_failure(offsets: Offsets, error: Exception | None) -> None:
    if error is not None:
        logger.warning("offsets of %d partitions were not committed: %s", len(offsets), error)


def _code_is_moved(error: Exception) -> bool:
    return isinstance(error, ConnectionFailed) or (
        isinstance(error, KafkaError) and error.code in COORDINATOR_MOVED
    )
