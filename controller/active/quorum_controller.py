"""The controller, which makes all changes of the cluster's metadata. Stateless but for its image.

Ray (or local()) starts it; that does not prove that it is the only one, so before it is active it
takes the next controller epoch with the votes of a majority, adopts the best of their logs
(controller_election), and writes an EpochRecord. Then every change is: decide on the newest image
(controller_state), append on a majority, fsynced, apply, publish, answer; one at a time
(change_queue). A rejected append means a newer controller exists: this one ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...cluster.broker_config import BrokerConfig
from ...cluster.control import controller_state
from ...cluster.control.controller_request import ConfigRules
from ...cluster.control.partition_control import min_insync_replicas
from ...cluster.metadata.cluster_health import ClusterHealth, health_of
from ...cluster.metadata.concerned_nodes import concerned_nodes
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.metadata.metadata_records import (
    ClusterRecord,
    EpochRecord,
    MetadataRecord,
)
from ...cluster.quorum.voter import Candidate
from ...protocol.errors import NotController
from ...steps.replies import Refuse, Reply
from ..candidate_state import Superseded
from ..controller_calls import (
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
    ReportUnreachableBroker,
)
from ..controller_effects import Ended, Instant
from ..controller_election import ControllerElection
from ..metadata_leader import MetadataLeader
from ..metadata_publisher import MetadataPublisher
from ..metadata_snapshots import MetadataSnapshots
from ..quorum_times import QuorumTimes
from .change_queue import ChangeQueue, Write, answering
from .cluster_control import ClusterControl
from .metered_changes import MeteredChanges
from .periodic_tasks import PeriodicTasks
from .voter_changes import VoterChanging

logger = logging.getLogger(__name__)


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
        """`name`: name of its actor, which voters report to callers that look for it."""
        self._name, self._config, self._rules = name, config, rules
        self._effects, self._times = effects, times
        # A poll is a heartbeat, too, so there have to be several in a session.
        self._poll_ms = min(times.poll_ms, config.broker_session_timeout_ms // 3)
        self.changes = ChangeQueue()
        self._starting: Any = None
        self._election: ControllerElection | None = None
        self._leader: MetadataLeader | None = None
        self._publisher = MetadataPublisher(-1, effects, poll_ms=self._poll_ms)
        self._voter_changes: list[VoterChanging] = []
        self._snapshots = MetadataSnapshots(config, effects, self._is_leading)
        self._cluster = ClusterControl(
            config.broker_session_timeout_ms, rules, self.changes, effects
        )
        self._tasks = PeriodicTasks(config, rules, times, self.changes, self._cluster)
        self._metered = MeteredChanges(config)

    # --- what it is ------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self.changes.image

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
        return {name: known.get(name, 0) for name in self.image.voters}

    @property
    def me(self) -> Candidate:
        """Candidate that it asks voters to vote for."""
        return self.changes.me if self._election is None else self._election.me

    @property
    def is_active(self) -> bool:
        return self.changes.is_active

    @property
    def waiting_for(self) -> str | None:
        """Reason in words why the controller is not active yet; None if it is."""
        return self.changes.waiting_for

    def health(self) -> ClusterHealth:
        """Health of the partitions, as known to the controller."""
        return health_of(self.image, partial(min_insync_replicas, self.image, self._rules))

    # --- becoming active -------------------------------------------------------------------------

    def start(self, ticket: Any, now: Instant) -> None:
        """Start; answered when active. Retries forever what recovers by itself: absent voters.

        May be called again once superseded: it begins again, in a newer epoch. Refuses Superseded.
        """
        del now
        self.stop("starting again")
        self._starting = ticket
        self._election = ControllerElection(self._name, self._effects, self._times)

    def stop(self, reason: str) -> None:
        """Stop: nothing is changed, sent or received any more; waiting callers are refused."""
        self.changes.waiting_for = "its successor"
        self._tasks.stop()
        if self._election is not None:
            self.changes.me = self._election.me
            self._election.close()
            self._election = None
        if self._leader is not None:
            self._leader.close(reason)
        error = NotController(f"the controller has ended: {reason}")
        self.changes.close(error)
        for changing in self._voter_changes:
            changing.close(error)
        self._voter_changes = []
        self._publisher.close(f"the controller has ended: {reason}")
        if self._starting is not None:
            ticket, self._starting = self._starting, None
            self._effects.append(Refuse(ticket, Superseded(reason)))

    def end(self, reason: str) -> None:
        """End because another controller is or may be active: no change is made any more."""
        was_active = self.is_active
        if was_active:
            logger.warning(
                "Renouncing the leadership due to a metadata log event. We were the active "
                "controller at epoch %d: %s. Reverting to last committed offset %d.",
                self.changes.me.epoch,
                reason,
                self.image.offset,
            )
        self.stop(reason)
        if was_active:
            self._effects.append(Ended())

    def resign(self, reason: str) -> None:
        """Resign without being superseded by the voters: no change is made any more."""
        if self.is_active:
            logger.info(
                "Resigned as the active controller at epoch %d: %s.", self.changes.me.epoch, reason
            )
        self.stop(reason)

    def _look_at_election(self, now: Instant) -> None:
        election = self._election
        if election is None:
            return
        election.on_leader(now)
        self.changes.waiting_for = election.waiting_for
        if election.failure is not None:
            ticket, self._starting = self._starting, None
            self._effects.append(Refuse(ticket, election.failure))
            self.stop(str(election.failure))
        elif election.elected is not None:
            self._election = None
            me, self._leader, image, cluster_id, voters = election.elected
            self.changes.begin(me, self._leader, image)
            self._publisher = MetadataPublisher(me.epoch, self._effects, poll_ms=self._poll_ms)
            self._snapshots.begin(self._leader, now)
            self._cluster.begin()
            self._open_epoch(cluster_id, voters, now)

    def _open_epoch(self, cluster_id: str, voters: tuple[str, ...], now: Instant) -> None:
        me = self.changes.me
        record = EpochRecord(epoch=me.epoch, owner=me.owner)
        self.changes.enqueue(lambda image: ([record], None), lambda *_: None, now)

        def name_cluster(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            # A new cluster, or one whose first controller died right after formatting.
            new = ClusterRecord(cluster_id=cluster_id, voters=voters)
            return [] if image.cluster_id else [new], None

        self.changes.enqueue(name_cluster, self._on_epoch_open, now)

    def _on_epoch_open(self, answer: Exception | None, now: Instant) -> None:
        if answer is not None:
            return  # `stop` refuses the ticket
        self.changes.waiting_for = None
        self._tasks.begin(now)
        logger.info(
            "Becoming the active controller of cluster %s at epoch %d, next write offset %d, "
            "%d topics.",
            self.image.cluster_id,
            self.changes.me.epoch,
            self.image.offset,
            len(self.image.topics),
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
            if not self.is_active:
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
                self._cluster.register(ticket, call, now)
            case Change() | MeteredChange():
                self._change(ticket, call, now)
            case ControlledShutdown():
                controller_state.check_session(self.image, call.node_id, call.incarnation)
                self._cluster.fence(call.node_id, answering(ticket, self._effects), now)
            case ReportUnreachableBroker():
                self._cluster.suspect(ticket, call.node_id)
            case AllocateProducerIds():
                self._allocate_producer_ids(ticket, now)
            case DescribeQuorum():
                self._effects.append(Reply(ticket, self._quorum_state()))
            case ChangeVoter():
                assert self._leader is not None
                changing = VoterChanging(
                    ticket, call, self.changes, self._leader, self._effects, self._times, now
                )
                self._voter_changes.append(changing)
            case _:
                raise TypeError(f"{call!r} is not a request to the controller")

    def _quorum_state(self) -> QuorumState:
        applied, polls = dict(self._publisher.applied), self._publisher.polls.of_all()
        epoch = self.changes.me.epoch
        return QuorumState(epoch, self.image.offset, self.voters, applied, polls)

    def _advance(self, now: Instant) -> None:
        """Do everything that an input has made possible."""
        self._look_at_election(now)
        leader = self._leader
        if leader is None or self._election is not None:
            return
        if leader.end_reason is not None:
            if self.is_active or self._starting is not None:
                self.end(leader.end_reason)
        elif (write := self.changes.take_committed()) is not None:
            self._on_committed(write, now)
            self.changes.begin_next(now)

    def _on_committed(self, write: Write, now: Instant) -> None:
        self._snapshots.on_committed(write.size)
        self._publisher.on_change(self.image, write.offset, write.encoded)
        write.then(write.answer, now)
        self._take_snapshot_if_due(now)

    def _take_snapshot_if_due(self, now: Instant) -> None:
        if self._leader is not None:
            self._snapshots.take_if_due(self.image, self._leader, now)

    def _is_leading(self, leader: MetadataLeader) -> bool:
        return leader is self._leader and leader.end_reason is None

    # --- calls -----------------------------------------------------------------------------------

    def _change(self, ticket: Any, call: Change[Any] | MeteredChange[Any], now: Instant) -> None:
        request = call.request

        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            records: Sequence[MetadataRecord]
            records, finish = self._metered.decide(call, image, self._rules, now)
            if request.validate_only:
                records = []
            elif request.needs_confirmation and not records:
                # Only a controller with the votes of a majority can commit it: see the election.
                me = self.changes.me
                records = [EpochRecord(epoch=me.epoch, owner=me.owner)]
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

        self.changes.submit(decide, then, now)

    def _allocate_producer_ids(self, ticket: Any, now: Instant) -> None:
        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            first, records = controller_state.allocate_producer_ids(image)
            return records, (first, controller_state.PRODUCER_ID_BLOCK)

        self.changes.submit(decide, answering(ticket, self._effects), now)

    def _poll(self, ticket: Any, call: PollMetadata, now: Instant) -> None:
        # The controller of a newer epoch would fence the nodes that poll here.
        if call.newest_epoch > self.changes.me.epoch:
            self.end(f"a voter has voted in epoch {call.newest_epoch}")
            raise NotController("the voters elected another controller")
        node = controller_state.check_session(self.image, call.node_id, call.incarnation)
        self._cluster.sessions.on_contact(call.node_id, now_ms=now.now_ms)
        self._publisher.on_applied(call, self.image, now)
        if not node.fenced:
            self._publisher.on_poll(ticket, call, self.image, now)
            return

        def then(answer: Exception | None, now: Instant) -> None:
            if answer is not None:
                self._effects.append(Refuse(ticket, answer))
            else:
                self._publisher.on_poll(ticket, call, self.image, now)

        self._cluster.fence(call.node_id, then, now, fenced=False)

    # --- time ------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        parts = (self._election, self._leader, self._publisher, *self._voter_changes)
        deadlines = [
            self._tasks.next_deadline_ms,
            *(part.next_deadline_ms for part in parts if part),
        ]
        return min((each for each in deadlines if each is not None), default=None)

    def on_tick(self, now: Instant) -> None:
        """Called when time has passed; maybe `next_deadline_ms` is reached."""
        if self._election is not None:
            self._election.on_tick(now)
        if self._leader is not None and self._leader.end_reason is None:
            self._leader.on_tick(now)
            self._advance(now)
        self._publisher.on_tick(self.image, now)
        for changing in self._voter_changes:
            changing.on_tick(now)
        self._voter_changes = [each for each in self._voter_changes if not each.is_over]
        if self._tasks.is_due(now):
            self._take_snapshot_if_due(now)
            self._tasks.on_tick(now)
        self._advance(now)
