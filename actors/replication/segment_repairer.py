"""Fetches what a damaged segment has lost from another replica of its partition.

It asks as a consumer does, so whoever has the records answers, leader or follower, and only with
what is committed; what is taken of that is storage/log/segment_patch's to decide. The replica stays
what it is, leader or follower, in sync or not: nothing of its log is taken away for this.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

from ...cluster.broker_config import BrokerConfig
from ...cluster.metadata.metadata_image import MetadataImage
from ...protocol.errors import ConnectionFailed, CorruptMessage, KafkaError, error_for
from ...protocol.fetch_session_epoch import FINAL_EPOCH
from ...protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from ...replication.logs.segment_sources import segment_sources
from ...replication.partition.replica import Replica
from ...storage.log.log_damage import SegmentExamination
from ...storage.log.segment_patch import SegmentChanged, SegmentPatch
from ..network.peer_connection import PeerConnection
from ..network.peers import Peers
from .hosted_replica import InThread

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
DEBUGGING_CONSUMER = -2
"""Kafka's id of who reads as a consumer does, and is none: to it bradbury.damaged.segment=skip does
not apply, as its gap would become ours.
"""
WAIT_MS = 100
ANSWER_SECONDS = 30.0
MOST_BYTES = 4 * 1024**2
"""In one answer; the largest batch comes whole."""
ROOM_FOR_LARGE_BATCHES = 16 * 1024**2


class RepairingNode(Protocol):
    """The node whose segments these are."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def peers(self) -> Peers: ...
    def wall_ms(self) -> int: ...


class SegmentRepairer:
    """One event loop. `heal` ends with a whole segment in the log, or with what was there."""

    def __init__(self, node: RepairingNode, in_thread: InThread) -> None:
        self._node = node
        self._in_thread = in_thread
        self.healed = 0
        self.fetched_bytes = 0

    def sources(self, replica: Replica) -> list[int]:
        """The nodes that may have what is missing, the likeliest first."""
        node = self._node
        return segment_sources(node.image, replica.topic, replica.partition, node.node_id)

    async def heal(self, replica: Replica, examination: SegmentExamination) -> str | None:
        """Returns None, or why not. Raises SegmentChanged, StorageFailure."""
        said = []
        for node_id in self.sources(replica):
            patch = SegmentPatch(replica.log, examination, self._node.wall_ms())
            try:
                await self._fetch(patch, replica, node_id)
            except (KafkaError, OSError) as error:
                said.append(f"node {node_id}: {error}")
                await self._in_thread(patch.abandon)
                continue
            except BaseException:
                patch.abandon()
                raise
            try:
                patch.apply(self._node.wall_ms())
            except SegmentChanged:
                await self._in_thread(patch.abandon)
                raise
            self.healed += 1
            self.fetched_bytes += patch.fetched_bytes
            logger.warning(
                "%s: %s is whole again, with %d bytes of node %d",
                replica,
                examination.path,
                patch.fetched_bytes,
                node_id,
            )
            return None
        return "; ".join(said) or "no other replica"

    async def _fetch(self, patch: SegmentPatch, replica: Replica, node_id: int) -> None:
        await self._in_thread(patch.prepare)
        if patch.wanted is not None:
            connection = await self._connect(node_id)
            try:
                while (wanted := patch.wanted) is not None:
                    records = await self._ask(connection, replica, wanted[0])
                    await self._in_thread(partial(patch.add, records))
            finally:
                connection.close()
        await self._in_thread(patch.finish)

    async def _connect(self, node_id: int) -> PeerConnection:
        node = self._node.image.nodes.get(node_id)
        if node is None:
            raise ConnectionFailed(f"the address of node {node_id} is not known")
        return await self._node.peers.connect(
            node,
            client_id=f"repair-{self._node.node_id}",
            max_answer_bytes=MOST_BYTES
            + self._node.config.socket_request_max_bytes
            + ROOM_FOR_LARGE_BATCHES,
        )

    async def _ask(self, connection: PeerConnection, replica: Replica, offset: int) -> bytes:
        topic = self._node.image.topics.get(replica.topic)
        if topic is None:
            raise ConnectionFailed(f"{replica} is not there any more")
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=DEBUGGING_CONSUMER),
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MOST_BYTES,
            session_epoch=FINAL_EPOCH,
            topics=[
                FetchTopic(
                    topic_id=topic.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=replica.partition,
                            current_leader_epoch=-1,
                            fetch_offset=offset,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=MOST_BYTES,
                        )
                    ],
                )
            ],
        )
        answer = await connection.request(
            request, FetchResponse, FETCH_VERSION, timeout_seconds=ANSWER_SECONDS
        )
        if answer.error_code:
            raise error_for(answer.error_code)
        [found] = answer.responses[0].partitions
        if found.error_code:
            raise error_for(found.error_code)
        if not found.records:
            raise CorruptMessage(f"it has nothing at offset {offset}")
        return bytes(found.records)
