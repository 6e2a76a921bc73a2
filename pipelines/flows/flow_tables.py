"""Writers of a flow's rows to Delta and Iceberg tables: each micro-batch once, or the table whole.

Spark runs a batch again if the query ended before the checkpoint recorded it. Each commit records
in the table itself which batch of which query it holds, as Spark's own Delta sink does, and a batch
that the table has already is skipped:

    Delta     txn appId "bradbury-flow:<flow>:<target>:<query id>"   version: the batch's number
    Iceberg   property of the table of that name                      the batch's number, as text

The query id is stored in the checkpoint: if that is deleted, the query gets another id. A batch is
collected in the memory of the driver, from where delta-rs or PyIceberg write it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...discovery.extras import install_command, missing_modules
from ..loads.iceberg_catalog import CatalogFailed, open_catalog, open_table
from .flow import FlowFailed, FlowTarget

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

APPLICATION: Final = "bradbury-flow"
MOST_OFFSETS: Final = 500_000
"""Default of maxOffsetsPerTrigger of a flow with a Delta or Iceberg table."""
TRIES: Final = 5
_QUERY_ID: Final = "sql.streaming.queryId"


class FlowTable(Protocol):
    """A table that records which batches it holds."""

    def write(self, rows: pa.Table, application: str, batch_id: int) -> bool:
        """Append a batch; False if the table has it already. Raises FlowFailed."""
        ...

    def replace(self, rows: pa.Table) -> None:
        """Replace all rows of the table in one commit. Raises FlowFailed."""
        ...


def table_of(target: FlowTarget) -> FlowTable:
    """The table of a target.

    Raises FlowFailed: an extra is not installed, or the catalog does not exist.
    """
    assert target.table is not None
    if target.format == "delta":
        return DeltaFlowTable(target.table, target.partition_by)
    return IcebergFlowTable(target.table, target.partition_by, target.catalog)


def batch_writer(
    flow: str, target: FlowTarget, on_failure: Callable[[Exception], None]
) -> Callable[[DataFrame, int], None]:
    """Function for foreachBatch that writes to the table of `target`. Raises what table_of does.

    on_failure: called with the exception of a failed batch, which Spark itself replaces by the
    stack of a Java proxy.
    """
    table = table_of(target)

    def write(frame: DataFrame, batch_id: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        try:
            rows = in_utc(frame.toArrow())
            table.write(rows, f"{APPLICATION}:{flow}:{target.name}:{query}", batch_id)
        except Exception as error:
            on_failure(error)
            raise

    return write


class DeltaFlowTable:
    """Delta table of a flow. path: a directory, or a URL that delta-rs supports (s3://..., ...)."""

    def __init__(self, path: str, partition_by: Sequence[str]) -> None:
        if missing_modules("delta"):
            raise FlowFailed(f"Delta tables need an extra: {install_command('delta')}")
        self._path = path
        self._partition_by = list(partition_by)

    def write(self, rows: pa.Table, application: str, batch_id: int) -> bool:
        """See FlowTable. If two processes write the same batch, Delta refuses the later commit."""
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            table = DeltaTable(self._path)
        except TableNotFoundError:
            table = None
        done = None if table is None else table.transaction_version(application)
        if done is not None and done >= batch_id:
            return False
        if table is not None:
            _check_columns(self._path, [field.name for field in table.schema().fields], rows)
            if not rows.num_rows:
                return True
        try:
            write_deltalake(
                self._path if table is None else table,
                rows,
                mode="error" if table is None else "append",
                partition_by=self._partition_by or None,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(application, batch_id)]
                ),
            )
        except DeltaError as error:
            raise FlowFailed(f"{self._path}: {error}") from None
        return True

    def replace(self, rows: pa.Table) -> None:
        """See FlowTable."""
        from deltalake import DeltaTable, write_deltalake
        from deltalake.exceptions import DeltaError

        try:
            if DeltaTable.is_deltatable(self._path):
                schema = DeltaTable(self._path).schema()
                _check_columns(self._path, [field.name for field in schema.fields], rows)
            write_deltalake(
                self._path, rows, mode="overwrite", partition_by=self._partition_by or None
            )
        except DeltaError as error:
            raise FlowFailed(f"{self._path}: {error}") from None


class IcebergFlowTable:
    """Iceberg table of a flow.

    name: namespace.table. catalog: its name or its properties; None: PyIceberg's default.
    """

    def __init__(
        self, name: str, partition_by: Sequence[str], catalog: str | Mapping[str, str] | None
    ) -> None:
        self._name = name
        self._partition_by = partition_by
        named, properties = (catalog, {}) if isinstance(catalog, str) else (None, catalog or {})
        try:
            self._catalog = open_catalog(named, properties)
        except CatalogFailed as error:
            raise FlowFailed(str(error)) from None

    def write(self, rows: pa.Table, application: str, batch_id: int) -> bool:
        """See FlowTable.

        PyIceberg would retry an append on top of another commit without checking what that commit
        holds. Its retries are off; here each attempt reads the table again.
        """
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(TRIES):
            table = self._opened(rows.schema)
            if int(table.properties.get(application, -1)) >= batch_id:
                return False
            _check_columns(self._name, table.schema().column_names, rows)
            if not rows.num_rows:
                return True
            table.properties["commit.retry.num-retries"] = "0"  # of this object only
            transaction = table.transaction()
            try:
                transaction.append(rows)
                transaction.set_properties({application: str(batch_id)})
                transaction.commit_transaction()
            except CommitFailedException as error:
                failure = error
                continue
            except ValueError as error:
                raise FlowFailed(f"{self._name}: {' '.join(str(error).split())}") from None
            return True
        raise FlowFailed(
            f"{self._name} was changed by other writers in {TRIES} attempts; run the flow again "
            f"({failure})"
        )

    def replace(self, rows: pa.Table) -> None:
        """See FlowTable."""
        from pyiceberg.exceptions import CommitFailedException

        table = self._opened(rows.schema)
        _check_columns(self._name, table.schema().column_names, rows)
        try:
            with warnings.catch_warnings():
                # PyIceberg's warning where the table had no rows that could be deleted.
                warnings.simplefilter("ignore", UserWarning)
                table.overwrite(rows)
        except CommitFailedException as error:
            raise FlowFailed(
                f"{self._name} was changed by another writer; run the flow again ({error})"
            ) from None
        except ValueError as error:
            raise FlowFailed(f"{self._name}: {' '.join(str(error).split())}") from None

    def _opened(self, schema: pa.Schema) -> Any:
        return open_table(self._catalog, self._name, schema, self._partition_by)


def _check_columns(table: str, has: Sequence[str], rows: pa.Table) -> None:
    """Raises FlowFailed if column names differ. The libraries themselves check the types."""
    if set(has) != set(rows.column_names):
        raise FlowFailed(
            f"{table} has the columns {', '.join(has)}, and the flow has "
            f"{', '.join(rows.column_names)}; write to another table"
        )


def in_utc(rows: pa.Table) -> pa.Table:
    """Rows with timestamps in UTC instead of the session's time zone; the instants are the same."""
    import pyarrow as pa

    schema = pa.schema(
        [
            field.with_type(pa.timestamp("us", "UTC"))
            if pa.types.is_timestamp(field.type) and field.type.tz is not None
            else field
            for field in rows.schema
        ]
    )
    return rows.cast(schema)
