"""The command `bradbury log index-check`: compares every entry of indexes with their log.

    .index      (offset, position)    a batch begins at the position, and ends with the offset
    .timeindex  (timestamp, offset)   the batch with the offset has the timestamp as its latest, and
                                      none before it a later one
    .txnindex   aborted transactions  see transaction_index_check

For messages of magic 0 and 1, Kafka's brokers wrote entries with the first or the last offset of
each append: any offset is right that is above those before the position, and not above the log's
last.

Entries are in ascending order. An index may cover less than the log, never more. A missing index is
no problem, as a broker rebuilds it; it is counted. Exit code 0: all entries agree; 1: one does not.
Source: DumpLogSegments --index-sanity-check and --verify-index-only in apache/kafka.

Not here: checks of the log itself (log_verify); batch headers are taken to be right.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ..terminal.options import AsJson
from ..terminal.output import note, print_json, print_table
from ..terminal.progress import progress_bar
from .log_files import (
    Damage,
    Problem,
    base_offset_of,
    below_a_folder,
    content_of,
    locate_batches,
    logs_of,
    walk_index,
)
from .log_verify import show_problems
from .transaction_index_check import (
    SUFFIX as TRANSACTION_INDEX_SUFFIX,
    TransactionIndexCheck,
    is_of_transactions,
    remedy_for,
)

INDEX_SUFFIXES = (".index", ".timeindex")


class _Batches(NamedTuple):
    """The batches of one segment, in order.

    base_offsets: for compressed messages of magic 0 and 1, a lower bound.
    latest: largest timestamp up to and including each batch. are_old: whether of magic 0 or 1.
    """

    positions: list[int]
    base_offsets: list[int]
    last_offsets: list[int]
    timestamps: list[int]
    latest: list[int]
    are_old: list[bool]


@dataclass(slots=True)
class IndexSummary:
    """Result for one index. entries: number of entries; None if the file does not exist."""

    file: str
    entries: int | None = 0
    problems: list[Problem] = field(default_factory=list)


def index_check(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Path of a .log file, a partition's directory, or a directory of those.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Compare indexes with their logs, Bradbury's or Kafka's, without a broker."""
    logs = logs_of(paths)
    summaries: list[IndexSummary] = []
    total = sum(path.stat().st_size for segments in logs for path in segments)
    with progress_bar("checking", total) as advance:
        for segments in logs:
            transactions = TransactionIndexCheck(segments)
            for path in segments:
                batches = _batches_of(path, transactions)
                summaries += [
                    check_index(path.with_suffix(suffix), batches) for suffix in INDEX_SUFFIXES
                ]
                entries, problems = transactions.end_segment(path)
                if problems or entries is not None:  # most segments need none
                    file = str(path.with_suffix(TRANSACTION_INDEX_SUFFIX))
                    summaries.append(IndexSummary(file, entries, problems))
                advance(path.stat().st_size)
    problems = [problem for summary in summaries for problem in summary.problems]
    if as_json:
        print_json({"sound": not problems, "indexes": [asdict(one) for one in summaries]})
    else:
        folder, names = below_a_folder([one.file for one in summaries])
        print_table(
            ("index", "entries", "problems"),
            [
                (name, one.entries, len(one.problems))
                for name, one in zip(names, summaries, strict=True)
                if one.entries or one.problems
            ],
            title=folder,
        )
        show_problems(problems)
        if problems:
            remedy = remedy_for(problems)
            if remedy is not None:
                note(remedy)
            if any(not is_of_transactions(one) for one in problems):
                note(
                    "delete an .index or .timeindex with problems while the broker is stopped; the "
                    "broker rebuilds it from the log"
                )
        else:
            entries = sum(one.entries or 0 for one in summaries)
            missing = sum(one.entries is None for one in summaries)
            note(f"sound: {entries} entries; {missing} of {len(summaries)} indexes are not there")
    if problems:
        raise typer.Exit(1)


def check_index(path: Path, batches: _Batches) -> IndexSummary:
    """Compare each entry of one index with the batches of its segment."""
    summary = IndexSummary(str(path))
    if not path.is_file():
        summary.entries = None
        return summary
    judge = _offset_entry if path.suffix == ".index" else _time_entry
    entries = 0
    try:
        for place, key, target in walk_index(path):
            entries += 1
            reason = judge(batches, key, target)
            if reason is not None:
                offset = key if path.suffix == ".index" else target
                summary.problems.append(Problem(str(path), place, offset, reason))
    except Damage as damage:
        summary.problems.append(Problem(str(path), damage.position, None, str(damage)))
    summary.entries = entries
    return summary


def _offset_entry(batches: _Batches, offset: int, position: int) -> str | None:
    number = bisect_right(batches.positions, position) - 1
    if number < 0 or batches.positions[number] != position:
        return f"no batch begins at byte {position} of the log"
    last = batches.last_offsets[number]
    if batches.are_old[number]:
        if offset < batches.base_offsets[number]:
            return f"offset {offset}, but the log before byte {position} reaches further"
        if offset > batches.last_offsets[-1]:
            return f"offset {offset}, but the log ends with {batches.last_offsets[-1]}"
    elif last != offset:
        return f"offset {offset}, but the batch at byte {position} ends with {last}"
    return None


def _time_entry(batches: _Batches, timestamp: int, offset: int) -> str | None:
    number = bisect_right(batches.base_offsets, offset) - 1
    if number < 0 or offset > batches.last_offsets[number]:
        return f"no batch of the log has offset {offset}"
    if batches.latest[number] > timestamp:
        return f"timestamp {timestamp}, but up to offset {offset} there is {batches.latest[number]}"
    if batches.timestamps[number] != timestamp:
        found = batches.timestamps[number]
        return f"timestamp {timestamp}, but the batch with offset {offset} has {found}"
    return None


def _batches_of(path: Path, transactions: TransactionIndexCheck) -> _Batches:
    """Read the headers of a segment's batches, up to the first damage."""
    from ...protocol.records.old_batches import believed_header, is_old
    from ...protocol.records.record_batch import HEADER_SIZE, read_header

    positions, headers = [], []
    bases, are_old = [], []
    next_offset = base_offset_of(path)
    with content_of(path) as data:
        try:
            for position, _ in locate_batches(data):
                head = data[position : position + HEADER_SIZE]
                old = is_old(head)
                header = believed_header(head) if old else read_header(head)
                bases.append(min(next_offset, header.base_offset) if old else header.base_offset)
                next_offset = header.next_offset
                if not old:
                    transactions.on_batch(header, data, position)
                positions.append(position)
                headers.append(header)
                are_old.append(old)
        except Damage:
            transactions.on_damage()  # `log verify` reports it
    timestamps = [header.max_timestamp for header in headers]
    return _Batches(
        positions,
        bases,
        [header.last_offset for header in headers],
        timestamps,
        list(accumulate(timestamps, max)),
        are_old,
    )
