"""What a log has been given, batch by batch, and what may be read of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bradbury.protocol.records.record_batch import read_header
from bradbury.protocol.records.records import Record, control_type, iterate_records


class LogFault(AssertionError):
    """A rule of log_world does not hold."""


class StoredBatch(NamedTuple):
    """A batch as the log has it: offsets [base, end)."""

    base: int
    end: int
    epoch: int
    data: bytes
    records: tuple[Record, ...]
    producer_id: int
    first_sequence: int
    is_transactional: bool
    commits: bool | None
    """Of a marker: whether it commits; None: it is none."""

    @classmethod
    def of(cls, data: bytes) -> StoredBatch:
        header = read_header(data)
        records = tuple(iterate_records(data))
        commits = bool(control_type(records[0].key)) if header.is_control else None
        return cls(
            header.base_offset,
            header.next_offset,
            header.leader_epoch,
            data,
            records,
            header.producer_id,
            header.base_sequence,
            header.is_transactional,
            commits,
        )


class LogModel:
    """All batches of a log, those below its start too."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.lost: set[int] = set()
        """Base offsets of batches that are damaged, as far as it is known."""
        self.once_lost: set[int] = set()
        """Those that were damaged at some time: a power loss may take their healing back."""

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def by_base(self) -> dict[int, StoredBatch]:
        return {each.base: each for each in self.batches}

    def truncate(self, offset: int) -> None:
        """A batch that holds `offset` goes as a whole."""
        while self.batches and self.batches[-1].end > offset:
            self.lost.discard(self.batches.pop().base)

    def sequence_after(self, producer_id: int) -> int:
        last = self.last_of(producer_id)
        return 0 if last is None else last.first_sequence + len(last.records)

    def last_of(self, producer_id: int) -> StoredBatch | None:
        """The newest batch of an idempotent producer."""
        return next(
            (
                each
                for each in reversed(self.batches)
                if each.producer_id == producer_id and each.first_sequence >= 0
            ),
            None,
        )

    def transactions(self, since: int = 0) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """(first offset of those that are open, by producer; (producer, first offset, offset of
        the marker) of those that have ended), as the batches from `since` on have them.
        """
        begun: dict[int, int] = {}
        ended: list[tuple[int, int, int]] = []
        for each in self.batches:
            if each.base < since:
                continue
            if each.commits is None:
                if each.is_transactional:
                    begun.setdefault(each.producer_id, each.base)
                continue
            first = begun.pop(each.producer_id, None)
            if first is not None:
                ended.append((each.producer_id, first, each.base))
        return begun, ended

    def aborted_offsets(self) -> set[int]:
        """Of records that a reader of committed ones may not see."""
        found: set[int] = set()
        known = self.by_base()
        for producer_id, first, marker in self.transactions()[1]:
            if known[marker].commits:
                continue
            for each in self.batches:
                if each.producer_id == producer_id and first <= each.base < marker:
                    found.update(record.offset for record in each.records)
        return found

    def needed(self, start: int, end: int) -> dict[bytes, Record]:
        """What compaction must leave of [start, end): the last record of each key, if it is no
        tombstone, and was not aborted.
        """
        aborted = self.aborted_offsets()
        found: dict[bytes, Record] = {}
        for each in self.batches:
            if each.commits is not None:
                continue
            for record in each.records:
                if record.offset in aborted or record.key is None:
                    continue
                found.pop(record.key, None)
                if start <= record.offset < end and record.value is not None:
                    found[record.key] = record
        return found


def first_at_or_after(records: Iterable[Record], timestamp: int, end: int) -> int | None:
    """Offset of the first of `records` that is as late as that, if it is below `end`."""
    found = next((each.offset for each in records if each.timestamp >= timestamp), None)
    return found if found is not None and found < end else None


def first_with_largest_timestamp(records: Iterable[Record], end: int) -> int | None:
    """As first_at_or_after, for the largest of them all."""
    newest = max(records, key=lambda each: (each.timestamp, -each.offset), default=None)
    return newest.offset if newest is not None and newest.offset < end else None
