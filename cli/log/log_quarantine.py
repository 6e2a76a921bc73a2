"""The command `bradbury log quarantine`: takes unreadable batches out of a stopped node's logs.

Two things are taken out: batches whose CRC is right and whose records cannot be decoded (stored
before brokers checked records, or with bradbury.validate.records=none), and bytes that are not a
batch. They are kept in <data directory>/quarantine/<topic>-<partition>/, and an empty batch with
the same offsets takes their place, as compaction leaves it: consumers continue after it, and no
offset changes.

The node must be stopped, which the lock of its data directory shows. With replicas, do the same on
each node, one after the other, or let a running node repair damaged bytes from the other replicas.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.failure import CommandFailed
from ..terminal.options import AsJson
from ..terminal.output import note, print_json, print_table
from .log_files import base_offset_of, logs_of

if TYPE_CHECKING:
    from ...protocol.records.record_batch import RecordBatchHeader

FOLDER = "quarantine"
LONGEST = 2**31 - 1
"""Maximum number of offsets in one batch."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Bytes taken out of a segment, with offsets [offset, next_offset). kept: file they are in."""

    segment: str
    position: int
    bytes: int
    offset: int
    next_offset: int
    reason: str
    kept: str


def quarantine(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Partition directories of a stopped node."),
    ],
    dry_run: Annotated[bool, typer.Option(help="Show what would be taken out; change nothing.")] = (
        False
    ),
    as_json: AsJson = False,
) -> None:
    """Take unreadable batches out of a stopped node's logs."""
    found: list[Quarantined] = []
    for segments in logs_of(paths):
        with _Stopped(segments[0].parent.parent):
            ends = [base_offset_of(one) for one in segments[1:]] + [2**63 - 1]
            for segment, end in zip(segments, ends, strict=True):
                found += _clean(segment, end, dry_run=dry_run)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    if not found:
        note("nothing to quarantine: every batch can be read")
        return
    print_table(
        ("segment", "position", "bytes", "offsets", "reason", "kept in"),
        [
            (
                one.segment,
                one.position,
                one.bytes,
                f"{one.offset}-{one.next_offset - 1}",
                one.reason,
                "(dry run)" if dry_run else one.kept,
            )
            for one in found
        ],
    )


class _Stopped:
    """Lock of a data directory, held while its files are changed."""

    def __init__(self, directory: Path) -> None:
        from ...storage.disk.file_system import OsFileSystem

        self._files = OsFileSystem()
        self._path = directory / ".lock"

    def __enter__(self) -> None:
        try:
            self._lock = self._files.lock(str(self._path))
        except BlockingIOError:
            raise CommandFailed(
                f"{self._path.parent} is in use by a running node; stop it first"
            ) from None

    def __exit__(self, *_: object) -> None:
        self._lock.close()


def _clean(segment: Path, end_offset: int, *, dry_run: bool) -> list[Quarantined]:
    """Clean one segment, which is replaced if there is anything to take out; return what was."""
    from ...storage.disk.file_system import OsFileSystem, sync_directory
    from ...storage.segments.closed_segments import CLOSED_SEGMENTS
    from ...storage.segments.segment_runs import SegmentReader, find_runs

    files = OsFileSystem()
    file = files.open(str(segment))
    reader = SegmentReader(file, file.size(), end_offset=end_offset, has_gaps=True)
    base_offset = base_offset_of(segment)
    found: list[Quarantined] = []
    parts: list[bytes] = []
    position, expected, epoch = 0, base_offset, 0
    for run in find_runs(reader, base_offset):
        if run.position > position:
            taken = file.read_at(run.position - position, position)
            found.append(_taken(segment, position, taken, expected, run.first_offset, "no batch"))
            parts += _placeholders(expected, run.first_offset, epoch)
        position = run.position
        for header, data in reader.batches(run.position, run.first_offset):
            reason = _unreadable(header, data)
            if reason is None:
                parts.append(data)
            else:
                found.append(
                    _taken(segment, position, data, header.base_offset, header.next_offset, reason)
                )
                parts.append(_empty_like(header))
            position += header.size
            expected, epoch = header.next_offset, header.leader_epoch
    rest = file.read_at(file.size() - position, position)
    if rest:
        following = expected if end_offset == 2**63 - 1 else end_offset
        found.append(_taken(segment, position, rest, expected, following, "no batch"))
        parts += _placeholders(expected, following, epoch)
    file.close()
    if dry_run or not found:
        return found
    for one, data in zip(found, _bytes_of(segment, found), strict=True):
        kept = Path(one.kept)
        kept.parent.mkdir(parents=True, exist_ok=True)
        _write(kept, data)
    changed = segment.with_suffix(".log.tmp")
    _write(changed, b"".join(parts))
    for suffix in (".index", ".timeindex"):
        segment.with_suffix(suffix).unlink(missing_ok=True)
    (segment.parent / CLOSED_SEGMENTS).unlink(missing_ok=True)
    os.replace(changed, segment)
    sync_directory(files, str(segment.parent))
    return found


def _taken(
    segment: Path, position: int, data: bytes, offset: int, next_offset: int, reason: str
) -> Quarantined:
    folder = segment.parent.parent / FOLDER / segment.parent.name
    kept = folder / f"{segment.stem}.{position}"
    return Quarantined(str(segment), position, len(data), offset, next_offset, reason, str(kept))


def _bytes_of(segment: Path, found: list[Quarantined]) -> list[bytes]:
    with segment.open("rb") as file:
        parts = []
        for one in found:
            file.seek(one.position)
            parts.append(file.read(one.bytes))
        return parts


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _unreadable(header: RecordBatchHeader, data: bytes) -> str | None:
    from ...protocol.errors import KafkaError
    from ...protocol.records.records import DECOMPRESS_LIMIT, parse_records, records_of

    try:
        records = records_of(data, header, decompress_limit=DECOMPRESS_LIMIT)
        for _ in parse_records(records, header.record_count, header.last_offset_delta):
            pass
    except KafkaError as error:
        return str(error)
    return None


def _empty_like(header: RecordBatchHeader) -> bytes:
    """Build a batch without records, with the same offsets, producer and epochs."""
    from ...protocol.records.record_batch import CODEC_MASK, build_batch

    return bytes(
        build_batch(
            b"",
            record_count=0,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            attributes=header.attributes & ~CODEC_MASK,
            last_offset_delta=header.last_offset_delta,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    )


def _placeholders(start: int, end: int, epoch: int) -> list[bytes]:
    from ...protocol.records.record_batch import NO_TIMESTAMP, build_batch

    if start >= end:
        return []
    return [
        bytes(
            build_batch(
                b"",
                record_count=0,
                base_timestamp=NO_TIMESTAMP,
                max_timestamp=NO_TIMESTAMP,
                last_offset_delta=min(end - start, LONGEST) - 1,
                base_offset=start,
                leader_epoch=epoch,
            )
        )
    ]
