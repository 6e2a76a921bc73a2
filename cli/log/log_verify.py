"""The command `bradbury log verify`: checks every batch and record of whole logs.

Checked of each batch: length, magic, CRC, codec; offsets that rise from batch to batch and segment
to segment, and exceed the segment's base offset by at most 2^31 - 1; leader epochs that never
decrease; as many records as the header says, their offsets rising within the batch; the latest
timestamp. A message of magic 0 or 1 is a batch by itself, or with those compressed in it; it has no
leader epoch. Exit code 0: sound; 1: there are problems, printed with their positions.

After a wrong CRC or record the check continues with the next batch; after a wrong length the
position of the next batch is unknown, and the rest of that segment is not checked.
Source of the rules: LogSegment.recover and DefaultRecordBatch.ensureValid in apache/kafka.

The index of aborted transactions is checked, too (transaction_index_check): an error in it would
show aborted records to consumers. Not here: the other indexes, which only save time
(log_index_check).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.options import AsJson
from ..terminal.output import note, print_json, print_table, size_text
from ..terminal.progress import Advance, progress_bar
from .log_files import (
    Content,
    Damage,
    Problem,
    base_offset_of,
    below_a_folder,
    content_of,
    locate_batches,
    logs_of,
)
from .transaction_index_check import TransactionIndexCheck, remedy_for

if TYPE_CHECKING:
    from ...protocol.records.record_batch import RecordBatchHeader
    from ...protocol.records.records import Record

CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes of records decoded in one call."""
MAGIC = 2
"""Magic of record batches. Messages of magic 0 and 1 count as batches of their own."""
MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_SHOWN = 50


@dataclass(slots=True)
class SegmentSummary:
    """Result for one segment. first_offset, end_offset: of its records; equal if it is empty."""

    file: str
    bytes: int
    first_offset: int
    end_offset: int
    batches: int = 0
    records: int = 0
    problems: list[Problem] = field(default_factory=list)


