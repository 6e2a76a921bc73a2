"""What no producer may append to the log of the log world: P10.

At the end of a seed, so that what was before does not depend on it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bradbury.protocol.errors import KafkaError
from bradbury.protocol.records.record_batch import HEADER_SIZE, compute_crc, read_header
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
        log.local.reconfigure(
            replace(
                self._world.config,
                message_timestamp_before_max_ms=FAR,
                message_timestamp_after_max_ms=FAR,
            )
        )
        offered = [self._batch(now_ms) for _ in self._wrongs]
        for wrong, batch in zip(self._wrongs, offered, strict=True):
            wrong(batch)
        size = self._world.config.segment_bytes
        offered += [
            self._batch(now_ms, size=size),
            self._batch(now_ms + 2 * FAR),
            bytearray(
                encode_control_batch(
                    ControlType.COMMIT,
                    producer_id=5,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=now_ms,
                )
            ),
        ]
        if not self._world.compacts:
            offered.append(self._batch(now_ms - 2 * FAR))
        else:
            offered.append(self._batch(now_ms, key=None))
        for number, batch in enumerate(offered):
            self._refuse(number, batch)
        good = self._batch(now_ms)
        end = log.log_end_offset
        log.append_as_leader(good, leader_epoch=self._world.epoch, now_ms=now_ms)
        if log.log_end_offset != end + RECORDS:
            raise LogFault(f"P10: a good batch after bad ones ends at {log.log_end_offset}")

    def _refuse(self, number: int, batch: bytearray) -> None:
        log, now_ms = self._world.log, self._world.now_ms
        end, before = log.log_end_offset, bytes(batch)
        try:
            if len(batch) >= HEADER_SIZE and opens_records(log.config):
                validate_records(batch, read_header(batch), log.config, now_ms)
            open_batch(batch, log.config)
            log.append_as_leader(batch, leader_epoch=self._world.epoch, now_ms=now_ms)
        except KafkaError:
            self.refused += 1
        else:
            raise LogFault(f"P10: batch {number} is taken: {before!r}")
        if log.log_end_offset != end or bytes(batch) != before:
            raise LogFault(f"P10: batch {number} is refused, and changes something")

    def _batch(self, timestamp: int, *, size: int = 10, key: bytes | None = b"k") -> bytearray:
        return bytearray(
            encode_records(
                [(timestamp, key, self._random.randbytes(size), ()) for _ in range(RECORDS)]
            )
        )

    def _with(self, form: str, position: int, *values: int) -> Callable[[bytearray], object]:
        """Its CRC is right."""

        def change(batch: bytearray) -> None:
            struct.pack_into(form, batch, position, *values)
            struct.pack_into(">I", batch, CRC, compute_crc(batch))

        return change

    def _flip(self, batch: bytearray, start: int, end: int) -> None:
        batch[self._random.randrange(start, end)] ^= 1 << self._random.randrange(8)
