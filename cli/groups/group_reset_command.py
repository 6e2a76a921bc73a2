"""The command `bradbury groups reset-offsets`: shows new offsets, and with --execute sets them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.moments import SPECIAL_TIMESTAMPS, not_a_time, parse_iso
from ..terminal.options import AsJson, Bootstrap
from ..terminal.output import count_text, note, print_json, print_table
from .group_offsets_file import read_offsets, write_csv
from .group_options import Group, parse_partitions
from .group_reset import OffsetMove, Target, parse_duration, plan_moves

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin

FORMS = (
    "--to-earliest, --to-latest, --to-current, --to-datetime, --by-duration, --to-offset, "
    "--shift-by or --from-file"
)


def reset_offsets(
    group: Group,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Topic, with all its partitions or these; repeatable.",
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    all_topics: Annotated[
        bool,
        typer.Option("--all-topics", help="Every topic that the group has committed offsets of."),
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Set to the first record.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="Set to the end of the log.")
    ] = False,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="Keep committed offsets; set others to the end of the log."
        ),
    ] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Set to the first record from this time on: ISO 8601, or ms since 1970.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Set to the first record of the last PT1H30M, P2D, 90m, ..."
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Set to this offset.")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Move by this number of offsets; a negative number moves back."
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Set to the offsets of a file: of `groups export`, or lines "
            "topic,partition,offset; - for stdin.",
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Set the offsets; without it they are only shown.")
    ] = False,
    create: Annotated[
        bool,
        typer.Option("--create", help="Create the group if it does not exist."),
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print the offsets as a file for --from-file.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the new offsets of a group without members; set them with --execute."""
    from ...clients.admin.admin import Admin

    forms = (to_earliest, to_latest, to_current)
    values = (to_datetime, by_duration, to_offset, shift_by, from_file)
    if sum(forms) + sum(value is not None for value in values) != 1:
        raise UsageError(f"use one of {FORMS}")
    if from_file is not None and all_topics:
        raise UsageError("--from-file names its partitions; omit --all-topics")
    if from_file is None and bool(topic) == all_topics:
        raise UsageError("use --topic TOPIC or --all-topics")
    if to_earliest or to_latest:
        target = Target(at=SPECIAL_TIMESTAMPS["earliest" if to_earliest else "latest"])
    elif to_datetime is not None:
        target = Target(at=_moment(to_datetime))
    elif by_duration is not None:
        ago_ms = parse_duration(by_duration, "--by-duration")
        target = Target(at=max(0, round(time.time() * 1000) - ago_ms))
    elif from_file is not None:
        found = read_offsets(from_file, group)
        target = Target(offsets={key: one.offset for key, one in found.items()})
    else:
        target = Target(offset=to_offset, shift=shift_by, current=to_current)
    with Admin(bootstrap_servers(bootstrap)) as admin:
        is_active = has_members(admin, group)
        if is_active is None and not create:
            raise CommandFailed(
                f"group {group!r} does not exist; `bradbury groups list` shows those that do, "
                "--create creates it"
            )
        if is_active and execute:
            raise CommandFailed(
                f"group {group!r} has members, which would overwrite the offsets; stop them first "
                f"(`bradbury groups members {group}` shows them)"
            )
        moves = _plan(admin, group, topic, target)
        if execute:
            admin.alter_group_offsets(group, {one.key: one.wanted for one in moves})
    _show(moves, as_json=as_json, export=export)
    if not as_json and not export:
        if execute:
            note(f"group {group!r}: {count_text(len(moves), 'offset')} set")
        else:
            why = "; it has members, which must be stopped first" if is_active else ""
            note(f"nothing was changed; --execute sets the offsets{why}")


def has_members(admin: Admin, group: str) -> bool | None:
    """Return whether a group has members; None: the group does not exist."""
    from ...protocol.errors import GroupIdNotFound

    try:
        return bool(admin.describe_groups([group])[0].members)
    except GroupIdNotFound:
        return None


def _moment(text: str) -> int:
    """A point in time; the special timestamps have options of their own."""
    if text.isdecimal():
        return int(text)
    try:
        return parse_iso(text)
    except ValueError:
        raise not_a_time(text, "--to-datetime") from None


def _plan(admin: Admin, group: str, topics: list[str], target: Target) -> list[OffsetMove]:
    committed = {key: one.offset for key, one in admin.group_offsets(group).items()}
    if target.offsets is not None:
        keys = sorted(target.offsets)
        if topics:
            wanted = set(parse_partitions(admin, topics))
            keys = [key for key in keys if key in wanted]
        # Fails here for partitions that do not exist, before their offsets are requested.
        parse_partitions(admin, [f"{topic}:{number}" for topic, number in keys])
    elif topics:
        keys = parse_partitions(admin, topics)
    else:
        keys = sorted(committed)
        if not keys:
            raise CommandFailed(
                f"group {group!r} has committed nothing; use --topic instead of --all-topics"
            )
    return plan_moves(admin, keys, committed, target)


def _show(moves: list[OffsetMove], *, as_json: bool, export: bool) -> None:
    if export:
        write_csv([(one.key.topic, one.key.partition, one.wanted) for one in moves])
    elif as_json:
        print_json(
            [
                {
                    "topic": one.key.topic,
                    "partition": one.key.partition,
                    "current": one.current,
                    "new": one.wanted,
                    "change": one.change,
                    "remark": one.remark or None,
                }
                for one in moves
            ]
        )
    else:
        print_table(
            ("topic", "partition", "current", "new", "change", "remark"),
            [
                (
                    one.key.topic,
                    one.key.partition,
                    "-" if one.current is None else one.current,
                    one.wanted,
                    "-" if one.change is None else f"{one.change:+d}" if one.change else "0",
                    one.remark,
                )
                for one in moves
            ],
        )
