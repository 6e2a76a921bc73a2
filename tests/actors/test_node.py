"""What a node says of itself before and after it serves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.actors.node import Node, NodeConfig
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.controller.controller_calls import Change, PollMetadata
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.errors import RequestTimedOut
from bradbury.replication.logs.log_manager import LogManager
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.disk.storage_failure import DataDirectoryError

NOW = 1_600_000_000_000


def test_a_node_reports_its_status_before_it_has_directories_and_after_it_released_them(
    tmp_path: Path,
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        config = NodeConfig(
            name="p1", roles=("partition",), data_dir=str(tmp_path), directory="partitions-1"
        )
        # The controller is not asked before join().
        node = Node(config, cast("Controller", None), on_fenced=lambda reason: None)
        seen = [node.status()]
        await node.open()
        seen.append(node.status())
        await node.close()
        return [*seen, node.status()]

    before, open_, after = asyncio.run(scenario())
    assert before["name"] == open_["name"] == after["name"] == "p1"
    assert "address" not in before
    assert open_["address"].startswith("127.0.0.1:")
    assert "address" not in after


def node(data_dir: Path, controller: Any) -> Node:
    config = NodeConfig(
        name="p1", roles=("partition",), data_dir=str(data_dir), directory="partitions-1"
    )
    return Node(config, controller, on_fenced=lambda reason: None)


async def start_controller(data_dir: Path) -> tuple[VoterHost, Controller]:
    voter = VoterHost("v", str(data_dir / "v"), OsFileSystem(), now_ms=lambda: NOW)
    voter.open()
    controller = Controller(
        lambda: [voter], ServerConfig(), now_ms=lambda: NOW, on_superseded=lambda: None
    )
    await controller.start()
    return voter, controller


def directories(data_dir: Path) -> list[str]:
    return sorted(each.name for each in (data_dir / "partitions-1").iterdir() if each.is_dir())


class Unwilling:
    """A controller that fails the first question for news, as one that is just being replaced."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.refusals = 1

    async def ask(self, call: Any) -> Any:
        if isinstance(call, PollMetadata) and self.refusals:
            self.refusals -= 1
            raise RequestTimedOut("no majority of voters")
        return await self._controller.ask(call)


def test_a_node_that_joins_again_keeps_its_records(tmp_path: Path) -> None:
    """And so does one whose logs no partition was found to be of: they are still assigned to it."""
    topic = TopicToCreate(name="t", topic_id=uuid4(), partitions=2, replication_factor=1)

    async def scenario() -> None:
        voter, controller = await start_controller(tmp_path)
        first = node(tmp_path, controller)
        await first.open()
        await first.join()
        await controller.ask(Change(CreateTopics(topics=(topic,)), timeout_ms=60_000))
        await first.close()
        there = directories(tmp_path)
        assert len(there) == 2

        again = node(tmp_path, Unwilling(controller))
        await again.open()
        with pytest.raises(RequestTimedOut):
            await again.join()
        await again.join()
        assert directories(tmp_path) == there
        host = again.storage.partition_host
        assert host is not None
        unclaimed = LogManager(
            host.directories,
            config_of=host.steps.log_configs.of,
            new_id=uuid4,
            on_storage_failure=host.on_failure,
        )
        host.steps.start(unclaimed, host.steps.note_gaps)
        await host.apply(again.image)
        assert directories(tmp_path) == there
        await again.close()
        await controller.close()
        await voter.close()

    asyncio.run(scenario())


def test_a_node_whose_directory_was_still_locked_serves_once_it_is_not(tmp_path: Path) -> None:
    """As Ray's restart of a process that takes long to die: open, close, and open again."""

    async def scenario() -> None:
        voter, controller = await start_controller(tmp_path)
        former, later = node(tmp_path, controller), node(tmp_path, controller)
        await former.open()
        with pytest.raises(DataDirectoryError):
            await later.open()
        await later.close()
        await former.close()
        await later.open()
        await asyncio.wait_for(later.join(), 60)
        assert list(controller.image.nodes) == [later.node_id]
        assert await later.run_in_thread(lambda: "done") == "done"
        await later.close()
        await controller.close()
        await voter.close()

    asyncio.run(scenario())
