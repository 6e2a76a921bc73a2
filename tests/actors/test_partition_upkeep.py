"""The floor of free space holds from the first append on, and while the disk is being asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bradbury.actors.loop.step_driver import StepDriver
from bradbury.actors.replication.partition_upkeep import PartitionUpkeep
from bradbury.cluster.broker_config import BrokerConfig
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.disk.file_system import OsFileSystem

T = TypeVar("T")
FREE_BYTES = 10_000
FLOOR_BYTES = 4_000


class NearlyFullDisk(OsFileSystem):
    def free_bytes(self, path: str) -> int:
        return FREE_BYTES


def test_the_floor_holds_from_the_first_append_on_and_while_the_disk_is_asked(
    tmp_path: Path,
) -> None:
    async def scenario() -> tuple[int, int]:
        directories = LogDirectories.open(
            NearlyFullDisk(), [str(tmp_path)], directory_ids=["ev9lBeSYQ0m4sFJeVmvPjw"]
        )
        health = directories.all[0].health
        measured = asyncio.Event()

        async def in_thread(work: Callable[[], T]) -> T:
            answer = work()
            # An append between the answer of the disk and the moment the loop hears of it.
            health.headroom -= 1_000
            asyncio.get_running_loop().call_soon(measured.set)
            return answer

        upkeep = PartitionUpkeep(
            directories,
            {},
            BrokerConfig(bradbury_log_dir_min_free_bytes=FLOOR_BYTES),
            now_ms=lambda: 0,
            in_thread=in_thread,
            changed={},
            run=StepDriver().run,
            on_failure=lambda: None,
        )
        upkeep.start()
        at_start = health.headroom
        await measured.wait()
        after_a_round = health.headroom
        await upkeep.stop()
        directories.close(clean=True)
        return at_start, after_a_round

    at_start, after_a_round = asyncio.run(scenario())
    assert at_start == FREE_BYTES - FLOOR_BYTES
    assert after_a_round == FREE_BYTES - FLOOR_BYTES - 1_000
