"""Election of a controller: from finding the voters to adopting the log.

    survey    all brokers; the newest copy of the metadata names the voters (voter_survey)
    format    the voters of a new cluster that have no log yet, in order of name
    epoch     one more than any that a voter has seen, queried again, as the survey may be old
    lead      votes, and the best log (metadata_leader)
    image     built from that log, in a thread

If voters are absent, the election is retried forever; if a rival has a newer epoch, it has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..cluster.metadata.metadata_image import MetadataImage
from ..cluster.quorum.voter import Candidate
from ..protocol.errors import ConnectionFailed, InconsistentClusterId
from .candidate_state import Superseded
from .controller_effects import AskVoter, Instant, RunInThread
from .metadata_leader import MetadataLeader
from .quorum_times import QuorumTimes
from .voter_requests import DescribeVoter, FormatVoter, VoterState
from .voter_survey import Answered, FormedVoters, Survey, VoterSurvey, form


class Elected(NamedTuple):
    """Result of an election: the beginning of a controller epoch."""

    me: Candidate
    leader: MetadataLeader
    image: MetadataImage
    cluster_id: str
    voters: tuple[str, ...]
    """Voters of the cluster if it is a new one, otherwise empty."""


class ControllerElection:
    """A step object: the start of one controller. It begins at once; `elected` or `failure` is its
    result.
    """

    def __init__(self, name: str, effects: list[Any], times: QuorumTimes) -> None:
        self._name = name
        self._effects = effects
        self._times = times
        self._attempt = 0
        self._survey: VoterSurvey | None = None
        self._retry_at_ms: int | None = None
        self._formation = FormedVoters(None, (), {})
        self._cluster_id = ""
        self._token = ""
        self._unformatted: list[Answered] = []
        self._states: list[VoterState | Exception] = []
        self.leader: MetadataLeader | None = None
        self.me = Candidate()
        """Candidate that it asks voters to vote for; set once it asks."""
        self.waiting_for = "its voters"
        self.elected: Elected | None = None
        self.failure: Exception | None = None
        self._begin()

    def close(self) -> None:
        """End the election, finished or not."""
        self._attempt += 1
        self._retry_at_ms = None
        if self._survey is not None:
            self._survey.close()
            self._survey = None
        if self.leader is not None and self.elected is None:
            self.leader.close()

    def _begin(self) -> None:
        self._attempt += 1
        self._survey = VoterSurvey(self._effects, self._times, self._on_survey)

    def _try_later(self, why: str, now: Instant) -> None:
        self.close()
        self.leader = None
        self.waiting_for = why
        self._retry_at_ms = now.now_ms + self._times.start_ms

    @property
    def next_deadline_ms(self) -> int | None:
        parts = (self._survey, self.leader)
        deadlines = [self._retry_at_ms, *(part.next_deadline_ms for part in parts if part)]
        return min((each for each in deadlines if each is not None), default=None)

    def on_tick(self, now: Instant) -> None:
        if self._survey is not None:
            self._survey.on_tick(now)
        if self.leader is not None and self.leader.end_reason is None:
            self.leader.on_tick(now)
        if self._retry_at_ms is not None and now.now_ms >= self._retry_at_ms:
            self._retry_at_ms = None
            self._begin()

    def on_leader(self, now: Instant) -> None:
        """Check the leader's progress; to be called after each answer."""
        leader = self.leader
        if leader is None:
            return
        if leader.end_reason is not None:
            self.failure = Superseded(leader.end_reason)
        elif leader.failure is not None:
            if isinstance(leader.failure, Superseded):
                self.failure = leader.failure
            else:
                self._try_later(str(leader.failure), now)
        elif leader.adopted is not None and self.elected is None:
            adopted, leader.adopted = leader.adopted, None
            self._effects.append(RunInThread(adopted.image, self._unless_over(self._on_image)))

    def _unless_over(self, then: Callable[[Any, Instant], None]) -> Callable[[Any, Instant], None]:
        attempt = self._attempt

        def still(result: Any, now: Instant) -> None:
            if attempt == self._attempt:
                then(result, now)

        return still

    # --- survey, format, epoch -------------------------------------------------------------------

    def _on_survey(self, survey: Survey, now: Instant) -> None:
        self._survey = None
        formation = form(survey)
        if isinstance(formation, str):
            self._try_later(formation, now)
            return
        self._formation, self._token = formation, survey.token
        self._cluster_id = formation.cluster_id or survey.token[:22]
        # Formatting is repeated after a crash in the middle of it: a node that is named a voter
        # and has no log never had one, as a lost directory is replaced by one with a new id.
        # In order of name: of two controllers that format at once the first voter refuses one.
        self._unformatted = [each for each in formation.holders.values() if not each.state.is_voter]
        self._format_next()

    def _format_next(self) -> None:
        if not self._unformatted:
            self._ask_states()
            return
        voter = self._unformatted.pop(0).voter
        request = FormatVoter(self._cluster_id, self._formation.voters)
        then = self._unless_over(self._on_formatted)
        self._effects.append(AskVoter(voter, request, self._times.fetch_ms, then))

    def _on_formatted(self, answer: Exception | None, now: Instant) -> None:
        if answer is None:
            self._format_next()
        elif isinstance(answer, ConnectionFailed | InconsistentClusterId | TimeoutError):
            self._try_later(str(answer) or "a voter that is to be formatted", now)
        else:
            self.failure = answer

    def _ask_states(self) -> None:
        self._states = []
        then = self._unless_over(self._on_state)
        for voter, _ in self._formation.holders.values():
            self._effects.append(AskVoter(voter, DescribeVoter(), self._times.answer_ms, then))

    def _on_state(self, state: VoterState | Exception, now: Instant) -> None:
        self._states.append(state)
        if len(self._states) < len(self._formation.holders):
            return
        known = [state for state in self._states if isinstance(state, VoterState)]
        epoch = max((max(state.vote.epoch, state.last_epoch) for state in known), default=-1) + 1
        self.me = Candidate(epoch=epoch, owner=f"{self._name} {self._token[:16]}")
        self.leader = MetadataLeader(self.me, self._formation.voters, self._effects, self._times)
        self.leader.lead({name: voter for name, (voter, _) in self._formation.holders.items()})

    def _on_image(self, image: MetadataImage | Exception, now: Instant) -> None:
        if isinstance(image, Exception):
            self.failure = image
            return
        assert self.leader is not None
        self.elected = Elected(
            self.me, self.leader, image, self._cluster_id, self._formation.voters
        )
