"""Log files, read without a broker: segments, their batches and their indexes.

    <log directory>/<topic>-<partition>/00000000000000368769.log        record batches
                                        00000000000000368769.index      offset -> position
                                        00000000000000368769.timeindex  timestamp -> offset
                                        00000000000000368769.txnindex   aborted transactions

Nothing is changed: all of it may be run on the files of a live broker, Bradbury's or Kafka's.

Not here: checks of batches (log_verify) and of indexes (log_index_check).
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..terminal.failure import UsageError

if TYPE_CHECKING:
    from ...storage.segments.transaction_index import AbortedTransaction

LOG_SUFFIX = ".log"
SET_ASIDE = re.compile(r"metadata\.damaged-\d{10,}|.*-damaged")
"""Names of directories that were set aside; the number is a time in milliseconds."""


Content = mmap.mmap | bytes


def logs_of(paths: list[Path]) -> list[list[Path]]:
    """Find the segments of each log below `paths`, oldest first; a directory holds one log.

    A path is a segment, a partition's directory or a directory of such directories; the metadata
    log is one, too. Left out are logs that a broker has renamed for deletion, and what was set
    aside as damaged below the paths (by `metadata recover` and by brokers).

    Raises:
        CommandFailed: a path does not exist, or has no log.
    """
    found: dict[Path, list[Path]] = {}
    for path in paths:
        if path.is_file():
            if path.suffix != LOG_SUFFIX:
                raise UsageError(f"{path}: use a .log file, or a directory of logs")
            segments = [path]
        elif path.is_dir():
            segments = [
                one
                for one in path.rglob(f"*{LOG_SUFFIX}")
                if one.stem.isdecimal() and not _is_set_aside(one.relative_to(path))
            ]
        else:
            raise UsageError(f"{path}: there is no such file or directory")
        if not segments:
            raise UsageError(f"{path}: there is no log in it")
        for segment in segments:
            if not segment.parent.name.endswith("-delete"):
                found.setdefault(segment.parent, []).append(segment)
    return [sorted(set(found[folder]), key=base_offset_of) for folder in sorted(found)]


def _is_set_aside(segment: Path) -> bool:
    return any(SET_ASIDE.fullmatch(folder) for folder in segment.parts[:-1])


def base_offset_of(path: Path) -> int:
    """Base offset of a segment: the lower bound of its offsets, from the file's name.

    Raises:
        CommandFailed: the name is not a number.
    """
    if not path.stem.isdecimal():
        raise UsageError(
            f"{path}: the name of a segment or index is its base offset, as in 000368769.log"
        )
    return int(path.stem)


def below_a_folder(files: list[str]) -> tuple[str, list[str]]:
    """Return the directory that all `files` are in, and their paths relative to it."""
    folder = os.path.commonpath([str(Path(file).parent) for file in files])
    return folder, [os.path.relpath(file, folder) for file in files]


@contextmanager
def content_of(path: Path) -> Iterator[Content]:
    """Map a file into memory, with the size it has when it is opened. A slice is a copy."""
    size = path.stat().st_size
    if not size:
        yield b""
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
        yield mapped


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem at a byte of a file. offset: that of the record or batch, None if not known."""

    file: str
    position: int
    offset: int | None
    reason: str


class Damage(Exception):
    """Damage of a file from a position on. `str()` is the reason."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def locate_batches(data: Content) -> Iterator[tuple[int, int]]:
    """Yield (position, size in bytes) of each batch of a segment, from its length and magic alone.

    An entry of magic 0 or 1 is a batch, too (protocol/records/old_batches). Not record_batch's
    walk_batches, which reads magic 2 alone and ends without an error at a truncated batch: a report
    of damage needs the position and the reason.

    Raises:
        Damage: an impossible length, or the file ends within a batch.
    """
    from ...protocol.records.legacy_messages import MAGIC_POSITION
    from ...protocol.records.old_batches import least_size
    from ...protocol.records.record_batch import read_size

    position, end = 0, len(data)
    while position < end:
        head = data[position : position + MAGIC_POSITION + 1]
        least = least_size(head[MAGIC_POSITION]) if len(head) > MAGIC_POSITION else len(head) + 1
        if end - position < least:
            raise Damage(position, f"{end - position} bytes are less than a header")
        _, size = read_size(head)
        if size < least:
            raise Damage(position, f"a batch of {size} bytes")
        if position + size > end:
            raise Damage(position, f"the batch's last {position + size - end} bytes are missing")
        yield position, size
        position += size


class IndexEntry(NamedTuple):
    """Entry of an index.

    key: an offset (.index) or a timestamp (.timeindex). target: a position, or an offset.
    place: position of the entry in the index, in bytes.
    """

    place: int
    key: int
    target: int


def walk_index(path: Path) -> Iterator[IndexEntry]:
    """Yield the entries of a .index or .timeindex, with absolute offsets.

    Space that a broker has preallocated, zeros up to the end, is skipped.

    Raises:
        Damage: entries out of order, or an incomplete entry at the end.
        CommandFailed: the file name is not a base offset.
    """
    from ...storage.segments import offset_index, time_index

    base_offset = base_offset_of(path)
    is_offset_index = path.suffix == ".index"
    layout = offset_index.ENTRY if is_offset_index else time_index.ENTRY
    content = path.read_bytes()
    used = len(content.rstrip(b"\x00"))
    before: tuple[int, ...] = ()
    for place in range(0, len(content) - layout.size + 1, layout.size):
        if place >= used:
            break
        entry = layout.unpack_from(content, place)
        if before and not all(now >= then for now, then in zip(entry, before, strict=True)):
            raise Damage(place, f"{entry} after {before}")
        before = entry
        key, target = entry
        if is_offset_index:
            yield IndexEntry(place, base_offset + key, target)
        else:
            yield IndexEntry(place, key, base_offset + target)
    if len(content) % layout.size:
        raise Damage(len(content) // layout.size * layout.size, "an incomplete entry")


def walk_transactions(path: Path) -> Iterator[AbortedTransaction]:
    """Yield the entries of a .txnindex, in the order of their markers.

    Raises:
        Damage: entries out of order or of another version, or an incomplete entry at the end.
        CommandFailed: the file name is not a base offset.
    """
    from ...storage.segments.transaction_index import ENTRY, VERSION, AbortedTransaction

    content = path.read_bytes()
    before = base_offset_of(path) - 1
    for place in range(0, len(content) - ENTRY.size + 1, ENTRY.size):
        version, *fields = ENTRY.unpack_from(content, place)
        transaction = AbortedTransaction(*fields)
        if version != VERSION:
            raise Damage(place, f"version {version}")
        if transaction.last_offset <= before:
            raise Damage(place, f"a marker at offset {transaction.last_offset} after {before}")
        before = transaction.last_offset
        yield transaction
    if len(content) % ENTRY.size:
        raise Damage(len(content) // ENTRY.size * ENTRY.size, "an incomplete entry")
