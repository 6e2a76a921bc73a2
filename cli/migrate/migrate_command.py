"""The command `bradbury migrate`: moves topics, records and groups into this cluster, or back.

    bradbury migrate --from KAFKA           copies, and follows until the cut-over
    bradbury migrate status --from KAFKA    shows the progress and the next step
    bradbury migrate verify --from KAFKA    compares both clusters
    bradbury migrate cut-over --from KAFKA  makes this cluster the one that clients use

Ctrl-C ends a migration that follows after the current transaction, with exit code 0; run again,
it continues.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import DONE_FAILED, CommandFailed, UsageError
from ..terminal.interrupt import stop_at_interrupt
from ..terminal.options import AllowDataLoss, AsJson, Bootstrap, MadeReplicas, SourceConfig
from ..terminal.output import count_text, note, print_json
from ..terminal.progress import progress_bar
from .migrate_tables import (
    check_json,
    cut_over_json,
    print_checks,
    print_cut_over,
    print_status,
    status_json,
)

if TYPE_CHECKING:
    from ...clients.security.security_options import SecurityOptions
    from ...pipelines.migrations.migration import Migration
    from ...pipelines.mirrors.mirror_settings import MirrorProgress

SHOW_SECONDS = 1.0

migrate = App(
    help="Move topics, records and groups of another cluster into this one, or back.",
    invoke_without_command=True,
    no_args_is_help=True,
)

Source = Annotated[
    str,
    typer.Option("--from", metavar="HOST:PORT,...", help="Brokers of the cluster to migrate from."),
]


@migrate.callback()
def follow(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HOST:PORT,...",
            help="Brokers of the cluster to migrate from.",
            show_default=False,
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Topics to copy, by name; repeatable.",
            show_default="all",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Topics to leave out, besides internal ones; repeatable.",
            show_default="none",
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Consumer groups to copy; repeatable.",
            show_default="all",
        ),
    ] = None,
    exclude_groups: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Groups to leave out, besides those of consoles; repeatable.",
            show_default="none",
        ),
    ] = None,
    replication_factor: MadeReplicas = -1,
    without_config: Annotated[
        list[str] | None,
        typer.Option(
            "--without-config",
            metavar="NAME",
            help="Topic config not to copy; repeatable.",
            show_default="none",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when all records that are there now are copied.")
    ] = False,
    allow_data_loss: AllowDataLoss = False,
    source_config: SourceConfig = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Copy another cluster, and follow it until the cut-over."""
    if context.invoked_subcommand is not None:
        for parameter in context.command.params:
            name = parameter.name or ""
            if str(context.get_parameter_source(name)).endswith("COMMANDLINE"):
                raise UsageError(
                    f"{parameter.opts[0]} comes after {context.invoked_subcommand}, if that has "
                    f"it: bradbury migrate {context.invoked_subcommand} --from ..."
                )
        return
    if source is None:
        raise UsageError("--from is missing: give the brokers of the cluster to migrate from")
    from ...pipelines.migrations.migration import Migration

    try:
        move = Migration(
            source,
            bootstrap_servers=bootstrap_servers(bootstrap),
            topics=topics,
            exclude=exclude,
            groups=groups,
            exclude_groups=exclude_groups,
            replication_factor=replication_factor,
            without_configs=without_config,
            fail_on_data_loss=not allow_data_loss,
            source_security=_security(source_config),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    began = time.monotonic()
    with stop_at_interrupt() as stop:
        done = move.follow(continuous=not once, stop=stop, on_progress=_Progress())
        status = move.status()
    if as_json:
        print_json({"records": done.records, "bytes": done.bytes, **status_json(status)})
        return
    note(f"{count_text(done.records, 'record')} in {time.monotonic() - began:.1f} s")
    note(f"{status.state}, {count_text(status.behind, 'offset')} behind. Next: {status.next_step}")


@migrate.command()
def status(
    source: Source,
    source_config: SourceConfig = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the progress by topic and group, and the next step."""
    found = _migration(source, source_config, bootstrap).status()
    if as_json:
        print_json(status_json(found))
    else:
        print_status(found)


@migrate.command()
def verify(
    source: Source,
    again: Annotated[
        bool, typer.Option("--again", help="Compare what was compared before, too.")
    ] = False,
    source_config: SourceConfig = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Compare counts and checksums of both clusters, by partition. Exit code 1 if they differ."""
    move = _migration(source, source_config, bootstrap)
    with progress_bar("comparing", None, "records") as advance:
        checks = move.verify(again=again, on_records=advance)
    if as_json:
        print_json([check_json(one) for one in checks])
    else:
        print_checks(checks)
    differing = [one for one in checks if not one.is_same]
    if differing:
        raise typer.Exit(DONE_FAILED)


@migrate.command("cut-over")
def cut_over(
    source: Source,
    timeout: Annotated[
        float,
        typer.Option(min=0.0, metavar="SECONDS", help="Seconds to wait for the source to be idle."),
    ] = 60.0,
    quiet: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Seconds without a new record until the source counts as idle.",
        ),
    ] = 3.0,
    allow_live_groups: Annotated[
        bool,
        typer.Option(
            "--allow-live-groups",
            help="Allow groups to have members in the source; records they read from now on are "
            "read again here.",
        ),
    ] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not compare the clusters first.")
    ] = False,
    source_config: SourceConfig = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Make this cluster the one that clients use. Run again: copy records that came late."""
    move = _migration(source, source_config, bootstrap)
    done = move.cut_over(
        quiet_s=quiet,
        timeout_s=timeout,
        allow_live_groups=allow_live_groups,
        verify=not no_verify,
        on_step=note,
    )
    if as_json:
        print_json(cut_over_json(done))
    else:
        print_cut_over(done)
    if not done.is_done:
        raise CommandFailed(
            "not cut over: the clusters differ. Nothing was changed; to see which partitions: "
            f"bradbury migrate verify --from {source}"
        )
    if not as_json:
        note(f"Next: {move.status().next_step}")


def _migration(source: str, source_config: Path | None, bootstrap: str | None) -> Migration:
    from ...pipelines.migrations.migration import Migration

    return Migration(
        source,
        bootstrap_servers=bootstrap_servers(bootstrap),
        source_security=_security(source_config),
    )


def _security(file: Path | None) -> SecurityOptions | None:
    from ...clients.security.client_config_file import read_client_options

    return None if file is None else read_client_options(file)


class _Progress:
    """Progress lines: at most one a second, and one each time that all records are copied."""

    def __init__(self) -> None:
        self._shown_at = -SHOW_SECONDS
        self._is_in_step = False

    def __call__(self, progress: MirrorProgress) -> None:
        now = time.monotonic()
        is_in_step = progress.behind == 0
        if now - self._shown_at < SHOW_SECONDS and is_in_step == self._is_in_step:
            return
        self._shown_at, self._is_in_step = now, is_in_step
        note(
            f"copied: {count_text(progress.records, 'record')} so far, "
            f"{progress.bytes / 1e6:.1f} MB, {count_text(progress.behind, 'offset')} behind"
        )
