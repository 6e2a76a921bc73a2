"""Is a change of the metadata durable before it is answered, and can two controllers not both write?"""

import asyncio
import logging
import shutil
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.cluster.control.access.acl_control import AclToCreate, CreateAcls
from bradbury.cluster.control.alter_partition import AlterPartition, Insync, ProposedIsr
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.controller_calls import (
    AllocateProducerIds,
    ControlledShutdown,
    PollMetadata,
    RegisterBroker,
)
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import (
    AppendEntries,
    DescribeVoter,
    FormatVoter,
    QuorumRequest,
    VoteRequest,
)
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    FencedLeaderEpoch,
    NotController,
    StaleBrokerEpoch,
)
from bradbury.protocol.security.acl_binding import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.tests.support import metadata

NOW = 1_700_000_000_000


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


def open_voter(path: Path, name: str = "broker/a") -> VoterHost:
    voter = VoterHost(name, str(path), OsFileSystem(), now_ms=lambda: NOW)
    voter.open()
    return voter


async def start_controller(
    *voters: VoterHost, ended: list[str] | None = None, **config: str
) -> Controller:
    controller = Controller(
        lambda: voters,
        ServerConfig.from_kafka(config),
        now_ms=lambda: NOW,
        on_superseded=lambda: ended.append("superseded") if ended is not None else None,
    )
    await controller.start()
    return controller


def registration(incarnation: str = "i", roles: tuple[str, ...] = ("partition",)):
    return NodeRegistration(
        directory_id="d1", incarnation=incarnation, roles=roles, host="h", port=1, rack=None
    )


async def create(controller: Controller, name: str, **options: Any):
    """What became of it; raises nothing of its own."""
    options.setdefault("topic_id", uuid4())
    topic = TopicToCreate(name=name, partitions=2, **options)
    (outcome,) = await controller.change(CreateTopics(topics=(topic,)), timeout_ms=0)
    return outcome


def test_everything_decided_is_there_after_the_controller_and_its_voter_died(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path / "a")
        first = await start_controller(voter)
        await first.ask(RegisterBroker(registration()))
        await create(first, "kept")
        ids = await first.ask(AllocateProducerIds())
        image = first.image
        await first.close()
        # No goodbye: what is on the disk now is what a power cut would leave.
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        second = await start_controller(open_voter(tmp_path / "b"))
        assert second.image.topics == image.topics
        assert second.image.cluster_id == image.cluster_id
        assert second.image.epoch == image.epoch + 1
        assert (await second.ask(AllocateProducerIds()))[0] == ids[0] + ids[1]
        await voter.close()

    run(scenario())


def test_a_controller_that_a_node_polls_ends_when_the_node_knows_of_a_newer_vote(
    tmp_path: Path,
) -> None:
    """It may have nothing to write, and would never hear of the other one."""

    async def scenario() -> None:
        voter = open_voter(tmp_path)
        ended: list[str] = []
        controller = await start_controller(voter, ended=ended)
        registered = await controller.ask(RegisterBroker(registration()))
        poll = PollMetadata(registered.node_id, "i", -1, newest_epoch=controller.me.epoch)
        assert (await controller.ask(poll)).controller_epoch == controller.me.epoch
        with pytest.raises(NotController):
            await controller.ask(replace(poll, newest_epoch=controller.me.epoch + 1))
        assert ended == ["superseded"]
        assert not controller.is_active
        await voter.close()

    run(scenario())


def test_of_two_live_controllers_only_the_newer_can_change_anything(tmp_path: Path) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path)
        ended: list[str] = []
        older = await start_controller(voter, ended=ended)
        await older.ask(RegisterBroker(registration()))
        newer = await start_controller(voter)
        with pytest.raises(NotController, match="newer controller"):
            await create(older, "too-late")
        assert ended == ["superseded"]
        assert not older.is_active
        await create(newer, "in-time")
        assert set(newer.image.topics) == {"in-time"}
        await voter.close()

    run(scenario())


def test_a_vote_outlives_the_voters_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path)
        await start_controller(voter)
        await voter.ask(VoteRequest(Candidate(epoch=50, owner="somebody")))
        await voter.close()
        voter = open_voter(tmp_path)
        with pytest.raises(FencedLeaderEpoch):
            await voter.ask(VoteRequest(Candidate(epoch=49, owner="an older one")))
        controller = await start_controller(voter)
        assert controller.image.epoch == 51
        await voter.close()

    run(scenario())


def test_a_cluster_whose_first_controller_died_right_after_formatting_is_finished(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path)
        await voter.ask(FormatVoter("half-made", (voter.directory.identity.directory_id,)))
        await voter.close()
        voter = open_voter(tmp_path)
        controller = await start_controller(voter)
        assert controller.image.cluster_id == "half-made"
        assert len(controller.image.voters) == 1
        await voter.close()

    run(scenario())


