"""Which controller does a node believe, whom does it ask next, and when does it give up?

The step alone: the test says what is answered, what fails, and what time it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bradbury.cluster.control.topic_control import CreateTopics
from bradbury.cluster.metadata.metadata_image import MetadataImage, NodeImage
from bradbury.cluster.quorum.candidacy import INACTIVE_MS, UNREACHABLE_MS
from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.controller_calls import (
    Change,
    ControlledShutdown,
    DescribeQuorum,
    MetadataUpdate,
    PollMetadata,
)
from bradbury.controller.controller_effects import AskActor, AskForVote, FindActor, StopAsking
from bradbury.controller.node.controller_finder import (
    CONTROLLER,
    LOOK_MS,
    ControllerFinder,
    ControllerTimes,
)
from bradbury.protocol.errors import ConnectionFailed, NotController, StaleBrokerEpoch
from bradbury.steps.replies import Refuse, Reply

TIMES = ControllerTimes(retry_ms=10, find_ms=100, silence_ms=1_200, least_wait_ms=300)
POLL = PollMetadata(1, "i", 0)
SHUTDOWN = ControlledShutdown(1, "i")
QUESTION = DescribeQuorum()
CHANGE: Any = Change(CreateTopics(topics=()), timeout_ms=0)
GONE = ConnectionFailed("gone")
VOTERS = ("a", "b", "c")


def image(*names: str) -> MetadataImage:
    """Each name is a broker with a voter."""
    node = NodeImage(1, "d", "life", ("broker",), "h", 1, None, 5)
    nodes = {
        number: replace(
            node, node_id=number, name=f"broker/{name}/data", metadata_directory_id=f"d-{name}"
        )
        for number, name in enumerate(names, 1)
    }
    return MetadataImage(nodes=nodes, voters=tuple(f"d-{name}" for name in names))


def update(epoch: int) -> MetadataUpdate:
    return MetadataUpdate(epoch, 10, whole=False, records=[])


class World:
    """A node with its finder. `asked`: what it asks, by number, of whom."""

    def __init__(self, *voters: str) -> None:
        self.effects: list[Any] = []
        self.finder = ControllerFinder(self.effects, lambda: image(*voters), TIMES)
        self.now_ms = 1_000
        self.asked: dict[int, Any] = {}
        self.ended: dict[str, Any] = {}

    def carry_out(self) -> None:
        while self.effects:
            match self.effects.pop(0):
                case Reply(ticket, result) | Refuse(ticket, result):
                    assert ticket not in self.ended, "ended twice"
                    self.ended[ticket] = result
                case StopAsking(number):
                    del self.asked[number]
                case effect:
                    self.asked[effect.number] = effect

    def ask(self, ticket: str, call: Any = POLL) -> None:
        self.finder.ask(ticket, call, self.now_ms)
        self.carry_out()

    def answer(self, kind: type, result: Any, name: str | None = None) -> Any:
        """Answer the first that is asked of this kind, and by this name. Returns the effect."""
        effect = next(
            each
            for each in self.asked.values()
            if isinstance(each, kind) and name in (None, getattr(each, "name", name))
        )
        del self.asked[effect.number]
        self.finder.on_answer(effect.number, result, self.now_ms)
        self.carry_out()
        return effect

    def vote(self, name: str, epoch: int, owner: str) -> None:
        vote = Candidate(epoch=epoch, owner=f"{owner} random")
        self.answer(AskForVote, vote, f"broker/{name}")

    def wait(self, time_ms: int) -> None:
        """Let time go by, with a tick whenever one is due."""
        until_ms = self.now_ms + time_ms
        while (due_ms := self.finder.next_deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.finder.on_tick(self.now_ms)
            self.carry_out()
        self.now_ms = until_ms

    def reach(self, epoch: int = 3) -> None:
        """A controller of this epoch answers a poll."""
        self.ask("first")
        assert self.answer(FindActor, "first controller").name == CONTROLLER
        self.answer(AskActor, update(epoch))
        while any(isinstance(each, AskForVote) for each in self.asked.values()):
            self.answer(AskForVote, Candidate(epoch=epoch, owner=f"{CONTROLLER} random"))
        assert self.ended.pop("first") == update(epoch)

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.asked.values() if not isinstance(each, AskActor)]

    @property
    def calls(self) -> list[tuple[Any, Any]]:
        return [
            (each.actor, each.call) for each in self.asked.values() if isinstance(each, AskActor)
        ]

    @property
    def is_due(self) -> bool:
        """Whether the node stands for controller, before long."""
        return self.finder.candidacy.is_due(now_ms=self.now_ms + INACTIVE_MS, voters_before=0)

    def is_idle(self) -> bool:
        return not self.asked and self.finder.next_deadline_ms is None


# --- whom it asks --------------------------------------------------------------------------------


def test_at_first_the_actor_of_the_controllers_name_is_asked_and_no_voter() -> None:
    world = World(*VOTERS)
    world.ask("poll")
    world.ask("question", QUESTION)
    assert world.names == [CONTROLLER], "looked up once"
    world.answer(FindActor, "handle")
    assert world.calls == [("handle", POLL), ("handle", QUESTION)]
    world.ask("another", QUESTION)
    assert world.names == []


def test_where_there_is_no_such_actor_yet_it_is_looked_up_again_and_no_voter_asked() -> None:
    world = World(*VOTERS)
    world.ask("poll")
    world.ask("question", QUESTION)
    world.answer(FindActor, GONE)
    assert world.ended == {"poll": GONE}
    world.wait(TIMES.retry_ms)
    assert world.names == [CONTROLLER]
    world.answer(FindActor, "handle")
    world.answer(AskActor, "state")
    assert world.ended["question"] == "state"
    assert world.is_idle()


def test_the_first_answer_has_the_voters_asked_and_later_polls_say_their_epoch() -> None:
    world = World(*VOTERS)
    world.ask("poll")
    world.answer(FindActor, "handle")
    world.answer(AskActor, update(3))
    assert world.names == ["broker/a", "broker/b", "broker/c"]
    world.vote("a", 4, "controller")
    assert world.ended == {}
    world.answer(AskForVote, GONE, "broker/b")
    world.vote("c", 3, "controller")
    assert world.ended == {"poll": update(3)}
    world.ask("next")
    assert world.calls == [("handle", replace(POLL, newest_epoch=4))]


def test_a_majoritys_newest_vote_names_the_next_controller() -> None:
    world = World(*VOTERS)
    world.reach(epoch=3)
    world.ask("question", QUESTION)
    world.answer(AskActor, GONE)
    world.wait(TIMES.retry_ms)
    assert world.names == ["broker/a", "broker/b", "broker/c"]
    world.vote("a", 3, "controller")
    world.vote("c", 5, "broker/b")
    assert world.names == ["broker/b"], "the third vote is not waited for"
    assert isinstance(world.asked.copy().popitem()[1], FindActor)
    world.answer(FindActor, "standby")
    assert world.calls == [("standby", QUESTION)]
    world.answer(AskActor, "state")
    assert world.ended == {"question": "state"}


def test_one_vote_of_three_is_no_majority_but_counts_when_the_time_is_over() -> None:
    world = World(*VOTERS)
    world.reach(epoch=3)
    world.finder.find_again(world.now_ms)
    world.ask("question", QUESTION)
    world.vote("a", 5, "broker/b")
    world.wait(TIMES.find_ms - 1)
    assert world.names == ["broker/b", "broker/c"]
    assert all(isinstance(each, AskForVote) for each in world.asked.values())
    world.wait(1)
    assert [type(each) for each in world.asked.values()] == [FindActor]
    assert world.names == ["broker/b"]


def test_a_tick_before_the_voters_time_is_over_ends_nothing() -> None:
    world = World(*VOTERS)
    world.reach(epoch=3)
    world.finder.find_again(world.now_ms)
    world.ask("question", QUESTION)
    world.vote("a", 5, "broker/b")
    world.finder.on_tick(world.now_ms + TIMES.find_ms - 1)
    world.carry_out()
    assert world.names == ["broker/b", "broker/c"]
    world.finder.on_tick(world.now_ms + TIMES.find_ms)
    world.carry_out()
    assert [type(each) for each in world.asked.values()] == [FindActor]


def test_voters_who_all_answer_are_enough_however_few_votes_there_are() -> None:
    world = World(*VOTERS)
    world.reach(epoch=3)
    world.finder.find_again(world.now_ms)
    world.ask("question", QUESTION)
    world.vote("a", 5, "broker/b")
    world.answer(AskForVote, GONE, "broker/b")
    world.answer(AskForVote, GONE, "broker/c")
    assert [type(each) for each in world.asked.values()] == [FindActor]


def test_while_there_is_no_newer_vote_the_voters_are_asked_again_for_a_while() -> None:
    world = World("a")
    world.reach(epoch=3)
    world.finder.find_again(world.now_ms)
    world.ask("question", QUESTION)
    rounds = 0
    began_ms = world.now_ms
    while world.names == ["broker/a"]:
        world.vote("a", 3, "controller")
        rounds += 1
        if world.names == []:
            world.wait(TIMES.retry_ms)
    assert world.names == [CONTROLLER], "the lost one: it may be back under its name"
    assert began_ms + TIMES.find_ms < world.now_ms <= began_ms + TIMES.find_ms + TIMES.retry_ms
    assert rounds == TIMES.find_ms // TIMES.retry_ms + 2


def test_without_voters_the_actor_of_the_name_is_asked_again_in_the_end() -> None:
    world = World()
    world.reach()
    world.finder.find_again(world.now_ms)
    world.ask("question", QUESTION)
    world.wait(TIMES.find_ms + 2 * TIMES.retry_ms)
    assert world.names == [CONTROLLER]


def test_who_asks_meanwhile_joins_the_search() -> None:
    world = World("a")
    world.reach(epoch=3)
    world.finder.find_again(world.now_ms)
    world.ask("one", QUESTION)
    world.ask("two", SHUTDOWN)
    assert world.names == ["broker/a"]
    world.vote("a", 4, "controller")
    world.answer(FindActor, "next")
    assert world.calls == [("next", QUESTION), ("next", SHUTDOWN)]


# --- whom it believes ----------------------------------------------------------------------------


def test_a_deposed_controller_that_does_not_know_it_is_not_believed() -> None:
    world = World()
    world.reach(epoch=3)
    world.ask("poll")
    world.answer(AskActor, update(2))
    assert isinstance(world.ended["poll"], NotController)
    assert world.is_due
    dead_ms = world.now_ms + UNREACHABLE_MS
    assert not world.finder.candidacy.is_due(now_ms=dead_ms, voters_before=0), "it is reachable"
    world.ask("again")
    assert world.calls == [], "it is looked for anew"
    world.wait(TIMES.find_ms + 2 * TIMES.retry_ms)
    world.answer(FindActor, "next")
    world.answer(AskActor, update(3))
    assert world.ended["again"] == update(3)
    assert not world.is_due


def test_a_controller_that_is_gone_is_not_believed_until_another_answers() -> None:
    world = World()
    world.reach(epoch=3)
    world.ask("poll")
    world.answer(AskActor, GONE)
    assert world.ended["poll"] is GONE
    assert world.is_due
    dead_ms = world.now_ms + UNREACHABLE_MS
    assert world.finder.candidacy.is_due(now_ms=dead_ms, voters_before=0)
    world.ask("again")
    world.wait(TIMES.find_ms + 2 * TIMES.retry_ms)
    world.answer(FindActor, "next")
    world.answer(AskActor, update(4))
    assert not world.is_due


def test_what_was_asked_of_a_controller_that_is_given_up_ends_or_is_asked_of_the_next() -> None:
    world = World("a")
    world.reach(epoch=3)
    world.ask("poll")
    world.ask("shutdown", SHUTDOWN)
    world.ask("question", QUESTION)
    world.answer(AskActor, NotController("no more"))
    assert isinstance(world.ended["poll"], NotController)
    assert isinstance(world.ended["shutdown"], ConnectionFailed)
    assert world.asked == {}
    world.wait(TIMES.retry_ms)
    world.vote("a", 4, "broker/a")
    world.answer(FindActor, "next")
    assert world.calls == [("next", QUESTION)]


def test_a_late_failure_of_a_former_controller_does_not_give_up_the_present_one() -> None:
    world = World("a")
    world.reach(epoch=3)
    world.ask("late", QUESTION)
    [number] = world.asked
    world.finder.find_again(world.now_ms)
    world.carry_out()
    world.wait(TIMES.retry_ms)
    world.vote("a", 4, "broker/a")
    world.answer(FindActor, "next")
    world.finder.on_answer(number, GONE, world.now_ms)
    world.carry_out()
    assert world.calls == [("next", QUESTION)]
    assert world.ended == {}


def test_what_the_controller_refuses_is_said_to_who_has_asked_and_it_stays() -> None:
    world = World()
    world.reach()
    for ticket, call in (("poll", POLL), ("question", QUESTION), ("shutdown", SHUTDOWN)):
        world.ask(ticket, call)
        world.answer(AskActor, StaleBrokerEpoch("another life"))
        assert isinstance(world.ended[ticket], StaleBrokerEpoch)
    world.ask("next")
    assert world.calls == [("first controller", POLL)]
    assert not world.is_due


# --- how long it waits ---------------------------------------------------------------------------


def test_a_controller_that_is_silent_is_given_up() -> None:
    world = World()
    world.reach()
    world.ask("poll")
    world.ask("question", QUESTION)
    world.wait(TIMES.silence_ms - 1)
    assert world.ended == {}
    world.wait(1)
    with pytest.raises(ConnectionFailed, match="does not answer"):
        raise world.ended["poll"]
    assert world.is_due
    assert world.calls == [], "nor does the question wait for it any longer"


def test_time_for_which_the_process_stood_still_does_not_count() -> None:
    world = World()
    world.reach()
    world.ask("poll")
    world.now_ms += 100 * TIMES.silence_ms
    world.finder.on_tick(world.now_ms)
    world.carry_out()
    assert world.ended == {}
    world.wait(TIMES.silence_ms - LOOK_MS - 1)
    assert world.ended == {}
    world.wait(1)
    assert isinstance(world.ended["poll"], ConnectionFailed)


def test_a_call_is_sent_again_until_its_time_is_over() -> None:
    world = World()
    world.ask("question", QUESTION)
    began_ms = world.now_ms
    while "question" not in world.ended:
        world.answer(FindActor, GONE)
        if "question" not in world.ended:
            world.wait(TIMES.retry_ms)
    with pytest.raises(NotController, match="no controller to ask: gone; try again"):
        raise world.ended["question"]
    assert world.now_ms == began_ms + TIMES.least_wait_ms + TIMES.retry_ms
    assert world.is_idle()


def test_a_call_with_a_longer_timeout_is_sent_for_so_long() -> None:
    world = World()
    world.ask("change", replace(CHANGE, timeout_ms=1_000))
    world.now_ms += 1_000
    world.answer(FindActor, GONE)
    assert world.ended == {}
    world.wait(TIMES.retry_ms)
    world.answer(FindActor, GONE)
    assert isinstance(world.ended["change"], NotController)


def test_a_change_is_marked_as_repeated_only_if_an_answer_may_be_lost() -> None:
    world = World()
    world.reach()
    world.ask("change", CHANGE)
    marks = []
    for failure in (NotController("not yet"), GONE, NotController("not yet")):
        marks.append(world.calls[0][1].request.is_repeated)
        world.answer(AskActor, failure)
        world.wait(TIMES.find_ms + 4 * TIMES.retry_ms)
        world.answer(FindActor, "next")
    marks.append(world.calls[0][1].request.is_repeated)
    assert marks == [False, False, True, True]


# --- what is not needed --------------------------------------------------------------------------


def test_nothing_is_asked_and_no_time_awaited_for_calls_that_are_forgotten() -> None:
    world = World("a")
    world.ask("a look-up")
    world.finder.forget("a look-up")
    world.carry_out()
    assert world.is_idle()
    world.reach(epoch=3)
    world.ask("a call", QUESTION)
    world.finder.forget("a call")
    world.carry_out()
    assert world.is_idle()
    world.finder.find_again(world.now_ms)
    world.ask("a survey", QUESTION)
    assert world.names == ["broker/a"]
    world.finder.forget("a survey")
    world.carry_out()
    assert world.is_idle()
    world.ask("a pause", QUESTION)
    world.vote("a", 3, "controller")
    world.finder.forget("a pause")
    world.carry_out()
    assert world.is_idle()
    assert world.ended == {}


def test_a_poll_that_waits_for_the_first_votes_may_be_forgotten() -> None:
    world = World("a")
    world.ask("poll")
    world.answer(FindActor, "handle")
    world.answer(AskActor, update(3))
    assert world.names == ["broker/a"]
    world.finder.forget("poll")
    world.carry_out()
    assert world.is_idle()


def test_a_forgotten_call_leaves_the_search_to_the_others() -> None:
    world = World("a")
    world.reach(epoch=3)
    world.finder.find_again(world.now_ms)
    world.ask("one", QUESTION)
    world.ask("two", QUESTION)
    world.finder.forget("one")
    world.carry_out()
    world.vote("a", 4, "controller")
    world.answer(FindActor, "next")
    assert len(world.calls) == 1
