"""The coordinator of a World as handlers reach it: each record is committed when it is written."""

from collections.abc import Iterable
from typing import Any

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.tests.transactions.transaction_world import World
from bradbury.transactions.transaction_coordinator import MOST_WAIT_MS
from bradbury.transactions.transaction_effects import InitializedProducer
from bradbury.transactions.transaction_metadata import TransactionMetadata


class WorldShard:
    """Implements handlers.ports.transaction_port.TransactionShard."""

    def __init__(self) -> None:
        self.world = World()
        self.commits = True
        self.ends = True
        """Whether the markers are written at once."""

    async def _answer(self, request: int) -> Any:
        while self.commits and self.world.appends:
            self.world.commit()
        while self.ends and self.world.markers:
            self.world.write_markers()
            self.world.settle()
        if request not in self.world.answers:
            self.world.pass_time(MOST_WAIT_MS)
        return self.world.answers[request]

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, *, expected: tuple[int, int] | None
    ) -> InitializedProducer:
        request = self.world.init(transactional_id, timeout_ms, expected)
        producer: InitializedProducer = await self._answer(request)
        return producer

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartitionPair],
        *,
        client_version: int,
    ) -> ErrorCode:
        self.world.version = client_version
        producer = (producer_id, producer_epoch)
        error: ErrorCode = await self._answer(
            self.world.add(producer, *partitions, transactional_id=transactional_id)
        )
        return error

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartitionPair],
    ) -> dict[TopicPartitionPair, ErrorCode]:
        return self.world.coordinator.verify_partitions(
            transactional_id, producer_id, producer_epoch, partitions
        )

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        client_version: int,
    ) -> InitializedProducer:
        self.world.version = client_version
        producer: InitializedProducer = await self._answer(
            self.world.end(
                (producer_id, producer_epoch),
                is_commit=is_commit,
                transactional_id=transactional_id,
            )
        )
        return producer

    def transactions(self) -> Iterable[tuple[str, TransactionMetadata]]:
        return iter(self.world.coordinator)

    def metadata_of(self, transactional_id: str) -> TransactionMetadata | None:
        return self.world.coordinator.metadata_of(transactional_id)
