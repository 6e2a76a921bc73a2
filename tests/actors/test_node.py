"""What a node says of itself before and after it serves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.actors.node import Node, NodeConfig
from bradbury.handlers.ports.server_config import ServerConfig
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


def test_a_node_whose_directory_was_still_locked_serves_once_it_is_not(tmp_path: Path) -> None:
    """As Ray's restart of a process that takes long to die: open, close, and open again."""

    def node(controller: Any) -> Node:
        config = NodeConfig(
            name="p1", roles=("partition",), data_dir=str(tmp_path), directory="partitions-1"
        )
        return Node(config, controller, on_fenced=lambda reason: None)

    async def scenario() -> None:
        voter = VoterHost("v", str(tmp_path / "v"), OsFileSystem(), now_ms=lambda: NOW)
        voter.open()
        controller = Controller(
            lambda: [voter], ServerConfig(), now_ms=lambda: NOW, on_superseded=lambda: None
        )
        await controller.start()
        former, later = node(controller), node(controller)
        await former.open()
        with pytest.raises(DataDirectoryError):
            await later.open()
        await later.close()
        await former.close()
        await later.open()
        await asyncio.wait_for(later.join(), 60)
        assert list(controller.image.nodes) == [later.node_id]
        assert await later.run_aside(lambda: "done") == "done"
        await later.close()
        await controller.close()
        await voter.close()

    asyncio.run(scenario())
