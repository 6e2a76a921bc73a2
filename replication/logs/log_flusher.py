"""Log flusher: flushes logs when due, and writes their checkpoints.

    flush        by flush.ms, and once a segment is closed (so that recovery scans one at most)
    checkpoint   recovery points, high watermarks, log starts

The cost of a round depends on what has changed, not on the number of logs: appends add their
replica to `changed`.
When, and what else is done in the background (retention, free space): log_maintenance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ...protocol.errors import KafkaStorageError
from ...storage.directories.log_directories import LogDirectories
from ...storage.directories.log_directory import LogDirectory
from ...storage.log.partition_log import PartitionLog
from ..partition.replica import Replica
from ..procedure import OneAtATime, ProcedureSteps
from ..storage_work import begin_flush

FOREVER_MS = 2**63 - 1


class LogFlusher:
    """Flusher of one incarnation of a node. Waits for the disk are procedures (procedure.py)."""

    def __init__(
        self,
        directories: LogDirectories,
        changed: dict[Replica, None],
        *,
        on_storage_failure: Callable[[], None],
    ) -> None:
        """`changed`: see replica.ReplicaHost."""
        self._directories = directories
        self._changed = changed
        self._on_storage_failure = on_storage_failure
        self._checkpoint_turn = OneAtATime()
        self.refused: set[LogDirectory] = set()
        """Directories whose last checkpoint the disk refused."""
        self._noting: Counter[PartitionLog] = Counter()
        """Number of running note_gaps calls for each log: an entry is taken back only by the last
        of them.
        """

    def flush_changed(self, wall_ms: int) -> ProcedureSteps:
        """Flush the logs that are due. A disk that fails goes offline; the others continue."""
        due = []
        for replica in list(self._changed):
            log = replica.log
            flushing, active = log.flushing, log.segments.active
            if flushing.needs_flush(wall_ms) or flushing.recovery_point < active.base_offset:
                due.append(replica)
            if log.config.flush_ms == FOREVER_MS or flushing.unflushed_records == 0:
                self._changed.pop(replica, None)
        for replica in due:
            try:
                flush = begin_flush(replica.log)
                if flush is None:
                    continue
                [failure] = yield [flush]
                if failure is not None:
                    raise failure
                flush.complete()
                replica.on_flushed()
            except KafkaStorageError:
                if replica.log.health.failure is None:  # it is full, and may have room again
                    self._changed[replica] = None
                self._on_storage_failure()

    def checkpoint(self, log: PartitionLog | None = None) -> ProcedureSteps:
        """Write the checkpoints of a log's directory, or of all; ends when they are durable.

        Raises KafkaStorageError: they are not durable in the directory of `log`.
        """
        found: KafkaStorageError | None = None
        try:
            # Two at a time would rename each other's temporary files. If cancelled here, it ends
            # once it has the turn, and releases that.
            yield [self._checkpoint_turn]
            for directory in self._directories.online:
                work = directory.checkpoints.begin()
                if work is None:
                    continue
                [failure] = yield [work]
                self.refused.discard(directory)
                if isinstance(failure, KafkaStorageError):
                    self.refused.add(directory)
                    self._on_storage_failure()
                    if log is not None and log.health is directory.health:
                        found = failure
                elif failure is not None:
                    raise failure
        finally:
            self._checkpoint_turn.release()
        if found is not None:
            raise found
        if log is not None:
            log.health.check()  # its directory may have gone offline before it had its turn

    def note_gaps(self, log: PartitionLog) -> ProcedureSteps:
        """Store that a log may have gaps, before it has one; ends when that is durable.

        All compacted logs in the same directory are noted at once: otherwise a node that copies
        many of them would wait for as many checkpoints. Raises KafkaStorageError: nothing is noted.
        """
        directory = self._directories.of(log)
        noted = {
            key: each
            for key, each in directory.logs.items()
            if each.compaction.cleaner_offset is None and (each is log or each.config.is_compacted)
        }
        self._noting.update(noted.values())
        for key in noted:
            directory.checkpoints.expect_gaps(key, True)
        try:
            yield from self.checkpoint(log)
            for key, each in noted.items():
                if directory.logs.get(key) is each and directory.checkpoints.has_noted_gaps(key):
                    each.compaction.note_gaps(each.log_start_offset)
            if log.compaction.cleaner_offset is None:  # another call was refused meanwhile
                raise KafkaStorageError(f"the checkpoints of {log.directory} do not list it yet")
        finally:
            self._noting.subtract(noted.values())
            for key, each in noted.items():
                if not self._noting[each]:
                    del self._noting[each]
                    directory.checkpoints.expect_gaps(key, False)

    def settle(self) -> ProcedureSteps:
        """End when no checkpoint is being written."""
        yield [self._checkpoint_turn]
        self._checkpoint_turn.release()
