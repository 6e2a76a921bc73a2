"""Check of each .txnindex against the transactions that its segment's control batches aborted.

    on_batch for each batch of a log, in order; end_segment after each segment, with its problems

Checked for each entry: its marker is in the segment and aborts that producer's transaction; the
transaction began at the entry's first offset; no transaction was open below its last stable offset.
And each marker that aborted records which are still in the log has its entry: without it a
read_committed consumer would get them.

Records that are not in the log any more cannot contradict an entry: compaction removes aborted
records, and retention the beginning of a log. So the first offset of an entry may be lower than the
transaction's first one in the log, if no batch has it any more. An entry whose marker is at or
above the recovery point may be missing: Bradbury writes it with the next flush, and rebuilds it at
a start.

After damage in a log its further entries are not checked: log_verify reports that damage.
Source: CompletedTxn, ProducerStateManager.lastStableOffset, TransactionIndex in apache/kafka.

Not here: the layout of the file (log_files.walk_transactions).
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .log_files import Content, Damage, Problem, base_offset_of, walk_transactions

if TYPE_CHECKING:
    from ...protocol.records.record_batch import RecordBatchHeader
    from ...storage.segments.transaction_index import AbortedTransaction

SUFFIX = ".txnindex"
ENTRY_BYTES = 34
REMEDY = (
    "stop the broker, delete {} and the .index next to it, and start it again: "
    "both are rebuilt from the log"
)


class _Marker(NamedTuple):
    """Marker of a transaction.

    aborted: entry that the index has to have; None for a commit, and if no record is left.
    before: offset of the same producer's previous marker.
    """

    producer_id: int
    is_commit: bool
    aborted: AbortedTransaction | None
    before: int


class TransactionIndexCheck:
    """Transactions of one log, from its batches. segments: those of the log, oldest first."""

    def __init__(self, segments: list[Path]) -> None:
        self._recovery_point = _recovery_point_of(segments)
        self._first_offset: int | None = None
        self._next_offset = 0
        self._holes: tuple[list[int], list[int]] = ([], [])
        """Begins and ends of the offset ranges without records, in order."""
        self._open: dict[int, int] = {}
        """First offset of the open transaction that is in the log, by producer id."""
        self._ended: dict[int, int] = {}
        """Offset of the last marker in the log, by producer id."""
        self._markers: dict[int, _Marker] = {}
        """Markers of the current segment, by offset."""
        self._is_damaged = False

    def on_damage(self) -> None:
        """Stop the checks of this log: it is damaged from here on."""
        self._is_damaged = True

    def on_batch(self, header: RecordBatchHeader, data: Content, position: int) -> None:
        """Process the next batch, of magic 2, at `position` of its segment's `data`."""
        if self._is_damaged:
            return
        if self._first_offset is None:
            self._first_offset = self._next_offset = header.base_offset
        if not header.record_count:  # compaction keeps an empty batch for its sequence alone
            return
        if header.base_offset > self._next_offset:
            begins, ends = self._holes
            begins.append(self._next_offset)
            ends.append(header.base_offset)
        self._next_offset = header.next_offset
        if header.is_control:
            self._on_marker(header, data[position : position + header.size])
        elif header.is_transactional and header.producer_id >= 0:
            self._open.setdefault(header.producer_id, header.base_offset)

    def _on_marker(self, header: RecordBatchHeader, batch: bytes) -> None:
        from ...protocol.errors import KafkaError
        from ...protocol.records.end_transaction_marker import read_marker
        from ...storage.segments.transaction_index import AbortedTransaction

        producer_id, offset = header.producer_id, header.last_offset
        try:
            marker = read_marker(batch)
        except KafkaError:
            self._is_damaged = True
            return
        if producer_id < 0 or marker is None:
            return
        before = self._ended.get(producer_id, -1)
        self._ended[producer_id] = offset
        first_offset = self._open.pop(producer_id, None)
        aborted = None
        if first_offset is not None and not marker.is_commit:
            stable = min(self._open.values(), default=offset + 1)
            aborted = AbortedTransaction(producer_id, first_offset, offset, stable)
        self._markers[offset] = _Marker(producer_id, marker.is_commit, aborted, before)

    def end_segment(self, path: Path) -> tuple[int | None, list[Problem]]:
        """Return the number of index entries of segment `path` (None: no index) and problems."""
        index = path.with_suffix(SUFFIX)
        markers, self._markers = self._markers, {}
        entries: dict[int, int] = {}
        problems: list[Problem] = []

        def problem(place: int, offset: int | None, reason: str) -> None:
            problems.append(Problem(str(index), place, offset, reason))

        exists = index.is_file()
        try:
            for number, entry in enumerate(walk_transactions(index) if exists else ()):
                place = number * ENTRY_BYTES
                entries[entry.last_offset] = place
                reason = None if self._is_damaged else self._wrong_entry(entry, markers)
                if reason is not None:
                    problem(place, entry.last_offset, reason)
        except Damage as damage:
            problem(damage.position, None, str(damage))
            return len(entries), problems
        if not self._is_damaged:
            for offset, marker in markers.items():
                if (
                    marker.aborted is not None
                    and offset not in entries
                    and offset < self._recovery_point
                ):
                    problem(
                        len(entries) * ENTRY_BYTES,
                        offset,
                        f"no entry for the abort of producer {marker.producer_id}'s transaction",
                    )
        return len(entries) if exists else None, problems

    def _wrong_entry(self, entry: AbortedTransaction, markers: dict[int, _Marker]) -> str | None:
        marker = markers.get(entry.last_offset)
        if marker is None:
            return f"no marker of a transaction is at offset {entry.last_offset} of the segment"
        if marker.producer_id != entry.producer_id:
            return f"producer {entry.producer_id}, but the marker is of {marker.producer_id}"
        if marker.is_commit:
            return "an aborted transaction, but the marker says that it was committed"
        if not marker.before < entry.first_offset < entry.last_offset:
            return (
                f"first offset {entry.first_offset}, but the producer's transaction lies between "
                f"{marker.before} and {entry.last_offset}"
            )
        aborted = marker.aborted
        shown = None if aborted is None else aborted.first_offset
        if entry.first_offset != shown and not (
            (shown is None or entry.first_offset < shown) and self._is_gone(entry.first_offset)
        ):
            return f"first offset {entry.first_offset}, but the transaction begins at {shown}"
        if aborted is None:
            return None
        stable = aborted.last_stable_offset
        if entry.last_stable_offset != stable and not (
            entry.last_stable_offset < stable and self._is_gone(entry.last_stable_offset)
        ):
            return f"last stable offset {entry.last_stable_offset}, but by the log it was {stable}"
        return None

    def _is_gone(self, offset: int) -> bool:
        """Whether no batch has the offset: it was deleted, or compacted away."""
        if self._first_offset is None or offset < self._first_offset:
            return True
        begins, ends = self._holes
        number = bisect_right(begins, offset) - 1
        return number >= 0 and offset < ends[number]


def is_of_transactions(problem: Problem) -> bool:
    return problem.file.endswith(SUFFIX)


def remedy_for(problems: list[Problem]) -> str | None:
    """Remedy for the first transaction index that has a problem; None if none has."""
    named = next((one.file for one in problems if is_of_transactions(one)), None)
    return None if named is None else REMEDY.format(named)


def _recovery_point_of(segments: list[Path]) -> int:
    """Offset below which the log was flushed.

    Without the directory's checkpoint (a copied log) it is the base offset of the last segment.
    """
    from ...storage.directories.directory_checkpoints import RECOVERY_POINTS
    from ...storage.disk.checkpoint_file import read_offsets
    from ...storage.disk.file_system import OsFileSystem

    folder = segments[0].absolute().parent
    topic, _, partition = folder.name.rpartition("-")
    known = read_offsets(OsFileSystem(), str(folder.parent / RECOVERY_POINTS)) or {}
    found = known.get((topic, int(partition))) if partition.isdecimal() else None
    return base_offset_of(segments[-1]) if found is None else found
