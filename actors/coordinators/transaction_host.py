"""The transaction coordinators of one node. Implements handlers.transaction_port.Transactions."""

from __future__ import annotations

from collections.abc import Sequence

from ...cluster.metadata.features import TRANSACTION_VERSION
from ...cluster.metadata.metadata_image import MetadataImage
from ...coordinators.coordinator_runtime import CoordinatorRuntime
from ...handlers.ports.context import Node
from ...handlers.ports.replica_port import LeaderReplica
from ...handlers.ports.transaction_port import TransactionShard as TransactionShardPort
from ...transactions.transaction_coordinators import TransactionContext, transaction_coordinators
from ...transactions.transaction_effects import SendMarkers
from ...transactions.transaction_markers import MarkersWritten
from .coordinator_host import CoordinatorHost
from .transaction_marker_sender import TransactionMarkerSender
from .transaction_shard import TransactionShard


class TransactionHost:
    """One event loop. `on_metadata` before the node acts on an image; `close` at last."""

    def __init__(self, node: Node) -> None:
        kind = transaction_coordinators(
            node.server_config.transactions,
            node.producer_ids.take,
            version=TRANSACTION_VERSION,
        )
        self._wall_ms = node.now_ms
        self._host = CoordinatorHost(CoordinatorRuntime(kind), self._new_shard, node.now_ms)
        self._markers = TransactionMarkerSender(node, self._on_markers_written)
        self.on_leader = self._host.on_leader

    def _new_shard(self, context: TransactionContext, replica: LeaderReplica) -> TransactionShard:
        # A former coordinator here may have been replaced without on_resigned: what it still sends
        # may be of transactions that another node has ended meanwhile.
        self._markers.on_resigned(context.partition)
        return TransactionShard(context, replica, self._wall_ms, self._send_markers)

    def _send_markers(self, shard: TransactionShard, markers: SendMarkers) -> None:
        self._markers.send(shard.partition, shard.coordinator_epoch, markers)

    def _on_markers_written(self, written: MarkersWritten) -> None:
        shard = self._host.led.get(written.key.partition)
        if shard is not None and shard.coordinator_epoch == written.key.coordinator_epoch:
            shard.on_markers_written(written.markers)

    def on_resigned(self, partition: int) -> None:
        self._host.on_resigned(partition)
        self._markers.on_resigned(partition)

    def on_metadata(self, image: MetadataImage) -> None:
        """The node is about to act on `image`: its topics and leaders are known from now on."""
        self._markers.on_metadata(image)

    def shard(self, partition: int) -> TransactionShardPort:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._host.shard(partition)

    def shards(self) -> Sequence[TransactionShardPort]:
        """Raises CoordinatorLoadInProgress: a list without the ids of a shard would be wrong."""
        return self._host.shards()

    async def close(self) -> None:
        self._host.close()
        await self._markers.close()
