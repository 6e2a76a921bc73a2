"""What is appended to the log of the log world, and cut off: P4, P7."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bradbury.protocol.errors import (
    OutOfOrderSequenceNumber,
)
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import (
    ControlType,
    encode_control_batch,
    encode_records,
)
from bradbury.storage.producers.verification_guard import UNVERIFIED

from .log_files import KEY
from .log_model import (
    LogFault,
    StoredBatch,
)

if TYPE_CHECKING:
    from .log_world import LogWorld

KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = (1, 2)
TRANSACTIONAL = (11, 12)


class LogWriting:
    """Of one world."""

    def __init__(self, world: LogWorld) -> None:
        self._world = world

    def records(self, count: int) -> list[tuple[int, bytes | None, bytes | None, Any]]:
        random = self._world.random
        key = (lambda: random.choice(KEYS)) if self._world.compacts else (lambda: None)
        return [
            (
                max(0, self._world.now_ms + random.choice([0, 0, 1, -3, -500, 200])),
                key(),
                None
                if self._world.compacts and random.random() < 0.1
                else random.randbytes(random.randint(0, 40)),
                (),
            )
            for _ in range(count)
        ]

    def lead(self) -> None:
        if self._world.random.random() < 0.1:
            self._world.epoch += self._world.random.randint(1, 2)

    def append(self) -> None:
        self.lead()
        random = self._world.random
        count = random.randint(1, 4)
        codec = random.choice([0, 0, 0, 1, 2, 3, 4])
        producer = {}
        if random.random() < 0.5:
            producer_id = random.choice(PRODUCERS)
            sequence = self.next_sequence(producer_id)
            producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        self.add(encode_records(self.records(count), codec=codec, **producer))

    def next_sequence(self, producer_id: int) -> int:
        """As the log has it where the producer's last batch may be lost with its memory."""
        last = self._world.model.last_of(producer_id)
        entry = self._world.log.local.producers.entries.get(producer_id)
        if entry is not None and (
            last is None
            or last.base < self._world.log.log_start_offset
            or last.base in self._world.model.lost
        ):
            return entry.last_sequence + 1
        return self._world.model.sequence_after(producer_id)

    def append_transactional(self) -> None:
        self.lead()
        batch = encode_records(
            self.records(self._world.random.randint(1, 3)),
            producer_id=self._world.random.choice(TRANSACTIONAL),
            producer_epoch=0,
            transactional=True,
        )
        self.add(batch, is_own=True)

    def end_transaction(self) -> None:
        begun = list(self._world.model.transactions()[0])
        if begun:
            self.add(
                encode_control_batch(
                    self._world.random.choice(list(ControlType)),
                    producer_id=self._world.random.choice(begun),
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=self._world.now_ms,
                ),
                is_own=True,
            )

    def add(self, batch: bytearray, *, is_own: bool = False) -> None:
        end = self._world.log.log_end_offset
        expected = bytearray(batch)
        stamp(expected, base_offset=end, leader_epoch=self._world.epoch)
        stored = StoredBatch.of(bytes(expected))
        self._world.maybe = [stored]
        result = self._world.log.append_as_leader(
            batch,
            leader_epoch=self._world.epoch,
            now_ms=self._world.now_ms,
            is_own=is_own,
            guard=UNVERIFIED,
        )
        if (
            result.duplicate
            or result.base_offset != end
            or self._world.log.log_end_offset != stored.end
        ):
            raise LogFault(f"P4: {result} at {end}, to {self._world.log.log_end_offset}")
        self._world.model.batches.append(stored)
        self._world.maybe = []

    def append_as_follower(self) -> None:
        self.lead()
        end, batches = self._world.log.log_end_offset, list[StoredBatch]()
        for _ in range(self._world.random.randint(1, 4)):
            batch = encode_records(self.records(self._world.random.randint(1, 3)))
            stamp(batch, base_offset=end, leader_epoch=self._world.epoch)
            batches.append(StoredBatch.of(bytes(batch)))
            end = batches[-1].end
            self.lead()
        self._world.maybe = batches
        data = b"".join(each.data for each in batches)
        try:
            self._world.log.append_as_follower(data, now_ms=self._world.now_ms)
        finally:
            # Where the disk is full in the midst of it, those before are in.
            self._world.model.batches += [
                each for each in batches if each.end <= self._world.log.log_end_offset
            ]
            self._world.maybe = [
                each for each in batches if each.end > self._world.log.log_end_offset
            ]
        if self._world.log.log_end_offset != end:
            raise LogFault(
                f"P1: {len(batches)} batches to {end} are {self._world.log.log_end_offset}"
            )

    def append_again(self) -> None:
        """P7."""
        producer_id = self._world.random.choice(PRODUCERS)
        last = self._world.model.last_of(producer_id)
        if last is None or self._world.model.lost or last.base < self._world.log.log_start_offset:
            return
        if self._world.random.random() < 0.5:
            batch = bytearray(last.data)
            stamp(batch, base_offset=0, leader_epoch=-1)
            result = self._world.log.append_as_leader(
                batch, leader_epoch=self._world.epoch, now_ms=self._world.now_ms
            )
            if not result.duplicate or result.base_offset != last.base:
                raise LogFault(f"P7: {last.base} came again: {result}")
            return
        batch = encode_records(
            self.records(1),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=last.first_sequence + len(last.records) + 1,
        )
        try:
            self._world.log.append_as_leader(
                batch, leader_epoch=self._world.epoch, now_ms=self._world.now_ms
            )
        except OutOfOrderSequenceNumber:
            return
        raise LogFault(f"P7: a batch of producer {producer_id} is missing, and nobody says so")

    def truncate(self) -> None:
        """As a follower: nothing that is committed, a batch as a whole."""
        log = self._world.log
        bases = [each.base for each in self._world.model.batches if each.base >= log.high_watermark]
        if not bases:
            return
        offset = self._world.random.choice(bases)
        self._world.least_end = offset
        self._world.cut_off = [each for each in self._world.model.batches if each.end > offset]
        self._world.is_doubtful = (
            True  # until a flush: a power loss may bring back what was cut off
        )
        self._world.searches = []  # they may find less, as what they would find was never committed
        self._world.directory.truncate_log(*KEY, offset)
        self._world.least_end, self._world.is_doubtful = None, False
        self._world.model.truncate(offset)
        self._world.safe = min(self._world.safe, offset)
        end = log.log_end_offset
        model_end, self._world.epoch = (
            self._world.model.end,
            max(self._world.epoch, log.epochs.latest_epoch),
        )
        start = max(end, log.log_start_offset)
        if (
            end < offset
            and {each.base for each in self._world.model.batches if each.end > start}
            <= self._world.model.lost
        ):
            self._world.model.truncate(end)  # what is damaged there is taken from the leader again
        elif end != offset:
            raise LogFault(f"P4: truncated to {offset}, the log ends at {end}, not {model_end}")
        self._world.safe = min(self._world.safe, end)
