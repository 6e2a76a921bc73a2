"""Departure of a node whose machine is about to end: what it hands over, in which order.

    vote        another broker votes on the metadata instead of this machine's
    replicas    move to other machines, as many as can be
    leadership  others lead, once the other nodes of the machine are out of service
    close       everything is flushed, and the process ends

The first two only if drained machines do not come back (bradbury.drain.moves.replicas). The vote
goes first: it takes a moment, replicas may take longer than there is time, and a cluster that loses
its only voter loses its metadata. If the vote cannot be passed on in time, that is tried again when
the replicas have moved. Leadership goes last, and the last `hand_over` ms before the deadline are
reserved for it: until then the machine serves, and its replicas count in the ISR.

Each node of the machine makes the same requests, as Ray notifies each of them separately; the
controller begins what is not in progress yet. A broker hands over last: the controller may need its
voter to elect other leaders for the partitions of the other nodes.

When the drain is withdrawn the departure stops: nothing more is requested, and moved replicas stay
where they are. But a change of voters that was begun is finished, or there would be one voter too
many. A node that is already handing over its leadership ends nevertheless, and is started again.

Invariants: from the notice of a deadline on, a node closes at the deadline at the latest, or
`retry` ms after the notice, even without an answer; without a deadline `longest` plus `hand_over`
ms after the notice at the latest.

Not here: what moves where (cluster/control/rebalance), who may vote (cluster/quorum/voter_change),
in which order a node closes (replication/manager/node_close).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...cluster.control.reassignment import ListPartitionReassignments
from ...cluster.control.rebalance import Rebalance, nodes_on, replicas_on
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.voter_change import VoterChange, successor
from ..controller_calls import Change, ChangeVoter, ControllerCall
from ..controller_effects import AskController, CloseNode, EndProcess, HandOver, Instant

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartureTimes:
    """Times in ms. hand_over: reserved for the hand-over before a deadline; vote: limit after which
    replicas are moved though the vote is not passed on; longest: limit for moving replicas without
    a deadline; voter: timeout for a new voter to catch up with what is committed.
    """

    retry: int = 500
    hand_over: int = 20_000
    vote: int = 60_000
    longest: int = 24 * 3600 * 1000
    voter: int = 10_000


class DeparturePhase(enum.Enum):
    """Phase of a node's departure."""

    STAYS = None
    PASSES_VOTE = "passes its vote on, as its machine is being drained"
    MOVES_REPLICAS = "moves its replicas away, as its machine is being drained"
    HANDS_OVER = "hands over, as its machine is being drained"
    CLOSES = "closes, as its machine is being drained"
    IS_GONE = "has ended"


WITHDRAWABLE = (DeparturePhase.PASSES_VOTE, DeparturePhase.MOVES_REPLICAS)


