"""Are there producer ids when they are wanted, and none twice?"""

from typing import Any

from bradbury.controller.controller_effects import AskController, Instant
from bradbury.controller.node.producer_id_manager import LOW, ProducerIdManager
from bradbury.protocol.errors import NotController
from bradbury.steps.replies import Refuse, Reply

BLOCK = 1000
NOW = Instant(0, 0)


class Blocks:
    """A controller that answers when it is told to."""

    def __init__(self) -> None:
        self.effects: list[Any] = []
        self.manager = ProducerIdManager(self.effects)
        self.first = 0

    @property
    def asked(self) -> list[AskController]:
        return [each for each in self.effects if isinstance(each, AskController)]

    @property
    def ended(self) -> list[Reply | Refuse]:
        return [each for each in self.effects if isinstance(each, Reply | Refuse)]

    def give(self) -> None:
        (asked,) = self.asked
        self.effects.remove(asked)
        self.manager.on_done(asked, (self.first, BLOCK), NOW)
        self.first += BLOCK

    def fail(self) -> None:
        (asked,) = self.asked
        self.effects.remove(asked)
        self.manager.on_done(asked, NotController("it has moved"), NOW)


def test_the_first_one_is_not_there_yet_and_the_next_is() -> None:
    world = Blocks()
    assert world.manager.take() is None
    world.give()
    assert world.manager.take() == 0


def test_the_next_block_is_there_before_the_former_is_used_up() -> None:
    world = Blocks()
    world.manager.fill()
    world.give()
    taken = [world.manager.take() for _ in range(BLOCK - LOW)]
    assert len(world.asked) == 1
    taken += [world.manager.take() for _ in range(LOW - 1)]
    world.give()
    taken += [world.manager.take() for _ in range(2)]
    assert taken == list(range(BLOCK + 1)), "a gap, or one twice, or one was not there"


def test_while_a_block_is_on_its_way_none_is_asked_for() -> None:
    world = Blocks()
    for _ in range(3):
        world.manager.take()
    assert len(world.asked) == 1


def test_who_waits_is_answered_in_order_and_before_who_comes_later() -> None:
    world = Blocks()
    world.manager.take_or_wait("first")
    world.manager.take_or_wait("second")
    assert world.manager.take() is None
    world.give()
    assert world.ended == [Reply("first", 0), Reply("second", 1)]


def test_who_waits_is_refused_with_what_the_controller_said_and_the_next_asks_again() -> None:
    world = Blocks()
    world.manager.take_or_wait("first")
    world.fail()
    (refused,) = world.ended
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, NotController)
    assert not world.asked
    world.manager.take()
    world.give()
    assert world.manager.take() == 0


def test_more_may_wait_than_a_block_has_ids() -> None:
    world = Blocks()
    for ticket in range(BLOCK + 1):
        world.manager.take_or_wait(ticket)
    world.give()
    world.give()
    assert [each.ticket for each in world.ended] == list(range(BLOCK + 1))
