"""How a controller begins where voters do not answer at first."""

from __future__ import annotations

from typing import Any

import pytest

from bradbury.controller.controller_effects import (
    AskVoter,
    FindVoters,
    FoundVoters,
    Instant,
    RunInThread,
)
from bradbury.controller.controller_election import ControllerElection
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import FormatVoter, VoteRequest
from bradbury.protocol.errors import ConnectionFailed, KafkaError
from bradbury.tests.simulation.world.controllers.simulated_voter import (
    ask_at_once,
    open_voter,
    result_of,
)
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

TIMES = QuorumTimes()


class Cluster:
    """A new cluster: three voters without a log, and a controller that begins."""

    def __init__(self) -> None:
        self.voters = {name: open_voter(MemoryFileSystem(), name, name) for name in "abc"}
        self.effects: list[Any] = []
        self.surveys = 0
        self.election = ControllerElection("me", self.effects, TIMES)

    def run(self, now_ms: int = 0, silent_to: tuple[type, ...] = ()) -> None:
        """Answer everything; of the voters only `c` answers requests of the `silent_to` types."""
        now = Instant(now_ms, now_ms)
        self.election.on_tick(now)
        while self.effects:
            effect = self.effects.pop(0)
            if isinstance(effect, FindVoters):
                self.surveys += 1
                effect.then(FoundVoters(list(self.voters), f"{self.surveys:032x}"), now)
            elif isinstance(effect, RunInThread):
                effect.then(result_of(effect.work), now)
            else:
                assert isinstance(effect, AskVoter)
                effect.then(self._answer(effect, silent_to), now)
            self.election.on_leader(now)

    def _answer(self, effect: AskVoter, silent_to: tuple[type, ...]) -> Any:
        if isinstance(effect.request, silent_to) and effect.voter != "c":
            return ConnectionFailed("connection refused")
        try:
            return ask_at_once(*self.voters[effect.voter], effect.request)
        except KafkaError as error:
            return error


def test_a_new_cluster_is_formed_by_its_first_controller() -> None:
    cluster = Cluster()
    cluster.run()
    elected = cluster.election.elected
    assert elected is not None
    assert elected.voters == ("a", "b", "c")
    assert elected.cluster_id
    assert cluster.surveys == 1


@pytest.mark.parametrize("request_type", [FormatVoter, VoteRequest])
def test_what_is_absent_is_asked_again_after_a_while_and_no_sooner(request_type: type) -> None:
    """To be formatted, or to vote: with neither of two of three is there a controller."""
    cluster = Cluster()
    cluster.run(silent_to=(request_type,))
    election = cluster.election
    assert election.elected is None
    assert election.failure is None
    assert election.next_deadline_ms == TIMES.start_ms
    cluster.run(TIMES.start_ms - 1)
    assert cluster.surveys == 1
    cluster.run(TIMES.start_ms)
    assert cluster.surveys == 2
    assert election.elected is not None
    assert election.next_deadline_ms is not None
