"""What a client that hangs up may interrupt, and what it may not."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import bradbury
from bradbury.actors.loop.carry_through import carry_through, until_thread_ends
from bradbury.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from bradbury.tests.support.wire.raw_client import RawClient


def test_work_goes_on_when_nobody_waits_for_it_any_more() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []
        begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            await go_on.wait()
            seen.append("carried through")
            done.set()
            raise ValueError("nobody hears this")

        waiting = asyncio.create_task(carry_through(work()))
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert seen == []
        go_on.set()
        await done.wait()
        return seen

    assert asyncio.run(scenario()) == ["carried through"]


def test_a_lock_is_held_until_the_thread_is_done_with_what_it_protects() -> None:
    async def scenario() -> None:
        lock, begun, go_on = asyncio.Lock(), threading.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def call() -> None:
            begun.set()
            go_on.wait(60)

        async def protected() -> None:
            async with lock:
                await until_thread_ends(loop.run_in_executor(None, call))

        waiting = asyncio.create_task(protected())
        await asyncio.to_thread(begun.wait, 10)
        waiting.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert lock.locked()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not lock.locked()

    asyncio.run(scenario())


def test_hanging_up_amid_deletions_of_records_breaks_no_directory(tmp_path: Path) -> None:
    with bradbury.local(str(tmp_path)) as cluster:
        admin = cluster.admin()
        admin.create_topic("t", partitions=1)
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            for _ in range(100):
                producer.send("t", b"v")
        for offset in range(100):
            with RawClient(cluster.bootstrap_servers) as client:
                part = DeleteRecordsPartition(partition_index=0, offset=offset)
                topic = DeleteRecordsTopic(name="t", partitions=[part])
                client.send(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        assert [each.error_code for each in admin.describe_log_dirs()] == [0]
