"""The command `bradbury demo`: the main job, end to end, on real data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal.failure import UsageError
from ..terminal.options import AsJson


def demo(
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Ray cluster to run in; by default an embedded one.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of flights to use; by default all.", show_default=False
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the bar chart of delays to this file, e.g. delays.png."
        ),
    ] = None,
    require_spark: Annotated[
        bool,
        typer.Option(
            "--require-spark", help="Fail if Spark cannot run; by default its step is skipped."
        ),
    ] = False,
    spark: Annotated[bool, typer.Option(help="Run the Spark step, or leave it out.")] = True,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the data, and print how to use it.")
    ] = False,
    namespace: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Namespace of a running cluster to use, which keeps the topics; "
            "by default a new cluster is started.",
            show_default=False,
        ),
    ] = None,
    replication_factor: Annotated[
        int, typer.Option(min=1, metavar="N", help="Replication factor of the topics.")
    ] = 1,
    as_json: AsJson = False,
) -> int:
    """Run the demo: Ray tasks produce, actors consume, Spark does ETL on the same log."""
    if require_spark and not spark:
        raise UsageError("--require-spark and --no-spark contradict each other; use one of them")
    from .run import DemoSettings, run_demo

    return run_demo(
        DemoSettings(
            address=address,
            rows=rows,
            plot=plot,
            require_spark=require_spark,
            spark=spark,
            keep=keep,
            namespace=namespace,
            replication_factor=replication_factor,
            as_json=as_json,
        )
    )
