"""Controller finder: the actor that a node sends its calls to, and when it looks for another one.

It is the actor named CONTROLLER. If that one does not answer, it is the one that the voters have
voted for, which may be a broker with a standby controller.

    asked         calls are sent to the actor that is taken for the controller (the target)
    abandoned     it failed, timed out, was superseded or answered that it is not the controller:
                  calls to it end, and the voters are asked for their votes
    survey        the newest vote of a majority, or of those that answer in time, names the next
    search        surveys, until a vote is newer than the one known, or `find_ms` have passed; then
                  the named actor is looked up, and waiting calls are sent to it

Calls other than polls and AT_ONCE are sent again while a controller restarts; polls and AT_ONCE
fail, and their callers retry.

Invariants:
    a call is ended once, with an answer or an error, unless its caller forgets it;
    the answer to a poll is rejected if its controller epoch is older than that of an earlier one;
    no effect is begun, and no deadline set, that no call waits for.

Not here: how actors are reached (actors/controller), when a node stands for controller itself
(candidacy, which is notified of each poll). Nothing here happens per record or per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.candidacy import Candidacy
from ...cluster.quorum.voter import Candidate
from ...protocol.errors import ConnectionFailed, NotController
from ...steps.replies import Refuse, Reply
from ..controller_calls import (
    ControlledShutdown,
    ControllerCall,
    MetadataUpdate,
    PollMetadata,
    RegisterBroker,
    ReportUnreachableBroker,
    as_repeated,
)
from ..controller_effects import AskActor, AskForVote, FindActor, StopAsking

CONTROLLER: Final = "controller"
BROKER_PREFIX: Final = "broker/"
AT_ONCE: Final = (RegisterBroker, ControlledShutdown, ReportUnreachableBroker)
"""Calls that fail when there is no controller now: callers retry."""
LOOK_MS: Final = 500
"""Longest time that one check adds to a poll's silence; after more the process was stopped."""


@dataclass(frozen=True, slots=True)
class ControllerTimes:
    """Time limits of a ControllerFinder.

    silence_ms: a poll without changes is answered after QuorumTimes.poll_ms at the latest; a
        controller that does not answer for silence_ms is abandoned.
    least_wait_ms: least time that a request waits for a controller. Clients set short timeouts for
        admin requests; a restarted controller is back within this.
    """

    retry_ms: int = 100
    find_ms: int = 1_000
    silence_ms: int = 6_000
    least_wait_ms: int = 10_000


@dataclass(slots=True, eq=False)
class _Request:
    """A call that is not ended."""

    ticket: Any
    call: Any
    deadline_ms: int
    """Time after which it is not sent again."""
    looked_ms: int
    """Time of the last check of a poll's silence."""
    silent_ms: int = 0
    is_waiting: bool = False
    """Whether it waits until the controller is found."""
    number: int | None = None
    """Number of its AskActor; None: it is not sent, or answered."""
    again_ms: int | None = None
    update: MetadataUpdate | None = None
    """Answer to a poll, which waits for the first vote."""

    @property
    def is_poll(self) -> bool:
        return isinstance(self.call, PollMetadata)


@dataclass(slots=True, eq=False)
class _Survey:
    """Votes that the voters are asked for, until there are more than `half`."""

    half: int
    ends_ms: int
    silent_count: int
    """Number of voters that have not answered."""
    numbers: list[int] = field(default_factory=list)
    votes: list[Candidate] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Search:
    """Search for the controller. `number`: of its FindActor; `again_ms`: of the next survey."""

    ends_ms: int
    number: int | None = None
    again_ms: int | None = None


