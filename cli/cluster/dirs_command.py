"""The command `bradbury dirs`: log directories of the brokers and the partitions in them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed
from ..terminal.options import AsJson, Bootstrap
from ..terminal.output import print_json, print_table, size_text
from ..topics.topic_commands import require_topic

if TYPE_CHECKING:
    from ...clients.admin.log_dirs import LogDir


def dirs(
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="Only partitions of this topic; repeatable."
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    broker: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Only directories of this broker.", show_default=False),
    ] = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", "-p", help="Show every partition with its size.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the brokers' log directories: state, sizes, partitions."""
    from ...clients.admin.admin import Admin

    servers = bootstrap_servers(bootstrap)
    for name in topic:
        require_topic(servers, name)
    with Admin(servers) as admin:
        found = admin.describe_log_dirs(topic or None)
    if broker is not None:
        found = [one for one in found if one.broker == broker]
        if not found:
            raise CommandFailed(f"there is no live broker {broker}; `bradbury status` shows them")
    if as_json:
        print_json([{**asdict(one), "state": _state(one)} for one in found])
        return
    print_table(
        ("broker", "directory", "state", "partitions", "size", "disk free", "of"),
        [
            (
                one.broker,
                one.path,
                _state(one),
                len(one.partitions),
                size_text(sum(partition.size for partition in one.partitions)),
                _disk(one.usable_bytes),
                _disk(one.total_bytes),
            )
            for one in found
        ],
        optional=("of",),
    )
    if partitions:
        for one in found:
            print_table(
                ("topic", "partition", "size", "lag"),
                [
                    (
                        partition.topic + (" (moving here)" if partition.is_future else ""),
                        partition.partition,
                        size_text(partition.size),
                        partition.offset_lag,
                    )
                    for partition in one.partitions
                ],
                title=f"broker {one.broker}  {one.path}",
            )


def _state(directory: LogDir) -> str:
    from ...protocol.error_code import ErrorCode

    if not directory.error_code:
        return "online"
    names = {code.value: code.name for code in ErrorCode}
    return names.get(directory.error_code, str(directory.error_code))


def _disk(size: int) -> str:
    return "-" if size < 0 else size_text(size)
