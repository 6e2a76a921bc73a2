"""Log of a voter, with the snapshot that replaces its beginning, on one disk.

    <data dir>/metadata/__cluster_metadata-0/
        00000000000000000000.log ...                   segments, see storage/log/partition_log
        00000000000000368769-0000000007.checkpoint     see cluster/quorum/metadata_snapshot

Invariants: the log is dropped only up to a snapshot that is on this disk. A snapshot is
written next to the old one, fsynced, renamed, the directory fsynced; only then the entries that it
replaces are dropped; only then the older snapshot. A start completes the steps that are missing.

All methods wait for the disk: call them in a thread, one at a time. The rules are in
cluster/quorum/voter; votes, and what is answered when, in metadata_voter.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, NoReturn

from ...cluster.quorum.metadata_snapshot import (
    check_snapshot,
    decode_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from ...cluster.quorum.voter import NO_SNAPSHOT, LogEnd, joins
from ...cluster.quorum.voter_history import VoterHistory
from ...protocol.errors import CorruptMessage
from ...protocol.records.record_batch import walk_batches
from ...protocol.topic_name import METADATA_TOPIC
from ...storage.directories.log_directory import LogDirectory
from ...storage.disk.checkpoint_file import write_atomically
from ...storage.disk.file_system import FileSystem, read_file
from ...storage.disk.storage_failure import DataDirectoryError, refused_or_failed
from ...storage.log.partition_log import PartitionLog
from ...storage.log.retention import apply_retention
from .acknowledged_offset import AcknowledgedOffset

logger = logging.getLogger(__name__)

READ_BYTES = 16 * 1024**2


class FoundSnapshot(NamedTuple):
    """Newest undamaged snapshot; no data: none. flaws: messages about newer, damaged ones."""

    end: LogEnd
    data: bytes
    flaws: tuple[str, ...]


def find_snapshot(file_system: FileSystem, directory: str) -> FoundSnapshot:
    """Look through the snapshot files in `directory`, which may be absent. Raises OSError."""
    flaws: list[str] = []
    ends = snapshot_ends(file_system, directory) if file_system.is_directory(directory) else []
    for end in ends:
        path = f"{directory}/{snapshot_name(end)}"
        try:
            data = read_file(file_system, path)
            if check_snapshot(data) != end:
                raise CorruptMessage("its name and its content disagree")
            decode_snapshot(data)
        except CorruptMessage as error:
            flaws.append(f"{path} is damaged: {error}")
        except IsADirectoryError:
            flaws.append(f"{path} is a directory")
        else:
            return FoundSnapshot(end, data, tuple(flaws))
    return FoundSnapshot(NO_SNAPSHOT, b"", tuple(flaws))


def snapshot_ends(file_system: FileSystem, directory: str) -> list[LogEnd]:
    """Ends of the snapshot files that there are, the newest first. Raises OSError."""
    names = file_system.list_directory(directory)
    ends = [end for name in names if (end := parse_snapshot_name(name)) is not None]
    return sorted(ends, key=lambda end: (end.offset, end.epoch), reverse=True)


class ReplicatedLog:
    """A voter's log; see `open`. Implements cluster.quorum.voter.VoterLog."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: LogDirectory,
        log: PartitionLog,
        mark: AcknowledgedOffset,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._log = log
        self._mark = mark
        self._voters = VoterHistory()
        self.snapshot = NO_SNAPSHOT
        self._next_offset = 0

    def open(self, formatted_with: tuple[str, ...], *, now_ms: int) -> None:
        """Open: find the snapshot, finish what a crash has interrupted, and read the voters.

        Args:
            formatted_with: the voters of the cluster when this one joined it.
            now_ms: wall clock, as below.

        Raises:
            DataDirectoryError: the log's beginning is gone, and no snapshot replaces it.
            StorageFailure: the disk failed.
        """
        self._voters = VoterHistory(formatted_with)
        found = find_snapshot(self._file_system, self._log.directory)
        for flaw in found.flaws:
            logger.error("%s", flaw)
        if found.data:
            self.snapshot = found.end
            self._voters.restart(decode_snapshot(found.data).voters)
        if self._log.log_start_offset > self.snapshot.offset:
            raise DataDirectoryError(
                f"the log in {self._log.directory} begins at {self._log.log_start_offset}, and the "
                "snapshot that stands for what was before is gone or damaged; if other nodes hold "
                f"the metadata, remove {self._directory.path} and start again"
            )
        if self.snapshot.offset and not joins(self, self.snapshot):
            self._begin_at(self.snapshot.offset, now_ms)
        self._drop_older()
        offset = max(self.snapshot.offset, self._log.log_start_offset)
        while data := self.read(offset):
            self._voters.append(data)
            offset = self._next_offset
        # What a killed process has left in the page cache counts as acknowledged from now on.
        self._log.flushing.flush()
        self._set_mark(self.log_end_offset)

    # --- cluster.quorum.voter.VoterLog -----------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    def epoch_at(self, offset: int) -> int:
        if offset == self.snapshot.offset - 1 and offset < self._log.log_start_offset:
            return self.snapshot.epoch
        return self._log.epochs.epoch_at(offset)

    def epoch_start(self, offset: int) -> int:
        starts = [start for _, start in self._log.epochs.entries if start <= offset]
        return max(starts, default=0)

    # --- reading ---------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int:
        """Epoch of the last entry; a newer epoch without entries may have begun."""
        return self.epoch_at(self.log_end_offset - 1) if self.log_end_offset else -1

    @property
    def voters(self) -> tuple[str, ...]:
        """Directory ids of the voters, as the newest entry names them."""
        return self._voters.newest

    def read(self, offset: int) -> bytes:
        """Record batches from `offset` on, READ_BYTES of them; empty at the end of the log.

        Raises OffsetOutOfRange: a snapshot has replaced these entries.
        """
        log = self._log
        if offset >= log.log_end_offset:
            return b""
        piece = log.read(offset, max_bytes=READ_BYTES, up_to=log.log_end_offset, min_one_batch=True)
        assert piece.file is not None
        self._next_offset = piece.next_offset
        return piece.file.read_at(piece.size, piece.position)

    def read_snapshot(self) -> bytes:
        """Content of the snapshot file; empty if there is none. Raises StorageFailure."""
        return self._read_snapshot(self.snapshot) if self.snapshot.offset else b""

    # --- changing --------------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """Drop the entries from `offset` on, durably."""
        self._set_mark(offset)
        self._directory.truncate_log(METADATA_TOPIC, 0, offset)
        self._voters.truncate(self._log.log_end_offset)

    def append(self, batches: memoryview, *, now_ms: int) -> None:
        """Append stamped batches. They are durable after flush()."""
        self._log.append_as_follower(batches, now_ms=now_ms)
        self._voters.append(batches)

    def flush(self) -> None:
        self._log.flushing.flush()
        self._advance_mark()

    def append_missing(self, batches: bytes, end: int, *, now_ms: int) -> None:
        """Append the batches behind the end of the log, up to offset `end`, whole batches only."""
        start = stop = -1
        for position, header in walk_batches(batches):
            if header.next_offset > end:
                break
            if header.base_offset >= self.log_end_offset:
                start = position if start < 0 else start
                stop = position + header.size
        if start >= 0:
            self.append(memoryview(batches)[start:stop], now_ms=now_ms)

    def close(self) -> None:
        """Store the mark durably; the directory closes the log."""
        self._mark.close()

    def _advance_mark(self) -> None:
        """Advance the mark to the fsynced offset, so that it may be acknowledged."""
        try:
            self._mark.advance(LogEnd(self.last_epoch, self.log_end_offset))
        except OSError as error:
            self._fail_mark(error)

    def _set_mark(self, offset: int) -> None:
        """Store the mark durably before the log is truncated: otherwise a crash in between would
        look like a loss.
        """
        try:
            self._mark.set_durably(LogEnd(self.epoch_at(offset - 1) if offset else -1, offset))
        except OSError as error:
            self._fail_mark(error)

    def _fail_mark(self, error: OSError) -> NoReturn:
        health = self._directory.health
        raise refused_or_failed(health, f"writing {self._mark.path}", error) from error

    def install(self, end: LogEnd, data: bytes, *, keeps_log: bool, now_ms: int) -> None:
        """Store the snapshot, then drop the log entries it covers.

        Raises:
            CorruptMessage: it is not a snapshot, or not one that ends at `end`.
            KafkaStorageError: the disk is full; nothing has changed.
            StorageFailure: the disk failed.
        """
        if check_snapshot(data) != end:
            raise CorruptMessage(f"a snapshot that does not end at {end}")
        voters = decode_snapshot(data).voters
        try:
            write_atomically(self._file_system, self._path(end), data)
        except OSError as error:
            health = self._directory.health
            raise refused_or_failed(health, f"writing {self._path(end)}", error) from error
        if keeps_log:
            self.snapshot = end
            self._voters.compact(end.offset)
            self._drop_beginning(now_ms)
        else:
            self._begin_at(end.offset, now_ms)
            self.snapshot = end
            self._voters.restart(voters)
        self._drop_older()

    def _drop_beginning(self, now_ms: int) -> None:
        """Drop the whole segments that the snapshot covers; start a new one, which is dropped next
        time.
        """
        log = self._log
        log.flushing.flush()
        log.local.roll(now_ms=now_ms)
        log.high_watermark = self.snapshot.offset
        # The new log start is stored before segments are deleted, so a start never expects them.
        log.advance_log_start_offset(self.snapshot.offset)
        self._directory.checkpoints.bring_up_to_date()
        apply_retention(log, now_ms)
        log.local.delete_old_files(now_ms)
        log.flushing.flush()

    def _begin_at(self, offset: int, now_ms: int) -> None:
        """Restart the log at `offset`, as it does not match the snapshot, or ends before it."""
        self._set_mark(offset)
        self._log.truncate_fully_and_start_at(offset)
        self._log.high_watermark = offset
        self._directory.checkpoints.bring_up_to_date()
        self._log.local.delete_old_files(now_ms)

    # --- snapshot files --------------------------------------------------------------------------

    def _path(self, end: LogEnd) -> str:
        return f"{self._log.directory}/{snapshot_name(end)}"

    def _read_snapshot(self, end: LogEnd) -> bytes:
        path = self._path(end)
        try:
            return read_file(self._file_system, path)
        except OSError as error:
            raise self._directory.health.fail(f"reading {path}", error) from error

    def _drop_older(self) -> None:
        try:
            ends = snapshot_ends(self._file_system, self._log.directory)
        except OSError as error:
            raise self._directory.health.fail(f"reading {self._log.directory}", error) from error
        for end in ends:
            if end != self.snapshot:
                try:
                    self._file_system.unlink(self._path(end))
                except OSError as error:
                    path = self._path(end)
                    raise self._directory.health.fail(f"removing {path}", error) from error
