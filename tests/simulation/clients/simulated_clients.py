"""Producers and readers of the simulation: clients as they are, with retries, in the ledger's view.

An idempotent producer has several batches of one partition in flight; after an error all that are
not acknowledged are sent again, in order, as librdkafka does. One with acks=1 sends each batch
once, and may lose it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from bradbury.cluster.metadata.metadata_image import NO_LEADER
from bradbury.protocol.errors import OffsetOutOfRange, error_for
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.records.records import encode_records
from bradbury.protocol.topic_partition import TopicPartitionPair

from ..world.simulated_fetcher import answer_fetch
from ..world.simulated_network import LOST, Answer, Process, is_error
from ..world.simulated_replica import Batch, are_sound, batches_of
from ..world.simulated_requests import produce

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster

PRODUCE_MS = 200
BACKOFF_MS = 25
READ_BYTES = 4_000
MOVES = 0.1
"""How often a reader that reads anywhere goes elsewhere."""


class Client:
    """A process on a machine of its own that knows the leader as some node has last told it."""

    def __init__(
        self, cluster: SimulatedCluster, machine: int, partition_id: TopicPartitionPair
    ) -> None:
        self.cluster = cluster
        self.partition_id = partition_id
        self.process = Process(cluster.clock, machine, f"m{machine}")
        self.process.begin_life()
        self.leader_id = NO_LEADER
        self.leader_epoch = -1

    def find_leader(self) -> None:
        """Ask some node, whatever that knows; what is older than known is not believed (KIP-320)."""
        up = [node for node in self.cluster.nodes.values() if node.process.is_up]
        if not up:
            return
        image = self.cluster.random.choice(up).image.partition(*self.partition_id)
        if image is None or image.leader_epoch < self.leader_epoch:
            self.leader_id = NO_LEADER
        else:
            self.leader_id, self.leader_epoch = image.leader, image.leader_epoch


class Sent:
    """One batch of a producer, from its first send to its acknowledgement."""

    __slots__ = ("bytes", "count", "is_acknowledged", "number", "sequence")

    def __init__(self, number: int, sequence: int, count: int, data: bytes) -> None:
        self.number, self.sequence, self.count, self.bytes = number, sequence, count, data
        self.is_acknowledged = False


class Producer(Client):
    """producer_id -1: not idempotent, acks=1."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        machine: int,
        partition_id: TopicPartitionPair,
        producer_id: int,
    ) -> None:
        super().__init__(cluster, machine, partition_id)
        self.producer_id = producer_id
        self.acks_all = producer_id >= 0
        self.waiting: deque[Sent] = deque()
        """The sends from the first unacknowledged on; the first `_in_flight` of them were sent. No
        more than that many, as the leader remembers five batches of a producer.
        """
        self.is_stopped = False
        self.acknowledged = 0
        self._in_flight = 0
        self._generation = 0
        self._sequence = 0
        self._made = 0
        self._is_backing_off = False
        self._is_known = False
        swarm = cluster.swarm
        self._may_be_forgotten = swarm.retention_ms >= 0 or "delete records" in swarm.kinds
        self._make()

    def _make(self) -> None:
        swarm, random = self.cluster.swarm, self.cluster.random
        if self.is_stopped:
            return
        if len(self.waiting) < swarm.in_flight * 2:
            count = random.choice((1, 1, 1, 2, 3))
            name = f"{self.process.name}:{self._made}".encode()
            data = encode_records(
                [(self.cluster.clock.now_ms, None, name + b"/%d" % n, ()) for n in range(count)],
                producer_id=self.producer_id,
                producer_epoch=0 if self.acks_all else -1,
                base_sequence=self._sequence if self.acks_all else -1,
            )
            sent = Sent(self._made, self._sequence, count, bytes(data))
            self.cluster.oracle.on_sent(self, batches_of(sent.bytes)[0])
            self.waiting.append(sent)
            self._made += 1
            self._sequence += count
            self._send_more()
        pace = 1 + int(random.random() * 2 * swarm.pace_ms)
        self.process.after(pace, self._make)

    def _send_more(self) -> None:
        # Of a producer id that it has never seen a leader takes any sequence as the first (KIP-360):
        # were the first batch lost and the second not, the first could never be written.
        # So it is where all it has written may be deleted meanwhile, and what it was known by, at
        # any moment: the second may wait in the socket of a node that is stopped. Kafka's producers
        # begin a new epoch then, this one cannot.
        is_certain = self.acks_all and self._is_known and not self._may_be_forgotten
        most = self.cluster.swarm.in_flight if is_certain else 1
        while self._in_flight < min(most, len(self.waiting)) and not self._is_backing_off:
            sent = self.waiting[self._in_flight]
            if not sent.is_acknowledged and not self._send(sent):
                self._back_off()
                return
            self._in_flight += 1

    def _send(self, sent: Sent) -> bool:
        node = self.cluster.nodes.get(self.leader_id)
        if node is None:
            return False
        generation = self._generation
        data, partition_id, acks_all = sent.bytes, self.partition_id, self.acks_all

        def handle(answer: Answer) -> None:
            produce(node, partition_id, data, answer, acks_all=acks_all)

        self.cluster.network.call(
            self.process,
            node.process,
            handle,
            lambda result: self._on_answer(sent, result, generation),
            timeout_ms=PRODUCE_MS,
            what="produce",
        )
        return True

    def _on_answer(self, sent: Sent, result: Any, generation: int) -> None:
        if not is_error(result):
            self._on_acknowledged(sent, result)
        elif not self.acks_all:
            if self.waiting and self.waiting[0] is sent:  # it may be lost, and nobody cares
                self.waiting.popleft()
                self._in_flight = 0
            self._back_off()
        elif generation == self._generation:
            self._back_off()

    def _on_acknowledged(self, sent: Sent, base_offset: int) -> None:
        if sent.is_acknowledged:
            return
        if self.acks_all:
            self.cluster.oracle.on_acknowledged(self, sent, base_offset)
        sent.is_acknowledged = self._is_known = True
        self.acknowledged += 1
        while self.waiting and self.waiting[0].is_acknowledged:
            self.waiting.popleft()
            self._in_flight = max(0, self._in_flight - 1)
        self._send_more()

    def _back_off(self) -> None:
        if self._is_backing_off:
            return
        self._is_backing_off = True
        self._generation += 1
        self._in_flight = 0

        def again() -> None:
            self._is_backing_off = False
            self.find_leader()
            self._send_more()

        self.process.after(BACKOFF_MS, again)


