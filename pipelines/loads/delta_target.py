"""A Delta table, written by delta-rs. How far it is stands in the table's own transactions:

    txn appId "bradbury-load:<topic>:<partition>"   version: the next offset to be loaded
    txn appId "bradbury-load:<topic>:id:<topic id>" version 1: it is this topic, not a later one
                                                    of the same name

They come with the rows in one commit of the table's log, are kept by its checkpoints, and are what
Delta itself has for this (its protocol's "transaction identifiers"). Two loads into one table: the
later commit fails, as Delta sees that the other one has changed the same transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import pyarrow as pa

from ...clients.wire.record_metadata import TopicPartition
from ...discovery.extras import install_command, missing_modules
from .load_target import LoadFailed
from .loaded_offsets import LoadedOffsets

APPLICATION: Final = "bradbury-load"
ANOTHER: Final = "another"


class DeltaTarget:
    """`path`: a directory, or an address that delta-rs has a store for (s3://..., ...)."""

    def __init__(self, path: str, schema: Any, partition_by: str | None) -> None:
        """Raises LoadFailed: the extra [delta] is not installed."""
        if missing_modules("delta"):
            raise LoadFailed(f"Delta tables need an extra: {install_command('delta')}")
        self._path = path
        self._schema = schema
        self._partition_by = partition_by
        self._table: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._table = None

    def loaded(self, keys: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> LoadedOffsets:
        """See load_target. The id of a topic that was made again is ANOTHER."""
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

    def write(self, rows: Iterable[Any], after: LoadedOffsets) -> int:
        """See load_target.

        Raises:
            LoadFailed: another load has committed meanwhile, or the table has other columns.
            What `rows` raises.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

        count = 0
        failures: list[Exception] = []

        def counted() -> Iterable[Any]:
            nonlocal count
            try:
                for batch in rows:
                    count += batch.num_rows
                    yield batch
            except Exception as error:  # through Arrow only its text would arrive
                failures.append(error)
                raise

        transactions = [Transaction(_offset_id(key), end) for key, end in after.offsets.items()]
        transactions += [
            Transaction(_topic_id(name, known), 1) for name, known in after.topic_ids.items()
        ]
        try:
            write_deltalake(
                self._path if self._table is None else self._table,
                pa.RecordBatchReader.from_batches(self._schema, counted()),
                mode="append" if self._table is not None else "error",
                partition_by=self._partition_by,
                commit_properties=CommitProperties(
                    app_transactions=transactions, max_commit_retries=0
                ),
            )
        except CommitFailedError as error:
            raise LoadFailed(
                f"{self._path} was changed meanwhile; run the load again ({error})"
            ) from None
        except SchemaMismatchError as error:
            raise LoadFailed(
                f"{self._path} has other columns ({error}); load with the same ones, or into "
                "another table"
            ) from None
        except DeltaError as error:
            if failures:
                raise failures[0] from None
            raise LoadFailed(f"{self._path}: {error}") from None
        self._table = self._opened()
        return count

    def _opened(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._path)
        except TableNotFoundError:
            return None


def _offset_id(key: TopicPartition) -> str:
    return f"{APPLICATION}:{key.topic}:{key.partition}"


def _topic_id(topic: str, topic_id: str) -> str:
    return f"{APPLICATION}:{topic}:id:{topic_id}"
