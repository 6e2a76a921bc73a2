"""A reader of committed records, as Kafka's consumers are with isolation.level read_committed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bradbury.cluster.metadata.metadata_image import NO_LEADER
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from bradbury.protocol.records.record_batch import walk_batches
from bradbury.protocol.records.records import (
    ControlType,
    control_type,
    iterate_records,
)
from bradbury.protocol.topic_partition import TopicPartitionPair

from ..world.simulated_fetcher import answer_fetch
from ..world.simulated_network import Answer, Process
from ..world.simulated_replica import are_sound

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster
    from ..world.simulated_node import SimulatedNode

REQUEST_MS = 250
WAIT_MS = 100
BACKOFF_MS = 20
READ_BYTES = 4_000


class CommittedReader:
    """Reads one partition with isolation.level read_committed, as Kafka's consumer does."""

    def __init__(
        self, cluster: SimulatedCluster, machine: int, partition_id: TopicPartitionPair
    ) -> None:
        self.cluster = cluster
        self.partition_id = partition_id
        self.process = Process(cluster.clock, machine, f"c{machine}")
        self.process.begin_life()
        self.position = 0
        self.values: list[bytes] = []
        self._aborted: set[int] = set()
        # Some of them wait for records, as consumers do; others see what is there at any moment.
        self._wait_ms = WAIT_MS if machine % 2 else 0
        self._ask()

    def _ask(self) -> None:
        node = self._find()
        if node is None:
            self.process.after(BACKOFF_MS, self._ask)
            return
        topic, partition = self.partition_id
        asked = FetchPartition(
            partition=partition,
            fetch_offset=self.position,
            partition_max_bytes=READ_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=READ_BYTES,
            isolation_level=1,
            topics=[FetchTopic(topic_id=self.cluster.topics()[topic], partitions=[asked])],
        )
        self.cluster.network.call(
            self.process,
            node.process,
            lambda answer: answer_fetch(
                node, self.process.name, request, partial(self._on_answered, node, answer)
            ),
            self._on_answer,
            timeout_ms=REQUEST_MS,
        )

    def _on_answered(self, node: SimulatedNode, answer: Answer, result: Any) -> None:
        """The answer leaves its node: whoever gave it is known here, and nowhere later."""
        replica = node.replicas.get(self.partition_id)
        if isinstance(result, FetchResponse) and replica is not None:
            [data] = result.responses[0].partitions
            if not data.error_code:
                self.cluster.transaction_oracle.on_answer(replica, data)
        answer(result)

    def _find(self) -> Any:
        up = [node for node in self.cluster.nodes.values() if node.process.is_up]
        if not up:
            return None
        image = self.cluster.random.choice(up).image.partition(*self.partition_id)
        leader = NO_LEADER if image is None else image.leader
        if self.cluster.swarm.follower_reads and image is not None:
            leader = self.cluster.random.choice(image.replicas)
        return self.cluster.nodes.get(leader)

    def _on_answer(self, result: Any) -> None:
        if isinstance(result, FetchResponse):
            [data] = result.responses[0].partitions
            if not data.error_code and are_sound(bytes(data.records or b"")):
                self._take(data)
        self.process.after(self.cluster.swarm.pace_ms, self._ask)

    def _take(self, data: PartitionData) -> None:
        """Drop what the answer says was aborted, from its first offset to its marker."""
        begins = sorted(
            (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
        )
        records = memoryview(bytes(data.records or b""))
        for position, header in walk_batches(records, strict=False):
            while begins and begins[0][0] <= header.last_offset:
                self._aborted.add(begins.pop(0)[1])
            batch = list(iterate_records(records[position : position + header.size]))
            if header.is_control:
                if batch and control_type(batch[0].key) is ControlType.ABORT:
                    self._aborted.discard(header.producer_id)
            elif header.producer_id not in self._aborted:
                for record in batch:
                    if record.offset >= self.position and record.value is not None:
                        value = bytes(record.value)
                        self.cluster.transaction_oracle.on_read(
                            self.partition_id, record.offset, value
                        )
                        self.values.append(value)
            self.position = max(self.position, header.next_offset)
