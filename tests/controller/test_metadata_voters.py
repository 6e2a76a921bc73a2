"""Three copies of the metadata: what goes on when one is lost, and what is found when it is back."""

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
from bradbury.cluster.control.alter_partition import AlterPartition, Insync, ProposedIsr
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.cluster.quorum.voter import Candidate, CommittedEntryLost, LogEnd
from bradbury.controller.controller_calls import RegisterBroker
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import (
    AppendEntries,
    AppendResponse,
    DescribeVoter,
    FetchEntries,
    FormatVoter,
    QuorumRequest,
    VoteRequest,
)
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import ConnectionFailed, FencedLeaderEpoch, NotController
from bradbury.storage.disk.file_system import OsFileSystem

NOW = 1_700_000_000_000
IMPATIENT = QuorumTimes(commit_ms=2_000, find_ms=10, retry_ms=10)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


class Reachable:
    """A voter behind a network that can be cut."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.is_cut = False
        self.voter = VoterHost(name, str(path), OsFileSystem(), now_ms=lambda: NOW)
        self.voter.open()

    async def restart(self) -> None:
        await self.voter.close()
        self.voter = VoterHost(self.name, str(self.path), OsFileSystem(), now_ms=lambda: NOW)
        self.voter.open()

    def log(self) -> bytes:
        """All of its log as it is on the disk."""
        folder = self.path / "metadata" / "__cluster_metadata-0"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

    async def ask(self, request: QuorumRequest[Any]) -> Any:
        if self.is_cut:
            raise ConnectionFailed(f"{self.name} is cut off")
        return await self.voter.ask(request)


class Cluster:
    """Three brokers' voters, and controllers that are started over them."""

    def __init__(self, path: Path) -> None:
        self.voters = [Reachable(path / name, f"broker/{name}") for name in "abc"]
        self.ended: list[Controller] = []
        self.controllers: list[Controller] = []

    def controller(self) -> Controller:
        made = Controller(
            lambda: self.voters,
            ServerConfig(),
            now_ms=lambda: NOW,
            on_superseded=lambda: self.ended.append(made),
            times=IMPATIENT,
        )
        self.controllers.append(made)
        return made

    async def start(self) -> Controller:
        controller = self.controller()
        await controller.start()
        return controller

    async def close(self) -> None:
        for controller in self.controllers:
            await controller.close()
        for each in self.voters:
            await each.voter.close()

    async def wait_equal(self, voters: Sequence[Reachable] | None = None) -> bytes:
        """Until these voters' logs are the same; returns it."""
        while True:
            logs = {each.log() for each in voters or self.voters}
            if len(logs) == 1:
                return logs.pop()
            await asyncio.sleep(0.01)


async def create(controller: Controller, name: str) -> None:
    if not controller.image.nodes:
        await controller.ask(
            RegisterBroker(
                NodeRegistration(
                    directory_id="d",
                    incarnation="i",
                    roles=("partition",),
                    host="h",
                    port=1,
                    rack=None,
                )
            )
        )
    topic = TopicToCreate(name=name, topic_id=uuid4(), partitions=1)
    await controller.change(CreateTopics(topics=(topic,)), timeout_ms=0)


