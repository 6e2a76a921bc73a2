"""Iceberg table, written by PyIceberg. Loaded offsets are kept in its snapshots:

    summary of a snapshot   "bradbury.load": {"offsets": {topic: {partition: the next offset}},
                            "topic_ids": {topic: id}}, of all topics loaded so far
    property of the table   the same, in case maintenance expires those snapshots

Rows, summary and property are committed together, on condition that the table has not changed since
the load read it: of two loads into one table the later commit fails. PyIceberg would retry an
append on top of the other's, which would write rows twice; its retries are turned off.

A compaction replaces the files of a partition in one snapshot, whose summary repeats the
previous "bradbury.load" and has "bradbury.compaction": "true". Its operation is "overwrite":
PyIceberg 0.12 writes no "replace". Files with deleted rows are not compacted.

Files that an interrupted load has written are in no snapshot. Iceberg's removal of orphan files
deletes them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Final, Self

from ...protocol.topic_partition import TopicPartition
from .compaction import CompactionRules, TableFile, file_groups
from .iceberg_catalog import CatalogFailed, open_catalog, open_table
from .load_target import LoadFailed
from .loaded_files import write_row_groups
from .loaded_offsets import LoadedOffsets
from .table_files import WrittenFile

LOADED: Final = "bradbury.load"
COMPACTED: Final = "bradbury.compaction"
MOST_VERSION: Final = 2
"""Highest version of Iceberg's format to compact: from 3 on rows have ids, which must be kept."""
RETRIES: Final = "commit.retry.num-retries"


