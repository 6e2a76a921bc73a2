"""Micro-batches of a flow into Delta and Iceberg tables, each once.

Spark runs a batch again if it was ended before the checkpoint had it. Each commit says in the table
itself which batch of which query it is, as Spark's own Delta sink does, and a batch that is there
already is passed over:

    Delta     txn appId "bradbury-flow:<flow>:<target>:<query id>"   version: the batch's number
    Iceberg   property of the table of that name                      the batch's number, as text

The query id is that of the checkpoint: a checkpoint that was deleted is another query. A batch goes
through the memory of the driver, from where delta-rs or PyIceberg write it.
"""

from __future__ import annotations

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
"""maxOffsetsPerTrigger of a flow with such a table, unless it says another."""
TRIES: Final = 5
_QUERY_ID: Final = "sql.streaming.queryId"


class FlowTable(Protocol):
    """A table that knows which batches it has."""

    def write(self, rows: pa.Table, application: str, batch_id: int) -> bool:
        """False: the table has this batch already. Raises FlowFailed."""
        ...


def table_of(target: FlowTarget) -> FlowTable:
    """Raises FlowFailed: an extra is not installed, or there is no such catalog."""
    assert target.table is not None
    if target.format == "delta":
        return DeltaFlowTable(target.table, target.partition_by)
    return IcebergFlowTable(target.table, target.partition_by, target.catalog)


def batch_writer(
    flow: str, target: FlowTarget, on_failure: Callable[[Exception], None]
) -> Callable[[DataFrame, int], None]:
    """For foreachBatch. Raises as table_of.

    `on_failure` gets what has failed: Spark makes the stack of a proxy of it, and not a reason.
    """
    table = table_of(target)

    def write(frame: DataFrame, batch_id: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        try:
            rows = _in_utc(frame.toArrow())
            table.write(rows, f"{APPLICATION}:{flow}:{target.name}:{query}", batch_id)
        except Exception as error:
            on_failure(error)
            raise

    return write


class DeltaFlowTable:
    """`path`: a directory, or an address that delta-rs has a store for (s3://..., ...)."""

    def __init__(self, path: str, partition_by: Sequence[str]) -> None:
        if missing_modules("delta"):
            raise FlowFailed(f"Delta tables need an extra: {install_command('delta')}")
        self._path = path
        self._partition_by = list(partition_by)

    def write(self, rows: pa.Table, application: str, batch_id: int) -> bool:
        """See FlowTable. Two that write one batch at once: Delta refuses the later commit."""
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


class IcebergFlowTable:
    """`name`: namespace.table. `catalog`: its name, its properties, or PyIceberg's default."""

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

        PyIceberg would repeat an append on top of another commit without a look at what that was:
        here it is looked at, and repeated.
        """
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(TRIES):
            table = self._opened(rows.schema)
            if int(table.properties.get(application, -1)) >= batch_id:
                return False
            _check_columns(self._name, table.schema().column_names, rows)
            if not rows.num_rows:
                return True
            table.properties["commit.retry.num-retries"] = "0"  # of this object alone
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
            f"{self._name} was changed by others {TRIES} times meanwhile; run the flow again "
            f"({failure})"
        )

    def _opened(self, schema: pa.Schema) -> Any:
        return open_table(self._catalog, self._name, schema, self._partition_by)


def _check_columns(table: str, has: Sequence[str], rows: pa.Table) -> None:
    """Raises FlowFailed. What has another type the libraries refuse."""
    if set(has) != set(rows.column_names):
        raise FlowFailed(
            f"{table} has the columns {', '.join(has)}, and the flow has "
            f"{', '.join(rows.column_names)}; use another table"
        )


def _in_utc(rows: pa.Table) -> pa.Table:
    """The same moments: Spark has them in the session's time zone, tables have them in UTC."""
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