def verify(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Path of a .log file, a partition's directory, or a directory of those.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Check whole logs and their .txnindex, Bradbury's or Kafka's, without a broker."""
    logs = logs_of(paths)
    total = sum(path.stat().st_size for segments in logs for path in segments)
    summaries: list[SegmentSummary] = []
    with progress_bar("checking", total) as advance:
        for segments in logs:
            summaries += check_log(segments, advance)
    problems = [problem for summary in summaries for problem in summary.problems]
    if as_json:
        print_json({"sound": not problems, "segments": [asdict(one) for one in summaries]})
    else:
        _show(summaries, problems)
    if problems:
        raise typer.Exit(1)


def check_log(segments: list[Path], advance: Advance) -> list[SegmentSummary]:
    """Check the segments of one log, oldest first."""
    check = _LogCheck(segments, advance)
    return [check.segment(path) for path in segments]


class _LogCheck:
    """Check of one log: the state after the previous batches, for the next one."""

    def __init__(self, segments: list[Path], advance: Advance) -> None:
        self._advance = advance
        self._transactions = TransactionIndexCheck(segments)
        self._next_offset = -1
        self._leader_epoch = -1

    def segment(self, path: Path) -> SegmentSummary:
        base_offset = base_offset_of(path)
        summary = SegmentSummary(
            str(path), path.stat().st_size, max(base_offset, self._next_offset), self._next_offset
        )

        def problem(position: int, offset: int | None, reason: str) -> None:
            summary.problems.append(Problem(str(path), position, offset, reason))

        if base_offset < self._next_offset:
            problem(0, base_offset, f"begins below {self._next_offset}, where the one before ends")
        self._next_offset = max(base_offset, self._next_offset)
        with content_of(path) as data:
            sound: list[tuple[int, RecordBatchHeader]] = []
            try:
                for position, size in locate_batches(data):
                    header, reason = self._batch(data, position, size, base_offset)
                    if not summary.batches:
                        summary.first_offset = header.base_offset
                    summary.batches += 1
                    summary.records += header.record_count
                    if reason is not None:
                        problem(position, header.base_offset, reason)
                        self._transactions.on_damage()
                    elif (
                        header.magic >= MAGIC
                    ):  # records of messages of magic 0 and 1 are checked already
                        self._transactions.on_batch(header, data, position)
                        sound.append((position, header))
                    if sound and position + size - sound[0][0] >= CHUNK_BYTES:
                        for wrong in wrong_records(data, sound):
                            problem(*wrong)
                        sound = []
                    self._advance(size)
            except Damage as damage:
                problem(damage.position, None, str(damage))
                self._transactions.on_damage()
                self._advance(summary.bytes - damage.position)
            for wrong in wrong_records(data, sound):
                problem(*wrong)
        summary.problems.sort(key=lambda one: one.position)
        summary.problems += self._transactions.end_segment(path)[1]
        summary.end_offset = self._next_offset
        if not summary.batches:
            summary.first_offset = self._next_offset
        return summary

    def _batch(
        self, data: Content, position: int, size: int, segment_base: int
    ) -> tuple[RecordBatchHeader, str | None]:
        """Return the header of a batch, and its problem as a whole, if any."""
        from ...protocol.errors import KafkaError
        from ...protocol.records.old_batches import believed_header, is_old, read_old_batch
        from ...protocol.records.record_batch import check_batch, read_header

        batch = data[position : position + size]
        header = believed_header(batch) if is_old(batch) else read_header(batch)
        reason = None
        try:
            if is_old(batch):
                header, records = read_old_batch(batch)
                reason = _wrong_records(records, header)
            else:
                check_batch(batch)
        except KafkaError as error:
            return header, str(error)
        expected, epoch = self._next_offset, self._leader_epoch
        if header.base_offset < expected:
            return header, f"base offset {header.base_offset} where {expected} or more was expected"
        if header.last_offset_delta < 0 or header.last_offset > segment_base + MAX_RELATIVE_OFFSET:
            return header, f"last offset {header.last_offset} in segment {segment_base}"
        self._next_offset = header.next_offset
        self._leader_epoch = max(epoch, header.leader_epoch)
        if header.magic >= MAGIC and header.leader_epoch < epoch:
            return header, f"leader epoch {header.leader_epoch} after {epoch}"
        return header, reason


def wrong_records(
    data: Content, batches: list[tuple[int, RecordBatchHeader]]
) -> Iterator[tuple[int, int, str]]:
    """Yield (position, base offset, reason) of each batch whose records contradict its header."""
    if not batches:
        return
    if all(_records_are_sound(data, part) for part in _contiguous(batches)):
        return
    for position, header in batches:
        reason = _wrong(data[position : position + header.size], header)
        if reason is not None:
            yield position, header.base_offset, reason


def _contiguous(
    batches: list[tuple[int, RecordBatchHeader]],
) -> Iterator[list[tuple[int, RecordBatchHeader]]]:
    """Yield runs of adjacent batches; batches with known problems are left out of `batches`."""
    run = [batches[0]]
    for position, header in batches[1:]:
        if position != run[-1][0] + run[-1][1].size:
            yield run
            run = []
        run.append((position, header))
    yield run


def _records_are_sound(data: Content, batches: list[tuple[int, RecordBatchHeader]]) -> bool:
    """Decode the run as columns, which is fast; if False, check batch by batch."""
    import numpy as np

    from ...protocol.columns.columns import decode_batches
    from ...protocol.errors import KafkaError

    end = batches[-1][0] + batches[-1][1].size
    content = memoryview(data[batches[0][0] : end])
    if any(header.is_control for _, header in batches):
        return False  # columns leave control batches out, so they are checked one by one
    offsets, timestamps = [], []
    while content:
        try:
            decoded = decode_batches(
                content, topic="", partition=0, fetch_offset=0, check_crc=False
            )
        except KafkaError:
            return False
        if not decoded.consumed_bytes:
            return False
        offsets.append(decoded.offsets)
        timestamps.append(decoded.timestamps)
        content = content[decoded.consumed_bytes :]
    counts = np.array([header.record_count for _, header in batches])
    ends = np.cumsum(counts)
    numbers, times = np.concatenate(offsets), np.concatenate(timestamps)
    filled = counts > 0
    starts = (ends - counts)[filled]
    if len(numbers) != counts.sum() or not len(numbers):
        return len(numbers) == int(counts.sum())
    bases = np.array([header.base_offset for _, header in batches])[filled]
    lasts = np.array([header.last_offset for _, header in batches])[filled]
    latest = np.array([header.max_timestamp for _, header in batches])[filled]
    return bool(
        (np.diff(numbers) > 0).all()
        and (numbers[starts] >= bases).all()
        and (numbers[ends[filled] - 1] <= lasts).all()
        and (np.maximum.reduceat(times, starts) == latest).all()
    )


def _wrong(batch: bytes, header: RecordBatchHeader) -> str | None:
    from ...protocol.errors import KafkaError
    from ...protocol.records.records import iterate_records

    try:
        return _wrong_records(iterate_records(batch, check_crc=False), header)
    except KafkaError as error:
        return str(error)


def _wrong_records(records: Iterable[Record], header: RecordBatchHeader) -> str | None:
    """Compare records with their header; return the problem, if any. Raises KafkaError."""
    before, latest = header.base_offset - 1, -1
    for record in records:
        if record.offset <= before:
            return f"record {record.offset} after {before}"
        before, latest = record.offset, max(latest, record.timestamp)
    if before > header.last_offset:
        return f"record {before} in a batch that ends at {header.last_offset}"
    # Old brokers kept the timestamp that producers wrote into a compressed message; some wrote 0.
    has_max_timestamp = header.magic >= MAGIC and header.record_count and not header.is_control
    if has_max_timestamp and latest != header.max_timestamp:
        return f"latest timestamp {latest}, but the header says {header.max_timestamp}"
    return None


def _show(summaries: list[SegmentSummary], problems: list[Problem]) -> None:
    folder, names = below_a_folder([one.file for one in summaries])
    print_table(
        ("segment", "size", "batches", "records", "first", "end", "problems"),
        [
            (
                name,
                size_text(one.bytes),
                one.batches,
                one.records,
                one.first_offset,
                one.end_offset,
                len(one.problems),
            )
            for name, one in zip(names, summaries, strict=True)
            if one.bytes or one.problems
        ],
        title=folder,
    )
    show_problems(problems)
    remedy = remedy_for(problems)
    if remedy is not None:
        note(remedy)
    records = sum(one.records for one in summaries)
    if not problems:
        empty = sum(not one.bytes for one in summaries)
        note(f"sound: {len(summaries)} segments ({empty} of them empty), {records} records")


def show_problems(problems: list[Problem]) -> None:
    """Print the first MAX_SHOWN problems to stderr, a line each."""
    for one in problems[:MAX_SHOWN]:
        where = "" if one.offset is None else f" (offset {one.offset})"
        note(f"{one.file}: byte {one.position}{where}: {one.reason}")
    if problems:
        more = len(problems) - MAX_SHOWN
        note(f"{len(problems)} problems" + (f"; {more} are not shown" if more > 0 else ""))