class NodeDeparture:
    """A step object: `on_notice` and `on_withdrawn`; `on_done` and `on_tick`."""

    def __init__(
        self,
        machine: str,
        effects: list[Any],
        *,
        node_id: Callable[[], int],
        image: Callable[[], MetadataImage],
        is_broker: bool,
        moves_replicas: bool,
        times: DepartureTimes | None = None,
    ) -> None:
        """`image`: the newest that the node has applied. `moves_replicas`: the machine does not
        come back.
        """
        self.phase = DeparturePhase.STAYS
        self.has_left_nothing = False
        """Whether its machine had no replica and no vote any more when it began to hand over."""
        self.next_deadline_ms: int | None = None
        self._machine = machine
        self._effects = effects
        self._node_id = node_id
        self._image = image
        self._is_broker = is_broker
        self._moves_replicas = moves_replicas
        self._times = times or DepartureTimes()
        self._begun_at_ms = 0
        self._ends_at_ms: int | None = None
        """Deadline of the drain; None: there is none."""
        self._until_ms = 0
        """Time at which the phase ends, finished or not."""
        self._retry_at_ms: int | None = None
        self._leaving: frozenset[str] = frozenset()
        self._is_withdrawn = False
        self._votes: tuple[int, int] | None = None
        """(new voter, former voter) by node id, once the change was asked for."""
        self._is_added = False
        self._is_vote_passed = False
        """Whether there is nothing left to do about the vote."""
        self._is_seen_passed = False
        self._turn = 0
        """Number of phases so far: answers to requests of a former phase are ignored."""

    # --- inputs ----------------------------------------------------------------------------------

    def on_notice(
        self,
        left_ms: int | None,
        *,
        is_serving: bool,
        now: Instant,
        leaving: frozenset[str] = frozenset(),
    ) -> None:
        """Called when the machine is being drained, and again when the notice has changed.

        left_ms: until the machine ends; None: it waits until nothing runs on it.
        is_serving: whether the node serves; one that does not has nothing to hand over.
        leaving: other machines that are being drained, which get neither its vote nor replicas.
        """
        self._leaving = leaving - {self._machine}
        self._ends_at_ms = None if left_ms is None else now.now_ms + left_ms
        self._is_withdrawn = False
        if self.phase in WITHDRAWABLE:
            self._until_ms = self._moves_until_ms
            self._set_deadline()
        if self.phase is not DeparturePhase.STAYS:
            return
        self._begun_at_ms = now.now_ms
        if not is_serving:
            self._end()
        elif self._moves_replicas and self._moves_until_ms > now.now_ms:
            self._votes, self._is_added = None, False
            self._is_vote_passed = self._is_seen_passed = False
            left_ms = self._moves_until_ms - now.now_ms
            until_ms = now.now_ms + min(self._times.vote, left_ms // 2)
            self._begin(DeparturePhase.PASSES_VOTE, until_ms, now)
        else:
            self._begin_hand_over(now)

    def on_withdrawn(self, now: Instant) -> None:
        """Called when the machine is not being drained any more."""
        self._ends_at_ms = None
        if self.phase not in WITHDRAWABLE:
            return
        if self._votes is None or self._is_vote_passed:
            self._stay()
            return
        self._is_withdrawn = True
        until_ms = now.now_ms + self._times.vote
        if self.phase is DeparturePhase.PASSES_VOTE:
            self._until_ms = until_ms
            self._set_deadline()
        else:
            self._begin(DeparturePhase.PASSES_VOTE, until_ms, now)

    def on_done(self, effect: Any, result: Any, now: Instant) -> None:
        """Called with the result, or the exception, of an effect that has a `then`."""
        effect.then(result, now)

    def on_tick(self, now: Instant) -> None:
        if self.next_deadline_ms is None or now.now_ms < self.next_deadline_ms:
            return
        if now.now_ms >= self._until_ms:
            self._give_up(now)
        elif self._retry_at_ms is not None and now.now_ms >= self._retry_at_ms:
            self._retry_at_ms = None
            self._continue(now)
        self._set_deadline()

    # --- phases ----------------------------------------------------------------------------------

    @property
    def _moves_until_ms(self) -> int:
        until_ms = self._begun_at_ms + self._times.longest
        if self._ends_at_ms is not None:
            until_ms = min(until_ms, self._ends_at_ms - self._times.hand_over)
        return until_ms

    def _begin(self, phase: DeparturePhase, until_ms: int, now: Instant) -> None:
        self._turn += 1
        self.phase, self._until_ms, self._retry_at_ms = phase, until_ms, None
        self._continue(now)
        self._set_deadline()

    def _begin_hand_over(self, now: Instant) -> None:
        until_ms = now.now_ms + self._times.hand_over
        if self._ends_at_ms is not None:
            until_ms = min(until_ms, self._ends_at_ms)
        # However late the notice comes, the controller is asked once, and has `retry` ms to answer.
        self._begin(DeparturePhase.HANDS_OVER, max(until_ms, now.now_ms + self._times.retry), now)

    def _stay(self) -> None:
        self._turn += 1
        self.phase, self._retry_at_ms, self._is_withdrawn = DeparturePhase.STAYS, None, False
        self._set_deadline()

    def _continue(self, now: Instant) -> None:
        match self.phase:
            case DeparturePhase.PASSES_VOTE:
                self._pass_vote(now)
            case DeparturePhase.MOVES_REPLICAS:
                self._move(now)
            case DeparturePhase.HANDS_OVER:
                self._hand_over(now)

    def _give_up(self, now: Instant) -> None:
        """End a phase whose time is over."""
        if self._is_withdrawn:
            self._stay()
        elif self.phase is DeparturePhase.PASSES_VOTE and now.now_ms < self._moves_until_ms:
            self._begin(DeparturePhase.MOVES_REPLICAS, self._moves_until_ms, now)
        elif self.phase in WITHDRAWABLE:
            logger.warning("this node %s: deadline reached; handing over", self.phase.value)
            self._begin_hand_over(now)
        elif self.phase is DeparturePhase.HANDS_OVER:
            self._close()

    def _retry(self, now: Instant) -> None:
        self._retry_at_ms = now.now_ms + self._times.retry
        self._set_deadline()

    def _set_deadline(self) -> None:
        if self.phase in (*WITHDRAWABLE, DeparturePhase.HANDS_OVER):
            retry_ms = self._until_ms if self._retry_at_ms is None else self._retry_at_ms
            self.next_deadline_ms = min(self._until_ms, retry_ms)
        else:
            self.next_deadline_ms = None

    def _ask(self, call: ControllerCall[Any], then: Callable[[Any, Instant], None]) -> None:
        self._effects.append(AskController(call, partial(self._on_answer, self._turn, then)))

    def _on_answer(
        self, turn: int, then: Callable[[Any, Instant], None], answer: Any, now: Instant
    ) -> None:
        """Pass the answer on; after an error the controller is asked again, until the deadline."""
        if turn != self._turn:
            return
        if isinstance(answer, Exception):
            logger.info("this node %s: retrying after: %s", self.phase.value, answer)
            self._retry(now)
        else:
            then(answer, now)

    # --- its vote --------------------------------------------------------------------------------

    def _pass_vote(self, now: Instant) -> None:
        """Add the new voter, then remove the former: there are never fewer than before."""
        image = self._image()
        if self._votes is not None and not self._is_added and _is_lost(image, self._votes[0]):
            self._votes = None  # another broker has to become the voter
        if self._votes is None and self._is_broker and not self._is_withdrawn:
            self._votes = successor(image, self._machine, self._leaving)
        if self._votes is None:
            self._on_vote_passed(now)
            return
        newcomer, voter = self._votes
        # is_repeated: an answer may have been lost, and then the change is in force already.
        change = VoterChange(
            is_addition=not self._is_added,
            node_id=voter if self._is_added else newcomer,
            is_repeated=True,
        )
        self._ask(ChangeVoter(change, self._times.voter), self._on_voter_changed)

    def _on_voter_changed(self, answer: object, now: Instant) -> None:
        del answer
        if not self._is_added:
            self._is_added = True
            self._pass_vote(now)
            return
        assert self._votes is not None
        logger.info("node %d is now a metadata voter instead of node %d", *self._votes)
        self._on_vote_passed(now)

    def _on_vote_passed(self, now: Instant) -> None:
        self._is_vote_passed = True
        if self._is_withdrawn:
            self._stay()
        else:
            self._begin(DeparturePhase.MOVES_REPLICAS, self._moves_until_ms, now)

    # --- its replicas ----------------------------------------------------------------------------

    def _move(self, now: Instant) -> None:
        """Move replicas until the machine has none, or only some that no other machine can take."""
        self._look_at_vote()
        if replicas_on(self._image(), self._machine):
            leave = Change(Rebalance(leave=self._machine, leaving=self._leaving), timeout_ms=0)
            self._ask(leave, self._on_moves)
        elif self._is_voter() and self._votes is not None and self._is_vote_passed:
            self._retry(now)  # the image does not show it yet, or see _look_at_vote
        elif not self._is_vote_passed and now.now_ms < self._moves_until_ms:
            self._begin(DeparturePhase.PASSES_VOTE, self._moves_until_ms, now)
        else:
            self.has_left_nothing = self._is_broker and not self._is_voter()
            self._begin_hand_over(now)

    def _on_moves(self, begun: tuple[object, ...], now: Instant) -> None:
        if begun:
            self._retry(now)
        else:
            ongoing = ListPartitionReassignments(topics=None)
            self._ask(Change(ongoing, timeout_ms=0), self._on_ongoing)

    def _on_ongoing(self, ongoing: tuple[Any, ...], now: Instant) -> None:
        image = self._image()
        mine = nodes_on(image, self._machine)
        left = replicas_on(image, self._machine)
        is_moving = any(mine & {*each.partition.replicas} for each in ongoing)
        if is_moving or (left and self._may_be_replaced):
            self._retry(now)
        elif left:
            logger.warning("%d replicas not moved: no eligible node on another machine", left)
            self._begin_hand_over(now)
        else:
            self._move(now)

    @property
    def _may_be_replaced(self) -> bool:
        """Whether to wait for machines that may join to replace those that are drained. Without a
        deadline Ray waits for this node to end, so it must not wait for others.
        """
        return bool(self._leaving) and self._ends_at_ms is not None

    def _look_at_vote(self) -> None:
        """Pass a vote on again that another drained machine may have passed to this one.

        Not before the image has shown that this one's was passed on.
        """
        if self._votes is None or not self._is_vote_passed:
            return
        if not self._is_voter():
            self._is_seen_passed = True
        elif self._is_seen_passed:
            self._votes, self._is_added = None, False
            self._is_vote_passed = self._is_seen_passed = False

    def _is_voter(self) -> bool:
        """Whether the machine has a vote, by the image."""
        image = self._image()
        return any(
            node.metadata_directory_id in image.voters
            for node in image.nodes.values()
            if node.machine_name == self._machine and node.metadata_directory_id
        )

    # --- its leadership, and its end -------------------------------------------------------------

    def _hand_over(self, now: Instant) -> None:
        # Shortly before the deadline it hands over even if others are still in service.
        may_wait = now.now_ms < self._until_ms - 2 * self._times.retry
        if self._is_broker and may_wait and self._has_siblings():
            self._retry(now)
        else:
            self._effects.append(HandOver(partial(self._on_left, self._turn)))

    def _has_siblings(self) -> bool:
        """Whether other nodes of the machine are in service."""
        return any(
            node.machine_name == self._machine and not node.fenced
            for node in self._image().nodes.values()
            if node.node_id != self._node_id()
        )

    def _on_left(self, turn: int, is_heard: object, now: Instant) -> None:
        if turn != self._turn:
            return
        if is_heard is True:
            self._close()
        else:
            self._retry(now)

    def _close(self) -> None:
        self._turn += 1
        self.phase = DeparturePhase.CLOSES
        self._set_deadline()
        self._effects.append(CloseNode(self._on_closed))

    def _on_closed(self, result: object, now: Instant) -> None:
        del now
        if isinstance(result, Exception):
            logger.error("the node was not closed cleanly", exc_info=result)
        self._end()

    def _end(self) -> None:
        self.phase = DeparturePhase.IS_GONE
        self._set_deadline()
        self._effects.append(EndProcess("its machine is being drained"))


def _is_lost(image: MetadataImage, node_id: int) -> bool:
    """Whether a broker that was to vote neither does nor is in service."""
    node = image.nodes.get(node_id)
    return node is None or (node.fenced and node.metadata_directory_id not in image.voters)
