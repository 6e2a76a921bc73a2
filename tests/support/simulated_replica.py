"""One replica of the simulation: a real PartitionLog and LeaderState, joined as actors/replica does.

Where the actor awaits, this one keeps what is to be called. An fsync is an event: between its
begin and its end anything may happen, also the end of the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from bradbury.cluster.follower_state import next_high_watermark
from bradbury.cluster.leader_state import FollowerFetch, LeaderState
from bradbury.cluster.metadata_image import PartitionImage
from bradbury.protocol.errors import (
    KafkaError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
)
from bradbury.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode

PartitionId = tuple[str, int]


class Batch(NamedTuple):
    """What a record batch is known by: its place, its epoch, and the checksum of the rest."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    base_sequence: int


# Base offset, length of what follows it, leader epoch, magic, checksum, attributes, last offset's
# distance, two times, producer's id and epoch, base sequence: Kafka's record batch, version 2.
HEADER = Struct(">qiibIhiqqqhi")
BEFORE_LENGTH = 12


def batches_of(data: bytes) -> list[Batch]:
    """Read by itself, not by the code under test; it is also a quarter of its time."""
    found, position, end = [], 0, len(data)
    while position < end:
        (base, length, epoch, _, crc, _, last, _, _, producer_id, _, sequence) = HEADER.unpack_from(
            data, position
        )
        found.append(Batch(base, base + last + 1, epoch, crc, producer_id, sequence))
        position += BEFORE_LENGTH + length
    return found


def read_batches(log: PartitionLog, start: int, up_to: int) -> list[Batch]:
    """The batches of [start, up_to)."""
    found: list[Batch] = []
    while start < up_to:
        data = read_bytes(log, start, up_to)
        if not data:
            break
        found += batches_of(data)
        start = found[-1].next_offset
    return found


def read_bytes(log: PartitionLog, start: int, up_to: int, max_bytes: int = 1 << 20) -> bytes:
    piece = log.read(start, max_bytes=max_bytes, up_to=up_to, min_one_batch=True)
    return b"" if piece.file is None else piece.file.read_at(piece.size, piece.position)


class Uncommitted(NamedTuple):
    last_offset: int
    answer: Callable[[KafkaError | None], None]


