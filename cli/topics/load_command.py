"""The command `bradbury load`: new records of topics into a table: Parquet files, Delta or Iceberg.

Run again, it continues where the last run ended, for any reason. Ctrl-C ends a --continuous load
after the current commit, with exit code 0.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
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
"""Environment variable of the registry's URL: a command line would show its password."""
WITH_SCHEMA: Final = ("json", "avro", "protobuf")

if TYPE_CHECKING:
    from ...pipelines.loads.load import LoadProgress


def load(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topic names.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PATH",
            help="Table to load into: a directory; for delta also a URL such as s3://...; for "
            "iceberg namespace.table.",
        ),
    ],
    table_format: Annotated[
        Literal["parquet", "delta", "iceberg"],
        typer.Option("--format", metavar="FORMAT", help="Table format: parquet, delta or iceberg."),
    ] = "parquet",
    catalog: IcebergCatalog = None,
    catalog_property: IcebergProperties = None,
    partition_by: Annotated[
        Literal["day", "hour"] | None,
        typer.Option(
            "--partition-by",
            metavar="day|hour",
            help="Partition the table by day or hour of the records' timestamps (UTC).",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns to load: offset, key, value, topic, partition, timestamp, "
            "timestamp_type, headers.",
            show_default="all",
        ),
    ] = None,
    value: Annotated[
        Literal["raw", "utf8", "json", "avro", "protobuf"],
        typer.Option(
            metavar="FORMAT",
            help="Values as bytes (raw), text (utf8), or columns (json, avro, protobuf): by "
            "--schema or --schema-registry.",
        ),
    ] = "raw",
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Schema of json values (an object of names and types, or a schema of Spark), or "
            "of avro values (an .avsc).",
            show_default=False,
        ),
    ] = None,
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
        bool, typer.Option("--continuous", help="Keep loading new records, until Ctrl-C.")
    ] = False,
    commit_interval: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="Seconds between commits of --continuous."),
    ] = 60.0,
    commit_records: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum records of a commit, approximately.")
    ] = 5_000_000,
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Load nothing, only make large files of the small ones."),
    ] = False,
    compact_after: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of small files in a folder from which they are compacted; 0: never.",
            show_default="8 with delta, else 0; with --compact 2",
        ),
    ] = None,
    target_file_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of compacted files: 128MB or 1GB.")
    ] = "128MB",
    allow_data_loss: AllowDataLoss = False,
    read_uncommitted: Annotated[
        bool,
        typer.Option(
            "--read-uncommitted", help="Also load records of open and aborted transactions."
        ),
    ] = False,
    local_files: Annotated[
        bool,
        typer.Option(
            "--local-files", help="Read log files of brokers on this machine, if permitted."
        ),
    ] = False,
    engine: Annotated[
        Literal["local", "spark", "ray"],
        typer.Option(
            metavar="ENGINE",
            help="Where to run: local (this process), spark (its executors) or ray (tasks).",
        ),
    ] = "local",
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of Spark or Ray tasks per commit.",
            show_default="one for each core",
        ),
    ] = None,
    executors: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of Spark executors on Ray; by default Spark runs in this process.",
            show_default=False,
        ),
    ] = None,
    executor_cores: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Cores of each executor, with --executors.",
            show_default="1",
        ),
    ] = None,
    executor_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of each executor, with --executors.",
            show_default="1g",
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Load new records of topics into a table, each record exactly once."""
    from ...pipelines.loads.load import load as load_topics
    from ...pipelines.ranges.schema_file import read_schema_file
    from ...pipelines.ranges.value_decoder import UndecodableValue

    if schema is not None and value not in ("json", "avro"):
        raise UsageError(f"--value {value} has no schema file; leave --schema out")
    if value in WITH_SCHEMA and schema is None and schema_registry is None:
        schema_registry = os.environ.get(REGISTRY_VARIABLE)
    if value in WITH_SCHEMA and schema is None and not schema_registry and not compact:
        raise UsageError(
            f"--value {value} needs --schema FILE (json, avro: see docs/pipelines.md), "
            "or --schema-registry URL, where the schemas are; a schema of your own goes with "
            "bradbury.load(value_schema=...) from Python"
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
                value_schema=None if schema is None else read_schema_file(schema, value),
                schema_registry=schema_registry,
                bootstrap_servers=None if compact else bootstrap_servers(bootstrap),
                isolation_level="read_uncommitted" if read_uncommitted else "read_committed",
                fail_on_data_loss=not allow_data_loss,
                local_files=local_files,
                commit_records=commit_records,
                commit_interval_s=commit_interval,
                continuous=continuous,
                compact=compact,
                compact_after=compact_after,
                target_file_size_bytes=_size_of(target_file_size),
                stop=stop,
                engine=engine,
                tasks=tasks,
                executors=executors,
                executor_cores=executor_cores,
                executor_memory=executor_memory,
                on_progress=_show,
            )
    except UndecodableValue:
        raise  # the record is invalid, not an argument
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        counts = {"records": done.records, "commits": done.commits}
        print_json({**counts, "compacted_files": done.compacted_files, "to": to})
        return
    seconds = time.monotonic() - began
    if not compact:
        note(f"{count_text(done.records, 'record')} into {to} in {seconds:.1f} s")
    if compact or done.compacted_files:
        note(f"{count_text(done.compacted_files, 'small file')} of {to} compacted")


def _size_of(text: str) -> int:
    """Bytes of a size: 128MB are 134217728 bytes, as with Spark. Raises UsageError."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise UsageError(f"--target-file-size {text!r} is not a size; use 128MB, 1GB or bytes")
    return int(found[1]) << 10 * " KMGT".index(found[2].upper() or " ")


def _show(progress: LoadProgress) -> None:
    behind = "" if not progress.behind else f", {count_text(progress.behind, 'record')} to go"
    note(f"committed: {count_text(progress.records, 'record')} so far{behind}")
