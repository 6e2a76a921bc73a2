"""The command `bradbury load`: new records of topics into a table: Parquet files, Delta or Iceberg.

Run again, it continues where the last run ended, for any reason. Ctrl-C ends a --continuous load
after the current commit, with exit code 0.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

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
        Literal["raw", "utf8"],
        typer.Option(metavar="raw|utf8", help="Type of values: bytes or text."),
    ] = "raw",
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
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Load new records of topics into a table, each record exactly once."""
    from ...pipelines.loads.load import load as load_topics

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
