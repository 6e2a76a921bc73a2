"""The floor of free space holds from the first append on, and while the disk is being asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bradbury.actors.loop.step_driver import StepDriver
from bradbury.actors.replication.log_maintenance_driver import LogMaintenanceDriver
from bradbury.cluster.broker_config import BrokerConfig
from bradbury.replication.effects import RunWork
from bradbury.replication.logs.log_maintenance import LogMaintenance
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.disk.file_system import OsFileSystem

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

        driver = StepDriver()

        async def answer(effect: RunWork) -> None:
            effect.work.run()
            # An append between the answer of the disk and the moment the loop hears of it.
            health.headroom -= 1_000
            effect.step.on_work_done(effect.work, None, driver.now_ms())
            driver.carry_out()
            measured.set()

        answers: list[asyncio.Task[None]] = []
        driver.on(RunWork, lambda effect: answers.append(asyncio.create_task(answer(effect))))
        maintenance = LogMaintenance(
            directories,
            {},
            BrokerConfig(bradbury_log_dir_min_free_bytes=FLOOR_BYTES),
            driver.effects,
            changed={},
            on_storage_failure=lambda: None,
        )
        maintaining = LogMaintenanceDriver(maintenance, driver, wall_ms=lambda: 0)
        maintaining.start()
        at_start = health.headroom
        await measured.wait()
        after_a_round = health.headroom
        await maintaining.stop()
        directories.close(clean=True)
        return at_start, after_a_round

    at_start, after_a_round = asyncio.run(scenario())
    assert at_start == FREE_BYTES - FLOOR_BYTES
    assert after_a_round == FREE_BYTES - FLOOR_BYTES - 1_000
