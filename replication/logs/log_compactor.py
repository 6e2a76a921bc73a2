"""Log compactor: selects the log to compact next, and replaces its segments in order.

    note gaps    store that this log may have gaps, before it has one
    map          the last offset of each key of the dirty part          in a cleaner's thread
    group        kept records of some segments, in new files, fsynced   in a cleaner's thread
    replace      the new files replace those segments; then the next group
    names        the renames are durable                                in a cleaner's thread
    checkpoint   the offset from which the log is dirty now

Decisions about a log, and changes of it, are made here, between requests; a cleaner's thread only
reads closed segments and writes new files.

A damaged log becomes uncleanable: its segment is examined (segment_healer), and it is not compacted
until some of its damage is repaired, or until restart. The same holds for a log on which the
cleaner itself fails. Other logs continue. A full disk, a truncation, a deletion or a stop ends a
cleaning without harm: its unfinished part is done again.
Source: apache/kafka core/.../log/LogCleaner.scala (CleanerThread), LogCleanerManager.scala.

Not here: threads and their throttle (actors/replication/log_cleaner), what is kept
(storage/cleaner/cleaner).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from ...protocol.errors import KafkaError, KafkaStorageError
from ...storage.cleaner.cleaner import (
    Cleaning,
    CleaningAborted,
    CleaningReport,
    Progress,
    UncleanableLog,
)
from ...storage.cleaner.cleaner_config import CleanerConfig
from ...storage.cleaner.cleaner_rows import SEED_BYTES
from ...storage.disk.storage_failure import StorageFailure
from ...storage.log.cleaner_manager import LogToClean, choose_filthiest, find_cleanable
from ...storage.log.partition_log import PartitionLog
from ..effects import Effects, RunCleanerWork, WorkingStep
from ..procedure import ProcedureSteps

logger = logging.getLogger(__name__)

T = TypeVar("T")
MEGABYTE = 1024**2


class LogCompactor:
    """Compactor of the logs of one node. Several cleanings may run at once, each of another log."""

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        config: CleanerConfig,
        effects: Effects,
        *,
        wall_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        note_gaps: Callable[[PartitionLog], ProcedureSteps],
        checkpoint: Callable[[], ProcedureSteps],
        on_storage_failure: Callable[[], None],
    ) -> None:
        """Make an idle compactor.

        Args:
            logs: returns the node's current logs; those that are not compacted are skipped.
            wall_ms: returns the wall-clock time.
            random_bytes: returns that many random bytes, which stay secret (see OffsetMap).
            note_gaps: see LogFlusher.
            checkpoint: writes the checkpoints of the log directories.
            on_storage_failure: called when a log directory may have gone offline.
        """
        self.config = config
        """Settings, used from the next cleaning on."""
        self._logs = logs
        self._effects = effects
        self._wall_ms = wall_ms
        self._random_bytes = random_bytes
        self._note_gaps = note_gaps
        self._checkpoint = checkpoint
        self._on_storage_failure = on_storage_failure
        self._in_progress: set[PartitionLog] = set()
        self.uncleanable: dict[PartitionLog, str] = {}
        """Logs that are not compacted, with the reason."""
        self._ended_damage: dict[PartitionLog, int] = {}
        """Value of LogDamage.ended when the log became uncleanable, by log."""
        self.cleanings = 0
        """Number of finished cleanings since the start."""
        self.totals = CleaningReport()
        """Totals of all cleanings."""
        self.max_dirty_ratio = 0.0
        """Largest cleanable ratio of the logs that were checked last."""

    def clean_filthiest(self, cleaned: list[PartitionLog]) -> ProcedureSteps:
        """Clean the log that needs it most, if one does.

        It is added to `cleaned`, even if it is uncleanable: another log may need cleaning. If the
        cleaning was postponed, or the disk has failed, nothing is added.
        """
        found = self._find_filthiest()
        if found is None:
            return
        log = found.log
        self._in_progress.add(log)
        try:
            yield from self._clean(found)
        except CleaningAborted as error:
            logger.info("compaction of %s is postponed: %s", log.directory, error)
            return
        except UncleanableLog as error:
            self._leave_alone(log, str(error))
            logger.error("%s; not compacted until it is repaired", error)  # noqa: TRY400 - it says all
        except StorageFailure:
            self._on_storage_failure()
            return
        except KafkaStorageError as error:
            logger.warning("compaction of %s is postponed: %s", log.directory, error)
            return
        except Exception as error:
            # Or it would be tried again at once, forever, and the others never.
            self._leave_alone(log, repr(error))
            logger.exception("compacting %s failed; not compacted until restart", log.directory)
        finally:
            self._in_progress.discard(log)
        cleaned.append(log)

    def _find_filthiest(self) -> LogToClean | None:
        now_ms = self._wall_ms()
        candidates: list[LogToClean] = []
        logs = list(self._logs())
        for gone in self.uncleanable.keys() - logs:
            del self.uncleanable[gone], self._ended_damage[gone]
        for log in logs:
            if not log.config.is_compacted or log in self._in_progress or self._is_left(log):
                continue
            if not log.health.is_online:
                continue
            try:
                log.compaction.roll_if_overdue(now_ms)
                candidates.append(find_cleanable(log, now_ms))
            except StorageFailure:
                self._on_storage_failure()
            except KafkaStorageError as error:
                logger.warning("rolling %s failed: %s", log.directory, error)
            except OSError as error:
                self._leave_alone(log, str(error))
                logger.error("%s", log.damage.on_read_error(log.segments[:-1], -1, error))  # noqa: TRY400
        self.max_dirty_ratio = max((each.cleanable_ratio for each in candidates), default=0.0)
        return choose_filthiest(candidates)

    def _leave_alone(self, log: PartitionLog, reason: str) -> None:
        self.uncleanable[log] = reason
        self._ended_damage[log] = log.damage.ended

    def _is_left(self, log: PartitionLog) -> bool:
        """Whether the log is uncleanable. A repaired one is tried again."""
        if log in self.uncleanable and log.damage.ended != self._ended_damage[log]:
            del self.uncleanable[log]
            logger.info("compaction of %s resumes", log.directory)
        return log in self.uncleanable

    def _clean(self, found: LogToClean) -> ProcedureSteps:
        log, started_ms = found.log, self._wall_ms()
        if log.compaction.cleaner_offset is None:
            yield from self._note_gaps(log)
            found = find_cleanable(log, started_ms)  # some of it may have been truncated meanwhile
        cleaning = log.compaction.begin_cleaning(
            self.config,
            first_dirty_offset=found.first_dirty_offset,
            end_offset=found.end_offset,
            now_ms=started_ms,
            seed=self._random_bytes(SEED_BYTES),
        )
        yield from self._in_thread(
            log, cleaning, CleanerWork(self._effects, cleaning.build_offset_map)
        )
        for group in cleaning.groups():
            work = CleanerWork(self._effects, partial(cleaning.clean_group, group))
            yield from self._in_thread(log, cleaning, work)
            log.compaction.replace_segments(cleaning, work.result, self._wall_ms())
        names = CleanerWork(self._effects, lambda progress: log.compaction.sync_names())
        yield from self._in_thread(log, cleaning, names)
        log.compaction.complete_cleaning(cleaning)
        self.cleanings += 1
        self.totals.map_bytes_read += cleaning.report.map_bytes_read
        self.totals.bytes_read += cleaning.report.bytes_read
        self.totals.bytes_written += cleaning.report.bytes_written
        yield from self._checkpoint()
        _log_result(log, cleaning, (self._wall_ms() - started_ms) / 1000)

    def _in_thread(
        self, log: PartitionLog, cleaning: Cleaning, work: CleanerWork[T]
    ) -> ProcedureSteps:
        """Run a blocking part of the cleaning in a thread. Raises its error."""
        [failure] = yield [work]
        if isinstance(failure, (OSError, KafkaError)):
            reason = log.compaction.explain_cleaning_failure(cleaning, failure)
            if isinstance(reason, UncleanableLog) and cleaning.reading is not None:
                log.damage.suspect(cleaning.reading, "it cannot be compacted")
            raise reason from failure
        if failure is not None:
            raise failure


class CleanerWork(Generic[T]):
    """A blocking part of a cleaning, for a cleaner's thread; see procedure.Condition.

    result: what it has returned, after `run`.
    """

    __slots__ = ("_call", "_effects", "result")

    result: T

    def __init__(self, effects: Effects, call: Callable[[Progress], T]) -> None:
        self._effects = effects
        self._call = call

    def begin_waiting(self, step: WorkingStep) -> None:
        self._effects.append(RunCleanerWork(step, self))

    def run(self, progress: Progress) -> None:
        """Run the part. `progress` is called with each number of bytes read or written; it may
        wait, or raise CleaningAborted. Raises that, OSError and KafkaError.
        """
        self.result = self._call(progress)


def _log_result(log: PartitionLog, cleaning: Cleaning, seconds: float) -> None:
    report = cleaning.report
    logger.info(
        "compacted %s from offset %d to %d in %.2f s (%.1f MB/s): %d segments to %d, "
        "%.1f MB to %.1f MB, %d records to %d, offset map %.0f%% full",
        log.directory,
        cleaning.first_dirty_offset,
        cleaning.end_offset,
        seconds,
        report.bytes_read / MEGABYTE / max(seconds, 1e-3),
        report.segments_before,
        report.segments_after,
        report.bytes_read / MEGABYTE,
        report.bytes_written / MEGABYTE,
        report.records_read,
        report.records_written,
        100 * report.buffer_utilization,
    )
    if report.keyless_records:
        logger.warning(
            "%d records without a key were dropped from %s",
            report.keyless_records,
            log.directory,
        )
