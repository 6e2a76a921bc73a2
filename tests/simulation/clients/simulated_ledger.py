"""The ledger of one partition of the simulation: what was committed there, and what of it must stay.

In a partition that is compacted, records go from a log as others with their keys come: then a log is
not what was committed, and what it must hold is said here, from the committed records alone:

    L8  a log has the last committed record of each key, and no record that was never committed there
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bradbury.protocol.records.end_transaction_marker import read_marker
from bradbury.protocol.records.records import iterate_records
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.storage.log.partition_log import PartitionLog

from ..world.simulated_replica import BEFORE_LENGTH, Batch, batches_of, from_outside, read_bytes
from .simulated_log_checks import Violation


class KeyedRecord(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


@dataclass
class Ledger:
    """What was sent, acknowledged and read of one partition."""

    is_compacted: bool = False
    committed: list[Batch] = field(default_factory=list)
    by_offset: dict[int, Batch] = field(default_factory=dict)
    committed_end: int = 0
    lossy: set[int] = field(default_factory=set)
    """Nodes that have lost data and are not known to have it again."""
    is_damaged: bool = False
    acknowledged: int = 0
    read: int = 0
    deleted: int = 0
    """Somebody wanted the records below this to be deleted."""
    ends: list[tuple[int, int]] = field(default_factory=list)
    """(time, committed_end) of each commit."""
    records: dict[int, KeyedRecord] = field(default_factory=dict)
    """Where it is compacted: what was committed, control records too."""
    last: dict[bytes, KeyedRecord] = field(default_factory=dict)
    """Of each key the last one that counts: neither aborted nor undecided."""
    _undecided: dict[int, list[KeyedRecord]] = field(default_factory=dict)
    """Of open transactions, by producer."""

    def commit(self, batch: Batch, now_ms: int) -> None:
        self.ends.append((now_ms, batch.next_offset))
        self.committed.append(batch)
        self.by_offset[batch.base_offset] = batch
        self.committed_end = batch.next_offset

    def committed_before(self, time_ms: int) -> int:
        """The committed end at that time."""
        return max((end for at, end in self.ends if at <= time_ms), default=0)

    def holds(self, batch: Batch) -> bool:
        """Whether it is what is committed there; or what a compaction has left of that."""
        committed = self.by_offset.get(batch.base_offset)
        return committed == batch or (
            self.is_compacted
            and committed is not None
            and committed._replace(crc=batch.crc) == batch
        )

    def check_held(
        self, found: list[Batch], high_watermark: int, name: str, partition_id: TopicPartitionPair
    ) -> None:
        """R4 of one log: what it has below its high watermark is committed."""
        for batch in found:
            if batch.next_offset > high_watermark:
                return
            if not self.holds(batch):
                raise Violation("R4", f"{name} has {batch}", partition_id)

    # --- transactions ---------------------------------------------------------------------------

    def check_aborted(self, log: PartitionLog, name: str, partition_id: TopicPartitionPair) -> None:
        """L7: the transactions of which readers are told that they were aborted are those of the
        markers. Of what began below the log start nothing is known.
        """
        opened: dict[int, int] = {}
        aborted: set[tuple[int, int, int]] = set()
        for content in contents_of(log, log.log_start_offset, log.log_end_offset):
            [batch] = batches_of(content)
            if not batch.is_transactional:
                continue
            if not batch.is_control:
                opened.setdefault(batch.producer_id, batch.base_offset)
            elif (first := opened.pop(batch.producer_id, None)) is not None:
                if not read_marker(content).is_commit:
                    aborted.add((batch.producer_id, first, batch.base_offset))
        with from_outside(log):
            known = {
                (each.producer_id, each.first_offset, each.last_offset)
                for segment in log.segments
                for each in segment.transaction_index.all()
                if each.first_offset >= log.log_start_offset
            }
        if known != aborted:
            raise Violation(
                "L7", f"{name} calls {known} aborted, the records {aborted}", partition_id
            )

    # --- compaction ------------------------------------------------------------------------------

    def note_records(self, log: PartitionLog, batch: Batch) -> None:
        """It was committed just now: what is in it, as this log has it."""
        for content in contents_of(log, batch.base_offset, batch.next_offset):
            records = list(_records_of(content))
            self.records.update((record.offset, record) for record in records)
            if batch.is_control:
                decided = self._undecided.pop(batch.producer_id, [])
                if read_marker(content).is_commit:
                    self._count(decided)
            elif batch.is_transactional:
                self._undecided.setdefault(batch.producer_id, []).extend(records)
            else:
                self._count(records)

    def _count(self, records: list[KeyedRecord]) -> None:
        for record in records:
            # A transaction counts when it is decided; another one may have come after it.
            if record.key not in self.last or self.last[record.key].offset < record.offset:
                self.last[record.key] = record

    def check_compacted(
        self, log: PartitionLog, name: str, partition_id: TopicPartitionPair
    ) -> None:
        """L8 of one log."""
        end = min(log.high_watermark, self.committed_end)
        held: dict[int, KeyedRecord] = {}
        for content in contents_of(log, log.log_start_offset, end):
            for record in _records_of(content):
                held[record.offset] = record
                if record.offset < end and self.records.get(record.offset) != record:
                    raise Violation(
                        "L8",
                        f"{name} has {record}, committed is {self.records.get(record.offset)}",
                        partition_id,
                    )
        for record in self.last.values():
            if log.log_start_offset <= record.offset < end and record.offset not in held:
                raise Violation(
                    "L8", f"{name} has lost {record}, the last one of its key", partition_id
                )


class Ledgers(dict[TopicPartitionPair, Ledger]):
    """Of a partition that nobody writes to there is nothing to keep."""

    def __missing__(self, partition_id: TopicPartitionPair) -> Ledger:
        return Ledger()


def contents_of(log: PartitionLog, start: int, up_to: int) -> Iterator[bytes]:
    """The batches of [start, up_to), as bytes."""
    while start < up_to:
        data = read_bytes(log, start, up_to)
        position = 0
        for batch in batches_of(data):
            length = int.from_bytes(data[position + 8 : position + BEFORE_LENGTH])
            yield data[position : position + BEFORE_LENGTH + length]
            position += BEFORE_LENGTH + length
            start = batch.next_offset
        if not position:
            return


def _records_of(content: bytes) -> Iterator[KeyedRecord]:
    for record in iterate_records(content):
        assert record.key is not None, "such a record is refused, and no coordinator writes one"
        yield KeyedRecord(record.offset, bytes(record.key), record.value and bytes(record.value))
