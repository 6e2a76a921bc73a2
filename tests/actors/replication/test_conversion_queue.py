"""In which order do batches reach the log when some of them have to be converted first?"""

import asyncio
import subprocess
import sys
import threading

import pytest

from bradbury.actors.replication.conversion_queue import (
    MOST_BYTES,
    ConversionPool,
    ConversionQueue,
)
from bradbury.handlers.ports.replica_port import Appended
from bradbury.protocol.errors import InvalidRecord, NotLeaderOrFollower, RequestTimedOut


class Log:
    """Appends by name."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def append(self, batch: bytearray) -> Appended:
        self.batches.append(bytes(batch))
        return Appended(len(self.batches) - 1, -1, 0, None)


def run(scenario) -> None:
    async def main() -> None:
        pool, log = ConversionPool(), Log()
        try:
            await scenario(ConversionQueue(pool), log)
        finally:
            pool.close()
        assert pool._bytes == 0

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_batch_waits_for_the_slow_one_before_it() -> None:
    async def scenario(queue: ConversionQueue, log: Log) -> None:
        go = threading.Event()

        def slowly(batch: bytearray) -> bytearray:
            assert go.wait(60)
            return batch + b"!"

        first = queue.submit(bytearray(b"a"), slowly, log.append)
        second = queue.submit(bytearray(b"b"), lambda batch: batch + b"?", log.append)
        third = queue.submit(bytearray(b"c"), None, log.append)
        await asyncio.sleep(0)
        assert len(queue) == 3
        assert log.batches == []
        go.set()
        answers = await asyncio.gather(first, second, third)
        assert log.batches == [b"a!", b"b?", b"c"]
        assert [answer.base_offset for answer in answers] == [0, 1, 2]
        assert len(queue) == 0

    run(scenario)


def test_a_batch_that_cannot_be_converted_does_not_hold_back_the_next() -> None:
    async def scenario(queue: ConversionQueue, log: Log) -> None:
        def refuse(batch: bytearray) -> bytearray:
            raise InvalidRecord("no")

        first = queue.submit(bytearray(b"a"), refuse, log.append)
        second = queue.submit(bytearray(b"b"), None, log.append)
        assert (await second).base_offset == 0
        with pytest.raises(InvalidRecord):
            await first
        assert log.batches == [b"b"]

    run(scenario)


def test_a_producer_that_is_gone_does_not_stop_the_others() -> None:
    async def scenario(queue: ConversionQueue, log: Log) -> None:
        first = queue.submit(bytearray(b"a"), bytearray, log.append)
        second = queue.submit(bytearray(b"b"), bytearray, log.append)
        first.cancel()
        await second
        assert log.batches == [b"a", b"b"]  # taken in, so appended, as if nobody had gone

    run(scenario)


def test_a_leader_that_resigns_answers_all_and_appends_nothing() -> None:
    async def scenario(queue: ConversionQueue, log: Log) -> None:
        go = threading.Event()
        answers = [
            queue.submit(bytearray(b"a"), lambda batch: (go.wait(60), batch)[1], log.append),
            queue.submit(bytearray(b"b"), None, log.append),
        ]
        await asyncio.sleep(0)
        queue.abandon(NotLeaderOrFollower("gone"))
        for answer in answers:
            with pytest.raises(NotLeaderOrFollower):
                await answer
        go.set()
        again = queue.submit(bytearray(b"c"), None, log.append)  # a later epoch
        assert (await again).base_offset == 0
        assert log.batches == [b"c"]

    run(scenario)


def test_memory_is_bounded_and_a_single_large_batch_always_fits() -> None:
    async def scenario(queue: ConversionQueue, log: Log) -> None:
        go = threading.Event()
        large = bytearray(MOST_BYTES // 2 + 1)
        first = queue.submit(large, lambda batch: (go.wait(60), batch[:1])[1], log.append)
        with pytest.raises(RequestTimedOut):
            queue.submit(large, None, log.append)
        go.set()
        await first
        await queue.submit(large, lambda batch: batch[:1], log.append)
        assert log.batches == [b"\0", b"\0"]

    run(scenario)


LOADING = """
import asyncio, sys
from bradbury.actors.replication.conversion_queue import LEAST_RECORDS, ConversionPool
from bradbury.protocol.columns.record_check import is_record_check_loaded
from bradbury.protocol.kernel_loading import BACKGROUND_RECORDS

async def main():
    pool = ConversionPool()
    for _ in range(BACKGROUND_RECORDS):
        pool.load_when_it_pays(LEAST_RECORDS - 1)
    assert "numba" not in sys.modules
    for _ in range(BACKGROUND_RECORDS // LEAST_RECORDS + 1):
        pool.load_when_it_pays(LEAST_RECORDS)
    while not is_record_check_loaded():
        await asyncio.sleep(0.01)
    pool.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_compiled_loop_is_loaded_for_batches_that_gain_by_it_and_not_for_small_ones() -> None:
    """In a process of its own: what is loaded stays, and records are counted for all."""
    subprocess.run([sys.executable, "-c", LOADING], check=True, timeout=120)