class IcebergTarget:
    """Iceberg table to load into. name: namespace.table. Without catalog: PyIceberg's default."""

    def __init__(
        self,
        name: str,
        schema: Any,
        partition_by: str | None,
        *,
        catalog: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """schema: None: the table exists, keeps its columns, and is only compacted.

        Raises LoadFailed: the extra [iceberg] is not installed, or there is no such catalog.
        """
        self._name = name
        self._schema = schema
        self._partition_by = partition_by
        try:
            self._catalog = open_catalog(catalog, properties or {})
        except CatalogFailed as error:
            raise LoadFailed(str(error)) from None
        self._table: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._table = None
        self._catalog.close()

    def loaded(self, keys: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> LoadedOffsets:
        """See load_target. Creates the table if it does not exist.

        Raises:
            LoadFailed: it has other columns, or its loaded offsets are damaged.
        """
        self._table = self._opened()
        if self._schema is not None:
            self._check_columns()
        return self._loaded_offsets()

    def begin(self) -> IcebergStorage:
        """See load_target."""
        return IcebergStorage(self._table)

    def commit(self, files: Sequence[WrittenFile], after: LoadedOffsets) -> None:
        """See load_target.

        Raises:
            LoadFailed: another load or another writer committed in the meantime.
        """
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError

        said = _text(after)
        # Set in this object, not in the table: see the module docstring.
        self._table.properties[RETRIES] = "0"
        transaction = self._table.transaction()
        try:
            transaction.add_files(
                [file.path for file in files],
                snapshot_properties={LOADED: said},
                check_duplicate_files=False,
            )
            transaction.set_properties({LOADED: said})
            transaction.commit_transaction()
        except (CommitFailedException, NoSuchTableError) as error:
            self.discard(files)
            raise LoadFailed(
                f"{self._name} was changed by another writer; run the load again ({error})"
            ) from None
        except RESTError as error:  # the commit may have succeeded: the next load detects it
            raise LoadFailed(
                f"the outcome of the commit to {self._name} is unknown ({error}); run the load "
                "again"
            ) from None

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """See load_target. The files are in no snapshot."""
        for file in files:
            self._table.io.delete(file.path)

    def compact(self, rules: CompactionRules, folders: Collection[str | None] | None = None) -> int:
        """See load_target. Each partition is compacted in a snapshot of its own.

        Raises:
            LoadFailed: another writer changed the table meanwhile, or PyIceberg cannot read it.
        """
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError

        tasks = self._plain_tasks()
        found = [
            TableFile(path, task.file.file_size_in_bytes, self._folder(task.file))
            for path, task in tasks.items()
        ]
        by_folder: dict[str | None, list[list[Any]]] = {}
        for group in file_groups(found, rules, folders):
            old = [tasks[file.path] for file in group]
            by_folder.setdefault(group[0].folder, []).append(old)
        self._table.properties[RETRIES] = "0"  # see commit
        count = 0
        for groups in by_folder.values():
            files: list[str] = []
            try:
                self._replace(groups, files)
            except (CommitFailedException, NoSuchTableError) as error:
                for path in files:
                    self._table.io.delete(path)
                if rules.is_part_of_load:
                    return count
                raise LoadFailed(
                    f"{self._name} was changed meanwhile; run it again ({error})"
                ) from None
            except RESTError as error:
                raise LoadFailed(
                    f"the catalog did not say how the compaction of {self._name} has ended "
                    f"({error}); run it again"
                ) from None
            count += sum(map(len, groups))
        return count

    def _replace(self, groups: Sequence[Sequence[Any]], files: list[str]) -> None:
        """Replace groups of files in one snapshot; paths of new files are added to `files`."""
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        table = self._table
        place = IcebergStorage(table)
        for group in groups:
            files.append(place.path(None, f"compacted-{uuid.uuid4().hex}.parquet"))
            with place.create(files[-1]) as sink:
                write_row_groups(sink, *self._rows(group))
        said = self._loaded_text()
        summary = {COMPACTED: "true"} if said is None else {COMPACTED: "true", LOADED: said}
        transaction = table.transaction()
        with transaction.update_snapshot(snapshot_properties=summary).overwrite() as change:
            for group in groups:
                for task in group:
                    change.delete_data_file(task.file)
            for path in files:
                change.append_data_file(
                    parquet_file_to_data_file(table.io, transaction.table_metadata, path)
                )
        transaction.commit_transaction()

    def _plain_tasks(self) -> dict[str, Any]:
        """Scan tasks, by path, of files without deletes and with the current partitioning.

        Raises LoadFailed: PyIceberg cannot read the table, or would lose the ids of its rows.
        """
        version = self._table.metadata.format_version
        if version > MOST_VERSION:
            raise LoadFailed(
                f"{self._name} has Iceberg's format {version}, whose ids of rows PyIceberg "
                "does not keep; use rewrite_data_files of Spark"
            )
        try:
            tasks = list(self._table.scan().plan_files())
        except ValueError as error:
            raise LoadFailed(
                f"{self._name} cannot be compacted here ({error}); use rewrite_data_files of Spark"
            ) from None
        spec = self._table.spec().spec_id
        return {
            str(task.file.file_path): task
            for task in tasks
            if not task.delete_files and task.file.spec_id == spec
        }

    def _folder(self, file: Any) -> str | None:
        count = len(self._table.spec().fields)
        values = [str(file.partition[place]) for place in range(count)]
        return "/".join(values) if values else None

    def _rows(self, group: Sequence[Any]) -> tuple[Any, Iterator[Any]]:
        """Schema and rows of these files: the first file's schema, as some have large strings."""
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

        table = self._table
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        batches = (batch for task in group for batch in scan.to_record_batches([task]))
        first = next(batches, None)
        if first is None:
            return schema_to_pyarrow(table.schema(), include_field_ids=False), iter(())
        whole = chain([first], batches)
        return first.schema, (pa.Table.from_batches([one]).cast(first.schema) for one in whole)

    def _opened(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        by = () if self._partition_by is None else (self._partition_by,)
        if self._schema is None:
            try:
                return self._catalog.load_table(self._name)
            except NoSuchTableError:
                raise LoadFailed(
                    f"there is no table {self._name} in the catalog: there is nothing to compact"
                ) from None
        return open_table(self._catalog, self._name, self._schema, by)

    def _check_columns(self) -> None:
        from pyiceberg.io.pyarrow import pyarrow_to_schema

        has = self._table.schema()
        by = [field.name for field in self._table.spec().fields]
        try:
            wanted = pyarrow_to_schema(self._schema, name_mapping=has.name_mapping)
            is_same = [(one.name, one.field_type) for one in wanted.fields] == [
                (one.name, one.field_type) for one in has.fields
            ]
        except ValueError:  # a column that the table does not have
            is_same = False
        if not is_same or by != ([self._partition_by] if self._partition_by else []):
            columns = ", ".join(f"{one.name}: {one.field_type}" for one in has.fields)
            raise LoadFailed(
                f"{self._name} has other columns: {columns}, partitioned by "
                f"{', '.join(by) or 'None'}; load with the same columns, or into another table"
            )

    def _loaded_text(self) -> str | None:
        """Loaded offsets as text, of the newest load before the current snapshot; None: no load."""
        snapshot = self._table.current_snapshot()
        said: str | None = None
        while snapshot is not None and said is None:
            said = None if snapshot.summary is None else snapshot.summary[LOADED]
            parent = snapshot.parent_snapshot_id
            before = None if parent is None else self._table.snapshot_by_id(parent)
            if said is None and before is None and snapshot.sequence_number not in (None, 0, 1):
                said = self._table.properties.get(LOADED)  # older snapshots were expired
            snapshot = before
        return said

    def _loaded_offsets(self) -> LoadedOffsets:
        """Loaded offsets of the table. Raises LoadFailed: no load wrote them."""
        said = self._loaded_text()
        if said is None:
            return LoadedOffsets()
        try:
            content = json.loads(said)
            return LoadedOffsets(
                {
                    TopicPartition(topic, int(partition)): int(offset)
                    for topic, partitions in content["offsets"].items()
                    for partition, offset in partitions.items()
                },
                dict(content["topic_ids"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LoadFailed(
                f"the property {LOADED} of {self._name} is damaged ({error}): load into another "
                "table"
            ) from None


class IcebergStorage:
    """FilePlace of an Iceberg table, whose files have all columns."""

    has_partition_column = True

    def __init__(self, table: Any) -> None:
        self._io = table.io
        self._provider = table.location_provider()

    def path(self, value: str | None, name: str) -> str:
        """See FilePlace."""
        return str(self._provider.new_data_location(name))

    def create(self, path: str) -> AbstractContextManager[Any]:
        """See FilePlace."""
        created: AbstractContextManager[Any] = self._io.new_output(path).create()
        return created

    def finish(self, paths: Sequence[str]) -> None:
        """See FilePlace. Does nothing: closed files are as durable as the storage makes them."""

    def size(self, path: str) -> int:
        """See FilePlace."""
        return len(self._io.new_input(path))

    def statistics(self, metadata: Any) -> str:
        """See FilePlace. Empty: PyIceberg reads the file's own statistics when it is added."""
        return ""

    def delete(self, path: str) -> None:
        """See FilePlace."""
        self._io.delete(path)


def _text(after: LoadedOffsets) -> str:
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(after.offsets.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return json.dumps({"offsets": offsets, "topic_ids": dict(after.topic_ids)})
