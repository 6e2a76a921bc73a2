"""`bradbury groups export` and `import`: committed offsets to a file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.options import Bootstrap
from ..terminal.output import count_text, note
from .group_offsets_file import read_offsets, write_csv, write_json
from .group_options import Group, Groups, parse_partitions
from .group_reset_command import has_members


def export(
    group: Groups,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with epochs and metadata; for one group.")
    ] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Print the committed offsets of groups, as a file for `import` or --from-file."""
    from ...clients.admin.admin import Admin

    names = list(dict.fromkeys(group))
    if as_json and len(names) > 1:
        raise UsageError("--json exports one group at a time; without it, several")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        admin.describe_groups(names)  # or a misspelt name would give an empty file
        found = {name: admin.group_offsets(name) for name in names}
    if as_json:
        write_json(names[0], found[names[0]])
        return
    write_csv(
        (*([name] if len(names) > 1 else []), key.topic, key.partition, one.offset)
        for name, offsets in found.items()
        for key, one in offsets.items()
    )


def import_(
    group: Group,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of `export`; - for stdin.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; change nothing.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Set the committed offsets of a group to those of a file. The group must have no members."""
    from ...clients.admin.admin import Admin

    offsets = read_offsets(file, group)
    with Admin(bootstrap_servers(bootstrap)) as admin:
        if has_members(admin, group):
            raise CommandFailed(
                f"group {group!r} has members, which would overwrite the offsets; stop them "
                f"first (`bradbury groups members {group}` shows them)"
            )
        parse_partitions(admin, [f"{topic}:{number}" for topic, number in offsets])
        starts = admin.list_offsets(list(offsets), "earliest")
        ends = admin.list_offsets(list(offsets), "latest")
        for key, one in offsets.items():
            if not starts[key].offset <= one.offset <= ends[key].offset:
                note(
                    f"{key.topic}-{key.partition}: {one.offset} is not in the log, "
                    f"{starts[key].offset} to {ends[key].offset}; the group will start there by "
                    "its auto.offset.reset"
                )
        if not dry_run:
            admin.alter_group_offsets(group, dict(offsets.items()))
    verb = "can be set" if dry_run else "set"
    note(f"group {group!r}: {count_text(len(offsets), 'offset')} {verb}")
