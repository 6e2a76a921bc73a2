"""A node with one led partition t-0 in a real log: for the handlers of records and markers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bradbury.actors.loop.step_driver import StepDriver
from bradbury.actors.replication.conversion_threads import ConversionThreads
from bradbury.actors.replication.hosted_replica import HostedReplica
from bradbury.cluster.metadata.metadata_image import PartitionImage
from bradbury.cluster.partition.leader_state import FollowerFetch
from bradbury.handlers.ports.context import RequestContext
from bradbury.handlers.ports.fetch_session import FetchSessionCache
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import UnknownTopicOrPartition
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.replication.partition.conversion_queue import ConversionMemory
from bradbury.replication.partition.replica import Replica

from .logs import open_log


class LedPartition:
    """The node, its partitions, and what asks coordinators: the test answers those questions."""

    node_id = 1
    image = SimpleNamespace(nodes={}, partition=lambda topic, index: None)
    groups: Any = None

    def __init__(self, folder: Path, *, replicas: tuple[int, ...] = (1,), **log: Any) -> None:
        self.partitions = self.transaction_partitions = self.throttle = self
        self.server_config = ServerConfig()
        self.fetch_sessions = FetchSessionCache(10, 1000, random_id=iter(range(7, 99)).__next__)
        self.log = open_log(folder, **log)
        self.log.local.assign_epoch(0)
        self.driver = StepDriver()
        self.driver.now_ms = self.now_ms  # type: ignore[method-assign]
        self.conversion_memory = ConversionMemory()
        self.pool = ConversionThreads(self.driver, wall_ms=self.now_ms)
        self.effects, self.changed = self.driver.effects, {}
        self.step = Replica("t", 0, self.log, self)
        self.replica = HostedReplica(
            self.step,
            self.driver,
            wall_ms=self.now_ms,
            in_thread=asyncio.to_thread,
            conversions=self.pool,
        )
        self.step.become_leader(PartitionImage(replicas, replicas, 1, 0, 0), 0)
        self.questions: list[tuple[Any, ...]] = []
        self.answers: list[asyncio.Future[dict[TopicPartitionPair, ErrorCode]]] = []

    def now_ms(self) -> int:
        return 1000

    def context(self, version: int) -> RequestContext:
        return RequestContext(self, version, "c", "p", 1)  # type: ignore[arg-type]

    def set(self, **transactions: Any) -> None:
        config = replace(self.server_config.transactions, **transactions)
        self.server_config = replace(self.server_config, transactions=config)

    # --- partitions ------------------------------------------------------------------------------

    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> HostedReplica:
        if (topic, partition) != ("t", 0):
            raise UnknownTopicOrPartition(f"there is no {topic}-{partition}")
        return self.replica

    def on_follower_caught_up(self, replica: Replica) -> None: ...
    def on_storage_failure(self) -> None: ...

    def copy_to(self, *followers: int) -> None:
        """These have everything."""
        end = self.log.log_end_offset
        for node_id in followers:
            self.replica.on_follower_fetch(FollowerFetch(node_id, 1, end, 0 if end else -1))

    # --- transaction partitions ------------------------------------------------------------------

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartitionPair],
        *,
        adds: bool,
    ) -> Awaitable[dict[TopicPartitionPair, ErrorCode]]:
        self.questions.append(
            (transactional_id, producer_id, producer_epoch, list(partitions), adds)
        )
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest question that is open."""
        question, answer = self.questions.pop(0), self.answers.pop(0)
        answer.set_result(dict.fromkeys(question[3], code))


def run(folder: Path, scenario: Callable[[LedPartition], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        node = LedPartition(folder, **options)
        try:
            await scenario(node)
        finally:
            node.pool.close()
            node.log.close(clean=False)

    asyncio.run(asyncio.wait_for(main(), 20))