def test_every_change_is_on_all_three_disks_byte_for_byte(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        assert len(controller.image.voters) == 3
        await create(controller, "t")
        log = await cluster.wait_equal()
        assert b'"name":"t"' in log
        while set(controller.voters.values()) != {controller.image.offset}:
            await asyncio.sleep(0.01)
        await cluster.close()

    run(scenario())


def test_one_voter_is_not_missed_and_has_everything_when_it_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        cluster.voters[0].is_cut = True
        await create(controller, "while-it-was-away")
        await cluster.voters[0].restart()
        cluster.voters[0].is_cut = False
        log = await cluster.wait_equal()
        assert b"while-it-was-away" in log
        assert cluster.ended == []
        await cluster.close()

    run(scenario())


def test_without_a_majority_nobody_is_elected_and_with_it_all_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        await create(controller, "before")
        for each in cluster.voters[:2]:
            each.is_cut = True
        with pytest.raises(NotController):
            await create(controller, "in-doubt")
        assert cluster.ended == [controller]
        assert not controller.is_active
        starting = asyncio.ensure_future(controller.start())
        while "1 more of the 3 nodes" not in (controller.waiting_for or ""):
            await asyncio.sleep(0.01)
        cluster.voters[1].is_cut = False
        await starting
        await create(controller, "after")
        assert {"before", "after"} <= set(controller.image.topics)
        cluster.voters[0].is_cut = False
        await cluster.wait_equal()
        await cluster.close()

    run(scenario())


def test_what_only_a_minority_has_is_cut_when_another_majority_has_decided(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        first = await cluster.start()
        await create(first, "before")
        await cluster.wait_equal()
        lonely, *others = cluster.voters
        for each in others:
            each.is_cut = True
        with pytest.raises(NotController):
            await create(first, "never-decided")
        assert b"never-decided" in lonely.log()
        lonely.is_cut = True
        for each in others:
            each.is_cut = False
        second = await cluster.start()
        await create(second, "decided")
        lonely.is_cut = False
        log = await cluster.wait_equal()
        assert b'"decided"' in log
        assert b"never-decided" not in log
        assert set(second.image.topics) == {"before", "decided"}
        await lonely.restart()
        assert await cluster.wait_equal() == log
        await cluster.close()

    run(scenario())


def test_of_two_controllers_the_older_is_refused_by_the_voters_they_share(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        older = await cluster.start()
        await create(older, "first")
        cluster.voters[0].is_cut = True
        newer = await cluster.start()
        cluster.voters[0].is_cut = False
        # Refused by a voter, or it knows the newer one already.
        with pytest.raises(NotController, match="newer controller|waiting for its successor"):
            await create(older, "too-late")
        assert cluster.ended == [older]
        assert (
            f"Renouncing the leadership due to a metadata log event. We were the active "
            f"controller at epoch {older.me.epoch}: "
        ) in caplog.text
        await create(newer, "in-time")
        assert b"too-late" not in await cluster.wait_equal()
        await cluster.close()

    run(scenario())


def test_a_voter_that_lost_its_disk_is_none_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        await create(controller, "kept")
        voters = controller.image.voters
        await controller.close()
        lost = cluster.voters[2]
        await lost.voter.close()
        shutil.rmtree(lost.path)
        lost.path.mkdir()
        lost.voter = VoterHost(lost.name, str(lost.path), OsFileSystem(), now_ms=lambda: NOW)
        lost.voter.open()
        second = await cluster.start()
        assert second.image.voters == voters
        assert "kept" in second.image.topics
        await create(second, "two-are-enough")
        assert not (await lost.voter.ask(DescribeVoter())).is_voter
        await cluster.close()

    run(scenario())


def test_formatting_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        ids = tuple(
            [(await each.voter.ask(DescribeVoter())).directory_id for each in cluster.voters]
        )
        await cluster.voters[0].voter.ask(FormatVoter("half-made", ids))
        for each in cluster.voters:
            await each.restart()
        controller = await cluster.start()
        assert controller.image.cluster_id == "half-made"
        assert controller.image.voters == ids
        await create(controller, "t")
        await cluster.wait_equal()
        await cluster.close()

    run(scenario())


def test_a_log_is_given_only_to_who_has_the_vote(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        await create(controller, "t")
        await cluster.wait_equal()
        voter = cluster.voters[0].voter
        newer = Candidate(epoch=9, owner="newer")
        await voter.ask(VoteRequest(newer))
        with pytest.raises(FencedLeaderEpoch):
            await voter.ask(FetchEntries(Candidate(epoch=8, owner="older"), 0))
        log, offset = b"", 0
        while piece := await voter.ask(FetchEntries(newer, offset)):
            log, offset = log + piece, (await voter.ask(DescribeVoter())).log_end_offset
        assert log == cluster.voters[0].log()
        await cluster.close()

    run(scenario())


def test_a_committed_entry_is_never_truncated(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start()
        await create(controller, "first")
        await create(controller, "second")
        log = await cluster.wait_equal()
        voter = cluster.voters[0].voter
        liar = Candidate(epoch=50, owner="liar")
        await voter.ask(VoteRequest(liar))
        forged = bytearray(log)
        forged[12:16] = (50).to_bytes(4, "big")  # the leader epoch is outside of the CRC
        first_size = 12 + int.from_bytes(log[8:12], "big")
        with pytest.raises(CommittedEntryLost):
            await voter.ask(AppendEntries(liar, LogEnd(-1, 0), bytes(forged[:first_size]), 0))
        assert cluster.voters[0].log() == log
        await cluster.close()

    run(scenario())


def test_a_deposed_controller_does_not_even_refuse_other_in_sync_replicas(tmp_path: Path) -> None:
    """The leader would go back to an ISR that the present controller may have changed."""

    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        older = await cluster.start()
        await create(older, "t")
        topic = older.image.topics["t"]
        asked = AlterPartition(
            node_id=1,
            broker_epoch=older.image.nodes[1].epoch,
            partitions=(ProposedIsr(topic.topic_id, 0, 0, 0, (Insync(1, 0), Insync(7, 0))),),
        )
        [refused] = await older.change(asked, timeout_ms=0)
        assert refused.outcome.code == ErrorCode.INVALID_REQUEST
        await cluster.start()
        with pytest.raises(NotController):
            await older.change(asked, timeout_ms=0)
        await cluster.close()

    run(scenario())


def test_a_voter_whose_log_never_joins_is_not_asked_hot(tmp_path: Path) -> None:
    class Contrary(Reachable):
        """It has another log whatever it is asked for."""

        asked = 0

        async def ask(self, request: QuorumRequest[Any]) -> Any:
            if not isinstance(request, AppendEntries):
                return await super().ask(request)
            Contrary.asked += 1
            return AppendResponse(is_there=False, offset=0)

    async def scenario() -> None:
        cluster = Cluster(tmp_path)
        cluster.voters[2] = Contrary(tmp_path / "d", "broker/d")
        controller = await cluster.start()
        for number in range(20):
            await create(controller, f"t{number}")
        before = Contrary.asked
        await asyncio.sleep(0.5)
        assert Contrary.asked - before < 20
        assert cluster.ended == []
        await cluster.close()

    run(scenario())