class Reader(Client):
    """Reads one partition from its start on, in order, below the high watermark.

    reads_anywhere: of whatever replica it knows, now this one, now that one (KIP-392).
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        machine: int,
        partition_id: TopicPartitionPair,
        *,
        reads_anywhere: bool = False,
        rack: str = "",
    ) -> None:
        super().__init__(cluster, machine, partition_id)
        self.position = 0
        self.rack = rack
        """Whose replicas it wants to be sent to."""
        self._reads_anywhere = reads_anywhere
        self._ask()

    def find_leader(self) -> None:
        super().find_leader()
        if self._reads_anywhere and self.leader_id != NO_LEADER:
            self.leader_id = self.cluster.random.choice(self.cluster.replicas_of(self.partition_id))

    def _ask(self) -> None:
        node = self.cluster.nodes.get(self.leader_id)
        if node is None:
            self.find_leader()
            self.process.after(BACKOFF_MS, self._ask)
            return
        topic, partition = self.partition_id
        asked = FetchPartition(
            partition=partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.position,
            partition_max_bytes=READ_BYTES,
        )
        request = FetchRequest(
            max_bytes=READ_BYTES,
            rack_id=self.rack,
            topics=[FetchTopic(topic_id=self.cluster.topics()[topic], partitions=[asked])],
        )

        def handle(answer: Answer) -> None:
            answer_fetch(node, self.process.name, request, answer)

        self.cluster.network.call(
            self.process, node.process, handle, self._on_answer, timeout_ms=PRODUCE_MS
        )

    def _on_answer(self, result: Any) -> None:
        if not isinstance(result, FetchResponse):
            self._go_on(LOST)
            return
        [data] = result.responses[0].partitions
        if data.preferred_read_replica >= 0:
            self.cluster.oracle.on_sent_elsewhere(self, data.preferred_read_replica)
            self.leader_id = data.preferred_read_replica
        self._go_on(error_for(data.error_code) if data.error_code else data.records)

    def _go_on(self, result: Any) -> None:
        if isinstance(result, OffsetOutOfRange):
            self.position = self.cluster.oracle.on_out_of_range(self)
        if is_error(result) or not are_sound(result):
            self.find_leader()  # and asks again
        elif result:
            batches: list[Batch] = batches_of(result)
            self.cluster.oracle.on_read(self, batches)
            self.position = batches[-1].next_offset
        if self._reads_anywhere and self.cluster.random.random() < MOVES:
            self.find_leader()
        self.process.after(self.cluster.swarm.pace_ms, self._ask)
