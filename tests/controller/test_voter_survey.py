"""Does a survey of the voters end, whoever answers?"""

from typing import Any

from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.controller_effects import AskVoter, FindVoters, FoundVoters, Instant
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import VoterState
from bradbury.controller.voter_survey import Survey, VoterSurvey
from bradbury.protocol.errors import ConnectionFailed

TIMES = QuorumTimes()
START = Instant(1_000, 0)
VOTERS = ("a", "b", "c")


def state(name: str) -> VoterState:
    return VoterState(
        name, name, "cluster", True, Candidate(epoch=1, owner="controller"), 5, 1, VOTERS
    )


class World:
    def __init__(self, found: list[str]) -> None:
        self.effects: list[Any] = []
        self.surveys: list[Survey] = []
        self.step = VoterSurvey(
            self.effects, TIMES, lambda survey, now: self.surveys.append(survey)
        )
        (find,) = self.effects
        assert isinstance(find, FindVoters)
        self.effects.clear()
        find.then(FoundVoters(found, "token"), START)
        self.asked: dict[str, AskVoter] = {each.voter: each for each in self.effects}

    def answer(self, name: str, answer: VoterState | Exception) -> None:
        self.asked[name].then(answer, START)


def test_without_brokers_it_ends_at_once() -> None:
    assert World([]).surveys == [Survey(0, [], "token")]


def test_it_ends_when_all_have_answered_and_those_that_failed_are_not_in_it() -> None:
    world = World(["b", "a"])
    world.answer("b", state("b"))
    assert world.surveys == []
    world.answer("a", ConnectionFailed("gone"))
    (survey,) = world.surveys
    assert survey.brokers == 2
    assert [each.voter for each in survey.answered] == ["b"]
    assert survey.find("b") is not None
    assert survey.find("a") is None


def test_once_a_majority_has_answered_the_others_have_little_time() -> None:
    world = World(list(VOTERS))
    world.answer("c", state("c"))
    assert world.step.next_deadline_ms is None
    world.answer("a", state("a"))
    deadline = world.step.next_deadline_ms
    assert deadline == START.now_ms + TIMES.late_ms
    world.step.on_tick(Instant(deadline - 1, 0))
    assert world.surveys == []
    world.step.on_tick(Instant(deadline, 0))
    (survey,) = world.surveys
    assert [each.voter for each in survey.answered] == ["a", "c"], "in the order of their names"
    world.answer("b", state("b"))
    assert len(world.surveys) == 1, "what comes later changes nothing"


def test_when_it_is_closed_nothing_is_told() -> None:
    world = World(["a"])
    world.step.close()
    world.answer("a", state("a"))
    assert world.surveys == []
