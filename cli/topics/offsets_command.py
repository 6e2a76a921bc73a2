"""The command `bradbury offsets`: offsets of partitions by time."""

from __future__ import annotations

from typing import Annotated

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed
from ..terminal.moments import parse_time, show_time
from ..terminal.options import AsJson, Bootstrap, Topic
from ..terminal.output import print_json, print_table
from .topic_commands import require_topic

offsets = App(help="Show offsets of partitions.", no_args_is_help=True)


@offsets.callback()
def group() -> None:
    pass  # keeps `get` a subcommand although it is the only one


@offsets.command()
def get(
    topic: Topic,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            "-t",
            metavar="TIME",
            help="Time: earliest, latest, max-timestamp, earliest-local; or ISO 8601 or "
            "milliseconds since 1970, for the first record from then on.",
        ),
    ] = "latest",
    partition: Annotated[
        list[int],
        typer.Option(
            "--partition", "-p", min=0, metavar="N", help="Only this partition; repeatable."
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Use the last stable offset as the latest.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the offset of each partition for a time, as kafka-get-offsets does."""
    from ...clients.admin.admin import Admin

    at = parse_time(time, "--time")
    servers = bootstrap_servers(bootstrap)
    count = require_topic(servers, topic)
    for number in partition:
        if number >= count:
            raise CommandFailed(f"topic {topic!r} has partitions 0 to {count - 1}, not {number}")
    wanted = sorted(set(partition)) or range(count)
    isolation = "read_committed" if read_committed else "read_uncommitted"
    with Admin(servers) as admin:
        found = admin.list_offsets(
            [(topic, number) for number in wanted], at, isolation_level=isolation
        )
    rows = [(key.partition, found[key]) for key in sorted(found)]
    if as_json:
        print_json(
            [
                {
                    "topic": topic,
                    "partition": number,
                    "offset": None if answer.offset < 0 else answer.offset,
                    "timestamp": None if answer.timestamp < 0 else answer.timestamp,
                    "leader_epoch": None if answer.leader_epoch < 0 else answer.leader_epoch,
                }
                for number, answer in rows
            ]
        )
    else:
        print_table(
            ("partition", "offset", "timestamp", "leader epoch"),
            [
                (
                    number,
                    "-" if answer.offset < 0 else answer.offset,
                    show_time(answer.timestamp),
                    answer.leader_epoch,
                )
                for number, answer in rows
            ],
        )
