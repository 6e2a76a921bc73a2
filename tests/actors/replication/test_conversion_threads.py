"""Are records converted in threads, and answered on the event loop, as the step asks?"""

import asyncio
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bradbury.actors.loop.step_driver import StepDriver
from bradbury.actors.replication.conversion_threads import ConversionThreads
from bradbury.handlers.ports.replica_port import Appended
from bradbury.protocol.errors import NotLeaderOrFollower
from bradbury.replication.partition.conversion_queue import (
    Conversion,
    ConversionMemory,
    ConversionQueue,
)
from bradbury.storage.log.partition_log import AppendResult


class Node:
    """A partition that appends by name, its queue, and the threads."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.driver = StepDriver()
        self.threads = ConversionThreads(self.driver, wall_ms=lambda: 1)
        self.memory = ConversionMemory()
        replica: Any = SimpleNamespace(append=self._append, when_committed=lambda *given: None)
        self.queue = ConversionQueue(replica, self.driver.effects, self.memory)

    def _append(self, batch: bytearray, **given: object) -> AppendResult:
        self.batches.append(bytes(batch))
        offset = len(self.batches) - 1
        return AppendResult(offset, offset, -1, 0, duplicate=False)

    def submit(self, batch: bytes, convert: Any) -> asyncio.Future[Appended]:
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.queue.begin(Conversion(bytearray(batch), convert, None), answer, None)
        self.driver.carry_out()
        return answer


def run(scenario: Any) -> None:
    async def main() -> None:
        node = Node()
        try:
            await scenario(node)
        finally:
            node.threads.close()
        await asyncio.sleep(0)
        assert node.memory.reserved == 0

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_batch_waits_for_the_slow_one_before_it() -> None:
    async def scenario(node: Node) -> None:
        go = threading.Event()

        def slowly(batch: bytearray) -> bytearray:
            assert go.wait(60)
            return batch + b"!"

        answers = [
            node.submit(b"a", slowly),
            node.submit(b"b", lambda batch: batch + b"?"),
            node.submit(b"c", None),
        ]
        await asyncio.sleep(0)
        assert node.batches == []
        go.set()
        assert [answer.base_offset for answer in await asyncio.gather(*answers)] == [0, 1, 2]
        assert node.batches == [b"a!", b"b?", b"c"]

    run(scenario)


def test_a_producer_that_is_gone_does_not_stop_the_others() -> None:
    async def scenario(node: Node) -> None:
        first, second = node.submit(b"a", bytearray), node.submit(b"b", bytearray)
        first.cancel()
        await second
        assert node.batches == [b"a", b"b"]  # taken in, so appended, as if nobody had gone

    run(scenario)


def test_what_a_thread_is_at_work_on_when_the_leadership_ends_is_not_appended() -> None:
    async def scenario(node: Node) -> None:
        go, begun = threading.Event(), threading.Event()

        def slowly(batch: bytearray) -> bytearray:
            begun.set()
            assert go.wait(60)
            return batch

        answer = node.submit(b"a", slowly)
        await asyncio.to_thread(begun.wait, 60)
        node.queue.abandon(NotLeaderOrFollower("gone"))
        node.driver.carry_out()
        with pytest.raises(NotLeaderOrFollower):
            await answer
        assert node.memory.reserved == 1, "a thread still has it"
        go.set()
        await node.submit(b"b", bytearray)
        assert node.batches == [b"b"]
        while node.memory.reserved:  # the thread of the first may end after that of the second
            await asyncio.sleep(0.001)

    run(scenario)


LOADING = """
import asyncio, sys
from bradbury.actors.loop.step_driver import StepDriver
from bradbury.actors.replication.conversion_threads import ConversionThreads
from bradbury.protocol.columns.record_check import is_record_check_loaded
from bradbury.protocol.kernel_loading import BACKGROUND_RECORDS
from bradbury.replication.partition.conversion_queue import LEAST_RECORDS, RecordsCheckedSlowly

async def main():
    driver = StepDriver()
    threads = ConversionThreads(driver, wall_ms=lambda: 0)
    for _ in range(BACKGROUND_RECORDS // LEAST_RECORDS + 1):
        assert "numba" not in sys.modules
        driver.effects.append(RecordsCheckedSlowly(LEAST_RECORDS))
        driver.carry_out()
    while not is_record_check_loaded():
        await asyncio.sleep(0.01)
    threads.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_compiled_loop_is_loaded_when_enough_was_checked_without_it() -> None:
    """In a process of its own: what is loaded stays, and records are counted for all."""
    subprocess.run([sys.executable, "-c", LOADING], check=True, timeout=120)
