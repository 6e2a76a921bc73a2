"""Survey of all brokers by a controller, and the voters it may continue with.

A node that answers may hold a copy of the metadata; the newest copy names the voters. All nodes
have to answer only if no answer names voters: that of a missing node might.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from .controller_effects import AskVoter, FindVoters, FoundVoters, Instant
from .quorum_times import QuorumTimes
from .voter_requests import DescribeVoter, VoterState

MOST_VOTERS = 3
"""Number of voters of a new cluster: one of them may be lost."""


class Answered(NamedTuple):
    voter: Any
    state: VoterState


class Survey(NamedTuple):
    """Result of a survey: number of brokers, and the answers, by name."""

    brokers: int
    answered: list[Answered]
    token: str
    """See FoundVoters."""

    def find(self, directory_id: str) -> Answered | None:
        """The voter with this directory, if it has answered."""
        for each in self.answered:
            if each.state.directory_id == directory_id:
                return each
        return None


class FormedVoters(NamedTuple):
    """Voters, and the answers of current and former voters by directory id."""

    cluster_id: str | None
    voters: tuple[str, ...]
    holders: dict[str, Answered]


class VoterSurvey:
    """A step object: one round of questions. It begins at once."""

    def __init__(
        self, effects: list[Any], times: QuorumTimes, then: Callable[[Survey, Instant], None]
    ) -> None:
        self._effects = effects
        self._times = times
        self._then = then
        self._brokers = 0
        self._token = ""
        self._pending = 0
        self._answered: list[Answered] = []
        self._is_over = False
        self.next_deadline_ms: int | None = None
        effects.append(FindVoters(self._on_found))

    def _on_found(self, found: FoundVoters | Exception, now: Instant) -> None:
        if isinstance(found, Exception):
            raise found
        self._brokers = self._pending = len(found.voters)
        self._token = found.token
        for voter in found.voters:
            then = partial(self._on_state, voter)
            self._effects.append(AskVoter(voter, DescribeVoter(), self._times.answer_ms, then))
        if not found.voters:
            self._finish(now)

    def _on_state(self, voter: Any, state: VoterState | Exception, now: Instant) -> None:
        if self._is_over:
            return
        self._pending -= 1
        if not isinstance(state, Exception):
            self._answered.append(Answered(voter, state))
        if not self._pending:
            self._finish(now)
        elif _is_majority([each.state for each in self._answered]):
            # A request to a node that has just died takes long to fail.
            self.next_deadline_ms = now.now_ms + self._times.late_ms

    def on_tick(self, now: Instant) -> None:
        if self.next_deadline_ms is not None and now.now_ms >= self.next_deadline_ms:
            self._finish(now)

    def close(self) -> None:
        """Close: the result is no longer needed."""
        self._is_over = True
        self.next_deadline_ms = None

    def _finish(self, now: Instant) -> None:
        if self._is_over:
            return
        self.close()
        answered = sorted(self._answered, key=lambda each: each.state.name)
        self._then(Survey(self._brokers, answered, self._token), now)


def form(survey: Survey) -> FormedVoters | str:
    """Voters to ask for votes; or what is missing, in words that follow "waiting for"."""
    states = [state for _, state in survey.answered]
    clusters = sorted({state.cluster_id for state in states if state.cluster_id})
    if len(clusters) > 1:
        return (
            f"data directories of one cluster: these belong to {' and '.join(clusters)}; "
            "start with the right data directories, or with empty ones"
        )
    knowing = [state for state in states if state.voters]
    if knowing:
        voters = newest_of(knowing).voters
    else:
        # A node that does not answer may be a voter; this is ruled out once all have answered.
        if not survey.brokers or len(states) < survey.brokers:
            return f"{survey.brokers - len(states) or 'its'} brokers to start"
        if clusters:
            return (
                f"the node that holds the metadata of cluster {clusters[0]}: start it; if it was "
                "lost, stop all and run `bradbury metadata recover DATA_DIR`"
            )
        # Two voters tolerate no loss: then one is better.
        most = MOST_VOTERS if len(states) >= MOST_VOTERS else 1
        voters = tuple(state.directory_id for state in states[:most])
    there = sum(state.directory_id in voters for state in states)
    missing = len(voters) // 2 + 1 - there
    if missing > 0:
        return (
            f"{missing} more of the {len(voters)} nodes that hold the metadata of cluster "
            f"{clusters[0] if clusters else '(new)'}"
        )
    holders = {
        each.state.directory_id: each
        for each in survey.answered
        if each.state.directory_id in voters or each.state.is_voter
    }
    return FormedVoters(clusters[0] if clusters else None, voters, holders)


def newest_of(states: Sequence[VoterState]) -> VoterState:
    return max(states, key=lambda state: (state.last_epoch, state.log_end_offset))


def _is_majority(states: Sequence[VoterState]) -> bool:
    """Whether these are a majority of the voters that the most advanced of their logs names."""
    if not states:
        return False
    voters = newest_of(states).voters
    return bool(voters) and len(voters) // 2 < sum(
        state.directory_id in voters and state.is_voter for state in states
    )
