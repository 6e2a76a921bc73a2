"""Delta table, written by delta-rs. Loaded offsets are kept in the table's own transactions:

    txn appId "bradbury-load:<topic>:<partition>"   version: the next offset to be loaded
    txn appId "bradbury-load:<topic>:id:<topic id>" version 1: loaded from this topic, not from a
                                                              later one of the same name

They are committed with the rows in the table's log, kept by its checkpoints, and are Delta's own
mechanism for this (the "transaction identifiers" of its protocol). Of two loads into one table the
later commit fails, as Delta detects that the other one has changed the same transactions. Commits
by other writers that change none of them, such as OPTIMIZE, do not conflict with a load.

A compaction is delta-rs's OPTIMIZE: a commit of its own, without new rows. It contains no
transactions, so those of the table stay as they are. Files that were compacted remain for readers
of former versions until VACUUM.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Final, Self

from ...discovery.extras import install_command, missing_modules
from ...protocol.topic_partition import TopicPartition
from .compaction import CompactionRules, TableFile, file_groups
from .load_target import LoadFailed
from .loaded_offsets import LoadedOffsets
from .table_files import WrittenFile
from .table_format import check_format

APPLICATION: Final = "bradbury-load"
ANOTHER: Final = "another"
PLAIN_VERSION: Final = 2
FEATURES_VERSION: Final = 7
"""First writer version whose tables list the features that a writer must support."""
PLAIN_FEATURES: Final = frozenset(
    {"appendOnly", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features that do not affect how files are added."""
RETRIES: Final = 15
"""Most retries of a commit on top of other writers' commits, if they do not conflict."""
ONE_MS: Final = timedelta(milliseconds=1)


