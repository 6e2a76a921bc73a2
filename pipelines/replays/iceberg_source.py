"""Iceberg table as a source of a replay: a snapshot, then the rows that later ones added.

The first part is all of the snapshot that was current when the replay began; each snapshot after it
that has appended files is a part of its own, and its number is Iceberg's sequence number.
Compaction ("replace", or one marked by `bradbury load`) adds no rows and is skipped. Snapshots that
delete or change rows are refused: records in a topic cannot be removed.

Rows are read by PyIceberg, with the current columns of the table, file by file in the order of
their paths; each file is held in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..loads.iceberg_catalog import CatalogFailed, open_catalog
from ..loads.iceberg_target import COMPACTED
from .table_source import ReplayFailed, TablePart

_ANEW: Final = "replay the table into a new topic, or under another --name"
_APPEND: Final = "append"
_REPLACE: Final = "replace"


class IcebergSource:
    """Iceberg table to replay. name: namespace.table."""

    def __init__(
        self, name: str, *, catalog: str | None, properties: Mapping[str, str] | None
    ) -> None:
        """Raises ReplayFailed: no extra [iceberg], no such catalog or table, or format 1."""
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._name = name
        try:
            opened = open_catalog(catalog, properties or {})
        except CatalogFailed as error:
            raise ReplayFailed(str(error)) from None
        try:
            self._table = opened.load_table(name)
        except NoSuchTableError:
            raise ReplayFailed(f"the catalog has no table {name}") from None
        finally:
            opened.close()
        if self._table.metadata.format_version < 2:
            raise ReplayFailed(
                f"{name} has Iceberg's format 1, without sequence numbers; upgrade it to format 2"
            )
        self.table_id = str(self._table.metadata.table_uuid)
        self.schema = schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    def part(self, number: int, *, is_whole: bool) -> TablePart | None:
        for snapshot in self._ancestors():
            if snapshot.sequence_number == number:
                return self._whole(snapshot) if is_whole else self._added(snapshot)
        return None

    def parts(self, after: int | None) -> Iterator[TablePart]:
        if after is None:
            newest = self._table.current_snapshot()
            if newest is not None:
                yield self._whole(newest)
            return
        newer: list[Any] = []
        for snapshot in self._ancestors():
            if snapshot.sequence_number <= after:
                break
            newer.append(snapshot)
        else:
            raise ReplayFailed(
                f"the snapshot of {self._name} that was replayed last was expired or rolled "
                f"back, so the rows added since are unknown; {_ANEW}"
            )
        for snapshot in reversed(newer):
            part = self._added(snapshot)
            if part is not None:
                yield part

    def _ancestors(self) -> Iterator[Any]:
        """The current snapshot and its ancestors, as far as they are kept."""
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)

    def _whole(self, snapshot: Any) -> TablePart:
        tasks = list(self._table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        return self._part(snapshot, tasks, is_whole=True)

    def _added(self, snapshot: Any) -> TablePart | None:
        """Rows that a snapshot appended; None: none. Raises ReplayFailed for other changes."""
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
        from pyiceberg.table import FileScanTask

        operation = snapshot.summary.operation.value if snapshot.summary else "unknown"
        if operation == _REPLACE or (snapshot.summary and snapshot.summary[COMPACTED]):
            return None
        if operation != _APPEND:
            raise ReplayFailed(
                f"snapshot {snapshot.snapshot_id} of {self._name} ({operation}) changed or "
                f"deleted rows that were already replayed; {_ANEW}"
            )
        tasks = [
            FileScanTask(entry.data_file)
            for manifest in snapshot.manifests(self._table.io)
            if manifest.content == ManifestContent.DATA
            and manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(self._table.io)
            if entry.status == ManifestEntryStatus.ADDED
        ]
        return self._part(snapshot, tasks, is_whole=False) if tasks else None

    def _part(self, snapshot: Any, tasks: list[Any], *, is_whole: bool) -> TablePart:
        tasks.sort(key=lambda task: str(task.file.file_path))
        files = tuple(str(task.file.file_path) for task in tasks)
        rows = _Rows(self._table, tasks)
        return TablePart(snapshot.sequence_number, is_whole, rows, files)


class _Rows:
    """Rows of data files, with the methods of a pyarrow Dataset that a replay uses."""

    def __init__(self, table: Any, tasks: Sequence[Any]) -> None:
        self._table = table
        self._tasks = tasks

    def to_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table = self._table
        scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns), AlwaysTrue())
        for task in self._tasks:
            yield from scan.to_record_batches([task])

    def count_rows(self) -> int:
        if any(task.delete_files for task in self._tasks):
            name = self._table.schema().fields[0].name
            return sum(batch.num_rows for batch in self.to_batches([name]))
        return sum(task.file.record_count for task in self._tasks)
