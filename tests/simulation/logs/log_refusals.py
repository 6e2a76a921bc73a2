"""What no producer may append to the log of the log world: P10.

At the end of a seed, so that what was before does not depend on it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from bradbury.protocol.errors import KafkaError
from bradbury.protocol.records.record_batch import HEADER_SIZE, compute_crc, read_header, stamp
from bradbury.protocol.records.records import ControlType, encode_control_batch, encode_records
from bradbury.storage.log.batch_validation import open_batch, opens_records, validate_records

from .log_model import LogFault

if TYPE_CHECKING:
    from .log_world import LogWorld

# Where fields of a batch are (DefaultRecordBatch).
CRC, ATTRIBUTES, LAST_OFFSET_DELTA = 17, 21, 23
PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 43, 51, 53, 57
FAR = 1_000_000
RECORDS = 3
LOG_APPEND_TIME = 8


class LogRefusals:
    """Of one world."""

    def __init__(self, world: LogWorld, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"refusals {seed}")
        self.refused = 0
        self._wrongs: list[Callable[[bytearray], object]] = [
            lambda batch: batch.__delitem__(slice(self._random.randrange(len(batch)), None)),
            lambda batch: self._flip(batch, HEADER_SIZE, len(batch)),
            lambda batch: struct.pack_into(">q", batch, 0, 5),
            self._with(">i", COUNT, 0),
            self._with(">i", COUNT, RECORDS + 1),
            self._with(">i", LAST_OFFSET_DELTA, RECORDS),
            self._with(">h", ATTRIBUTES, 7),
            self._with(">h", ATTRIBUTES, 1),
            self._with(">h", ATTRIBUTES, 16),
            self._with(">h", ATTRIBUTES, 32),
            self._with(">q", PRODUCER_ID, 5),
            self._with(">qhi", PRODUCER_ID, 5, 0, -1),
            self._with(">B", HEADER_SIZE, 255),
            self._with(">B", HEADER_SIZE + 4, 255),
        ]

    def offer(self) -> None:
        """Each is refused, and neither it nor the log is changed."""
        log, now_ms = self._world.log, self._world.now_ms
        config = replace(
            self._world.config,
            message_timestamp_before_max_ms=FAR,
            message_timestamp_after_max_ms=FAR,
            max_message_bytes=2 * self._world.config.segment_bytes,
        )
        log.local.reconfigure(config)
        offered = [self._batch() for _ in self._wrongs]
        for wrong, batch in zip(self._wrongs, offered, strict=True):
            wrong(batch)
        size = config.segment_bytes
        offered += [self._batch(size=size // RECORDS), self._batch(size=size)]
        offered += [self._batch(now_ms + 2 * FAR), self._marker()]
        wrong_here = (
            self._batch(key=None) if self._world.compacts else self._batch(now_ms - 2 * FAR)
        )
        for number, batch in enumerate([*offered, wrong_here]):
            self._refuse(number, batch, self._append)
        self._append_good(self._batch())
        stamped = self._batch()
        self._with(">h", ATTRIBUTES, LOG_APPEND_TIME)(stamped)
        self._append_good(stamped)
        log.local.reconfigure(replace(config, message_timestamp_type="LogAppendTime"))
        self._refuse(-1, bytearray(stamped), self._append)
        self._append_good(self._batch())
        log.local.reconfigure(config)
        self._offer_as_leader()

    def _offer_as_leader(self) -> None:
        """Replicas refuse what their leader cannot have, and leaders what is of a former one."""
        log, now_ms = self._world.log, self._world.now_ms
        self._world.epoch = epoch = max(self._world.epoch, 1) + 1
        self._append_good(self._batch())
        former = self._batch()
        self._refuse(
            -2,
            former,
            lambda batch: log.append_as_leader(batch, leader_epoch=epoch - 1, now_ms=now_ms),
        )
        for number, (offset, of_epoch) in enumerate([(-1, epoch), (0, epoch - 1)]):
            sent = self._batch()
            stamp(sent, base_offset=log.log_end_offset + offset, leader_epoch=of_epoch)
            self._refuse(
                -3 - number, sent, lambda batch: log.append_as_follower(bytes(batch), now_ms=now_ms)
            )

    def _append(self, batch: bytearray) -> None:
        self._world.log.append_as_leader(
            batch, leader_epoch=self._world.epoch, now_ms=self._world.now_ms
        )

    def _append_good(self, batch: bytearray) -> None:
        end = self._world.log.log_end_offset
        self._append(batch)
        if self._world.log.log_end_offset != end + RECORDS:
            raise LogFault(f"P10: a good batch after bad ones at {end} is not taken")

    def _refuse(self, number: int, batch: bytearray, append: Callable[[bytearray], object]) -> None:
        log, now_ms = self._world.log, self._world.now_ms
        end, before = log.log_end_offset, bytes(batch)
        with suppress(KafkaError):  # what a thread does beforehand changes nothing either
            if len(batch) >= HEADER_SIZE and opens_records(log.config):
                validate_records(batch, read_header(batch), log.config, now_ms)
            open_batch(batch, log.config)
        try:
            append(batch)
        except KafkaError:
            self.refused += 1
        else:
            raise LogFault(f"P10: batch {number} is taken: {before!r}")
        if log.log_end_offset != end or bytes(batch) != before:
            raise LogFault(f"P10: batch {number} is refused, and changes something")

    def _marker(self) -> bytearray:
        return bytearray(
            encode_control_batch(
                ControlType.COMMIT,
                producer_id=5,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=self._world.now_ms,
            )
        )

    def _batch(
        self, timestamp: int | None = None, *, size: int = 10, key: bytes | None = b"k"
    ) -> bytearray:
        at_ms = self._world.now_ms if timestamp is None else timestamp
        return bytearray(
            encode_records([(at_ms, key, self._random.randbytes(size), ()) for _ in range(RECORDS)])
        )

    def _with(self, form: str, position: int, *values: int) -> Callable[[bytearray], object]:
        """Its CRC is right."""

        def change(batch: bytearray) -> None:
            struct.pack_into(form, batch, position, *values)
            struct.pack_into(">I", batch, CRC, compute_crc(batch))

        return change

    def _flip(self, batch: bytearray, start: int, end: int) -> None:
        batch[self._random.randrange(start, end)] ^= 1 << self._random.randrange(8)
