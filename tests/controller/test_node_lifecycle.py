"""Does a node's life with the controller go as it should, whatever the controllers answer?"""

from typing import Any

import pytest

from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import EpochRecord, encode_metadata_record
from bradbury.controller.controller_calls import (
    ControlledShutdown,
    MetadataUpdate,
    PollMetadata,
    RegisterBroker,
    Registered,
)
from bradbury.controller.controller_effects import (
    ApplyMetadata,
    AskController,
    Fenced,
    Instant,
    StoreIdentity,
)
from bradbury.controller.node.node_lifecycle import (
    HEARTBEATS_PER_SESSION,
    LEAVE_MS,
    RETRY_MS,
    BrokerIncarnation,
    NodeLifecycle,
)
from bradbury.protocol.errors import (
    BrokerIdNotRegistered,
    ConnectionFailed,
    InconsistentClusterId,
    NotController,
    StaleBrokerEpoch,
)
from bradbury.steps.replies import Refuse, Reply

SESSION_MS = 9_000
REGISTRATION = NodeRegistration(
    directory_id="directory",
    incarnation="life-1",
    roles=("broker",),
    host="host",
    port=9092,
    rack=None,
)


class World:
    """The step, its clock, and the effects it has asked for and was not given an answer to."""

    def __init__(self) -> None:
        self.effects: list[Any] = []
        self.now = Instant(0, 0)
        self.step = NodeLifecycle(BrokerIncarnation("life-1", SESSION_MS), self.effects)

    def take(self, kind: type[Any]) -> Any:
        """The oldest effect, which is of this kind."""
        effect = self.effects.pop(0)
        assert isinstance(effect, kind), effect
        return effect

    def done(self, effect: Any, result: Any) -> None:
        self.step.on_done(effect, result, self.now)

    def tick(self) -> None:
        """The clock goes to the next deadline."""
        deadline = self.step.next_deadline_ms
        assert deadline is not None
        self.now = Instant(max(deadline, self.now.now_ms), 0)
        self.step.on_tick(self.now)

    def follow(self) -> None:
        """Registered as node 4 in controller epoch 2, and the first news are asked for."""
        self.step.register("registering", REGISTRATION)
        self.done(self.take(AskController), Registered(4, "cluster", 2))
        self.done(self.take(StoreIdentity), None)
        assert self.take(Reply) == Reply("registering")
        self.step.follow("following")


def update(offset: int, epoch: int = 2) -> MetadataUpdate:
    record = EpochRecord(epoch=epoch, owner="controller")
    return MetadataUpdate(epoch, offset, False, [encode_metadata_record(record)])


def test_a_node_is_registered_when_its_identity_is_on_the_disk() -> None:
    world = World()
    world.step.register("ticket", REGISTRATION)
    asked = world.take(AskController)
    assert asked.call == RegisterBroker(REGISTRATION)
    world.done(asked, Registered(4, "cluster", 2))
    stored = world.take(StoreIdentity)
    assert stored.registered.node_id == 4
    assert world.effects == []
    world.done(stored, None)
    assert world.effects == [Reply("ticket")]


@pytest.mark.parametrize("error", [NotController("a former one"), ConnectionFailed("nobody")])
def test_it_asks_until_a_controller_answers(error: Exception) -> None:
    world = World()
    world.step.register("ticket", REGISTRATION)
    world.done(world.take(AskController), error)
    assert world.effects == []
    world.tick()
    assert world.now.now_ms == RETRY_MS
    assert world.take(AskController).call == RegisterBroker(REGISTRATION)
    assert world.step.next_deadline_ms is None, "one question at a time"


def test_what_a_controller_refuses_is_told_to_who_registers() -> None:
    world = World()
    world.step.register("ticket", REGISTRATION)
    error = InconsistentClusterId("another cluster's directory")
    world.done(world.take(AskController), error)
    assert world.effects == [Refuse("ticket", error)]


def test_an_identity_that_cannot_be_stored_ends_the_registration() -> None:
    world = World()
    world.step.register("ticket", REGISTRATION)
    world.done(world.take(AskController), Registered(4, "cluster", 2))
    failure = OSError("disk full")
    world.done(world.take(StoreIdentity), failure)
    assert world.effects == [Refuse("ticket", failure)]


def test_following_is_answered_with_the_first_news_that_are_applied_and_goes_on() -> None:
    world = World()
    world.follow()
    asked = world.take(AskController)
    assert asked.call == PollMetadata(4, "life-1", 0)
    world.done(asked, update(7))
    applying = world.take(ApplyMetadata)
    assert applying.image.offset == 7
    assert world.effects == []
    world.done(applying, None)
    assert world.take(Reply) == Reply("following")
    assert world.take(AskController).call == PollMetadata(4, "life-1", 7)
    assert world.step.next_deadline_ms is None


