"""What is read and searched in the log world, and what of it is what was appended: P1, P5, P6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bradbury.protocol.errors import (
    KafkaStorageError,
    OffsetOutOfRange,
)
from bradbury.protocol.records.record_batch import read_header, walk_batches
from bradbury.protocol.records.records import (
    iterate_records,
)
from bradbury.storage.disk.storage_failure import StorageFailure
from bradbury.storage.log.aborted_transactions import find_aborted
from bradbury.storage.log.log_damage import DamagedSegment
from bradbury.storage.log.timestamp_search import begin_search

from .log_model import (
    LogFault,
    StoredBatch,
    first_at_or_after,
    first_with_largest_timestamp,
)

if TYPE_CHECKING:
    from .log_world import LogWorld


class LogReading:
    """Of one world."""

    def __init__(self, world: LogWorld) -> None:
        self._world = world

    def read(self, offset: int, max_bytes: int, up_to: int) -> list[StoredBatch]:
        """P1: what is there from `offset` on. What is damaged is passed over, once it is said."""
        log, found = self._world.log, list[StoredBatch]()
        known = self._world.model.by_base()
        tries = 0
        while offset < up_to:
            try:
                piece = log.read(offset, max_bytes=max_bytes, up_to=up_to, min_one_batch=True)
            except DamagedSegment as error:
                if not (
                    self._world.damages or self._world.model.once_lost or self._world.disk.failing
                ):
                    raise LogFault(f"P3: nothing is damaged: {error}") from None
                if error.next_offset <= offset:
                    raise LogFault(f"P3: {error} at {offset}: {error.next_offset}") from None
                offset = error.next_offset
                continue
            except KafkaStorageError as error:
                if isinstance(error, StorageFailure):
                    raise
                tries += 1
                if tries > 20:
                    raise LogFault(f"P3: {offset} is never read: {error}") from None
                for segment in list(log.damage.suspects):
                    self._world.checks.examine(segment)
                continue
            tries = 0
            if not piece.size:
                break
            assert piece.file is not None
            data = piece.file.read_at(piece.size, piece.position)
            if len(data) != piece.size or piece.next_offset <= offset:
                raise LogFault(f"P1: {len(data)} of {piece.size} bytes at {offset}")
            for position, header in walk_batches(memoryview(data), strict=True):
                batch = bytes(data[position : position + header.size])
                self.check_batch(batch, known)
                found.append(StoredBatch.of(batch) if header.record_count else _empty(batch))
            offset = piece.next_offset
        for one, other in zip(found, found[1:], strict=False):
            if one.end > other.base:
                raise LogFault(f"P1: {one.base} to {one.end} is followed by {other.base}")
        return found

    def check_batch(self, batch: bytes, known: dict[int, StoredBatch]) -> None:
        header = read_header(batch)
        stored = known.get(header.base_offset)
        if not self._world.compacts:
            if stored is None or stored.data != batch:
                raise LogFault(f"P1: at {header.base_offset} is {header}, not {stored}")
            return
        given = {record.offset: record for each in known.values() for record in each.records}
        for record in iterate_records(batch):
            if given.get(record.offset) != record:
                raise LogFault(f"P8: {record} is read, {given.get(record.offset)} was appended")

    def read_somewhere(self) -> None:
        log = self._world.log
        offset = self._world.random.randint(log.log_start_offset, log.log_end_offset)
        limit = self._world.random.choice([1, 100, 1000, 100_000])
        found = self.read(offset, limit, log.log_end_offset)
        if not (self._world.model.lost or self._world.compacts or self._world.disk.failing):
            wanted = [each.base for each in self._world.model.batches if each.end > offset]
            if [each.base for each in found] != wanted:
                raise LogFault(f"P1: from {offset} on {[each.base for each in found]} is read")
        try:
            log.read(log.log_end_offset + 1, max_bytes=1, up_to=2**60, min_one_batch=True)
        except OffsetOutOfRange:
            return
        raise LogFault("P1: there is something behind the end")

    def read_committed(self) -> None:
        """P6: as a consumer does with what a fetch sends along."""
        log, model = self._world.log, self._world.model
        if model.lost or self._world.disk.failing:
            return
        stable = self.stable(0)
        # Where the snapshot is lost with deleted records, a transaction begins with what is left.
        if self._world.knows_all and not stable <= log.last_stable_offset <= self.stable(
            log.log_start_offset
        ):
            raise LogFault(f"P6: the last stable offset is {log.last_stable_offset}, not {stable}")
        stable = log.last_stable_offset
        offset = self._world.random.randint(log.log_start_offset, max(stable, log.log_start_offset))
        batches = self.read(offset, 100_000, stable)
        if not batches:
            return
        waiting = sorted(
            find_aborted(log, offset, batches[-1].end), key=lambda each: each.first_offset
        )
        leaving_out: set[int] = set()
        seen: list[int] = []
        for batch in batches:
            while waiting and waiting[0].first_offset < batch.end:
                leaving_out.add(waiting.pop(0).producer_id)
            if batch.commits is not None:
                leaving_out.discard(batch.producer_id) if not batch.commits else None
            elif not (batch.is_transactional and batch.producer_id in leaving_out):
                seen += [record.offset for record in batch.records if record.offset >= offset]
        aborted = model.aborted_offsets()
        if (wrong := aborted & set(seen)) and self._world.knows_aborted:
            raise LogFault(f"P6: aborted records are read: {sorted(wrong)}")
        wanted = {
            record.offset
            for each in batches
            if each.commits is None
            for record in each.records
            if record.offset >= offset
        }
        if missing := wanted - aborted - set(seen):
            raise LogFault(f"P6: committed records are left out: {sorted(missing)}")

    def stable(self, since: int) -> int:
        log = self._world.log
        begun, ended = self._world.model.transactions(since)
        undecided = [first for _, first, marker in ended if marker >= log.high_watermark]
        return max(min([log.high_watermark, *begun.values(), *undecided]), log.log_start_offset)

    def search(self) -> None:
        """P5: one search begins, and one that began earlier is made."""
        log = self._world.log
        if self._world.model.lost or self._world.disk.failing:
            return
        records = [
            record
            for each in self.read(log.log_start_offset, 100_000, log.log_end_offset)
            for record in each.records
            if record.offset >= log.log_start_offset
        ]
        up_to = log.high_watermark
        at = self._world.random.choice(
            [0, self._world.now_ms, *(each.timestamp for each in records)]
        )
        at += self._world.random.choice([0, 0, 1])
        search = begin_search(log, up_to=up_to)
        wanted = (
            first_at_or_after(records, at, up_to),
            first_with_largest_timestamp(records, up_to),
        )
        self._world.searches.append((search, at, *wanted))
        if self._world.random.random() < 0.7:
            search, at, first, largest = self._world.searches.pop(
                self._world.random.randrange(len(self._world.searches))
            )
            try:
                found = search.first_at_or_after(at)
                newest = search.first_with_max_timestamp()
            except OSError:
                if self._world.deletions:
                    return
                raise
            if (found.offset if found else None) != first:
                raise LogFault(f"P5: at {at} is {found}, not {first}")
            if (newest.offset if newest else None) != largest:
                raise LogFault(f"P5: the latest is {newest}, not {largest}")


def _empty(batch: bytes) -> StoredBatch:
    """One that compaction has left for its producer's sequence."""
    header = read_header(batch)
    return StoredBatch(
        header.base_offset,
        header.next_offset,
        header.leader_epoch,
        batch,
        (),
        header.producer_id,
        header.base_sequence,
        header.is_transactional,
        None,
    )
