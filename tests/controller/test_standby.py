"""Does a broker start a standby for a controller that does not answer, and end it for the next one?"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.controller_handle import ControllerHandle
from bradbury.actors.controller.standby import Standby
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.quorum.candidacy import Candidacy
from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.candidate_state import Superseded
from bradbury.controller.controller_calls import PollMetadata, RegisterBroker
from bradbury.controller.controller_effects import EndStandby, Instant, StartStandby
from bradbury.controller.node.controller_finder import LOOK_MS, ControllerTimes
from bradbury.controller.standby_controller import StandbyController, StandbyTimes, StandbyView
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.errors import ConnectionFailed, NotController
from bradbury.storage.disk.file_system import OsFileSystem

NOW = 1_700_000_000_000
TIMES = StandbyTimes()
ALONE = StandbyView(
    vote=(vote := Candidate(epoch=3, owner="broker/a")),
    directory_id="a",
    image=MetadataImage(voters=("a",)),
    me=vote,
    is_active=False,
)
"""The only voter, without a controller that is active."""


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


def test_it_looks_as_often_as_it_is_told() -> None:
    for times, look_ms in ((None, StandbyTimes().look_ms), (StandbyTimes(look_ms=7), 7)):
        step = StandbyController(Candidacy(), [], times)
        step.on_tick(None, Instant(1_000, 0))
        assert step.next_deadline_ms == 1_000 + look_ms


@pytest.mark.parametrize(
    ("failure", "level"),
    [(TimeoutError("no majority"), logging.INFO), (ValueError("a defect"), logging.ERROR)],
)
def test_a_standby_that_is_not_needed_any_more_is_no_error(
    failure: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    effects: list[Any] = []
    step = due_step(effects)
    (start,) = effects
    with caplog.at_level(logging.INFO):
        step.on_done(start, failure, Instant(1_000, 0))
    (line,) = [each for each in caplog.records if "starting" not in each.message]
    assert (line.levelno, line.exc_info is not None) == (level, level == logging.ERROR)
    assert step.next_deadline_ms == 1_000 + TIMES.again_ms
    assert effects == [start, EndStandby(f"it did not become active: {failure}")]


def due_step(effects: list[Any], *, now_ms: int = 0) -> StandbyController:
    """The step of the only voter, which has begun to start its standby at `now_ms`."""
    candidacy = Candidacy()
    candidacy.on_poll_failed(now_ms=now_ms - 60_000, is_reachable=False)
    step = StandbyController(candidacy, effects, TIMES)
    step.on_tick(ALONE, Instant(now_ms, 0))
    return step


def test_a_start_that_takes_too_long_is_given_up_and_its_late_result_is_ignored() -> None:
    effects: list[Any] = []
    step = due_step(effects)
    step.on_tick(ALONE, Instant(TIMES.start_ms - 1, 0))
    (first,) = effects
    assert isinstance(first, StartStandby)

    given_up_ms = TIMES.start_ms + TIMES.look_ms
    step.on_tick(None, Instant(given_up_ms, 0))
    assert isinstance(effects[-1], EndStandby)
    assert step.next_deadline_ms == given_up_ms + TIMES.again_ms

    step.on_done(first, ALONE.image, Instant(given_up_ms + 1, 0))
    step.on_tick(ALONE, Instant(given_up_ms + TIMES.again_ms, 0))
    second = effects[-1]
    assert isinstance(second, StartStandby)
    step.on_done(first, Superseded("ended"), Instant(given_up_ms + TIMES.again_ms, 0))
    assert effects[-1] is second

    step.on_done(second, ALONE.image, Instant(given_up_ms + TIMES.again_ms + 1, 0))
    much_later = Instant(given_up_ms + 9 * TIMES.start_ms, 0)
    step.on_tick(ALONE._replace(is_active=True), much_later)
    assert effects[-1] is second
    step.on_tick(ALONE, Instant(much_later.now_ms + TIMES.look_ms, 0))
    assert isinstance(effects[-1], EndStandby)


class Broker:
    """A voter, a port that is open while it lives, and its standby."""

    def __init__(self, cluster: Cluster, path: Path, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.voter = VoterHost(f"broker/{name}", str(path / name), OsFileSystem(), now_ms=lambda: 0)
        self.voter.open()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.candidacy = Candidacy()
        self.standby = Standby(
            self._make,
            voter=lambda: self.voter,
            image=lambda: cluster.controllers[0].image,
            candidacy=self.candidacy,
            times=StandbyTimes(look_ms=10, again_ms=100, start_ms=cluster.start_ms),
        )

    def _make(self, on_superseded: Any) -> Controller:
        return self.cluster.controller(f"broker/{self.name}", on_superseded)

    def registration(self) -> NodeRegistration:
        return NodeRegistration(
            directory_id=self.name,
            incarnation="i",
            roles=("broker", "partition"),
            host="127.0.0.1",
            port=self.listening.getsockname()[1],
            rack=None,
            machine=self.name,
            name=f"broker/{self.name}/metadata",
            metadata_directory_id=self.voter.directory.identity.directory_id,
        )

    def does_not_hear(self) -> None:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        self.candidacy.on_poll_failed(now_ms=now_ms, is_reachable=False)

    @property
    def stands_in(self) -> Controller | None:
        try:
            return self.standby.controller()
        except NotController:
            return None


class Cluster:
    """Three brokers, whose first controller is another process's."""

    def __init__(self, path: Path, *, start_ms: int = TIMES.start_ms) -> None:
        self.start_ms = start_ms
        self.controllers: list[Controller] = []
        self.brokers = [Broker(self, path, name) for name in "abc"]

    def controller(self, name: str, on_superseded: Any = lambda: None) -> Controller:
        made = Controller(
            lambda: [each.voter for each in self.brokers],
            ServerConfig(),
            now_ms=lambda: NOW,
            on_superseded=on_superseded,
            name=name,
        )
        self.controllers.append(made)
        return made

    async def start(self) -> Controller:
        first = self.controller("controller")
        await first.start()
        for each in self.brokers:
            await first.ask(RegisterBroker(each.registration()))
        for each in self.brokers:
            each.standby.start()
        return first

    async def close(self) -> None:
        for each in self.brokers:
            await each.standby.close()
        for controller in self.controllers:
            await controller.close()
        for each in self.brokers:
            each.listening.close()
            await each.voter.close()