def test_following_is_answered_when_there_is_nothing_to_apply() -> None:
    world = World()
    world.follow()
    world.done(world.take(AskController), MetadataUpdate(2, 0, False, []))
    assert world.take(Reply) == Reply("following")
    assert world.take(AskController).call == PollMetadata(4, "life-1", 0)


def test_while_news_are_applied_the_node_is_heard_of() -> None:
    world = World()
    world.follow()
    world.done(world.take(AskController), update(7))
    applying = world.take(ApplyMetadata)
    for number in (1, 2):
        world.tick()
        assert world.now.now_ms == number * SESSION_MS // HEARTBEATS_PER_SESSION
        heartbeat = world.take(AskController)
        assert heartbeat.call == PollMetadata(4, "life-1", 0)
        world.done(heartbeat, update(8))
        assert world.effects == [], "news of a heartbeat are asked for again"
    world.done(applying, None)
    assert world.step.next_deadline_ms is None


def test_a_former_controller_that_does_not_know_it_is_not_listened_to() -> None:
    world = World()
    world.follow()
    world.done(world.take(AskController), update(7, epoch=1))
    assert world.effects == []
    world.tick()
    assert world.take(AskController).call == PollMetadata(4, "life-1", 0)


def test_news_that_stand_for_all_begin_from_nothing() -> None:
    world = World()
    world.follow()
    world.done(world.take(AskController), update(7))
    world.done(world.take(ApplyMetadata), None)
    world.take(Reply)
    whole = MetadataUpdate(3, 20, True, update(20, epoch=3).records)
    world.done(world.take(AskController), whole)
    image = world.take(ApplyMetadata).image
    assert image == MetadataImage().apply([EpochRecord(epoch=3, owner="controller")], offset=20)


def test_a_newer_life_of_the_node_ends_this_one() -> None:
    world = World()
    world.follow()
    world.done(world.take(AskController), MetadataUpdate(2, 0, False, []))
    world.take(Reply)
    world.done(world.take(AskController), StaleBrokerEpoch("registered again"))
    assert isinstance(world.take(Fenced), Fenced)
    assert world.step.next_deadline_ms is None
    assert world.effects == []


def test_news_that_cannot_be_applied_are_asked_for_again() -> None:
    world = World()
    world.follow()
    world.done(world.take(AskController), MetadataUpdate(2, 0, False, []))
    world.take(Reply)
    world.done(world.take(AskController), update(7))
    world.done(world.take(ApplyMetadata), OSError("no directory is left"))
    assert world.effects == []
    world.tick()
    assert world.take(AskController).call == PollMetadata(4, "life-1", 0)


def test_what_comes_after_the_stop_changes_nothing() -> None:
    world = World()
    world.follow()
    asked = world.take(AskController)
    world.step.stop()
    world.done(asked, update(7))
    assert world.effects == []
    assert world.step.next_deadline_ms is None


def leaving_world() -> World:
    """It follows the metadata, and has been told to leave."""
    world = World()
    world.follow()
    world.done(world.take(AskController), update(1))
    world.done(world.take(ApplyMetadata), None)
    assert world.take(Reply) == Reply("following")
    world.take(AskController)  # its next question, which is parked
    world.step.leave("leaving", world.now)
    return world


@pytest.mark.parametrize(
    ("answer", "is_heard"),
    [
        (None, True),
        (BrokerIdNotRegistered("it was out of service"), True),
        (NotController("a former one"), False),
        (ConnectionFailed("nobody"), False),
        (TimeoutError(), False),
    ],
)
def test_it_has_left_when_a_controller_has_answered(answer: object, is_heard: bool) -> None:
    world = leaving_world()
    asked = world.take(AskController)
    assert asked.call == ControlledShutdown(4, "life-1")
    world.done(asked, answer)
    assert world.effects == [Reply("leaving", is_heard)]
    assert world.step.next_deadline_ms is None, "it asks for nothing more"


def test_it_waits_a_while_for_the_controller_and_can_be_told_again() -> None:
    world = leaving_world()
    late = world.take(AskController)
    world.tick()
    assert world.now.now_ms >= LEAVE_MS
    assert world.take(Reply) == Reply("leaving", False)
    world.step.leave("again", world.now)
    world.done(world.take(AskController), None)
    assert world.take(Reply) == Reply("again", True)
    world.done(late, None)
    assert world.effects == []


def test_nobody_who_waits_until_it_has_left_is_forgotten_when_it_stops() -> None:
    world = leaving_world()
    world.take(AskController)
    world.step.stop()
    assert world.effects == [Reply("leaving", False)]


def test_before_it_follows_the_metadata_it_has_nothing_to_hand_over() -> None:
    world = World()
    world.step.leave("leaving", world.now)
    assert world.effects == [Reply("leaving", True)]
