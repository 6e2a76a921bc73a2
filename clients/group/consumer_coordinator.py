"""Membership state of a consumer in its group, and whether it has to rejoin.

Invariants:
    A rebalance begins only in poll, on the caller's thread, so that the caller has processed the
    records of the last poll; its requests then run on the I/O thread, and heartbeats run there
    between polls.
    Offsets are committed under the generation in which the records were read, so a member that the
    group has removed cannot overwrite offsets of the partitions' next owner.
    A member without a generation (-1) owns nothing: partitions that it still reads are lost, and
    may be assigned to another member.

Source: AbstractCoordinator, ConsumerCoordinator in apache/kafka clients/.../consumer/internals.

Not here: the steps of a rebalance (group_join), the work of the caller's thread (group_member),
heartbeats, fetching (fetcher).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ConnectionFailed,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from ...protocol.topic_partition import TopicPartition
from ..fetch.consumer_metrics import GroupMetrics
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient
from ..wire.coordinator_lookup import CoordinatorLookup
from .consumer_protocol import NO_GENERATION
from .group_join import GroupJoin
from .heartbeats import Heartbeats
from .leaving import leave_group
from .membership import GroupConfig, Joined, Membership
from .subscription import Subscription

logger = logging.getLogger(__name__)


class ConsumerCoordinator:
    """Coordinator of one consumer. wake: called, on any thread, when poll should check the group.

    joined_topics: of the last JoinGroup. led_counts: partition counts that this member, as leader,
    assigned by; None if it does not lead. unsent_commits: number of commits that wait for the
    coordinator's address; a join waits until they are sent.
    """

    def __init__(
        self, client: ClusterClient, config: GroupConfig, wake: Callable[[], None]
    ) -> None:
        self.config = config
        self.membership = Membership()
        self.subscription = Subscription()
        self.rejoin_needed = False
        self.joined_topics: tuple[str, ...] = ()
        self.led_counts: dict[str, int] | None = None
        self.unsent_commits = 0
        self.metrics = GroupMetrics()
        self.heartbeats = Heartbeats(client, self)
        self._client = client
        self._wake = wake
        self.lookup = CoordinatorLookup(client, config.group_id)
        self._join: Future[Joined | None] | None = None
        self._joining: GroupJoin | None = None
        self._failure: KafkaError | None = None
        self._reason = ""
        client.on_view.append(self._on_view)

    # --- from the caller's thread ------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group with `subscription` in the next poll."""
        self.subscription = subscription
        self._failure = None
        self.request_rejoin("the subscription is new")

    @property
    def is_joining(self) -> bool:
        return self._join is not None

    @property
    def is_waiting(self) -> bool:
        """Whether JoinGroup was sent, and there is no assignment yet: a commit would be answered
        only after the join, under a generation that has ended by then.
        """
        join, joining = self._join, self._joining
        return join is not None and not join.done() and joining is not None and joining.is_sent

    def needs_attention(self) -> bool:
        """Whether a poll that waits for records has work to do for the group."""
        if self._join is not None:
            return self._join.done()
        return self.rejoin_needed or self._failure is not None

    def raise_failure(self) -> None:
        """Raise the KafkaError of the coordinator's refusal, if there was one."""
        failure = self._failure
        if failure is not None:
            if failure.code != ErrorCode.FENCED_INSTANCE_ID:
                self._failure = None  # the next poll tries again
            raise failure

    def start_join(self, owned: tuple[TopicPartition, ...], generation: int) -> None:
        """Begin a rebalance, keeping `owned`, which this member was assigned in `generation`."""
        self.rejoin_needed = False
        logger.info("group %r: joining: %s", self.config.group_id, self._reason)
        self._joining = GroupJoin(
            self._client, self, owned=owned, generation=generation, reason=self._reason
        )
        self._join = self._client.io.spawn(self._run_join(self._joining))
        self._join.add_done_callback(lambda _: self._wake())

    def take_joined(self) -> Joined | None:
        """Return the new assignment; None if the owned partitions are lost. Call it when the join
        is done.

        Raises:
            KafkaError: the coordinator refuses this member.
        """
        assert self._join is not None
        join, self._join = self._join, None
        try:
            joined = join.result()
        except BaseException:
            self.request_rejoin("the last attempt failed")
            raise
        if joined is None:
            self.request_rejoin("the group removed this member")
        return joined

    def commit_membership(self) -> Membership:
        """Membership under which offsets are committed; an empty one if nothing is subscribed.

        Raises:
            RebalanceInProgress: as `check_not_waiting`.
            UnknownMemberId: the group has removed this member, or it has not joined yet.
        """
        if not self.subscription:
            return Membership()
        self.check_not_waiting()
        if self.membership.generation == NO_GENERATION:
            raise UnknownMemberId(
                f"group {self.config.group_id!r} has removed this member: its partitions may "
                "belong to another one"
            )
        return self.membership

    def check_not_waiting(self) -> None:
        """Raise RebalanceInProgress if poll has to complete a rebalance before a commit."""
        if self.is_waiting:
            raise RebalanceInProgress(
                f"group {self.config.group_id!r} is rebalancing: poll until that is over, then "
                "commit what is still assigned"
            )

    def leave(self, *, notify: bool, reason: str, timeout_ms: int) -> None:
        """Leave the group; with `notify` by LeaveGroup, so that the session need not time out."""
        try:
            self._client.run(self._leave(notify, reason), timeout_ms)
        except (KafkaError, ConnectionFailed) as error:
            logger.info("group %r: LeaveGroup failed: %s", self.config.group_id, error)
        self.subscription = Subscription()
        self.rejoin_needed = False
        self._join = None
        self._failure = None

    # --- on the I/O thread -------------------------------------------------------------------

    def request_rejoin(self, reason: str) -> None:
        if not self.rejoin_needed:
            self._reason = reason
            self.rejoin_needed = True
            self._wake()

    def reset(self, *, keep_member_id: bool = False) -> None:
        """Reset the membership; the member id may be kept if only the generation has ended."""
        self.heartbeats.stop()
        self.membership = Membership(self.membership.member_id if keep_member_id else "")
        self.led_counts = None

    def on_lost(self, *, keep_member_id: bool = False) -> None:
        """Handle the loss of the membership: its partitions belong to others now."""
        self.reset(keep_member_id=keep_member_id)
        self.request_rejoin("the group removed this member")

    def on_fenced(self, error: KafkaError) -> None:
        """Handle fencing: another consumer has the group_instance_id, so it must not rejoin."""
        self.reset()
        self.fail(error)

    def fail(self, error: KafkaError) -> None:
        """Raise `error` in poll."""
        self._failure = error
        self._wake()

    def _run_join(self, join: GroupJoin) -> Steps[Joined | None]:
        self.heartbeats.stop()
        began_at = time.monotonic()
        failed = True
        try:
            joined = yield from join.run()
            failed = joined is None
        finally:
            if not join.cancelled:
                self.metrics.on_rebalance(began_at, failed=failed)
        if joined is not None and not join.cancelled:
            self.heartbeats.start()
        return joined

    def _leave(self, notify: bool, reason: str) -> Steps[None]:
        is_member = bool(self.membership.member_id)
        if self._joining is not None:
            self._joining.cancelled = True
            # The coordinator has parked JoinGroup, and knows a static member by its name from then
            # on.
            is_member = is_member or self._joining.is_sent
        self.heartbeats.stop()
        if notify and is_member:
            yield from leave_group(
                self._client, self.lookup.address, self.config, self.membership.member_id, reason
            )
        self.reset()

    def _on_view(self) -> None:
        """Rejoin if topics or partition counts have changed since the last assignment."""
        if not self.subscription or self.membership.generation == NO_GENERATION:
            return
        view = self._client.view
        if self.subscription.pattern is not None:
            matched = self.subscription.topics_in(view)
            if matched != self.joined_topics and (self._join is None or self._join.done()):
                self.request_rejoin(f"the pattern matches {len(matched)} topics now")
        for topic, count in (self.led_counts or {}).items():
            now = view.partition_count(topic)
            if now != count and (now or self._client.is_gone(topic)):  # 0 may come from an error
                self.request_rejoin(f"{topic!r} has {now} partitions now")
