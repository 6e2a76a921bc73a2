"""Standby controller of a broker: when it is started for a controller that does not answer, and
ended.

It is the controller until this node's voter has voted for a newer one; the controller that Ray
starts takes over in this way. Started in a running process, a controller is active in a fraction of
a second; a new actor takes seconds, and Ray takes many more to notice a dead node.

When a node stands is decided in cluster/quorum/candidacy; the votes make it safe that there are two
controllers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ..cluster.metadata.metadata_image import MetadataImage
from ..cluster.quorum.candidacy import Candidacy
from ..cluster.quorum.voter import Candidate
from ..protocol.errors import ConnectionFailed, KafkaError
from .candidate_state import Superseded
from .controller_calls import ReportUnreachableBroker
from .controller_effects import (
    AskStandby,
    EndStandby,
    Instant,
    ProbePort,
    StartStandby,
    VoteGranted,
)

logger = logging.getLogger(__name__)

AT_ONCE = 50
"""Number of nodes probed at once after it has become active."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyTimes:
    """Times in ms. look_ms: interval of checks; start_ms: timeout of becoming active; again_ms:
    pause after a failed start.
    """

    look_ms: int = 100
    again_ms: int = 1_000
    start_ms: int = 10_000


class StandbyView(NamedTuple):
    """State of its node at a moment. me: name under which the standby controller asks voters."""

    vote: Candidate
    directory_id: str
    image: MetadataImage
    me: Candidate | None
    is_active: bool


class StandbyController:
    """A step object: `on_tick` at its deadlines, and `on_done`, for as long as the node lives."""

    def __init__(
        self, candidacy: Candidacy, effects: list[Any], times: StandbyTimes | None = None
    ) -> None:
        self._candidacy = candidacy
        self._effects = effects
        self._times = times or StandbyTimes()
        self._vote: Candidate | None = None
        self._is_standing = False
        self._is_busy = False
        self._starts = 0
        self._give_up_ms: int | None = None
        """Time at which the present start is given up; None: no standby is being started."""
        self._alive: list[bool] = []
        self.next_deadline_ms = 0

    def on_tick(self, seen: StandbyView | None, now: Instant) -> None:
        """Check the controller. `seen`: None while there is no voter that could be asked."""
        if now.now_ms < self.next_deadline_ms:
            return
        self.next_deadline_ms = now.now_ms + self._times.look_ms
        if self._give_up_ms is not None and now.now_ms >= self._give_up_ms:
            self._on_not_active(TimeoutError(f"no majority in {self._times.start_ms} ms"), now)
        if seen is None:
            return
        before, self._vote = self._vote, seen.vote
        if before not in (None, seen.vote):
            self._candidacy.on_vote_granted(now_ms=now.now_ms)
            self._effects.append(VoteGranted())
        if self._is_busy:
            return
        if self._is_standing:
            if seen.vote != seen.me or not seen.is_active:
                self._is_standing = False
                self._effects.append(
                    EndStandby(f"this node's voter has voted in epoch {seen.vote.epoch}")
                )
        elif self._is_due(0, now):
            self._look_at_others(seen, now)

    def on_done(self, effect: Any, result: Any, now: Instant) -> None:
        """Called with the result, or the exception, of an effect that has a `then`."""
        effect.then(result, now)

    def _is_due(self, voters_before: int, now: Instant) -> bool:
        return self._candidacy.is_due(now_ms=now.now_ms, voters_before=voters_before)

    def _look_at_others(self, seen: StandbyView, now: Instant) -> None:
        """Probe the voters that precede this one in the list of voters, and are not fenced."""
        image, me = seen.image, seen.directory_id
        nodes = {node.metadata_directory_id: node for node in image.nodes.values()}
        names = image.voters[: image.voters.index(me)] if me in image.voters else image.voters
        before = [nodes[name] for name in names if name in nodes and not nodes[name].fenced]
        self._alive = []
        self._is_busy = bool(before)
        for node in before:
            then = partial(self._on_probed, seen, len(before))
            self._effects.append(ProbePort(node.host, node.port, then))
        if not before:
            self._maybe_stand(seen, now)

    def _on_probed(self, seen: StandbyView, count: int, is_dead: bool, now: Instant) -> None:
        self._alive.append(is_dead is not True)
        if len(self._alive) == count:
            self._is_busy = False
            self._maybe_stand(seen, now)

    def _maybe_stand(self, seen: StandbyView, now: Instant) -> None:
        if self._is_due(sum(self._alive), now) and seen.directory_id in seen.image.voters:
            logger.warning("the controller does not answer: starting a standby here")
            self._is_busy = True
            self._starts += 1
            self._give_up_ms = now.now_ms + self._times.start_ms
            self._effects.append(StartStandby(partial(self._on_started, self._starts)))

    def _on_started(self, number: int, result: MetadataImage | Exception, now: Instant) -> None:
        """Called when a start has ended. `number`: which start; one that was given up before is
        ignored. `result`: image of the new controller, or the failure.
        """
        if number != self._starts or self._give_up_ms is None:
            return
        if isinstance(result, Exception):
            self._on_not_active(result, now)
            return
        self._is_busy, self._give_up_ms = False, None
        self._is_standing = True
        # Other nodes may have died with the former controller: new leaders are to be elected soon.
        # Nodes that cannot reach them report them, too, but only once they find this controller.
        self._suspect([node.node_id for node in result.live_nodes()])

    def _on_not_active(self, failure: Exception, now: Instant) -> None:
        expected = (KafkaError, ConnectionFailed, Superseded, TimeoutError)
        if isinstance(failure, expected):
            logger.info("the standby controller did not become active: %s", failure)
        else:
            logger.error("the standby controller failed", exc_info=failure)
        self._is_busy, self._give_up_ms = False, None
        self._effects.append(EndStandby(f"it did not become active: {failure}"))
        self.next_deadline_ms = now.now_ms + self._times.again_ms

    def _suspect(self, node_ids: list[int]) -> None:
        some, rest = node_ids[:AT_ONCE], node_ids[AT_ONCE:]
        waiting = set(some)

        def suspected(node_id: int, result: Any, now: Instant) -> None:
            del result, now
            waiting.discard(node_id)
            if not waiting and self._is_standing:
                self._suspect(rest)

        for node_id in some:
            self._effects.append(
                AskStandby(ReportUnreachableBroker(node_id), partial(suspected, node_id))
            )
