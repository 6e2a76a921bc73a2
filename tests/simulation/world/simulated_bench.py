"""A few simulated nodes whose metadata a test decides itself: for histories told step by step.

There is no controller: `decide` says who leads and who is in sync, to whom it is told. Everything
else (logs, fetches, the network between them) is the simulation's.
"""

from __future__ import annotations

from collections.abc import Sequence

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    FenceNodeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterNodeRecord,
    TopicRecord,
)
from bradbury.protocol.records.records import encode_records
from bradbury.storage.log.partition_log import PartitionLog

from .simulated_cluster import TOPIC, TOPIC_ID, SimulatedCluster
from .simulated_replica import SimulatedReplica, read_batches, rotten_batches
from .simulated_requests import produce
from .simulated_swarm import Swarm

PARTITION = (TOPIC, 0)


class Bench:
    """Nodes 1 to 3, one partition with a replica on each of them."""

    def __init__(
        self,
        *,
        min_insync: int = 1,
        flushes: bool = False,
        segment_bytes: int = 1 << 20,
        directories: int = 1,
    ) -> None:
        swarm = Swarm(
            producers=0,
            readers=0,
            min_insync=min_insync,
            flushes=flushes,
            segment_bytes=segment_bytes,
            directories=directories,
            kinds=("rot",),
        )
        self.cluster = SimulatedCluster("bench", swarm)
        self.nodes = self.cluster.nodes
        assert self.cluster.current is not None
        self.cluster.current.kill()
        self._partition_epoch = 0
        self._written = 0
        self._epochs = dict.fromkeys(self.nodes, 1)
        self.image = MetadataImage()
        self._change([TopicRecord(topic_id=str(TOPIC_ID), name=TOPIC)], to=())
        for node_id in self.nodes:
            self.register(node_id)

    def _change(self, records: Sequence[MetadataRecord], to: Sequence[int]) -> None:
        self.image = self.image.apply(records, offset=self.image.offset + len(records))
        for node_id in to:
            self.nodes[node_id].apply(self.image)
        if to:
            self.run(self.cluster.swarm.fsync_ms)  # a new leader epoch reaches the disk

    def register(self, node_id: int, *, to: Sequence[int] = ()) -> None:
        """A new life of the node, in a greater broker epoch."""
        record = RegisterNodeRecord(
            node_id=node_id,
            directory_id=f"d{node_id}",
            incarnation=f"{self.image.offset}",
            roles=("partition",),
            host="",
            port=0,
            rack=None,
            epoch=self.image.offset + 1,
        )
        self._change([record], to)

    def fence(self, *node_ids: int, to: Sequence[int] = (1, 2, 3)) -> None:
        """Their sessions have ended, and who hears it at once."""
        epochs = {each: self.image.nodes[each].epoch for each in node_ids}
        records = [
            FenceNodeRecord(node_id=each, epoch=epoch, fenced=True)
            for each, epoch in epochs.items()
        ]
        self._change(records, to)

    def decide(
        self, leader: int, epoch: int, isr: Sequence[int], *, to: Sequence[int] = (1, 2, 3)
    ) -> None:
        """The controller's word, and who hears it at once."""
        self._partition_epoch += 1
        record = PartitionRecord(
            topic_id=str(TOPIC_ID),
            partition=0,
            replicas=(1, 2, 3),
            isr=tuple(isr),
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=self._partition_epoch,
        )
        self._change([record], to)

    def tell(self, *node_ids: int) -> None:
        """Everything that was decided so far."""
        for node_id in node_ids:
            self.nodes[node_id].apply(self.image)

    def replica(self, node_id: int) -> SimulatedReplica:
        return self.nodes[node_id].replicas[PARTITION]

    def log(self, node_id: int) -> PartitionLog:
        return self.replica(node_id).log

    def records(self, node_id: int) -> list[tuple[int, int]]:
        """(leader epoch, checksum) of each record."""
        log = self.log(node_id)
        batches = read_batches(log, log.log_start_offset, log.log_end_offset)
        return [(batch.leader_epoch, batch.crc) for batch in batches]

    def epochs(self, node_id: int) -> list[int]:
        """The leader epoch of each record."""
        return [epoch for epoch, _ in self.records(node_id)]

    def append(self, node_id: int, count: int = 1) -> list[object]:
        """Append records of one batch each, with acks=all; answers come into the list."""
        answers: list[object] = []
        for _ in range(count):
            self._written += 1
            value = b"record %d" % self._written
            batch = encode_records([(self.cluster.clock.now_ms, None, value, ())])
            produce(self.nodes[node_id], PARTITION, bytes(batch), answers.append)
        return answers

    def rot(self, node_id: int, segment: int = 0) -> None:
        """Let a batch rot that is safe on the disk, in this segment of the log."""
        log = self.log(node_id)
        log.flushing.flush()
        path = log.segments[segment].files.path
        assert self.nodes[node_id].disk.rot(self.cluster.random, path)

    def damage(self, node_id: int) -> bool:
        """Whether anything is rotten in the log, or is known to be damaged."""
        return bool(rotten_batches(self.replica(node_id)) or self.log(node_id).damage.ranges)

    def run(self, ms: int = 400) -> None:
        self.cluster.clock.run(self.cluster.clock.now_ms + ms)

    def separate(self, some: set[int], others: set[int]) -> None:
        self.cluster.network.cut(some, others, one_way=False)

    def join(self) -> None:
        self.cluster.network.cuts.clear()

    def restart(self, node_id: int, *, power: bool = False) -> None:
        """Its process, or its machine; it knows of nothing until it is told."""
        node = self.nodes[node_id]
        if power:
            node.lose_power()
        else:
            node.kill()
        node.start()