class Actors:
    """The one controller, as a node finds it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def find(self, name: str) -> Controller:
        del name
        return self._controller

    async def vote_of(self, name: str) -> Candidate:
        raise ConnectionFailed(f"no voter {name}")


def image_of(broker: Broker) -> MetadataImage:
    assert broker.stands_in is not None
    return broker.stands_in.image


async def until(is_so: Any) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


async def create(controller: Controller, name: str) -> None:
    topic = TopicToCreate(name=name, topic_id=uuid4(), partitions=1)
    await controller.change(CreateTopics(topics=(topic,)), timeout_ms=0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bradbury.cluster.quorum.candidacy.UNREACHABLE_MS", 50)
    monkeypatch.setattr("bradbury.cluster.quorum.candidacy.STAGGER_MS", 400)


def test_the_first_that_lives_stands_in_and_knows_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        lost = await cluster.start()
        await create(lost, "before")
        first, second, third = cluster.brokers
        first.listening.close()  # its machine is the controller's
        second.does_not_hear()
        third.does_not_hear()
        await until(lambda: second.stands_in)
        assert second.stands_in is not None
        await until(lambda: next(each.fenced for each in image_of(second).nodes.values()))
        assert [each.fenced for each in image_of(second).nodes.values()] == [True, False, False]
        assert first.stands_in is third.stands_in is None
        assert second.stands_in.me.owner.startswith("broker/b ")
        await create(second.stands_in, "after")
        assert set(second.stands_in.image.topics) == {"before", "after"}
        with pytest.raises(NotController):
            await create(lost, "too-late")
        await cluster.close()

    run(scenario())


def test_a_standby_further_back_waits_for_those_before_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start()
        first, _, third = cluster.brokers
        for each in cluster.brokers:
            each.does_not_hear()
        await until(lambda: first.stands_in)
        for each in cluster.brokers:
            each.candidacy.on_poll_answered()
        assert third.stands_in is None
        assert len(cluster.controllers) == 2
        await cluster.close()

    run(scenario())


def test_it_steps_down_for_the_controller_that_ray_starts_and_wakes_those_who_ask(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start()
        first = cluster.brokers[0]
        first.does_not_hear()
        await until(lambda: first.stands_in)
        standing = first.stands_in
        assert standing is not None
        first.candidacy.on_poll_answered()
        parked = asyncio.create_task(standing.ask(PollMetadata(1, "i", standing.image.offset)))
        await asyncio.sleep(0)
        newest = cluster.controller("controller")
        await newest.start()
        with pytest.raises(NotController):
            await parked
        await until(lambda: first.stands_in is None)
        await create(newest, "t")
        await cluster.close()

    run(scenario())


def test_a_node_that_stood_still_itself_does_not_take_the_controller_for_silent(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        node = cluster.brokers[0]
        times = ControllerTimes(silence_ms=2 * LOOK_MS)
        handle = ControllerHandle(Actors(controller), times=times)
        poll = PollMetadata(1, "i", controller.image.offset)
        answer = asyncio.create_task(handle.ask(poll))
        await asyncio.sleep(0.1)
        time.sleep(2 * LOOK_MS / 1000)  # noqa: ASYNC251 -- as by SIGSTOP: the clock goes on meanwhile
        await asyncio.sleep(0)
        await create(controller, "news")
        update = await answer
        assert update.controller_epoch == controller.me.epoch
        assert not handle.candidacy.is_due(now_ms=2**62, voters_before=0)
        assert node.stands_in is None
        with pytest.raises(ConnectionFailed, match="does not answer"):
            await handle.ask(PollMetadata(1, "i", controller.image.offset))
        assert handle.candidacy.is_due(now_ms=2**62, voters_before=0)
        await cluster.close()

    run(scenario())


def test_a_standby_without_a_majority_is_given_up_and_started_again_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bradbury.cluster.quorum.candidacy.INACTIVE_MS", 400)

    async def scenario() -> None:
        cluster = Cluster(tmp_path, start_ms=200)
        await cluster.start()
        first, second, third = cluster.brokers
        for each in (second, third):
            await each.voter.close()
        first.does_not_hear()
        await until(lambda: len(cluster.controllers) == 2)
        given_up = cluster.controllers[1]
        with caplog.at_level(logging.INFO):
            await until(lambda: "did not become active: no majority in 200 ms" in caplog.text)
        await until(lambda: given_up.waiting_for == "its successor")
        assert first.stands_in is None
        second.voter.open()
        await until(lambda: first.stands_in)
        assert first.stands_in is not given_up
        await create(cluster.controllers[-1], "t")
        await cluster.close()

    run(scenario())


def test_a_node_that_ends_does_not_wait_for_the_start_of_its_standby(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start()
        first, second, third = cluster.brokers
        for each in (second, third):
            await each.voter.close()
        first.does_not_hear()
        await until(lambda: len(cluster.controllers) == 2)
        await until(lambda: cluster.controllers[1].waiting_for != "its successor")
        await first.standby.close()
        assert cluster.controllers[1].waiting_for == "its successor"
        assert first.stands_in is None
        await cluster.close()

    run(scenario())


def test_a_broker_that_does_not_vote_never_stands_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start()
        stranger = Broker(cluster, tmp_path, "x")
        stranger.standby.start()
        cluster.brokers.append(stranger)
        for each in cluster.brokers[:3]:
            each.listening.close()
        stranger.does_not_hear()
        await asyncio.sleep(0.3)
        assert stranger.stands_in is None
        assert len(cluster.controllers) == 1
        await cluster.close()

    run(scenario())