def test_a_controller_waits_for_the_voter_of_a_known_cluster_rather_than_format_another(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path / "voter")
        other = open_voter(tmp_path / "other", "broker/b")
        controller = await start_controller(voter, other)
        cluster_id = controller.image.cluster_id
        other.directory.assign_identity(cluster_id=cluster_id)
        await controller.close()
        alone = Controller(
            lambda: [other], ServerConfig(), now_ms=lambda: NOW, on_superseded=lambda: None
        )
        starting = asyncio.ensure_future(alone.start())
        while "holds the metadata" not in (alone.waiting_for or ""):
            await asyncio.sleep(0.01)
        assert cluster_id in (alone.waiting_for or "")
        with pytest.raises(NotController, match="holds the metadata"):
            await create(alone, "t")
        starting.cancel()
        await voter.close()
        await other.close()

    run(scenario())


def test_a_controller_does_not_wait_for_brokers_that_are_no_voters(tmp_path: Path) -> None:
    """The controller's own node may be the one that died, with a broker on it."""

    class Gone:
        async def ask(self, request: QuorumRequest[Any]) -> None:
            await asyncio.Event().wait()

    async def scenario() -> None:
        voter = open_voter(tmp_path)
        first = await start_controller(voter)
        await first.close()
        second = await start_controller(voter, Gone())
        assert second.image.cluster_id == first.image.cluster_id
        await voter.close()

    run(scenario())


def test_a_new_cluster_is_begun_only_when_every_broker_has_spoken(tmp_path: Path) -> None:

    class Late:
        """It may be the one that holds a cluster's metadata."""

        async def ask(self, request: QuorumRequest[Any]) -> None:
            await asyncio.Event().wait()

    async def scenario() -> None:
        empty = open_voter(tmp_path)
        controller = Controller(
            lambda: [empty, Late()],
            ServerConfig(),
            now_ms=lambda: NOW,
            on_superseded=lambda: None,
            times=QuorumTimes(answer_ms=50),
        )
        starting = asyncio.ensure_future(controller.start())
        while controller.waiting_for != "1 brokers to start":
            await asyncio.sleep(0.01)
        assert not (await empty.ask(DescribeVoter())).is_voter
        starting.cancel()
        await empty.close()

    run(scenario())


def test_a_node_is_sent_what_is_new_and_a_replaced_one_is_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter)
        registered = await controller.ask(RegisterBroker(registration()))
        whole = await controller.ask(PollMetadata(registered.node_id, "i", 0))
        assert whole.whole is False
        parked = asyncio.ensure_future(
            controller.ask(PollMetadata(registered.node_id, "i", whole.offset))
        )
        await create(controller, "news")
        news = await parked
        assert news.offset == whole.offset + len(news.records)
        assert b'"news"' in news.records[0]
        await controller.ask(RegisterBroker(registration("another")))
        with pytest.raises(StaleBrokerEpoch):
            await controller.ask(PollMetadata(registered.node_id, "i", news.offset))
        await voter.close()

    run(scenario())


def test_a_parked_question_of_a_dead_node_does_not_bring_it_back(tmp_path: Path) -> None:
    """Its own fencing is news, and wakes the question up."""

    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter)
        registered = await controller.ask(RegisterBroker(registration()))
        offset = (await controller.ask(PollMetadata(registered.node_id, "i", 0))).offset
        parked = asyncio.ensure_future(
            controller.ask(PollMetadata(registered.node_id, "i", offset))
        )
        await asyncio.sleep(0)
        await controller.ask(ControlledShutdown(registered.node_id, "i"))
        assert (await parked).offset > offset
        assert controller.image.nodes[registered.node_id].fenced
        await controller.ask(PollMetadata(registered.node_id, "i", offset))
        assert not controller.image.nodes[registered.node_id].fenced
        await voter.close()

    run(scenario())


def test_a_first_replica_that_is_back_in_sync_leads_again(tmp_path: Path) -> None:
    config = {"leader.imbalance.check.interval.seconds": "1"}

    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter, **config)
        first, second = [
            (
                await controller.ask(RegisterBroker(metadata.registration(name, incarnation="i")))
            ).node_id
            for name in ("a", "b")
        ]
        for node in (first, second):
            await controller.ask(PollMetadata(node, "i", 0))
        topic_id = uuid4()
        topic = TopicToCreate(
            name="t", topic_id=topic_id, assignments={0: (first, second), 1: (second, first)}
        )
        await controller.change(CreateTopics(topics=(topic,)), timeout_ms=0)
        await controller.ask(ControlledShutdown(first, "i"))
        partition = controller.image.partition("t", 0)
        assert partition is not None
        assert (partition.leader, tuple(partition.isr)) == (second, (second,))

        await controller.ask(PollMetadata(first, "i", 0))
        for number in (0, 1):
            now = controller.image.partition("t", number)
            assert now is not None
            isr = tuple(
                Insync(node, controller.image.nodes[node].epoch) for node in (second, first)
            )
            proposed = ProposedIsr(topic_id, number, now.leader_epoch, now.partition_epoch, isr)
            request = AlterPartition(
                node_id=second,
                broker_epoch=controller.image.nodes[second].epoch,
                partitions=(proposed,),
            )
            (answer,) = await controller.change(request, timeout_ms=0)
            assert answer.partition is not None, answer

        def leaders() -> list[int]:
            found = [controller.image.partition("t", number) for number in (0, 1)]
            return [each.leader for each in found if each is not None]

        assert leaders() == [second, second]
        while leaders() != [first, second]:
            await asyncio.sleep(0.01)
        await controller.close()
        await voter.close()

    run(scenario())


