"""Repair of a damaged segment: from its undamaged parts, and from another replica.

    <base offset>.log.healed      being written; a start deletes it
    <base offset>.log.healedswap  complete: replaces the damaged one; a start finishes this
    <base offset>.log             done

Invariants: nothing is removed from the log before its replacement is complete and durable, and
contains all of it. Batches from another replica are accepted only if they
    are sound, and have exactly the missing offsets, with gaps only if the log may have gaps,
    have the leader epochs that this log knows, or, if those were rebuilt from the log with this
    hole, at least none out of order,
    and follow the records before them in this log (epoch_before_wanted).
Then they are, byte for byte, the lost ones, as only committed records are sent.

Not here: who is asked (replication/logs/segment_healer).
"""

from __future__ import annotations

from ...protocol.buffer import Buffer
from ...protocol.errors import CorruptMessage
from ...protocol.records.record_batch import RecordBatchHeader, compute_crc, walk_batches
from ..disk.file_system import sync_directory
from ..disk.storage_failure import SHORTAGES, refused_or_failed
from ..producers.healed_producers import HealedProducers, HealedSegment
from ..producers.producer_recovery import aborted_in, forget_derived, merged
from ..segments.log_segment import LogSegment
from ..segments.segment_files import HEALED_SUFFIX
from ..segments.segment_runs import SegmentReader, SegmentRun
from .log_damage import SegmentExamination
from .partition_log import PartitionLog


class SegmentChanged(Exception):
    """The log has changed since the examination, which must be repeated."""


