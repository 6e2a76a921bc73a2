"""Is a fetch that waits woken by whatever comes, at whichever moment?"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bradbury.actors.loop.step_driver import StepDriver
from bradbury.actors.replication.conversion_threads import ConversionThreads
from bradbury.actors.replication.hosted_replica import HostedReplica
from bradbury.cluster.metadata.metadata_image import PartitionImage
from bradbury.handlers.ports.context import RequestContext
from bradbury.handlers.ports.fetch_session import FetchSessionCache
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.handlers.records import fetch
from bradbury.handlers.records.delayed_fetch import DelayedFetch
from bradbury.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from bradbury.protocol.schema import ZERO_UUID
from bradbury.replication.partition.conversion_queue import ConversionMemory
from bradbury.replication.partition.replica import Replica
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log


class Node:
    """One led partition, t-0, and what a fetch asks of a node beside it."""

    node_id = 1
    server_config = ServerConfig()
    image = SimpleNamespace(nodes={})

    def __init__(self, folder: Path) -> None:
        self.partitions = self
        self.fetch_sessions = FetchSessionCache(10, 1000, random_id=lambda: 7)
        self.log = open_log(folder)
        self.log.local.assign_epoch(0)
        self.driver = StepDriver()
        self.conversion_memory = ConversionMemory()
        self.pool = ConversionThreads(self.driver, wall_ms=self.now_ms)
        self.effects, self.changed = self.driver.effects, {}
        self.replica = HostedReplica(
            Replica("t", 0, self.log, self),
            self.driver,
            wall_ms=self.now_ms,
            in_thread=asyncio.to_thread,
            conversions=self.pool,
        )
        self.replica.step.become_leader(PartitionImage((1,), (1,), 1, 0, 0), 0)

    def now_ms(self) -> int:
        return 1000

    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> HostedReplica:
        return self.replica

    def append(self) -> None:
        self.replica.append(memoryview(make_batch()))

    def fetch(self, session_id: int = 0, epoch: int = -1):
        wanted = FetchPartition(partition=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[wanted])] if epoch <= 0 else []
        request = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            topics=topics,
            session_id=session_id,
            session_epoch=epoch,
        )
        return fetch.handle(request, RequestContext(self, 11, "c", "p", 1))


def run(folder: Path, scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def main() -> None:
        node = Node(folder)
        try:
            await scenario(node)
        finally:
            node.pool.close()
            node.log.close(clean=False)

    asyncio.run(asyncio.wait_for(main(), 10))


@pytest.mark.parametrize("epoch", [-1, 0])
def test_an_append_before_the_wait_has_been_begun_wakes_it(tmp_path: Path, epoch: int) -> None:
    async def scenario(node: Node) -> None:
        waiting = node.fetch(epoch=epoch)
        node.append()  # the coroutine has not run yet
        answer = await waiting
        assert answer.topics[0].partitions[0].records_size

    run(tmp_path, scenario)


def test_an_append_before_an_incremental_wait_has_been_begun_wakes_it(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        waiting = node.fetch(epoch=0)
        node.append()
        assert (await waiting).session_id == 7
        session = node.fetch_sessions.resume(7, 1, api_version=11, now_ms=0)
        cached = session.partitions["t", ZERO_UUID, 0]
        cached.wanted.fetch_offset = 1  # the client has consumed what came
        waiting = node.fetch(7, 2)
        assert isinstance(waiting, DelayedFetch)
        node.append()
        answer = await waiting
        assert answer.topics[0].partitions[0].records_size

    run(tmp_path, scenario)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_fetch_that_is_given_up_leaves_nothing_at_the_replica(tmp_path: Path, epoch: int) -> None:
    async def scenario(node: Node) -> None:
        task = asyncio.ensure_future(node.fetch(epoch=epoch))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(node.replica.step.fetches._consumers) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert not node.replica.step.fetches._consumers

    run(tmp_path, scenario)