class ControllerFinder:
    """A step object. Inputs: `ask`, `forget`, `find_again`, `on_answer`, `on_tick`. Times are of a
    clock that never jumps. Soft state.
    """

    def __init__(
        self,
        effects: list[Any],
        image: Callable[[], MetadataImage] = MetadataImage,
        times: ControllerTimes = ControllerTimes(),
    ) -> None:
        """`image`: the newest that this node has."""
        self.candidacy = Candidacy()
        self._effects = effects
        self._image = image
        self._times = times
        self._target: Any = None
        self._was_lost = False
        """Whether a controller was ever abandoned: then the votes name the next one."""
        self._vote: Candidate | None = None
        """Newest known vote; a newer one names the next controller. None: none is known."""
        self._epoch = -1
        """Epoch of the newest controller that has answered."""
        self._requests: dict[Any, _Request] = {}
        self._search: _Search | None = None
        self._survey: _Survey | None = None
        self._last_number = 0
        self._then: dict[int, Callable[[Any, int], None]] = {}
        """What happens with the answer, by the number of the effect."""

    # --- inputs of callers -----------------------------------------------------------------------

    def ask(self, ticket: Any, call: ControllerCall[Any], now_ms: int) -> None:
        """Ask the controller. Refused with NotController, ConnectionFailed: there is none (yet);
        else what the call raises.
        """
        wait_ms = max(getattr(call, "timeout_ms", 0), self._times.least_wait_ms)
        request = _Request(ticket, call, deadline_ms=now_ms + wait_ms, looked_ms=now_ms)
        self._requests[ticket] = request
        self._send(request, now_ms)

    def forget(self, ticket: Any) -> None:
        """Cancel a call: nothing waits for its answer any more."""
        request = self._requests.pop(ticket, None)
        if request is not None:
            self._stop(request.number)
            self._stop_what_is_not_needed()

    def find_again(self, now_ms: int) -> None:
        """Abandon the controller, as another may be active: pending calls end, new ones search."""
        self._give_up(now_ms)

    # --- inputs of the driver --------------------------------------------------------------------

    def on_answer(self, number: int, result: Any, now_ms: int) -> None:
        """Called with the result, or exception, of the effect of this number."""
        then = self._then.pop(number, None)
        if then is not None:
            then(result, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = [each.again_ms for each in self._requests.values()]
        deadlines += [self._look_ms(each) for each in self._requests.values() if each.is_poll]
        if self._search is not None:
            deadlines.append(self._search.again_ms)
        if self._survey is not None:
            deadlines.append(self._survey.ends_ms)
        return min((each for each in deadlines if each is not None), default=None)

    def on_tick(self, now_ms: int) -> None:
        if self._survey is not None and now_ms >= self._survey.ends_ms:
            self._end_survey(self._survey, now_ms)
        search = self._search
        if search is not None and search.again_ms is not None and now_ms >= search.again_ms:
            search.again_ms = None
            self._begin_survey(now_ms)
        for request in list(self._requests.values()):
            if request.again_ms is not None and now_ms >= request.again_ms:
                request.again_ms = None
                self._send(request, now_ms)
            if request.is_poll and request.ticket in self._requests:
                self._look_at_silence(request, now_ms)

    def _begin(self, then: Callable[[Any, int], None]) -> int:
        """Number of a new effect."""
        self._last_number += 1
        self._then[self._last_number] = then
        return self._last_number

    def _stop(self, number: int | None) -> None:
        if number is not None and self._then.pop(number, None) is not None:
            self._effects.append(StopAsking(number))

    # --- asking ----------------------------------------------------------------------------------

    def _send(self, request: _Request, now_ms: int) -> None:
        if self._target is None:
            request.is_waiting = True
            self._find(now_ms)
            return
        call = request.call
        if request.is_poll and self._vote is not None:
            call = replace(call, newest_epoch=self._vote.epoch)
        request.number = self._begin(partial(self._on_asked, request))
        self._effects.append(AskActor(request.number, self._target, call))

    def _on_asked(self, request: _Request, result: Any, now_ms: int) -> None:
        request.number = None
        if isinstance(result, ConnectionFailed | NotController):
            self._give_up(now_ms)
            self._fail(request, result, now_ms)
        elif isinstance(result, Exception):
            self._refuse(request, result)
        elif request.is_poll:
            self._on_update(request, result, now_ms)
        else:
            self._reply(request, result)

    def _on_update(self, request: _Request, update: MetadataUpdate, now_ms: int) -> None:
        if update.controller_epoch < self._epoch:
            # A newer one was elected; this one has written nothing since, so it has not noticed.
            self._give_up(now_ms)
            epoch = update.controller_epoch
            error = NotController(f"a newer controller than that of epoch {epoch} is active")
            self._fail(request, error, now_ms)
            return
        self._epoch = update.controller_epoch
        self.candidacy.on_poll_answered()
        if self._vote is None and self._voter_actors():
            request.update = update
            self._begin_survey(now_ms)
        else:
            self._reply(request, update)

    def _fail(self, request: _Request, error: Exception, now_ms: int) -> None:
        """End a call for which there is no controller now, or have it sent again."""
        if not isinstance(error, ConnectionFailed | NotController):
            self._refuse(request, error)
            return
        if request.is_poll:
            self.candidacy.on_poll_failed(
                now_ms=now_ms, is_reachable=isinstance(error, NotController)
            )
        if request.is_poll or isinstance(request.call, AT_ONCE):
            self._refuse(request, error)
            return
        if isinstance(error, ConnectionFailed):  # its answer may be lost
            request.call = as_repeated(request.call)
        if now_ms > request.deadline_ms:
            self._refuse(request, NotController(f"no controller to ask: {error}; try again"))
        else:
            request.again_ms = now_ms + self._times.retry_ms

    def _reply(self, request: _Request, result: Any) -> None:
        del self._requests[request.ticket]
        self._effects.append(Reply(request.ticket, result))

    def _refuse(self, request: _Request, error: Exception) -> None:
        del self._requests[request.ticket]
        self._effects.append(Refuse(request.ticket, error))

    # --- abandoning the controller ---------------------------------------------------------------

    def _give_up(self, now_ms: int) -> None:
        """Send nothing more to the target. Its calls end, or are sent to the next one."""
        self._was_lost, self._target = True, None
        error = ConnectionFailed("the controller has changed; the request is sent to the new one")
        for request in list(self._requests.values()):
            if request.number is not None:
                self._stop(request.number)
                request.number = None
                self._fail(request, error, now_ms)

    def _look_ms(self, request: _Request) -> int | None:
        """Time of the next check of a poll's silence."""
        if request.update is not None:
            return None
        return request.looked_ms + min(LOOK_MS, self._times.silence_ms - request.silent_ms)

    def _look_at_silence(self, request: _Request, now_ms: int) -> None:
        """Abandon a controller that does not answer a poll within `silence_ms`.

        Only time for which this process ran counts. After it was stopped (SIGSTOP, a suspended
        machine), the controller's answer may be here already; if that time counted, each node that
        was stopped would start a standby controller.
        """
        look_ms = self._look_ms(request)
        if look_ms is None or now_ms < look_ms:
            return
        request.silent_ms += min(LOOK_MS, now_ms - request.looked_ms)
        request.looked_ms = now_ms
        if request.silent_ms >= self._times.silence_ms:
            self._stop(request.number)
            request.number = None
            self._give_up(now_ms)
            self._fail(request, ConnectionFailed("the controller does not answer"), now_ms)
            self._stop_what_is_not_needed()

    # --- finding ---------------------------------------------------------------------------------

    def _find(self, now_ms: int) -> None:
        if self._search is not None:
            return
        self._search = _Search(now_ms + self._times.find_ms)
        if self._was_lost:
            # The lost controller is not looked up at once: if its node is dead and Ray has not
            # noticed yet, that takes a second, and the next controller is elected anyway.
            self._begin_survey(now_ms)
        else:
            self._look_up(self._search, CONTROLLER)

    def _look_up(self, search: _Search, name: str) -> None:
        search.number = self._begin(self._on_found)
        self._effects.append(FindActor(search.number, name))

    def _on_found(self, actor: Any, now_ms: int) -> None:
        self._search = None
        waiting = [each for each in self._requests.values() if each.is_waiting]
        for request in waiting:
            request.is_waiting = False
        if isinstance(actor, Exception):
            for request in waiting:
                self._fail(request, actor, now_ms)
            return
        self._target = actor
        for request in waiting:
            self._send(request, now_ms)

    def _begin_survey(self, now_ms: int) -> None:
        if self._survey is not None:
            return
        names = self._voter_actors()
        survey = _Survey(len(names) // 2, now_ms + self._times.find_ms, silent_count=len(names))
        self._survey = survey
        for name in names:
            number = self._begin(partial(self._on_vote, survey))
            survey.numbers.append(number)
            self._effects.append(AskForVote(number, name))
        if not names:
            self._end_survey(survey, now_ms)

    def _on_vote(self, survey: _Survey, vote: Any, now_ms: int) -> None:
        survey.silent_count -= 1
        if isinstance(vote, Candidate):
            survey.votes.append(vote)
        if not survey.silent_count or len(survey.votes) > survey.half:
            self._end_survey(survey, now_ms)

    def _end_survey(self, survey: _Survey, now_ms: int) -> None:
        """Take the newest vote of a majority, or of those that have answered."""
        self._stop_survey(survey)
        newest = max(survey.votes, key=lambda vote: vote.epoch, default=None)
        search = self._search
        if search is not None and search.number is None and search.again_ms is None:
            if newest in (None, self._vote) and now_ms <= search.ends_ms:
                search.again_ms = now_ms + self._times.retry_ms
            else:
                self._vote = newest
                owner = "" if newest is None else newest.owner.partition(" ")[0]
                self._look_up(search, owner if owner.startswith(BROKER_PREFIX) else CONTROLLER)
        for request in list(self._requests.values()):
            if request.update is not None:
                self._vote = self._vote or newest
                self._reply(request, request.update)

    def _stop_survey(self, survey: _Survey) -> None:
        self._survey = None
        for number in survey.numbers:
            self._stop(number)

    def _stop_what_is_not_needed(self) -> None:
        """End a search, and a survey, that no call waits for any more."""
        requests = self._requests.values()
        if self._search is not None and not any(each.is_waiting for each in requests):
            self._stop(self._search.number)
            self._search = None
        is_needed = self._search is not None or any(each.update is not None for each in requests)
        if self._survey is not None and not is_needed:
            self._stop_survey(self._survey)

    def _voter_actors(self) -> list[str]:
        image = self._image()
        return [
            node.name.rpartition("/")[0]
            for node in image.nodes.values()
            if node.metadata_directory_id in image.voters and node.name.startswith(BROKER_PREFIX)
        ]
