"""Transaction coordinators of a node. Implements handlers.ports.transaction_port.Transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...cluster.metadata.features import TRANSACTION_VERSION
from ...cluster.metadata.metadata_image import MetadataImage
from ...coordinators.coordinator_runtime import CoordinatorRuntime
from ...handlers.ports.replica_port import LeaderReplica
from ...handlers.ports.request_metrics import Histogram
from ...handlers.ports.transaction_port import TransactionShard as TransactionShardPort
from ...transactions.transaction_coordinators import TransactionContext, transaction_coordinators
from ...transactions.transaction_effects import SendMarkers
from ...transactions.transaction_markers import MarkersWritten
from .coordinator_host import CoordinatorHost
from .node_requests import AskingNode
from .transaction_marker_sender import TransactionMarkerSender
from .transaction_shard import TransactionShard


class TransactionNumbers(NamedTuple):
    """Counts of a node's transaction coordinators, for metrics."""

    partitions: int = 0
    partitions_loading: int = 0
    transactional_ids: int = 0
    unknown_leaders: int = 0
    """Ended transactions that wait for a leader of one of their partitions."""
    append_retries: int = 0
    """Ended transactions whose last record was refused."""


class TransactionHost:
    """Host of a node's transaction coordinators. Runs in one event loop.

    Call `on_metadata` before the node applies an image, and `close` at last.
    """

    def __init__(self, node: AskingNode) -> None:
        kind = transaction_coordinators(
            node.server_config.transactions,
            node.producer_ids.take,
            version=TRANSACTION_VERSION,
        )
        self.load_times = Histogram()
        """Seconds from the moment the node leads a partition until its coordinator serves."""
        kind = replace(kind, note_load_ms=lambda ms: self.load_times.observe(ms / 1000))
        self._wall_ms = node.now_ms
        self._runtime = CoordinatorRuntime(kind)
        self._host = CoordinatorHost(self._runtime, self._new_shard, node.now_ms)
        self._markers = TransactionMarkerSender(node, self._on_markers_written)
        self.on_leader = self._host.on_leader

    def _new_shard(self, context: TransactionContext, replica: LeaderReplica) -> TransactionShard:
        self._markers.on_elected(context.partition, context.leader_epoch)
        return TransactionShard(context, replica, self._wall_ms, self._send_markers)

    def _send_markers(self, shard: TransactionShard, markers: SendMarkers) -> None:
        self._markers.send(shard.partition, shard.coordinator_epoch, markers)

    def _on_markers_written(self, written: MarkersWritten) -> None:
        shard = self._host.led.get(written.key.partition)
        if shard is not None:
            shard.on_markers_written(written)

    def on_resigned(self, partition: int) -> None:
        self._host.on_resigned(partition)
        self._markers.on_resigned(partition)

    def on_metadata(self, image: MetadataImage) -> None:
        """Use the topics and leaders of `image`, which the node is about to apply."""
        self._markers.on_metadata(image)

    def shard(self, partition: int) -> TransactionShardPort:
        """Shard of a led partition. Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._host.shard(partition)

    def shards(self) -> Sequence[TransactionShardPort]:
        """All shards. Raises CoordinatorLoadInProgress: a list without some ids would be wrong."""
        return self._host.shards()

    def numbers(self) -> TransactionNumbers:
        active = self._runtime.active
        return TransactionNumbers(
            partitions=len(active),
            partitions_loading=self._runtime.loading_count,
            transactional_ids=sum(len(context.coordinator) for context in active),
            unknown_leaders=self._markers.manager.unknown_leader_count,
            append_retries=sum(context.coordinator.append_retry_count for context in active),
        )

    async def close(self) -> None:
        self._host.close()
        await self._markers.close()