def test_a_new_controller_waits_with_the_balance_and_speaks_of_no_tokens_where_there_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """leader.imbalance.check.interval.seconds: nodes that start after each other lead in peace."""
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter)
        tasks = controller._step._tasks
        began = asyncio.get_running_loop().time() * 1000
        assert tasks._balance_at_ms > began + 200_000
        ticks = {tasks.next_deadline_ms}
        while len(ticks) < 3:
            await asyncio.sleep(0.01)
            ticks.add(tasks.next_deadline_ms)
        assert tasks._tokens_at_ms > began, "tokens were looked at"
        await controller.close()
        await voter.close()

    run(scenario())
    assert "delegation tokens" not in caplog.text


def test_a_request_repeated_after_its_answer_was_lost_is_the_same_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter)
        await controller.ask(RegisterBroker(registration()))
        made = await create(controller, "once")
        again = await create(controller, "once", topic_id=made.topic_id)
        assert again == made
        assert (await create(controller, "once")).outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await voter.close()

    run(scenario())


def test_a_check_without_creation_creates_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter)
        await controller.ask(RegisterBroker(registration()))
        before = controller.image
        topic = TopicToCreate(name="t", topic_id=uuid4(), partitions=3)
        request = CreateTopics(topics=(topic,), validate_only=True)
        (checked,) = await controller.change(request, timeout_ms=0)
        assert checked.partitions == 3
        assert controller.image is before
        await voter.close()

    run(scenario())


class SlowDisk:
    """A voter whose appends wait, once they are on the disk, until `go_on` is set."""

    def __init__(self, voter: VoterHost) -> None:
        self._voter = voter
        self.appended = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def ask(self, request: QuorumRequest[Any]) -> Any:
        answer = await self._voter.ask(request)
        if isinstance(request, AppendEntries):
            self.appended.set()
            await self.go_on.wait()
        return answer


@pytest.mark.parametrize("times", [1, 20])
def test_a_client_that_hangs_up_amid_its_change_harms_no_later_one(
    tmp_path: Path, times: int
) -> None:
    async def scenario() -> None:
        ended: list[str] = []
        voter = SlowDisk(open_voter(tmp_path))
        controller = await start_controller(voter, ended=ended)  # type: ignore[arg-type]
        await controller.ask(RegisterBroker(registration()))
        voter.go_on.clear()
        voter.appended.clear()
        asking = [asyncio.create_task(create(controller, f"left-{n}")) for n in range(times)]
        await voter.appended.wait()
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        voter.go_on.set()
        await create(controller, "later")
        assert ended == []
        assert set(controller.image.topics) == {"later", *(f"left-{n}" for n in range(times))}
        assert controller.is_active
        await controller.close()

    run(scenario())


def deny() -> CreateAcls:
    rule = AclBinding(
        ResourceType.TOPIC,
        "t",
        PatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.READ,
        AclPermission.DENY,
    )
    return CreateAcls(acls=(AclToCreate(acl_id="1", binding=rule),))


def test_a_rule_that_is_there_already_is_answered_when_every_node_goes_by_it(
    tmp_path: Path,
) -> None:
    """Whoever asks again, as the answer was lost, counts on it as much."""

    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter)
        node_id, *_ = await controller.ask(RegisterBroker(registration()))
        await controller.change(deny(), timeout_ms=0)
        again = asyncio.ensure_future(controller.change(deny(), timeout_ms=20_000))
        await asyncio.sleep(0.1)
        assert not again.done(), "the node does not know of it"
        update = await controller.ask(PollMetadata(node_id, "i", 0))
        applied = asyncio.ensure_future(controller.ask(PollMetadata(node_id, "i", update.offset)))
        assert [each.code for each in await again] == [ErrorCode.NONE]
        await controller.close()
        await asyncio.gather(applied, return_exceptions=True)
        await voter.close()

    run(scenario())


def test_who_counts_on_all_nodes_is_not_answered_because_the_controller_ends(
    tmp_path: Path,
) -> None:
    """The next one is asked, which waits for them; see actors/controller/handles."""

    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter)
        await controller.ask(RegisterBroker(registration()))
        waiting = asyncio.ensure_future(controller.change(deny(), timeout_ms=20_000))
        while not controller.image.acls:
            await asyncio.sleep(0.01)
        await controller.close()
        with pytest.raises(NotController):
            await waiting
        next_one = await start_controller(voter)
        assert len(next_one.image.acls) == 1
        await next_one.close()
        await voter.close()

    run(scenario())
