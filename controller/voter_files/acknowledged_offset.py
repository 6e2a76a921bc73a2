"""Acknowledged offset: the log end that a voter has confirmed, stored as a mark next to the log.

    acknowledged-offset    two slots of SLOT_BYTES, each: version, number, epoch, offset, CRC-32C

Why: after a crash a log is truncated at the first damaged batch. Entries that were being written
may be lost; acknowledged ones may not, as a controller may have committed them. The mark
distinguishes the two.

Invariants: the mark is never beyond what is fsynced in the log. It is written after each
fsync of the log, in one write into the older slot, and is exact after the death of a process; it is
fsynced itself every SYNC_EVERY times, so after a power loss it may be too low, and more may be
truncated. Before the log is truncated the mark is lowered and fsynced.

Not here: what is done about a log that ends below it (voter_directory).
"""

from __future__ import annotations

import logging
from struct import Struct

from crc32c import crc32c

from ...cluster.quorum.voter import LogEnd
from ...storage.disk.file_system import File, FileSystem, sync_directory

logger = logging.getLogger(__name__)

FILE_NAME = "acknowledged-offset"
SLOT = Struct(">iqiq")
CRC = Struct(">I")
SLOT_BYTES = 512
"""Size of a slot: a sector, so that a torn write of one slot cannot damage the other."""
SYNC_EVERY = 16
VERSION = 0


class AcknowledgedOffset:
    """Mark of one voter. Methods wait for the disk and raise OSError."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._directory = directory
        self._file: File | None = None
        self._number = 0
        self._unsynced = 0

    @property
    def path(self) -> str:
        return f"{self._directory}/{FILE_NAME}"

    def read(self) -> LogEnd | None:
        """Stored log end; None if there is none, or the file is damaged."""
        if not self._file_system.exists(self.path) or self._file_system.is_directory(self.path):
            return None
        file = self._file_system.open(self.path)
        try:
            content = file.read_at(2 * SLOT_BYTES, 0)
        finally:
            file.close()
        slots = [
            slot for start in (0, SLOT_BYTES) if (slot := _decode(content[start:])) is not None
        ]
        if not slots:
            if content:
                logger.warning("%s is damaged and not used", self.path)
            return None
        self._number, end = max(slots)
        return end

    def advance(self, end: LogEnd) -> None:
        """Note that the log is fsynced up to `end`."""
        self._write(end)
        self._unsynced += 1
        if self._unsynced >= SYNC_EVERY:
            self.sync()

    def set_durably(self, end: LogEnd) -> None:
        """Store `end` durably: the log was opened, or is about to be truncated there. Also creates
        the file.
        """
        is_new = self._file is None and not self._file_system.exists(self.path)
        self._write(end)
        self._unsynced += 1
        self.sync()
        if is_new:
            sync_directory(self._file_system, self._directory)

    def sync(self) -> None:
        if self._file is not None and self._unsynced:
            self._file.sync()
            self._unsynced = 0

    def close(self) -> None:
        """Close durably. It may be used again."""
        self.sync()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, end: LogEnd) -> None:
        if self._file is None:
            self._file = self._file_system.open(self.path, create=True)
        self._number += 1
        slot = SLOT.pack(VERSION, self._number, *end)
        slot = (slot + CRC.pack(crc32c(slot))).ljust(SLOT_BYTES, b"\0")
        self._file.write_at(slot, self._number % 2 * SLOT_BYTES)


def _decode(slot: bytes) -> tuple[int, LogEnd] | None:
    if len(slot) < SLOT.size + CRC.size:
        return None
    content = slot[: SLOT.size]
    if CRC.unpack_from(slot, SLOT.size) != (crc32c(content),):
        return None
    version, number, epoch, offset = SLOT.unpack(content)
    return (number, LogEnd(epoch, offset)) if version == VERSION else None