class SegmentPatch:
    """One repair: prepare(), then add() while `wanted` is not None, finish(), and apply().

    All but apply() wait for the disk, and run in a thread; one at a time.
    """

    def __init__(self, log: PartitionLog, examination: SegmentExamination, now_ms: int) -> None:
        local = log.local
        self._log = log
        self._damaged = examination.segment
        self._end_offset = examination.end_offset
        self._truncations = examination.truncations
        self._directory = local.directory
        self._has_gaps = log.damage.has_gaps
        self._runs = list(examination.runs)
        self._missing = [(each.start, each.end) for each in examination.damage()]
        self._producers = HealedProducers(self._missing)
        self._epochs: list[tuple[int, int]] = []
        """(leader epoch, first offset) in the fetched records that this log did not know."""
        self._epoch = -1
        """Leader epoch of the last batch in the new segment."""
        self.fetched_bytes = 0
        base_offset = examination.segment.base_offset
        self._earlier = [each for each in local.segments if each.base_offset < base_offset]
        self.segment = LogSegment(
            local.file_system,
            local.directory,
            examination.segment.base_offset,
            config=local.config,
            now_ms=now_ms,
            size=0,
            next_offset=examination.segment.base_offset,
            suffix=HEALED_SUFFIX,
        )

    @property
    def wanted(self) -> tuple[int, int] | None:
        """Offsets [from, to) to fetch from another replica next; None: nothing is missing."""
        if not self._missing:
            return None
        start, end = self._missing[0]
        start = max(start, self.segment.next_offset)
        # Below the log start nobody has it any more.
        return min(max(start, self._log.log_start_offset), end - 1), end

    @property
    def epoch_before_wanted(self) -> int:
        """Leader epoch of what precedes `wanted` in this log; -1: nothing does.

        A source without records of this epoch up to there has a diverging log: this one has
        uncommitted records, which will be truncated, and records of both must not be mixed.
        """
        assert self.wanted is not None
        offset, start = self.wanted[0], self._log.log_start_offset
        if offset != self.segment.next_offset or offset <= start:
            return -1
        if self.segment.size:
            return self._epoch
        return self._log.epochs.epoch_at(offset - 1)

    def prepare(self) -> None:
        """Create the file, and copy what comes before the first gap.

        Raises:
            OSError: the damaged file cannot be read, or descriptors are short.
            KafkaStorageError: the disk is full; StorageFailure: the directory cannot be written.
        """
        try:
            self.segment.files.create()
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            health = self._log.local.health
            raise refused_or_failed(health, f"healing {self._directory}", error) from error
        self._copy_aborted()
        self._copy_runs()

    def add(self, records: Buffer) -> None:
        """Add records that another replica sent from `wanted` on.

        Raises:
            CorruptMessage: they are not the missing records.
            OSError: the disk failed.
        """
        view = memoryview(records)
        taken: list[RecordBatchHeader] = []
        first = last = 0
        assert self.wanted is not None
        expected, end = self.wanted
        for position, header in walk_batches(view, strict=True):
            if header.last_offset < expected:
                first = position + header.size
                continue
            if header.base_offset >= end:
                expected = end if self._has_gaps else expected
                break
            self._check(header, view[position : position + header.size], expected, end)
            self._check_epoch(header)
            taken.append(header)
            last, expected = position + header.size, header.next_offset
        if taken:
            self.segment.append_run(view[first:last], taken)
            self._epoch = taken[-1].leader_epoch
            self._producers.add(taken)
            self.fetched_bytes += last - first
        elif expected != end:
            raise CorruptMessage(f"no records at offset {expected}")
        if expected >= end:
            self._missing.pop(0)
            self._copy_runs()

    def _check(self, header: RecordBatchHeader, batch: memoryview, expected: int, end: int) -> None:
        if header.crc != compute_crc(batch):
            raise CorruptMessage(f"it sent a damaged batch at offset {header.base_offset}")
        # Where the log starts within a batch, the deleted records of that batch come along.
        is_start = expected == self._log.log_start_offset
        least = self.segment.next_offset if is_start else expected
        if header.base_offset < least or header.last_offset >= end:
            raise CorruptMessage(
                f"it sent offsets {header.base_offset} to {header.last_offset}, "
                f"where {expected} to {end - 1} are missing"
            )
        if header.base_offset > expected and not self._has_gaps:
            raise CorruptMessage(f"no records at offset {expected}")

    def _check_epoch(self, header: RecordBatchHeader) -> None:
        epochs, offset, sent = self._log.epochs, header.base_offset, header.leader_epoch
        known = epochs.epoch_at(offset)
        if known == sent and not self._epochs:
            return
        before = self._epochs[-1][0] if self._epochs else epochs.epoch_at(self._missing[0][0] - 1)
        has_later = self._missing[0][1] < self._log.log_end_offset
        # An epoch that began in a hole may seem to begin behind it, but no epoch before its start.
        if sent < max(before, known) or (has_later and sent > epochs.latest_epoch >= 0):
            raise CorruptMessage(
                f"its batch at offset {offset} is of leader epoch {sent}, ours was of epoch {known}"
            )
        if sent != before:
            self._epochs.append((sent, offset))

    def _copy_runs(self) -> None:
        """Copy the undamaged runs before the next gap."""
        limit = self._missing[0][0] if self._missing else self._end_offset
        while self._runs and self._runs[0].next_offset <= limit:
            self._copy(self._runs.pop(0))

    def _copy(self, run: SegmentRun) -> None:
        damaged = self._damaged
        reader = SegmentReader(
            damaged.file,
            run.position + run.size,
            end_offset=self._end_offset,
            has_gaps=self._has_gaps,
        )
        expected = run.first_offset
        for header, data in reader.batches(run.position, run.first_offset):
            self.segment.append_run(data, [header])
            self._epoch = header.leader_epoch
            expected = header.next_offset
        if expected != run.next_offset:
            raise CorruptMessage(f"{damaged.files.path} has changed at offset {expected}")

    def _copy_aborted(self) -> None:
        aborted, _ = self._damaged.transaction_index.find(0, self._end_offset)
        for each in aborted:
            self.segment.transaction_index.add(each)

    def _add_aborted(self) -> None:
        """Rebuild the index of aborted transactions with the fetched records: without them a
        transaction whose marker was lost seemed to be ended by the next one. Entries of earlier
        transactions are kept.
        """
        segment, index = self.segment, self.segment.transaction_index
        made = aborted_in(self._log.local.file_system, self._directory, segment, self._earlier)
        known = [each for each in index.all() if each.first_offset < segment.base_offset]
        index.truncate(0)
        for each in merged(made, known, segment.base_offset, self._end_offset):
            index.add(each)

    def finish(self) -> None:
        """Make the new files durable. Raises OSError."""
        files, segment = self._log.local.file_system, self.segment
        self._add_aborted()
        segment.close_indexes()
        for path in (
            segment.files.path,
            segment.offset_index.path,
            segment.time_index.path,
            segment.transaction_index.path,
        ):
            if files.exists(path):
                files.open(path).sync()
        sync_directory(files, self._directory)

    def apply(self, now_ms: int) -> None:
        """Replace the damaged segment by the new one, in the thread of the log's owner.

        Raises SegmentChanged, StorageFailure.
        """
        log, local, damaged = self._log, self._log.local, self._damaged
        if (
            local.truncations != self._truncations
            or local.directory != self._directory
            or not local.segments.holds((damaged,))
        ):
            raise SegmentChanged(f"{damaged.files.path} has changed meanwhile")
        path = damaged.files.path
        try:
            log.epochs.insert(self._epochs)  # fetched records are committed, even if this fails
            # The first batch may begin below the log's start, or that has moved meanwhile.
            log.epochs.truncate_from_start(log.log_start_offset)
            self.segment.next_offset = max(self.segment.next_offset, damaged.next_offset)
            healed = HealedSegment(self.segment, self._producers, now_ms)
            is_known = not local.lacks_producers and healed.is_known(
                local.producers, local.producers_read, local.producer_id_expiration_ms
            )
            # Files derived from the damaged segment are deleted after the rename to .healedswap and
            # before the swap ends: after a crash in between, a start deletes them (log_leftovers).
            local.segments.swap_in(
                (damaged,),
                self.segment,
                now_ms + local.config.file_delete_delay_ms,
                on_begun=(lambda: None) if is_known else self._forget_derived,
            )
            if not is_known:
                local.reload_producers(healed)
        except OSError as error:
            raise local.health.fail(f"healing {local.directory}", error) from error
        local.is_directory_dirty = True
        log.damage.on_healed(path)

    def _forget_derived(self) -> None:
        """Delete snapshots and transaction indexes that were derived while batches were damaged.

        Where a marker was lost, a later abort seemed to belong to an earlier transaction; and
        snapshots lack producers, or have some that never existed.
        """
        local = self._log.local
        forget_derived(
            local.file_system,
            local.directory,
            self.segment.base_offset,
            with_transactions=self._producers.has_transactions,
        )

    def abandon(self) -> None:
        """Remove the unfinished files. Raises OSError."""
        self.segment.files.unlink()
