"""Are quotas there after the controller died, and are changes of topics counted by the one that is?"""

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.cluster.control.client_quota_control import AlterClientQuotas, QuotaChange
from bradbury.cluster.control.controller_request import DONE
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.cluster.quotas.quota_entity import entity_of
from bradbury.controller.controller_calls import MeteredChange, RegisterBroker, as_repeated
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.error_code import ErrorCode
from bradbury.storage.disk.file_system import OsFileSystem

NOW = 1_700_000_000_000
ALICE = entity_of({"user": "alice"})
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1"}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def open_voter(path: Path) -> VoterHost:
    voter = VoterHost("broker/a", str(path), OsFileSystem(), now_ms=lambda: NOW)
    voter.open()
    return voter


async def start_controller(voter: VoterHost, **settings: str) -> Controller:
    config = ServerConfig.from_kafka(
        {key.replace("_", "."): text for key, text in settings.items()}
    )
    controller = Controller(lambda: [voter], config, now_ms=lambda: NOW, on_superseded=lambda: None)
    await controller.start()
    await controller.ask(
        RegisterBroker(
            NodeRegistration(
                directory_id="d", incarnation="i", roles=("partition",), host="h", port=1, rack=None
            )
        )
    )
    return controller


async def set_quota(controller: Controller, key: str, value: float | None) -> None:
    request = AlterClientQuotas(entries=((ALICE, (QuotaChange(key, value),)),))
    assert await controller.change(request, timeout_ms=0) == {ALICE: DONE}


def metered(name: str, partitions: int, *, is_strict: bool = True) -> MeteredChange[Any]:
    topic = TopicToCreate(name=name, topic_id=uuid4(), partitions=partitions)
    return MeteredChange(CreateTopics(topics=(topic,)), 0, "alice", "c", is_strict)


def copied(source: Path, target: Path) -> bool:
    """Whether it was as it is at one moment: a snapshot may still be on its way to its name."""
    before = sorted(source.rglob("*"))
    try:
        shutil.copytree(source, target)
    except shutil.Error:
        pass
    else:
        if sorted(source.rglob("*")) == before:
            return True
    shutil.rmtree(target)
    return False


def test_quotas_outlive_the_controller_and_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path / "a")
        settings = {key.replace(".", "_"): text for key, text in SNAPSHOTS.items()}
        first = await start_controller(voter, **settings)
        for value in (1.0, 2.0, 3.0):
            await set_quota(first, "producer_byte_rate", value)
        await set_quota(first, "controller_mutation_rate", 0.5)
        await set_quota(first, "controller_mutation_rate", None)
        await first.close()
        # No goodbye: what is on the disk now is what a power cut would leave.
        while not copied(tmp_path / "a", tmp_path / "b"):
            await asyncio.sleep(0.01)
        second = await start_controller(open_voter(tmp_path / "b"))
        assert second.image.client_quotas == {ALICE: {"producer_byte_rate": 3.0}}
        await voter.close()

    run(scenario())


def test_changes_of_topics_are_counted_for_who_asks(tmp_path: Path) -> None:
    async def scenario() -> None:
        voter = open_voter(tmp_path)
        controller = await start_controller(voter, controller_quota_window_num="1")
        answer = await controller.ask(metered("free", 50))
        assert (answer.answer[0].outcome, answer.throttle_ms) == (DONE, 0), "there is no quota"
        await set_quota(controller, "controller_mutation_rate", 0.001)
        asked = metered("made", 50)
        answer = await controller.ask(asked)
        assert (answer.answer[0].outcome, answer.throttle_ms) == (DONE, 0), "there was no debt"
        answer = await controller.ask(as_repeated(asked))
        assert answer.answer[0].outcome == DONE, "it is the one that was made: nothing is taken"
        answer = await controller.ask(metered("refused", 1))
        assert answer.answer[0].outcome.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert answer.throttle_ms > 40_000_000
        assert "refused" not in controller.image.topics
        answer = await controller.ask(metered("old-client", 1, is_strict=False))
        assert answer.answer[0].outcome == DONE
        assert answer.throttle_ms > 40_000_000
        answer = await controller.ask(metered("made", 1))
        assert answer.answer[0].outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS, "said first"
        await voter.close()

    run(scenario())
