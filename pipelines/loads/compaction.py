"""Rules of compaction: which small files of a table are merged. Pure.

A file is small below three quarters of the target size, as with Iceberg's rewrite_data_files. Small
files of one folder are taken in the order of their names until the target size is full.

Files that do not fill the target size are merged only if there are at least `min_files`; as part of
a load, a file that is larger than the sum of the others in its group is left out. So a load
rewrites a record only into a file at least twice as large, or one that fills the target size: a few
times, not at every commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

TARGET_FILE_SIZE_BYTES: Final = 128 * 1024 * 1024
AFTER_FILES: Final = 8
"""Default of the least number of small files in a folder that a load compacts."""
FEWEST_FILES: Final = 2


class TableFile(NamedTuple):
    """A data file of a table. path, folder: as the table has them. size: in bytes.

    Files of different folders are never joined.
    """

    path: str
    size: int
    folder: str | None


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """Rules of one compaction.

    is_part_of_load: it follows a commit of a load, and leaves large files out to limit rewriting.
    """

    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES
    min_files: int = AFTER_FILES
    is_part_of_load: bool = True


def compaction_rules(
    table_format: str, compact: bool, compact_after: int | None, target_file_size_bytes: int
) -> CompactionRules | None:
    """Rules by the arguments of a load; None: a load without compaction.

    By default a load compacts only Delta tables, whose readers are not affected: see
    docs/pipelines.md.

    Raises:
        ValueError: a number is invalid.
    """
    if target_file_size_bytes < 1:
        raise ValueError(f"target_file_size_bytes={target_file_size_bytes}: use 1 or more")
    if compact_after is not None and (compact_after < 0 or compact_after == 1):
        raise ValueError(
            f"compact_after={compact_after}: use 2 or more small files, or 0 for no compaction"
        )
    if compact:
        if compact_after == 0:
            raise ValueError("compact_after=0 is no compaction, and compact=True is one")
        return CompactionRules(target_file_size_bytes, compact_after or FEWEST_FILES, False)
    if compact_after is None:
        compact_after = AFTER_FILES if table_format == "delta" else 0
    return CompactionRules(target_file_size_bytes, compact_after) if compact_after else None


def file_groups(
    files: Iterable[TableFile], rules: CompactionRules, folders: Collection[str | None] | None
) -> list[list[TableFile]]:
    """Groups of files that become one, in these folders or in all; a group is of one folder."""
    small: dict[str | None, list[TableFile]] = {}
    for file in sorted(files):
        is_asked = folders is None or file.folder in folders
        if is_asked and file.size < rules.target_file_size_bytes * 3 // 4:
            small.setdefault(file.folder, []).append(file)
    found = [_groups(each, rules) for each in small.values()]
    return [group for groups in found for group in groups]


def _groups(small: list[TableFile], rules: CompactionRules) -> list[list[TableFile]]:
    full: list[list[TableFile]] = []
    group: list[TableFile] = []
    size = 0
    for file in small:
        if size + file.size > rules.target_file_size_bytes:
            full.append(group)
            group, size = [], 0
        group.append(file)
        size += file.size
    if rules.is_part_of_load:
        group = _without_large(group)
    enough = [group] if len(group) >= rules.min_files else []
    return [each for each in full if len(each) >= FEWEST_FILES] + enough


def _without_large(group: list[TableFile]) -> list[TableFile]:
    kept = sorted(group, key=lambda file: file.size)
    size = sum(file.size for file in kept)
    while kept and 2 * kept[-1].size > size:
        size -= kept.pop().size
    return sorted(kept)
