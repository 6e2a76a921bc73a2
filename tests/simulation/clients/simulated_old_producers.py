"""Producers of before Kafka 0.11, and what must hold of their records: nothing tells their batches
apart but the order in which they were sent.

They send message sets of magic 0 and 1, and now and then a batch of magic 2 without a producer id,
several at a time on one connection, to a topic that may keep another codec. After an error all that
are not acknowledged are sent again on another connection, in order, each with another attempt in its
values.

    O1  what is acknowledged of one connection lies in the log in the order in which it was sent
    O2  what was acknowledged is there in the end, at its offset
    O3  an attempt that was refused, as its leader is none any more, is not appended after that
    O4  at rest no conversion is in memory
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from bradbury.protocol.errors import NotLeaderOrFollower
from bradbury.protocol.records.legacy_messages import convert_down
from bradbury.protocol.records.records import encode_records, iterate_records
from bradbury.protocol.topic_partition import TopicPartitionPair

from ..world.simulated_network import Answer, is_error
from ..world.simulated_requests import produce
from .simulated_clients import BACKOFF_MS, PRODUCE_MS, Client
from .simulated_ledger import contents_of
from .simulated_log_checks import Violation

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster
    from ..world.simulated_node import SimulatedNode

MAGICS = (0, 1, 1, 2)
MESSAGE_SETS = 2
"""Produce up to this version carries message sets."""
LIMIT = 1 << 20
IN_FLIGHT = 4


class OldBatch(NamedTuple):
    """One batch, from its first send to its acknowledgement."""

    number: int
    magic: int
    count: int

    def values(self, name: str, attempt: int) -> list[bytes]:
        return [f"{name}:{self.number}/{n}#{attempt}".encode() for n in range(self.count)]


class OldProducer(Client):
    """acks=all, with retries."""

    def __init__(
        self, cluster: SimulatedCluster, machine: int, partition_id: TopicPartitionPair
    ) -> None:
        super().__init__(cluster, machine, partition_id)
        self.waiting: deque[OldBatch] = deque()
        self.is_stopped = False
        self.acknowledged: dict[int, bytes] = {}
        """The value at each offset that was acknowledged."""
        self.refused: list[tuple[bytes, int]] = []
        """(value, log end of the refusing leader): of attempts that were refused."""
        self._random = Random(f"old producer {cluster.seed} {machine}")
        self._offsets: dict[tuple[int, int], int] = {}
        """(connection, number of the batch): where it was acknowledged."""
        self._attempt = 0
        """The connection, and the attempt of what is sent on it."""
        self._sent: set[int] = set()
        """Numbers of the batches that were sent on this connection."""
        self._made = 0
        self._is_backing_off = False
        self._make()

    def _make(self) -> None:
        if self.is_stopped:
            return
        if len(self.waiting) < 2 * IN_FLIGHT:
            magic, count = self._random.choice(MAGICS), self._random.choice((1, 1, 2))
            self.waiting.append(OldBatch(self._made, magic, count))
            self._made += 1
            self._send_more()
        pace_ms = self.cluster.swarm.pace_ms
        self.process.after(1 + int(self._random.random() * pace_ms), self._make)

    def _send_more(self) -> None:
        for batch in list(self.waiting)[:IN_FLIGHT]:
            if self._is_backing_off:
                return
            if batch.number not in self._sent:
                self._send(batch)

    def _send(self, batch: OldBatch) -> None:
        node = self.cluster.nodes.get(self.leader_id)
        if node is None:
            self._back_off()
            return
        self._sent.add(batch.number)
        attempt = self._attempt
        values = batch.values(self.process.name, attempt)
        data = bytes(
            encode_records([(self.cluster.clock.now_ms, None, value, ()) for value in values])
        )
        if batch.magic < 2:
            data = bytes(convert_down(data, batch.magic, fetch_offset=0, limit=LIMIT))

        def handle(answer: Answer) -> None:
            def answered(result: Any) -> None:
                self._note_refusal(node, values, result)
                answer(result)

            version = MESSAGE_SETS if batch.magic < 2 else MESSAGE_SETS + 1
            produce(node, self.partition_id, data, answered, version=version)

        self.cluster.network.call(
            self.process,
            node.process,
            handle,
            lambda result: self._on_answer(batch, attempt, result),
            timeout_ms=PRODUCE_MS,
            what="produce",
            is_connection=True,
        )

    def _note_refusal(self, node: SimulatedNode, values: list[bytes], result: Any) -> None:
        replica = node.replicas.get(self.partition_id)
        if isinstance(result, NotLeaderOrFollower) and replica is not None:
            self.refused.append((values[0], replica.log.log_end_offset))

    def _on_answer(self, batch: OldBatch, attempt: int, result: Any) -> None:
        if is_error(result):
            if attempt == self._attempt:
                self._back_off()
            return
        self._check_order(batch, attempt, result)
        for n, value in enumerate(batch.values(self.process.name, attempt)):
            self.acknowledged[result + n] = value
        if batch in self.waiting:
            self.waiting.remove(batch)
        self._send_more()

    def _check_order(self, batch: OldBatch, attempt: int, offset: int) -> None:
        """O1."""
        ledger = self.cluster.oracle.ledgers[self.partition_id]
        ledger.acknowledged += 1
        self.cluster.clock.note(offset)
        self.cluster.oracle.note(
            self.partition_id,
            f"{self.process.name}'s batch {batch.number}, magic {batch.magic}, attempt {attempt}, "
            f"is acknowledged at {offset}",
        )
        for (other, number), at in self._offsets.items():
            if other == attempt and (number < batch.number) != (at < offset):
                if ledger.is_damaged:
                    break
                raise Violation(
                    "O1",
                    f"{self.process.name}'s batch {number} is at {at}, batch {batch.number} of the "
                    f"same connection at {offset}",
                    self.partition_id,
                )
        self._offsets[attempt, batch.number] = offset

    def _back_off(self) -> None:
        if self._is_backing_off:
            return
        self._is_backing_off = True
        self._attempt += 1
        self._sent.clear()

        def again() -> None:
            self._is_backing_off = False
            self.find_leader()
            self._send_more()

        self.process.after(BACKOFF_MS, again)

    def check_end(self) -> None:
        """O2 and O3, when all has come to rest; O4 of the node that leads."""
        ledger = self.cluster.oracle.ledgers[self.partition_id]
        state = self.cluster.oracle.image.partition(*self.partition_id)
        assert state is not None
        node = self.cluster.nodes[state.leader]
        if reserved := node.steps.conversion_memory.reserved:
            raise Violation("O4", f"{reserved} bytes are in memory", self.partition_id)
        if ledger.is_damaged:
            return
        log = node.replicas[self.partition_id].log
        found = {
            record.offset: bytes(record.value or b"")
            for content in contents_of(log, log.log_start_offset, log.log_end_offset)
            for record in iterate_records(content)
        }
        for offset, value in self.acknowledged.items():
            if offset >= log.log_start_offset and found.get(offset) != value:
                raise Violation(
                    "O2",
                    f"{value!r} was acknowledged at {offset}, where {found.get(offset)!r} is",
                    self.partition_id,
                )
        at = {value: offset for offset, value in found.items()}
        for value, end in self.refused:
            if at.get(value, -1) >= end:
                raise Violation(
                    "O3",
                    f"{value!r} was refused when the log ended at {end}, and is at {at[value]}",
                    self.partition_id,
                )
