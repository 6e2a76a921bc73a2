"""What a node says of itself before and after it serves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from bradbury.actors.node import Node, NodeConfig
from bradbury.handlers.ports.context import Controller


def test_a_node_tells_its_status_before_it_has_directories_and_after_it_gave_them_back(
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