class SimulatedReplica:
    """Of one life of one node."""

    def __init__(self, node: SimulatedNode, partition_id: PartitionId, log: PartitionLog) -> None:
        self.node = node
        self.partition_id = partition_id
        self.topic, self.partition = partition_id
        self.log = log
        self.leader: LeaderState | None = None
        self._uncommitted: deque[Uncommitted] = deque()
        self._is_flushing = False
        self.on_readable: dict[Callable[[], None], None] = {}
        """Fetches of followers that wait for records."""
        self.on_commit: dict[Callable[[], None], None] = {}
        """Who waits for the high watermark to move."""

    def __str__(self) -> str:
        return f"{self.partition_id[0]}-{self.partition_id[1]}@{self.node.node_id}"

    # --- leading ---------------------------------------------------------------------------------

    def become_leader(self, state: PartitionImage) -> None:
        leader = self.leader
        if leader is not None and state.partition_epoch < leader.partition_epoch:
            return
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            leader.on_replicas(state.replicas)
            self.on_isr(state.isr, state.partition_epoch)
            return
        self._abandon_waiting()
        self.leader = LeaderState(
            state.leader_epoch,
            state.partition_epoch,
            self.log.high_watermark,
            node_id=self.node.node_id,
            replicas=state.replicas,
            isr=state.isr,
            start_offset=self.log.log_end_offset,
            now_ms=self.node.clock.now_ms,
        )
        self.leader.min_insync_replicas = self.log.config.min_insync_replicas
        self.node.cluster.oracle.on_leader(self, state)
        self._advance()

    def on_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        if self.leader is not None and self.leader.on_isr(isr, partition_epoch):
            self._commit()

    def on_isr_refused(self) -> None:
        if self.leader is not None and self.leader.on_refused():
            self._commit()

    def resign(self) -> None:
        self.leader = None
        self._abandon_waiting()

    def _abandon_waiting(self) -> None:
        waiting, self._uncommitted = self._uncommitted, deque()
        for each in waiting:
            each.answer(NotLeaderOrFollower("there is a new leader"))
        self._wake()

    def _wake(self) -> None:
        for wake in list(self.on_readable):
            wake()

    def produce(
        self, batch: bytearray, *, acks_all: bool, answer: Callable[[KafkaError | int], None]
    ) -> None:
        """Answers the base offset, or what is wrong."""
        leader = self.leader
        if leader is None:
            answer(NotLeaderOrFollower("not led here"))
            return
        if acks_all and not leader.has_enough_insync:
            answer(NotEnoughReplicas(f"{leader.isr_size} are in sync"))
            return
        try:
            self.append(batch, acks_all=acks_all, answer=answer)
        except KafkaError as error:
            answer(error)

    def append(
        self, batch: bytearray, *, answer: Callable[[KafkaError | int], None], acks_all: bool = True
    ) -> None:
        """Answers the base offset once all in sync have it. Raises KafkaError: nothing was done."""
        leader = self.leader
        if leader is None:
            raise NotLeaderOrFollower("not led here")
        result = self.log.append_as_leader(
            batch, leader_epoch=leader.leader_epoch, now_ms=self.node.clock.now_ms
        )
        if not result.duplicate:
            if leader.followers:
                leader.on_append(result.base_offset, self.node.clock.now_ms)
                self._wake()
            self._advance()
        if not acks_all or result.last_offset < self.log.high_watermark:
            answer(result.base_offset)
            return

        def committed(error: KafkaError | None) -> None:
            answer(result.base_offset if error is None else error)

        self._uncommitted.append(Uncommitted(result.last_offset, committed))

    def on_follower_fetch(self, fetch: FollowerFetch) -> tuple[int, int] | None:
        """Where the follower's log parts from ours, if it does. Raises KafkaError."""
        assert self.leader is not None
        heard = self.leader.on_follower_fetch(fetch, self.log, now_ms=self.node.clock.now_ms)
        if heard.has_moved:
            self._commit()
        if heard.may_join:
            self.node.insync.look_at(self)
            self.node.driver.carry_out()
        return heard.diverging

    def _advance(self) -> None:
        leader, log = self.leader, self.log
        if leader is None:
            return
        if log.unflushed_records >= log.config.flush_messages:
            durable = log.recovery_point
            self._start_flush()
        else:
            durable = log.log_end_offset
        self.claim(durable)
        if leader.on_local_append(durable):
            self._commit()

    def _commit(self) -> None:
        leader, log = self.leader, self.log
        assert leader is not None
        log.high_watermark = leader.high_watermark
        self.node.cluster.oracle.on_high_watermark(self)
        while self._uncommitted and self._uncommitted[0].last_offset < leader.high_watermark:
            each = self._uncommitted.popleft()
            if leader.has_enough_insync:
                each.answer(None)
            else:
                each.answer(NotEnoughReplicasAfterAppend("too few are in sync now"))
        for wake in list(self.on_commit):
            wake()

    def claim(self, offset: int) -> None:
        """It is said that all before this offset is safe, as far as the topic asks."""
        if self.log.config.flush_messages == 1:
            claimed = self.node.claimed
            claimed[self.partition_id] = max(offset, claimed.get(self.partition_id, 0))

    def _start_flush(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self.flush(self._flushed)

    def _flushed(self) -> None:
        self._is_flushing = False
        self._advance()

    def flush(self, then: Callable[[], None]) -> None:
        """Bring what is appended now to the disk; it takes a while."""
        work = self.log.begin_flush()
        if work is None:
            then()
            return

        def done() -> None:
            work.run()
            self.log.complete_flush(work)
            then()

        self.node.process.after(self.node.cluster.swarm.fsync_ms, done)

    # --- following -------------------------------------------------------------------------------

    def append_as_follower(self, records: bytes) -> None:
        self.log.append_as_follower(records, now_ms=self.node.clock.now_ms)

    def follow_marks(self, high_watermark: int, log_start_offset: int) -> None:
        log = self.log
        reached = next_high_watermark(log, high_watermark)
        if reached > log.high_watermark:
            log.high_watermark = reached
            self.node.cluster.oracle.on_high_watermark(self)
        if log_start_offset > log.log_start_offset:
            log.advance_log_start_offset(min(log_start_offset, log.high_watermark))
