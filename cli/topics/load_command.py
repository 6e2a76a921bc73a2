"""`bradbury load`: what is new in topics, into a table: Parquet files, Delta or Iceberg.

Run again, it goes on where the last one ended, whatever ended it. Ctrl-C ends a --continuous load
after the commit that is under way, with exit code 0.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import UsageError
from ..terminal.interrupt import stop_at_interrupt
from ..terminal.options import (
    AllowDataLoss,
    AsJson,
    Bootstrap,
    IcebergCatalog,
    IcebergProperties,
    parse_names,
    parse_pairs,
)
from ..terminal.output import count_text, note, print_json

REGISTRY_VARIABLE: Final = "BRADBURY_SCHEMA_REGISTRY"
"""Environment variable of the address: a command line shows its password to other users."""
WITH_SCHEMA: Final = ("json", "avro", "protobuf")

if TYPE_CHECKING:
    from ...pipelines.loads.load import LoadProgress


def load(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PATH",
            help="The table: a directory; with delta also s3://... and so on; with iceberg "
            "namespace.table.",
        ),
    ],
    table_format: Annotated[
        Literal["parquet", "delta", "iceberg"],
        typer.Option("--format", metavar="FORMAT", help="parquet, delta or iceberg."),
    ] = "parquet",
    catalog: IcebergCatalog = None,
    catalog_property: IcebergProperties = None,
    partition_by: Annotated[
        Literal["day", "hour"] | None,
        typer.Option(
            "--partition-by",
            metavar="day|hour",
            help="A folder for each, by the records' timestamps (UTC).",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Of offset, key, value, topic, partition, timestamp, timestamp_type, headers.",
            show_default="all",
        ),
    ] = None,
    value: Annotated[
        Literal["raw", "utf8", "json", "avro", "protobuf"],
        typer.Option(
            metavar="FORMAT",
            help="Values as bytes (raw), text (utf8), or columns (json, avro, protobuf).",
        ),
    ] = "raw",
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="URL",
            help="Schema registry of json, avro and protobuf values, which become columns by the "
            "latest schema of the subject TOPIC-value.",
            show_default=f"${REGISTRY_VARIABLE}",
        ),
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on with what is produced, until Ctrl-C.")
    ] = False,
    commit_interval: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="With --continuous: what is new, so often."),
    ] = 60.0,
    commit_records: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most records of a commit, about.")
    ] = 5_000_000,
    allow_data_loss: AllowDataLoss = False,
    read_uncommitted: Annotated[
        bool,
        typer.Option("--read-uncommitted", help="Load records of open and aborted transactions."),
    ] = False,
    local_files: Annotated[
        bool,
        typer.Option("--local-files", help="Read files of brokers on this machine, if allowed."),
    ] = False,
    engine: Annotated[
        Literal["local", "spark", "ray"],
        typer.Option(
            metavar="ENGINE",
            help="What reads and writes: this process (local), executors of Spark, tasks of Ray.",
        ),
    ] = "local",
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Of Spark or Ray, for each commit.",
            show_default="one for each core",
        ),
    ] = None,
    executors: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Of Spark, started in the Ray cluster; without it Spark runs in this process.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Load what is new in topics into a table, each record once."""
    from ...pipelines.loads.load import load as load_topics

    if value in WITH_SCHEMA and schema_registry is None:
        schema_registry = os.environ.get(REGISTRY_VARIABLE)
    if value in WITH_SCHEMA and not schema_registry:
        raise UsageError(
            f"--value {value} needs --schema-registry URL, where the schemas are; a schema of your "
            "own goes with bradbury.load(value_schema=...) from Python"
        )
    began = time.monotonic()
    try:
        with stop_at_interrupt(active=continuous) as stop:
            done = load_topics(
                topics,
                to,
                format=table_format,
                catalog=catalog,
                catalog_properties=parse_pairs(catalog_property or (), "--catalog-property"),
                partition_by=partition_by,
                columns=parse_names(columns),
                value_decoder=value,
                schema_registry=schema_registry,
                bootstrap_servers=bootstrap_servers(bootstrap),
                isolation_level="read_uncommitted" if read_uncommitted else "read_committed",
                fail_on_data_loss=not allow_data_loss,
                local_files=local_files,
                commit_records=commit_records,
                commit_interval_s=commit_interval,
                continuous=continuous,
                stop=stop,
                engine=engine,
                tasks=tasks,
                executors=executors,
                on_progress=_show,
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json({"records": done.records, "commits": done.commits, "to": to})
    else:
        seconds = time.monotonic() - began
        note(f"{count_text(done.records, 'record')} into {to} in {seconds:.1f} s")


def _show(progress: LoadProgress) -> None:
    behind = "" if not progress.behind else f", {count_text(progress.behind, 'record')} to go"
    note(f"committed: {count_text(progress.records, 'record')} so far{behind}")
