"""The controller: the one that changes the cluster's metadata. Stateless but for its image.

Ray (or local()) decides which process starts; that alone proves nothing, so on the way up it takes
the next controller epoch with the votes of a majority, adopts their log (controller_election), and
writes an EpochRecord. From then on every change is: decide on the newest image (controller_state),
append on a majority, fsynced, apply, publish, answer; one at a time, in the order in which they
came. A rejected append means a newer controller exists: this one ends.

A change that was begun is carried through whether its caller still waits or not. Were it not, the
voters would have records that the image has not, and the next change could not join on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..cluster.broker_config import BrokerConfig
from ..cluster.control import controller_state
from ..cluster.control.access.token_control import RemoveExpiredTokens
from ..cluster.control.automatic_rebalance import AutomaticRebalance
from ..cluster.control.controller_request import ConfigRules
from ..cluster.control.controller_state import Sessions
from ..cluster.control.partition_control import (
    SettleLeaders,
    may_be_unclean,
    min_insync_replicas,
)
from ..cluster.metadata.cluster_health import ClusterHealth, health_of
from ..cluster.metadata.concerned_nodes import concerned_nodes
from ..cluster.metadata.metadata_image import MetadataImage, NodeImage, TopicImage
from ..cluster.metadata.metadata_records import (
    ClusterRecord,
    EpochRecord,
    MetadataRecord,
    encode_metadata_record,
    voters_in,
)
from ..cluster.quorum.voter import Candidate
from ..protocol.errors import NotController
from ..protocol.records.record_batch import stamp
from ..protocol.records.records import encode_records
from ..steps.replies import Refuse, Reply
from .controller_calls import (
    AllocateProducerIds,
    Change,
    ChangeVoter,
    ControlledShutdown,
    ControllerCall,
    DescribeQuorum,
    MeteredChange,
    PollMetadata,
    QuorumState,
    RegisterBroker,
    Registered,
    ReportUnreachableBroker,
)
from .controller_effects import Ended, Instant, ProbePort
from .controller_election import ControllerElection
from .metadata_leader import MetadataLeader, Superseded
from .metadata_publisher import MetadataPublisher
from .metadata_snapshots import MetadataSnapshots
from .metered_changes import MeteredChanges
from .quorum_times import QuorumTimes
from .voter_changes import VoterChanging

logger = logging.getLogger(__name__)

Then = Callable[[Any, Instant], None]
Decide = Callable[[MetadataImage], tuple[Sequence[MetadataRecord], Any]]
"""Decides a change: (records to write, answer once they are durable)."""


class _Change(NamedTuple):
    decide: Decide
    then: Then


class _Write(NamedTuple):
    """The change that is being written."""

    records: Sequence[MetadataRecord]
    encoded: list[bytes]
    size: int
    end_offset: int
    answer: Any
    then: Then


class QuorumController:
    """A step object. `start` it; inputs are `handle`, `on_done` and `on_tick`."""

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        rules: ConfigRules,
        effects: list[Any],
        times: QuorumTimes,
    ) -> None:
        """`name`: name of its actor, which voters tell to callers that look for it."""
        self._name, self._config, self._rules = name, config, rules
        self._effects, self._times = effects, times
        # A question is a heartbeat, too: several in a session.
        self._poll_ms = min(times.poll_ms, config.broker_session_timeout_ms // 3)
        self._me = Candidate()
        self._image = MetadataImage()
        self._is_active = False
        self.waiting_for: str | None = "its voters"
        self._starting: Any = None
        self._election: ControllerElection | None = None
        self._leader: MetadataLeader | None = None
        self._changes: deque[_Change] = deque()
        self._write: _Write | None = None
        self._publisher = MetadataPublisher(-1, effects, poll_ms=self._poll_ms)
        self._sessions = Sessions(config.broker_session_timeout_ms)
        self._voter_changes: list[VoterChanging] = []
        self._probing: set[int] = set()
        self._snapshots = MetadataSnapshots(config, effects, self._is_leading)
        self._tick_at_ms: int | None = None
        self._unclean_at_ms = 0
        self._balance_at_ms = 0
        self._tokens_at_ms = 0
        self._rebalance = AutomaticRebalance(config)
        self._metered = MeteredChanges(config)
        self._ticking = 0

    # --- what it is ------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def leader(self) -> MetadataLeader | None:
        """The leader of the metadata log; None until there is one."""
        if self._election is not None:
            return self._election.leader
        return self._leader

    @property
    def voters(self) -> dict[str, int]:
        """Offset up to which each voter has the metadata log, by directory id."""
        known = {} if self._leader is None else self._leader.acknowledged
        return {name: known.get(name, 0) for name in self._image.voters}

    @property
    def me(self) -> Candidate:
        """Candidate that it asks voters to vote for."""
        return self._me if self._election is None else self._election.me

    @property
    def is_active(self) -> bool:
        return self._is_active

    def health(self) -> ClusterHealth:
        """Health of the partitions, as known to the controller."""
        return health_of(self._image, partial(self._min_insync, self._image))

    # --- becoming active -------------------------------------------------------------------------

    def start(self, ticket: Any, now: Instant) -> None:
        """Start; answered when active. Retries forever what recovers by itself: absent voters.

        May be called again once superseded: it begins again, in a newer epoch. Refuses Superseded.
        """
        del now
        self.stop("starting again")
        self._starting = ticket
        self._sessions = Sessions(self._config.broker_session_timeout_ms)
        self._election = ControllerElection(self._name, self._effects, self._times)

    def stop(self, reason: str) -> None:
        """Stop: nothing is changed, sent or received any more; waiting callers are refused."""
        self._is_active = False
        self.waiting_for = "its successor"
        self._tick_at_ms = None
        if self._election is not None:
            self._me = self._election.me
            self._election.close()
            self._election = None
        if self._leader is not None:
            self._leader.close(reason)
        error = NotController(f"the controller has ended: {reason}")
        write, self._write = self._write, None
        changes, self._changes = list(self._changes), deque()
        instant = Instant(0, 0)
        for then in (*([write.then] if write else []), *(each.then for each in changes)):
            then(error, instant)
        for changing in self._voter_changes:
            changing.close(error)
        self._voter_changes = []
        self._publisher.close(f"the controller has ended: {reason}")
        if self._starting is not None:
            ticket, self._starting = self._starting, None
            self._effects.append(Refuse(ticket, Superseded(reason)))

    def end(self, reason: str) -> None:
        """End because another controller is or may be active: no change is made any more."""
        was_active = self._is_active
        if was_active:
            logger.warning(
                "Renouncing the leadership due to a metadata log event. We were the active "
                "controller at epoch %d: %s. Reverting to last committed offset %d.",
                self._me.epoch,
                reason,
                self._image.offset,
            )
        self.stop(reason)
        if was_active:
            self._effects.append(Ended())

    def resign(self, reason: str) -> None:
        """Resign without being superseded by the voters: no change is made any more."""
        if self._is_active:
            logger.info(
                "Resigned as the active controller at epoch %d: %s.", self._me.epoch, reason
            )
        self.stop(reason)

    def _look_at_election(self, now: Instant) -> None:
        election = self._election
        if election is None:
            return
        election.on_leader(now)
        self.waiting_for = election.waiting_for
        if election.failure is not None:
            ticket, self._starting = self._starting, None
            self._effects.append(Refuse(ticket, election.failure))
            self.stop(str(election.failure))
        elif election.elected is not None:
            self._election = None
            self._me, self._leader, self._image, cluster_id, voters = election.elected
            self._publisher = MetadataPublisher(
                self._me.epoch, self._effects, poll_ms=self._poll_ms
            )
            self._snapshots.begin(self._leader, now)
            self._probing.clear()
            self._open_epoch(cluster_id, voters, now)

    def _open_epoch(self, cluster_id: str, voters: tuple[str, ...], now: Instant) -> None:
        record = EpochRecord(epoch=self._me.epoch, owner=self._me.owner)
        self._enqueue(lambda image: ([record], None), lambda *_: None, now)

        def name_cluster(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            # A new cluster, or one whose first controller died right after formatting.
            new = ClusterRecord(cluster_id=cluster_id, voters=voters)
            return [] if image.cluster_id else [new], None

        self._enqueue(name_cluster, self._on_epoch_open, now)

    def _on_epoch_open(self, answer: Exception | None, now: Instant) -> None:
        if answer is not None:
            return  # `stop` has said so
        self.waiting_for = None
        self._is_active = True
        self._ticking = 0
        self._tick_at_ms = now.now_ms + self._times.tick_ms
        self._unclean_at_ms = now.now_ms + self._times.unclean_ms
        self._balance_at_ms = now.now_ms + self._balance_ms
        self._tokens_at_ms = now.now_ms  # at once, or one that changes often would never look
        logger.info(
            "Becoming the active controller of cluster %s at epoch %d, next write offset %d, "
            "%d topics.",
            self._image.cluster_id,
            self._me.epoch,
            self._image.offset,
            len(self._image.topics),
        )
        ticket, self._starting = self._starting, None
        self._effects.append(Reply(ticket, None))

    # --- inputs ----------------------------------------------------------------------------------

    def on_done(self, effect: Any, result: Any, now: Instant) -> None:
        """Called with the result, or the exception, of an effect that has a `then`."""
        effect.then(result, now)
        self._advance(now)

    def handle(self, ticket: Any, call: ControllerCall[Any], now: Instant) -> None:
        """Handle a call."""
        try:
            if not self._is_active:
                raise NotController(f"the controller is waiting for {self.waiting_for}")
            self._handle(ticket, call, now)
        except Exception as error:  # noqa: BLE001 -- it is the answer
            self._effects.append(Refuse(ticket, error))
        self._advance(now)

    def _handle(self, ticket: Any, call: ControllerCall[Any], now: Instant) -> None:
        match call:
            case PollMetadata():
                self._poll(ticket, call, now)
            case RegisterBroker():
                self._register(ticket, call, now)
            case Change() | MeteredChange():
                self._change(ticket, call, now)
            case ControlledShutdown():
                controller_state.check_session(self._image, call.node_id, call.incarnation)
                self._fence(call.node_id, self._answering(ticket), now)
            case ReportUnreachableBroker():
                self._suspect(ticket, call.node_id, now)
            case AllocateProducerIds():
                self._allocate_producer_ids(ticket, now)
            case DescribeQuorum():
                self._effects.append(Reply(ticket, self._quorum_state()))
            case ChangeVoter():
                assert self._leader is not None
                changing = VoterChanging(
                    ticket, call, self, self._leader, self._effects, self._times, now
                )
                self._voter_changes.append(changing)
            case _:
                raise TypeError(f"{call!r} is not a request to the controller")

    def _quorum_state(self) -> QuorumState:
        applied, polls = dict(self._publisher.applied), self._publisher.polls.of_all()
        return QuorumState(self._me.epoch, self._image.offset, self.voters, applied, polls)

    def _answering(self, ticket: Any) -> Then:
        def then(answer: Any, _: Instant) -> None:
            if isinstance(answer, Exception):
                self._effects.append(Refuse(ticket, answer))
            else:
                self._effects.append(Reply(ticket, answer))

        return then

    # --- changing --------------------------------------------------------------------------------

    def submit(self, decide: Decide, then: Then, now: Instant) -> None:
        """Submit a change; `then` gets its answer once the records are durable and published.

        `then` gets that, or what it raised, or NotController.
        """
        if not self._is_active:
            then(NotController(f"the controller is waiting for {self.waiting_for}"), now)
        else:
            self._enqueue(decide, then, now)

    def _enqueue(self, decide: Decide, then: Then, now: Instant) -> None:
        self._changes.append(_Change(decide, then))
        self._begin_next(now)

    def _begin_next(self, now: Instant) -> None:
        while self._changes and self._write is None:
            change = self._changes.popleft()
            try:
                records, answer = change.decide(self._image)
                if records:
                    self._begin(records, answer, change.then, now)
                    return
            except Exception as error:  # noqa: BLE001 -- it is the answer
                answer = error
            change.then(answer, now)

    def _begin(
        self, records: Sequence[MetadataRecord], answer: Any, then: Then, now: Instant
    ) -> None:
        """Make the records durable on a majority; then apply and publish them."""
        assert self._leader is not None, "start() comes first"
        encoded = [encode_metadata_record(record) for record in records]
        batch = encode_records([(now.wall_ms, None, value, ()) for value in encoded])
        stamp(batch, base_offset=self._image.offset, leader_epoch=self._me.epoch)
        end_offset = self._leader.append(bytes(batch), len(records), now, voters=voters_in(records))
        self._write = _Write(records, encoded, len(batch), end_offset, answer, then)

    def _advance(self, now: Instant) -> None:
        """Do everything that an input has made possible."""
        self._look_at_election(now)
        leader = self._leader
        if leader is None or self._election is not None:
            return
        if leader.end_reason is not None:
            if self._is_active or self._starting is not None:
                self.end(leader.end_reason)
        elif self._write is not None and leader.committed >= self._write.end_offset:
            write, self._write = self._write, None
            self._on_committed(write, now)
            self._begin_next(now)

    def _on_committed(self, write: _Write, now: Instant) -> None:
        offset = self._image.offset
        self._snapshots.on_committed(write.size)
        self._image = self._image.apply(write.records, offset=write.end_offset)
        self._publisher.on_change(self._image, offset, write.encoded)
        write.then(write.answer, now)
        self._take_snapshot_if_due(now)

    def _take_snapshot_if_due(self, now: Instant) -> None:
        if self._leader is not None:
            self._snapshots.take_if_due(self._image, self._leader, now)

    def _is_leading(self, leader: MetadataLeader) -> bool:
        return leader is self._leader and leader.end_reason is None

    # --- calls -----------------------------------------------------------------------------------

    def _register(self, ticket: Any, call: RegisterBroker, now: Instant) -> None:
        request = call.registration

        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            node_id, records = controller_state.register_node(
                image,
                request,
                min_insync=partial(self._min_insync, image),
                is_unclean=partial(self._is_unclean, image),
            )
            return records, node_id

        def then(answer: int | Exception, now: Instant) -> None:
            if isinstance(answer, Exception):
                self._effects.append(Refuse(ticket, answer))
                return
            self._sessions.on_contact(answer, now_ms=now.now_ms)
            logger.info("node %d (%s) registered", answer, ",".join(request.roles))
            registered = Registered(answer, self._image.cluster_id, self._me.epoch)
            self._effects.append(Reply(ticket, registered))

        self.submit(decide, then, now)

    def _change(self, ticket: Any, call: Change[Any] | MeteredChange[Any], now: Instant) -> None:
        request = call.request

        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            records: Sequence[MetadataRecord]
            records, finish = self._metered.decide(call, image, self._rules, now)
            if request.validate_only:
                records = []
            elif request.needs_confirmation and not records:
                # Only who has the votes of a majority can write it: see the election.
                records = [EpochRecord(epoch=self._me.epoch, owner=self._me.owner)]
            offset = image.offset + len(records)
            if request.is_for_all:
                node_ids = {node.node_id for node in image.live_nodes()}
            else:
                node_ids = concerned_nodes(records, image)
            return records, (finish, node_ids, offset)

        def then(decided: Any, now: Instant) -> None:
            if isinstance(decided, Exception):
                self._effects.append(Refuse(ticket, decided))
            else:
                finish, node_ids, offset = decided
                answer = finish(now)
                self._publisher.wait_applied(
                    ticket,
                    answer,
                    node_ids,
                    offset,
                    call.timeout_ms,
                    now,
                    is_for_all=request.is_for_all,
                )

        self.submit(decide, then, now)

    def _allocate_producer_ids(self, ticket: Any, now: Instant) -> None:
        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            first, records = controller_state.allocate_producer_ids(image)
            return records, (first, controller_state.PRODUCER_ID_BLOCK)

        self.submit(decide, self._answering(ticket), now)

    def _poll(self, ticket: Any, call: PollMetadata, now: Instant) -> None:
        if call.newest_epoch > self._me.epoch:  # that controller fences all who poll here
            self.end(f"a voter has voted in epoch {call.newest_epoch}")
            raise NotController("another controller was voted for")
        node = controller_state.check_session(self._image, call.node_id, call.incarnation)
        self._sessions.on_contact(call.node_id, now_ms=now.now_ms)
        self._publisher.on_applied(call, self._image, now)
        if not node.fenced:
            self._publisher.on_poll(ticket, call, self._image, now)
            return

        def then(answer: Exception | None, now: Instant) -> None:
            if answer is not None:
                self._effects.append(Refuse(ticket, answer))
            else:
                self._publisher.on_poll(ticket, call, self._image, now)

        self._fence(call.node_id, then, now, fenced=False)

    def _suspect(self, ticket: Any, node_id: int, now: Instant) -> None:
        node = self._image.nodes.get(node_id)
        if node is None or node.fenced or node_id in self._probing:
            self._effects.append(Reply(ticket, None))
            return
        self._probing.add(node_id)
        then = partial(self._on_probed, ticket, node)
        self._effects.append(ProbePort(node.host, node.port, then))

    def _on_probed(self, ticket: Any, node: NodeImage, is_dead: bool, now: Instant) -> None:
        self._probing.discard(node.node_id)
        known = self._image.nodes.get(node.node_id)
        if is_dead is True and known is not None and known.epoch == node.epoch:
            logger.warning("connection refused by node %d: fencing it", node.node_id)
            self._fence(node.node_id, self._answering(ticket), now)
        else:
            self._effects.append(Reply(ticket, None))

    def _fence(self, node_id: int, then: Then, now: Instant, *, fenced: bool = True) -> None:
        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            records = controller_state.fence_node(
                image,
                node_id,
                fenced=fenced,
                min_insync=partial(self._min_insync, image),
                is_unclean=partial(self._is_unclean, image),
            )
            return records, None

        self.submit(decide, then, now)

    def _min_insync(self, image: MetadataImage, topic: TopicImage) -> int:
        return min_insync_replicas(image, self._rules, topic)

    def _is_unclean(self, image: MetadataImage, topic: TopicImage) -> bool:
        return may_be_unclean(image, self._rules, topic)

    # --- time ------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        parts = (self._election, self._leader, self._publisher, *self._voter_changes)
        deadlines = [self._tick_at_ms, *(part.next_deadline_ms for part in parts if part)]
        return min((each for each in deadlines if each is not None), default=None)

    def on_tick(self, now: Instant) -> None:
        """Called when time has passed; maybe `next_deadline_ms` is reached."""
        if self._election is not None:
            self._election.on_tick(now)
        if self._leader is not None and self._leader.end_reason is None:
            self._leader.on_tick(now)
            self._advance(now)
        self._publisher.on_tick(self._image, now)
        for changing in self._voter_changes:
            changing.on_tick(now)
        self._voter_changes = [each for each in self._voter_changes if not each.is_over]
        if self._tick_at_ms is not None and now.now_ms >= self._tick_at_ms:
            self._tick_at_ms = now.now_ms + self._times.tick_ms
            self._take_snapshot_if_due(now)
            if not self._ticking:  # else the last one's changes are not through yet
                self._look_after(now)
        self._advance(now)

    @property
    def _balance_ms(self) -> int:
        return self._config.leader_imbalance_check_interval_seconds * 1000

    def _look_after(self, now: Instant) -> None:
        """Periodic tick: fence silent nodes, elect leaders, remove expired tokens."""
        for node_id in self._sessions.expired(self._image, now_ms=now.now_ms):
            logger.warning("no heartbeat of node %d for a session: fencing it", node_id)
            self._ticking += 1
            self._fence(node_id, self._on_looked_after, now)
        if now.now_ms >= self._unclean_at_ms:
            self._unclean_at_ms = now.now_ms + self._times.unclean_ms
            self._settle_leaders(now, is_balancing=False)
        if now.now_ms >= self._balance_at_ms:
            self._balance_at_ms = now.now_ms + self._balance_ms
            if self._config.auto_leader_rebalance_enable:
                self._settle_leaders(now, is_balancing=True)
        if now.now_ms >= self._tokens_at_ms:
            self._tokens_at_ms = now.now_ms + self._config.delegation_token_expiry_check_interval_ms
            self._remove_expired_tokens(now)
        if step := self._rebalance.next_step(self._image, now.now_ms):
            self.submit(partial(step.decide, rules=self._rules), self._rebalance.on_done, now)

    def _settle_leaders(self, now: Instant, *, is_balancing: bool) -> None:
        request = SettleLeaders(is_balancing=is_balancing)

        def then(changed: int | Exception, now: Instant) -> None:
            if changed and not isinstance(changed, Exception):
                how = "preferred replicas lead" if is_balancing else "unclean leader election"
                logger.warning("%d partitions: %s", changed, how)
            self._on_looked_after(changed, now)

        self._ticking += 1
        self.submit(lambda image: request.decide(image, self._rules), then, now)

    def _remove_expired_tokens(self, now: Instant) -> None:
        request = RemoveExpiredTokens(now_ms=now.wall_ms)

        def then(removed: int | Exception, now: Instant) -> None:
            if removed and not isinstance(removed, Exception):
                logger.info("removed %d expired delegation tokens", removed)
            self._on_looked_after(removed, now)

        self._ticking += 1
        self.submit(lambda image: request.decide(image, self._rules), then, now)

    def _on_looked_after(self, answer: Any, now: Instant) -> None:
        self._ticking -= 1
        if isinstance(answer, Exception) and not isinstance(answer, NotController):
            logger.error("the controller's tick failed: %r", answer)
