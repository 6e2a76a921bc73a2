"""Maintenance of the log of the log world: flushes, retention, compaction, healing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bradbury.protocol.errors import (
    CorruptMessage,
)
from bradbury.storage.cleaner.cleaner import CleaningAborted, UncleanableLog
from bradbury.storage.cleaner.cleaner_config import CleanerConfig
from bradbury.storage.disk.storage_failure import StorageFailure
from bradbury.storage.log.cleaner_manager import find_cleanable
from bradbury.storage.log.retention import apply_retention
from bradbury.storage.log.segment_patch import SegmentChanged, SegmentPatch

from .log_files import KEY

if TYPE_CHECKING:
    from .log_world import LogWorld


class LogMaintenance:
    """Maintenance of one world's log."""

    def __init__(self, world: LogWorld) -> None:
        self._world = world

    def roll(self) -> None:
        self._world.log.local.roll(now_ms=self._world.now_ms)

    def begin_flush(self) -> None:
        self.complete_flush()
        self._world.flushing = self._world.log.flushing.begin_flush()

    def complete_flush(self) -> None:
        work, self._world.flushing = self._world.flushing, None
        if work is not None:
            work.run()
            self._world.is_doubtful = False
            if work.truncations == self._world.log.local.truncations:
                self._world.safe = max(self._world.safe, work.up_to)
            self._world.log.flushing.complete_flush(work)

    def checkpoint(self) -> None:
        self._world.directory.checkpoints.bring_up_to_date()

    def commit(self) -> None:
        log = self._world.log
        log.high_watermark = self._world.random.randint(log.high_watermark, log.log_end_offset)

    def delete_records(self) -> None:
        log = self._world.log
        offset = self._world.random.randint(log.log_start_offset, log.high_watermark)
        log.advance_log_start_offset(offset)

    def retain(self) -> None:
        apply_retention(self._world.log, self._world.now_ms)
        self._world.deletions += 1

    def delete_old_files(self) -> None:
        self._world.directory.checkpoints.bring_up_to_date()
        self._world.log.local.delete_old_files(self._world.now_ms)
        self._world.deletions += 1

    def clean(self) -> None:
        log, random = self._world.log, self._world.random
        if log.compaction.cleaner_offset is None:
            checkpoints = self._world.directory.checkpoints
            checkpoints.expect_gaps(KEY, True)
            try:
                checkpoints.bring_up_to_date()
                if checkpoints.has_noted_gaps(KEY):
                    log.compaction.note_gaps(log.log_start_offset)
            finally:
                checkpoints.expect_gaps(KEY, False)
        found = find_cleanable(log, self._world.now_ms)
        if log.compaction.cleaner_offset is None or found.cleanable_bytes == 0:
            return
        cleaning = log.compaction.begin_cleaning(
            CleanerConfig(dedupe_buffer_size=random.choice([48, 1 << 16]), io_buffer_size=8192),
            first_dirty_offset=found.first_dirty_offset,
            end_offset=found.end_offset,
            now_ms=self._world.now_ms,
            seed=bytes(range(16)),
        )
        self._world.cleaned_to = max(self._world.cleaned_to, found.end_offset)
        self._world.searches = []  # they may open what takes the place of what they began with
        try:
            cleaning.build_offset_map(lambda size: None)
            for group in cleaning.groups():
                cleaned = cleaning.clean_group(group, lambda size: None)
                if random.random() < 0.3:
                    self._world.writing.append()
                log.compaction.replace_segments(cleaning, cleaned, self._world.now_ms)
            log.compaction.sync_names()
            log.compaction.complete_cleaning(cleaning)
        except (CleaningAborted, UncleanableLog):
            pass
        except OSError as error:
            explained = log.compaction.explain_cleaning_failure(cleaning, error)
            if isinstance(explained, StorageFailure):
                raise explained from error
        self._world.deletions += 1

    def heal(self) -> None:
        """From another replica, which has all that was appended."""
        log = self._world.log
        if not log.damage.ranges:
            return
        path = self._world.random.choice(log.damage.ranges).path
        segment = next((each for each in log.segments if each.files.path == path), None)
        if segment is None:
            log.damage.on_healed(path)
            return
        if segment is log.segments.active:
            log.local.roll(now_ms=self._world.now_ms)
        examination = self._world.checks.examine(segment)
        if examination is None:
            return
        patch = SegmentPatch(log, examination, self._world.now_ms)
        try:
            patch.prepare()
            while (wanted := patch.wanted) is not None:
                following = [each for each in self._world.model.batches if each.end > wanted[0]]
                count = self._world.random.randint(1, 3)
                patch.add(b"".join(each.data for each in following[:count]))
            patch.finish()
            patch.apply(self._world.now_ms)
        except (OSError, SegmentChanged, CorruptMessage) as error:
            if isinstance(error, CorruptMessage):
                if (
                    self._world.knows_all
                ):  # else the other replica lacks what the model does not know of
                    raise
            elif not self._world.disk.full and not self._world.disk.failing:
                raise
            patch.abandon()
            return
        self._world.healed += 1
        if segment.base_offset < log.log_start_offset:
            self._world.knows_all = False  # of transactions in what is deleted, and was damaged
        self._world.deletions += 1
        for each in self._world.reading.read(log.log_start_offset, 10_000, log.log_end_offset):
            self._world.model.lost.discard(each.base)
