"""Voters come and go while the metadata changes: who counts from when, and is anything lost?"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.cluster.quorum.voter_change import VoterChange
from bradbury.controller.controller_calls import ChangeVoter, RegisterBroker
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import AppendEntries, DescribeVoter, QuorumRequest
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.errors import ConnectionFailed, NotController, RequestTimedOut
from bradbury.storage.disk.file_system import OsFileSystem

NOW = 1_700_000_000_000
PATIENT = QuorumTimes(commit_ms=30_000, find_ms=10, retry_ms=10)
IMPATIENT = QuorumTimes(commit_ms=2_000, find_ms=10, retry_ms=10)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


class Broker:
    """A voter, or one that may become one, behind a network that can be cut."""

    def __init__(self, path: Path, number: int) -> None:
        """`loses`: appends with these bytes in them do not arrive."""
        self.path = path / str(number)
        self.number = number
        self.name = f"broker/{number}"
        self.is_cut = False
        self.loses: bytes | None = None
        self.voter = self._open()

    def _open(self) -> VoterHost:
        voter = VoterHost(self.name, str(self.path), OsFileSystem(), now_ms=lambda: NOW)
        voter.open()
        return voter

    @property
    def directory_id(self) -> str:
        return self.voter.directory.identity.directory_id

    async def lose_disk(self) -> None:
        await self.voter.close()
        shutil.rmtree(self.path)
        self.voter = self._open()

    async def voters(self) -> tuple[str, ...]:
        return (await self.voter.ask(DescribeVoter())).voters

    async def ask(self, request: QuorumRequest[Any]) -> Any:
        appended = request.batches if isinstance(request, AppendEntries) else b""
        if self.is_cut or (self.loses is not None and self.loses in appended):
            raise ConnectionFailed(f"{self.name} is cut off")
        return await self.voter.ask(request)


class Cluster:
    """Five brokers, the first three of which vote."""

    def __init__(
        self, path: Path, *, snapshot_bytes: int = 3_000, times: QuorumTimes = PATIENT
    ) -> None:
        self.times = times
        self.config = {"metadata.log.max.record.bytes.between.snapshots": str(snapshot_bytes)}
        self.brokers = [Broker(path, number) for number in range(1, 6)]
        self.controllers: list[Controller] = []

    async def start(self, of: Sequence[Broker] | None = None) -> Controller:
        made = Controller(
            lambda: list(of or self.brokers),
            ServerConfig.from_kafka(self.config),
            now_ms=lambda: NOW,
            on_superseded=lambda: None,
            times=self.times,
        )
        self.controllers.append(made)
        await made.start()
        for each in self.brokers:
            await self.register(made, each)
        return made

    async def register(self, controller: Controller, broker: Broker) -> None:
        await controller.ask(
            RegisterBroker(
                NodeRegistration(
                    directory_id=f"data-{broker.number}",
                    incarnation="i",
                    roles=("broker", "partition"),
                    host="127.0.0.1",
                    port=1,
                    rack=None,
                    machine=broker.name,
                    metadata_directory_id=broker.directory_id,
                )
            )
        )

    def ids(self, *numbers: int) -> set[str]:
        return {self.brokers[number - 1].directory_id for number in numbers}

    async def close(self) -> None:
        for controller in self.controllers:
            await controller.close()
        for each in self.brokers:
            await each.voter.close()


async def create(controller: Controller, *names: str) -> None:
    for name in names:
        topic = TopicToCreate(name=name, topic_id=uuid4(), partitions=1)
        await controller.change(CreateTopics(topics=(topic,)), timeout_ms=0)


def add(number: int) -> VoterChange:
    return VoterChange(is_addition=True, node_id=number)


def remove(number: int) -> VoterChange:
    return VoterChange(is_addition=False, node_id=number)


def test_a_new_voter_has_everything_and_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        assert set(controller.image.voters) == cluster.ids(1, 2, 3)
        await create(controller, *(f"t{n}" for n in range(25)))  # a snapshot or two
        voters = await controller.ask(ChangeVoter(add(4), timeout_ms=10_000))
        assert set(voters) == set(controller.image.voters) == cluster.ids(1, 2, 3, 4)
        await controller.ask(ChangeVoter(remove(3), timeout_ms=0))
        assert set(controller.image.voters) == cluster.ids(1, 2, 4)
        cluster.brokers[0].is_cut = True  # the new one is needed now
        await create(controller, "with-the-new-one")
        topics = set(controller.image.topics)
        await controller.close()
        second = await cluster.start(cluster.brokers[1:])
        assert set(second.image.topics) == topics
        assert set(second.image.voters) == cluster.ids(1, 2, 4)
        await cluster.close()

    run(scenario())


def test_a_removed_voter_is_asked_for_nothing_and_its_copy_is_not_believed(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        await create(controller, "before")
        for change in (add(4), remove(1), add(5), remove(2)):
            await controller.ask(ChangeVoter(change, timeout_ms=10_000))
        assert set(controller.image.voters) == cluster.ids(3, 4, 5)
        await create(controller, "after")
        await controller.close()
        former = cluster.brokers[:2]
        late = Controller(
            lambda: former, ServerConfig(), now_ms=lambda: NOW, on_superseded=lambda: None
        )
        starting = asyncio.create_task(late.start())
        while "nodes that hold the metadata" not in (late.waiting_for or ""):
            await asyncio.sleep(0.01)
        starting.cancel()
        second = await cluster.start(cluster.brokers[2:])
        assert {"before", "after"} <= set(second.image.topics)
        await cluster.close()

    run(scenario())


def test_a_replaced_disk_is_added_again_and_the_lost_one_removed_by_its_name(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        await create(controller, "kept")
        broker = cluster.brokers[2]
        lost = broker.directory_id
        await broker.lose_disk()
        await cluster.register(controller, broker)
        await controller.ask(ChangeVoter(add(3), timeout_ms=10_000))
        change = VoterChange(is_addition=False, directory_id=lost)
        await controller.ask(ChangeVoter(change, timeout_ms=0))
        assert set(controller.image.voters) == cluster.ids(1, 2, 3)
        cluster.brokers[0].is_cut = True
        await create(controller, "goes-on")
        await cluster.close()

    run(scenario())


def test_one_that_cannot_be_reached_is_not_added_and_nothing_waits_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        cluster.brokers[3].is_cut = True
        with pytest.raises(RequestTimedOut):
            await controller.ask(ChangeVoter(add(4), timeout_ms=100))
        assert set(controller.image.voters) == cluster.ids(1, 2, 3)
        await create(controller, "t")
        cluster.brokers[3].is_cut = False
        await controller.ask(ChangeVoter(add(4), timeout_ms=10_000))
        assert set(controller.image.voters) == cluster.ids(1, 2, 3, 4)
        await cluster.close()

    run(scenario())


def test_a_change_that_only_a_minority_has_is_undone_by_the_next_controller(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path, snapshot_bytes=1_000_000, times=IMPATIENT)
        first = await cluster.start()
        await first.ask(ChangeVoter(add(4), timeout_ms=10_000))
        old = first.image.voters
        lonely, *others = cluster.brokers
        for each in others:
            each.loses = b"VotersRecord"
        with pytest.raises(NotController):
            await first.ask(ChangeVoter(remove(4), timeout_ms=30_000))
        assert set(await lonely.voters()) == cluster.ids(1, 2, 3)
        for each in others:
            each.loses = None
        lonely.is_cut = True
        second = await cluster.start()
        assert second.image.voters == old
        await create(second, "decided")
        lonely.is_cut = False
        while await lonely.voters() != old:
            await asyncio.sleep(0.01)
        await cluster.close()

    run(scenario())


def test_changes_that_come_at_once_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        await asyncio.gather(
            controller.ask(ChangeVoter(add(4), timeout_ms=10_000)),
            controller.ask(ChangeVoter(add(5), timeout_ms=10_000)),
        )
        assert set(controller.image.voters) == cluster.ids(1, 2, 3, 4, 5)
        await cluster.close()

    run(scenario())