class DeltaTarget:
    """Delta table to load. path: a directory, or a URL that delta-rs supports (s3://..., ...)."""

    def __init__(self, path: str, schema: Any, partition_by: str | None) -> None:
        """schema: None: the table exists, keeps its columns, and is only compacted.

        Raises LoadFailed: the extra [delta] is not installed.
        """
        if missing_modules("delta"):
            raise LoadFailed(f"Delta tables need an extra: {install_command('delta')}")
        self._path = path
        self._schema = schema
        self._partition_by = partition_by
        self._table: Any = None

    def __enter__(self) -> Self:
        check_format(self._path, "delta")
        return self

    def __exit__(self, *_: object) -> None:
        self._table = None

    def loaded(self, keys: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> LoadedOffsets:
        """See load_target. The id of a topic that was recreated is ANOTHER."""
        self._table = self._opened()
        if self._table is None:
            return LoadedOffsets()
        version_of = self._table.transaction_version
        found = {key: version_of(_offset_id(key)) for key in keys}
        offsets = {key: offset for key, offset in found.items() if offset is not None}
        names = sorted({key.topic for key in offsets})
        ids = {name: topic_ids[name] for name in names}
        return LoadedOffsets(
            offsets,
            {
                name: ANOTHER if version_of(_topic_id(name, known)) is None else known
                for name, known in ids.items()
            },
        )

    def begin(self) -> DeltaStorage:
        """See load_target. Creates the table if it does not exist.

        Raises:
            LoadFailed: it cannot be created.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if self._table is None:
            try:
                self._table = DeltaTable.create(
                    self._path, self._schema, mode="error", partition_by=self._partition_by
                )
            except DeltaError as error:
                raise LoadFailed(f"{self._path} cannot be created: {error}") from None
        return DeltaStorage(self._table.table_uri, self._partition_by)

    def commit(self, files: Sequence[WrittenFile], after: LoadedOffsets) -> None:
        """See load_target.

        Raises:
            LoadFailed: another load committed in the meantime, or the storage failed.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction

        transactions = [Transaction(_offset_id(key), end) for key, end in after.offsets.items()]
        transactions += [
            Transaction(_topic_id(name, known), 1) for name, known in after.topic_ids.items()
        ]
        by = self._partition_by
        now_ms = int(time.time() * 1000)
        try:
            self._table.create_write_transaction(
                [
                    AddAction(
                        file.path,
                        file.size,
                        {} if by is None else {by: file.value},
                        now_ms,
                        True,
                        file.statistics,
                    )
                    for file in files
                ],
                "append",
                self._table.schema(),
                partition_by=by,
                commit_properties=CommitProperties(
                    app_transactions=transactions, max_commit_retries=RETRIES
                ),
            )
        except CommitFailedError as error:
            self.discard(files)
            raise LoadFailed(
                f"{self._path} was changed by another writer; run the load again ({error})"
            ) from None
        except DeltaError as error:  # the commit may have succeeded: the next load detects it
            raise LoadFailed(f"{self._path}: {error}") from None
        self._table = self._opened()

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """See load_target. The files are in no version of the table."""
        storage = DeltaStorage(self._table.table_uri, self._partition_by)
        for file in files:
            storage.delete(file.path)

    def compact(self, rules: CompactionRules, folders: Collection[str | None] | None = None) -> int:
        """See load_target.

        Raises:
            LoadFailed: there is no table, it has deletion vectors, or another writer changed it.
        """
        from deltalake import WriterProperties
        from deltalake.exceptions import CommitFailedError, DeltaError

        if self._table is None:
            raise LoadFailed(f"{self._path} is no Delta table: there is nothing to compact")
        if "deletionVectors" in (self._table.protocol().writer_features or ()):
            if rules.is_part_of_load:
                return 0
            raise LoadFailed(
                f"{self._path} may have deletion vectors, with which this does not compact; use "
                "OPTIMIZE of Spark"
            )
        by = self._partition_by_column()
        groups = file_groups(self._files(by), rules, folders)
        if not groups:
            return 0
        values = sorted({str(group[0].folder) for group in groups})
        try:
            metrics = self._table.optimize.compact(
                partition_filters=None if by is None else [(by, "in", values)],
                target_size=rules.target_file_size_bytes,
                writer_properties=WriterProperties(compression="ZSTD"),
            )
        except CommitFailedError as error:
            if rules.is_part_of_load:
                return 0
            raise LoadFailed(
                f"{self._path} was changed meanwhile; run it again ({error})"
            ) from None
        except DeltaError as error:
            raise LoadFailed(f"{self._path} cannot be compacted: {error}") from None
        return int(metrics["numFilesRemoved"])

    def _partition_by_column(self) -> str | None:
        """Partition column; None: there is none. Raises LoadFailed: there are several."""
        columns = self._table.metadata().partition_columns
        if len(columns) > 1:
            raise LoadFailed(
                f"{self._path} is partitioned by {', '.join(columns)}, as no load does"
            )
        return columns[0] if columns else None

    def _files(self, by: str | None) -> list[TableFile]:
        import pyarrow as pa

        rows = pa.table(self._table.get_add_actions(flatten=True))
        paths, sizes = rows["path"].to_pylist(), rows["size_bytes"].to_pylist()
        values = [None] * len(paths) if by is None else rows[f"partition.{by}"].to_pylist()
        return [TableFile(*each) for each in zip(paths, sizes, values, strict=True)]

    def _opened(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            table = DeltaTable(self._path)
        except TableNotFoundError:
            return None
        if self._schema is not None:
            self._check_columns(table)
        self._check_protocol(table)
        return table

    def _check_columns(self, table: Any) -> None:
        """Compare columns and partitioning with the load's. Raises LoadFailed: they differ."""
        from deltalake import Schema

        def columns(schema: Any) -> dict[str, str]:
            return {field.name: str(field.type) for field in schema.fields}

        by = [] if self._partition_by is None else [self._partition_by]
        has, wanted = table.schema(), Schema.from_arrow(self._schema)
        had = table.metadata().partition_columns
        if columns(has) != columns(wanted) or had != by:
            text = ", ".join(f"{name}: {kind}" for name, kind in columns(has).items())
            raise LoadFailed(
                f"{self._path} has other columns: {text}, partitioned by "
                f"{', '.join(had) or 'None'}; load with the same columns, or into another table"
            )

    def _check_protocol(self, table: Any) -> None:
        """Check the protocol. Raises LoadFailed: it requires features that a load lacks."""
        protocol = table.protocol()
        if protocol.min_writer_version == FEATURES_VERSION:
            needed = set(protocol.writer_features or ()) - PLAIN_FEATURES
        else:
            needed = {f"writer version {protocol.min_writer_version}"}
            if protocol.min_writer_version <= PLAIN_VERSION:
                needed = set()
        if needed:
            raise LoadFailed(
                f"{self._path} requires writer features that a load does not support "
                f"({', '.join(sorted(needed))}); load into another table"
            )


class DeltaStorage:
    """FilePlace of a Delta table. Paths are relative to the table."""

    has_partition_column = False

    def __init__(self, uri: str, partition_by: str | None) -> None:
        self._uri = uri
        self._partition_by = partition_by

    def path(self, value: str | None, name: str) -> str:
        """See FilePlace."""
        return name if value is None else f"{self._partition_by}={value}/{name}"

    def create(self, path: str) -> AbstractContextManager[Any]:
        """See FilePlace."""
        created: AbstractContextManager[Any] = self._files().open_output_stream(path)
        return created

    def finish(self, paths: Sequence[str]) -> None:
        """See FilePlace. Does nothing: closed files are as durable as the storage makes them."""

    def size(self, path: str) -> int:
        """See FilePlace."""
        return int(self._files().get_file_info(path).size)

    def statistics(self, metadata: Any) -> str:
        """See FilePlace. Minima and maxima of numbers and times, by which readers skip files."""
        return json.dumps(file_statistics(metadata))

    def delete(self, path: str) -> None:
        """See FilePlace."""
        self._files().delete_file(path)

    def _files(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self._uri))


def file_statistics(metadata: Any) -> dict[str, Any]:
    """Statistics of a Parquet file for Delta's log: its row count, and the least and largest values
    of number and time columns. Delta keeps times in milliseconds: the largest is rounded up.

    Source: "Per-file Statistics" of Delta's protocol.
    """
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    unknown: set[str] = set()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if found is not None and found.has_min_max and type(found.max) in (int, datetime):
                least[name] = min(least.get(name, found.min), found.min)
                largest[name] = max(largest.get(name, found.max), found.max)
            elif found is None or found.null_count < column.num_values:
                unknown.add(name)
    known = [name for name in least if name not in unknown and "." not in name]
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _plain(least[name]) for name in known},
        "maxValues": {name: _plain(largest[name], ONE_MS) for name in known},
    }


def _plain(value: Any, more: timedelta = timedelta()) -> Any:
    if not isinstance(value, datetime):
        return value
    return f"{(value + more).strftime('%Y-%m-%dT%H:%M:%S.%f')[:-3]}Z"


def _offset_id(key: TopicPartition) -> str:
    return f"{APPLICATION}:{key.topic}:{key.partition}"


def _topic_id(topic: str, topic_id: str) -> str:
    return f"{APPLICATION}:{topic}:id:{topic_id}"
