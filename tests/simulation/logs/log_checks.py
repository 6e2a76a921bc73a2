"""What is asked after each start of the log world: P2, P3, P4, P7, P8, P9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bradbury.storage.disk.storage_failure import StorageFailure
from bradbury.storage.log.log_damage import segments_to_examine
from bradbury.storage.segments.batch_scan import walk_headers

from .log_files import FilesFound
from .log_model import (
    LogFault,
    StoredBatch,
)

if TYPE_CHECKING:
    from .log_world import LogWorld

KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = (1, 2)
TRANSACTIONAL = (11, 12)


class LogChecks:
    """Of one world."""

    def __init__(self, world: LogWorld) -> None:
        self._world = world

    def check_end(self, found: FilesFound, before: int) -> None:
        log, model = self._world.log, self._world.model
        end = log.log_end_offset
        if self._has_lost_more_than_epochs():
            model.once_lost.add(-1)
        if end > model.end:
            known = {each.base: each for each in self._world.maybe}
            while model.end < end:
                if (following := known.get(model.end)) is None:
                    break
                model.batches.append(following)
        self._world.maybe = []
        if self._world.is_doubtful and not self._world.is_exact:
            self.adopt()
        is_empty = log.segments[0].base_offset == end and bool(model.batches)
        if is_empty and (
            self._world.damages or (not self._world.is_exact and self._world.safe <= end)
        ):
            # Its last records are lost, and all before them had been deleted.
            model.batches, model.lost = [], set()
            self._world.safe, self._world.knows_all = end, False
            model.once_lost.add(-1)
        least = self._world.safe
        if self._world.least_end is not None:
            least = min(least, self._world.least_end)
        if (
            end > model.end
            and model.batches
            and not (self._world.compacts and not self._world.damages)
        ):
            if not (self._world.damages and end <= before):
                raise LogFault(f"P4: the log ends at {end}, {model.end} was its last end")
        if end < min(least, found.recovery_point) and not self._world.is_said_damaged:
            raise LogFault(
                f"P3: the log ends at {end}, {found.recovery_point} is its recovery point"
            )
        if end < least and not (self._world.damages or self.may_be_lost):
            raise LogFault(f"P2: the log ends at {end} without damage, {least} was flushed")
        if (
            self._world.is_exact
            and not (self._world.damages or model.lost or self._world.least_end is not None)
            and end < before
        ):
            raise LogFault(f"P2: the process died, and the log ends at {end} instead of {before}")
        if end < model.end and not self._world.compacts:
            for each in model.batches:
                if each.base >= end and each.base in found.places and each.end <= found.kept_end:
                    raise LogFault(
                        f"P3: {each.base} is sound, and cut off at {end}: {self._world.damages}"
                    )
        if end < model.end:
            self._world.cut += 1
            model.truncate(end)
            if 0 < model.end < end and not self._world.damages and not self._world.compacts:
                raise LogFault(f"P4: the log ends at {end}, in the midst of a batch")
        self._world.safe = min(self._world.safe, end)
        self._world.least_end = None
        self._world.epoch = max(self._world.epoch, log.epochs.latest_epoch)

    def adopt(self) -> None:
        """The records that a truncation was about to cut off may be there again."""
        known = (*self._world.cut_off, *self._world.model.batches)
        self._world.knows_all = False
        self._world.model.batches = [
            each for each in self._world.model.batches if each.end <= self._world.safe
        ]
        for segment in self._world.log.segments:
            for position, header in walk_headers(segment.file, 0, segment.size):
                if header.base_offset >= self._world.model.end:
                    batch = bytes(segment.file.read_at(header.size, position))
                    stored = next((each for each in known if each.data == batch), None)
                    if stored is not None:
                        self._world.model.batches.append(stored)

    def examine_all(self) -> None:
        """As the scrubber."""
        damage_ = self._world.log.damage
        for segment in segments_to_examine(damage_.ends()):
            damage_.suspect(segment, "its end")
        for segment in list(self._world.log.segments):
            self.examine(segment)

    def examine(self, segment: Any) -> Any:
        try:
            examination = self._world.log.damage.begin_examination(segment)
            if examination is None:
                return None
            examination.run()
        except OSError as error:
            if not self._world.disk.failing:
                raise
            raise StorageFailure(str(error)) from error
        found = self._world.log.damage.complete_examination(examination)
        return examination if found else None

    def check_all(self, found: FilesFound) -> None:
        """P1, P3: all of it is read, from its start to its end."""
        model, log = self._world.model, self._world.log
        seen = self._world.reading.read(log.log_start_offset, 10_000, log.log_end_offset)
        if self._world.compacts:
            self.check_compacted(seen, found)
            return
        bases = {batch.base for batch in seen}
        first = log.segments[0].base_offset
        if (
            self._world.damages and first > self._world.first_base
        ):  # nobody asks for what is gone with its files
            model.batches = [each for each in model.batches if each.end > first]
            self._world.knows_all = False
        cut_at = self.first_flaw(found)
        for each in model.batches:
            if each.base in bases:
                model.lost.discard(each.base)
            if each.base in bases or each.end <= log.log_start_offset:
                continue
            # What a power loss took from behind a lost file is missed with that.
            is_behind = (
                bool(model.once_lost) and not self._world.is_exact and each.end > self._world.safe
            )
            if not (self._world.damages or each.base in self.may_be_lost or is_behind):
                raise LogFault(f"P1: {each.base} is gone")
            place = found.places.get(each.base)
            if place is not None and each.base not in model.lost and each.base < cut_at:
                raise LogFault(
                    f"P3: {each.base} is sound, and cannot be read: {self._world.damages}"
                )
            model.lost.add(each.base)
        model.once_lost |= model.lost

    @property
    def may_be_lost(self) -> set[int]:
        return self._world.model.lost if self._world.is_exact else self._world.model.once_lost

    def first_flaw(self, found: FilesFound) -> int:
        """Where a start may cut the log; below nothing is cut."""
        return next(
            (
                each.base
                for each in self._world.model.batches
                if each.end > found.kept_end and each.base not in found.places
            ),
            2**62,
        )

    def check_compacted(self, seen: list[StoredBatch], found: FilesFound) -> None:
        log = self._world.log
        records = {record.offset: record for batch in seen for record in batch.records}
        ranges = log.damage.ranges

        def is_damaged(offset: int) -> bool:
            return any(each.start <= offset < each.end for each in ranges)

        # What a power loss takes in the midst of a log that may have gaps is not missed.
        end = log.log_end_offset if self._world.is_exact else self._world.safe
        for key, record in self._world.model.needed(log.log_start_offset, end).items():
            if record.offset not in records and not is_damaged(record.offset):
                raise LogFault(
                    f"P8: {record.offset}, the last of {key!r}, is gone: {self._world.damages}"
                )
        self._world.model.batches = [
            each
            for each in self._world.model.batches
            if each.end <= end or any(record.offset in records for record in each.records)
        ]
        for each in self._world.model.batches:
            if each.base >= max(self._world.cleaned_to, log.log_start_offset):
                for record in each.records:
                    if record.offset not in records and not is_damaged(record.offset):
                        raise LogFault(f"P8: {record.offset} was never compacted, and is gone")

    def _has_lost_more_than_epochs(self) -> bool:
        return any("leader-epoch-checkpoint" not in each for each in self._world.damages)

    def check_epochs(self) -> None:
        log = self._world.log
        if self._has_lost_more_than_epochs() or self._world.model.once_lost or self._world.compacts:
            return
        for each in self._world.model.batches:
            if each.base < log.log_start_offset:
                continue
            if log.epochs.epoch_at(each.base) != each.epoch:
                raise LogFault(
                    f"P9: {each.base} is of epoch {log.epochs.epoch_at(each.base)}, not {each.epoch}"
                )
            following = [one.base for one in self._world.model.batches if one.epoch > each.epoch]
            ends = (each.epoch, min(following, default=log.log_end_offset))
            if log.end_offset_for_epoch(each.epoch) != ends:
                raise LogFault(
                    f"P9: epoch {each.epoch} ends at {log.end_offset_for_epoch(each.epoch)}"
                )

    def check_producers(self) -> None:
        """P7: whoever is remembered is remembered as it was."""
        log = self._world.log
        if (
            self._world.model.lost
            or self._world.damages
            or (self._world.compacts and not self._world.is_exact)
        ):
            return
        first = log.segments[0].base_offset
        for producer_id in PRODUCERS:
            last = self._world.model.last_of(producer_id)
            if last is None or last.base < max(first, log.log_start_offset):
                continue
            entry = log.local.producers.entries.get(producer_id)
            if entry is None or entry.last_sequence != last.first_sequence + len(last.records) - 1:
                raise LogFault(f"P7: producer {producer_id} is {entry}, its last was {last}")
