"""The command `bradbury replay`: writes rows of Parquet, Delta or Iceberg tables to a topic.

Run again, it continues where the last run ended, for any reason. Ctrl-C ends a --continuous replay
after the current commit, with exit code 0.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import UsageError
from ..terminal.interrupt import stop_at_interrupt
from ..terminal.options import (
    AsJson,
    Bootstrap,
    Compression,
    IcebergCatalog,
    IcebergProperties,
    parse_names,
    parse_pairs,
)
from ..terminal.output import count_text, note, print_json
from ..terminal.progress import Advance, progress_bar

if TYPE_CHECKING:
    from ...pipelines.replays.replay_table import ReplayProgress


def replay(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="Table: a directory of `load`, of other Parquet files or of a Delta table; a URL "
            "such as s3://...; for iceberg namespace.table.",
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="TOPIC", help="Topic to write to; it has to exist.")
    ],
    table_format: Annotated[
        Literal["parquet", "delta", "iceberg"] | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Table format: parquet, delta or iceberg.",
            show_default="delta where there is a _delta_log, else parquet",
        ),
    ] = None,
    catalog: IcebergCatalog = None,
    catalog_property: IcebergProperties = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of keys; '' for no keys.", show_default="key"),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of values: bytes and text as they are, other types as JSON.",
            show_default="value",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns for values that are JSON objects.",
            show_default="all, if there is no column value",
        ),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of timestamps; '' for the current time.",
            show_default="timestamp",
        ),
    ] = None,
    headers: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of headers; '' for none.", show_default="headers"
        ),
    ] = None,
    keep_partitions: Annotated[
        bool,
        typer.Option(
            "--keep-partitions",
            help="Write each record to the partition in the column `partition`.",
        ),
    ] = False,
    order_by: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns to sort rows by, ascending.",
            show_default="offset, if there is such a column, else the order of the files",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of this replay. A table is written to a topic once under each name.",
            show_default="by table and topic",
        ),
    ] = None,
    commit_records: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Maximum records of a transaction, approximately."),
    ] = 500_000,
    compression: Compression = "none",
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Keep writing rows that are added, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Write the rows of a table as records of a topic, each row exactly once."""
    from ...pipelines.replays.replay_table import default_name, replay as replay_table

    if table_format != "iceberg" and "://" not in table and not Path(table).exists():
        raise UsageError(f"{table}: there is no such file or directory")
    began = time.monotonic()
    try:
        with (
            stop_at_interrupt(active=continuous) as stop,
            progress_bar(f"into {to}", None, "records") as advance,
        ):
            done = replay_table(
                table,
                to,
                format=table_format,
                catalog=catalog,
                catalog_properties=parse_pairs(catalog_property or (), "--catalog-property"),
                key=key,
                value=value,
                columns=parse_names(columns),
                timestamp=timestamp,
                headers=headers,
                keep_partitions=keep_partitions,
                order_by=parse_names(order_by),
                name=name,
                commit_records=commit_records,
                compression_type=compression,
                bootstrap_servers=bootstrap_servers(bootstrap),
                continuous=continuous,
                stop=stop,
                on_progress=_Shown(advance),
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json(
            {
                "records": done.records,
                "commits": done.commits,
                "to": to,
                "name": name or default_name(table, to, table_format),
            }
        )
    else:
        seconds = time.monotonic() - began
        note(f"{count_text(done.records, 'record')} into {to} in {seconds:.1f} s")


class _Shown:
    """Progress of commits: a bar on a terminal, else lines."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._records = 0

    def __call__(self, progress: ReplayProgress) -> None:
        self._advance(progress.records - self._records)
        self._records = progress.records
        if not sys.stderr.isatty():
            behind = f", {count_text(progress.behind, 'row')} to go" if progress.behind else ""
            note(f"committed: {count_text(progress.records, 'record')} so far{behind}")
