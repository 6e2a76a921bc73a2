"""One replica of the simulation: the shipped step and driver, and what the oracle reads of its log.

An fsync is an event: between its begin and its end anything may happen, also the end of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from crc32c import crc32c

from bradbury.actors.replication.hosted_replica import HostedReplica
from bradbury.cluster.partition.leader_state import LeaderState
from bradbury.replication.partition.replica import Replica
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.segments.batch_scan import walk_headers
from bradbury.storage.segments.log_segment import LogSegment

from .simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode


class Batch(NamedTuple):
    """What a record batch is known by: its place, its epoch, and the checksum of the rest."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool


# Base offset, length of what follows it, leader epoch, magic, checksum, attributes, last offset's
# distance, two times, producer's id and epoch, base sequence: Kafka's record batch, version 2.
HEADER = Struct(">qiibIhiqqqhi")
BEFORE_LENGTH = 12
CRC_AT, CRC_END = 17, 21


def batches_of(data: bytes) -> list[Batch]:
    """Read by itself, not by the code under test; it is also a quarter of its time."""
    found, position, end = [], 0, len(data)
    while position < end:
        (base, length, epoch, _, crc, attributes, last, _, _, *producer) = HEADER.unpack_from(
            data, position
        )
        is_transactional, is_control = bool(attributes & 0x10), bool(attributes & 0x20)
        found.append(
            Batch(base, base + last + 1, epoch, crc, *producer, is_transactional, is_control)
        )
        position += BEFORE_LENGTH + length
    return found


def are_sound(data: bytes) -> bool:
    """What a client looks at, too: the checksums."""
    position = 0
    while position < len(data):
        length = BEFORE_LENGTH + int.from_bytes(data[position + 8 : position + BEFORE_LENGTH])
        batch = data[position : position + length]
        if int.from_bytes(batch[CRC_AT:CRC_END]) != crc32c(batch[CRC_END:]):
            return False
        position += length
    return True


def rotten_batches(replica: SimulatedReplica) -> list[tuple[str, Batch]]:
    """(path, batch) of what is in a log and cannot be read."""
    log, disk = replica.log, replica.node.disk
    if not disk.rotten:
        return []
    return [
        (path, batch)
        for path, written in disk.rotten_in(log.local.directory)
        for batch in batches_of(written)
        if batch.next_offset > log.log_start_offset
    ]


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
    """What was written there; past who wonders whether a gap is damage: see log_damage.look."""
    with from_outside(log):
        for segment in log.segments.from_offset(start):
            found = segment.read(start, max_bytes=max_bytes, up_to=up_to, min_one_batch=True)
            data = segment.file.read_at(found.size, found.position) if found.size else b""
            first = batches_of(data)[0] if disk_of(log).rotten and data else None
            if disk_of(log).rotten and not (
                first and first.base_offset <= start < first.next_offset
            ):
                # A position that the segment remembers may stem from a rotten header.
                data = _walked(segment, start, up_to, max_bytes)
            if data:
                return data
        return b""


def _walked(segment: LogSegment, start: int, up_to: int, max_bytes: int) -> bytes:
    """As LogSegment.read with min_one_batch, found by the headers of the whole file."""
    begin, end = -1, 0
    for position, header in walk_headers(segment.file, 0, segment.size):
        if header.next_offset <= start:
            continue
        if begin < 0:
            begin = end = position
        size = position + header.size - begin
        if header.next_offset > up_to or (size > max_bytes and end > begin):
            break
        end = position + header.size
    return segment.file.read_at(end - begin, begin) if end > begin else b""


def disk_of(log: PartitionLog) -> SimulatedDisk:
    disk: Any = log.local.file_system
    return disk


@contextmanager
def from_outside(log: PartitionLog) -> Iterator[None]:
    """For who looks at the simulation: nothing is rotten, and a disk that fails whoever uses it in
    earnest is not to hear of this.
    """
    disk = disk_of(log)
    failing, disk.failing = disk.failing, set()
    disk.is_as_written = True
    try:
        yield
    finally:
        disk.failing = failing
        disk.is_as_written = False


class SimulatedReplica:
    """A replica of one life of one node: the shipped driver of its step, and an ear for the oracle."""

    def __init__(self, node: SimulatedNode, step: Replica) -> None:
        self.node = node
        self.step = step
        self.partition_id = (step.topic, step.partition)
        driver: Any = _ClaimingDriver(self)
        self.hosted = HostedReplica(
            step,
            driver,
            wall_ms=node.now_ms,
            in_thread=None,  # type: ignore[arg-type]  # nothing that waits for a thread is asked
            conversions=None,  # type: ignore[arg-type]  # nor is a format of before
        )
        """What handlers and coordinators reach of it."""
        step.fetches.park(self)

    def __str__(self) -> str:
        return f"{self.partition_id[0]}-{self.partition_id[1]}@{self.node.node_id}"

    @property
    def log(self) -> PartitionLog:
        return self.step.log

    @property
    def leader(self) -> LeaderState | None:
        return self.step.leader

    # --- what the step tells who waits ------------------------------------------------------------

    def on_readable(self, size: int) -> None:
        """The high watermark has moved; nobody was answered yet."""
        self.node.cluster.oracle.on_high_watermark(self)

    def on_changed(self) -> None:
        """Another node leads."""

    # --- leading ---------------------------------------------------------------------------------

    def claim_counted(self) -> None:
        """What a leader counts of its own log it says to be safe, as far as the topic asks."""
        if self.leader is not None:
            self.claim(self.leader._log_end_offset)

    def claim(self, offset: int) -> None:
        """It is said that all before this offset is safe, as far as the topic asks."""
        if self.log.config.flush_messages == 1:
            claimed = self.node.claimed
            claimed[self.partition_id] = max(offset, claimed.get(self.partition_id, 0))


class _ClaimingDriver:
    """The node's driver, for what handlers do with a replica: what it counts is claimed first."""

    def __init__(self, replica: SimulatedReplica) -> None:
        self._replica = replica
        self.now_ms = replica.node.driver.now_ms

    @property
    def effects(self) -> Any:
        return self._replica.node.driver.effects

    def carry_out(self) -> None:
        self._replica.claim_counted()
        self._replica.node.driver.carry_out()
