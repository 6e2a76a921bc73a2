"""The command `bradbury groups`: list, describe, lag, members, delete, and its other commands.

The lag of a group is shown in records and in time: the age of the first record after the committed
offset, which is fetched for that. A group that commits seldom seems to be further behind than it
is.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.confirmation import confirm
from ..terminal.failure import UsageError
from ..terminal.options import AsJson, Bootstrap
from ..terminal.output import count_text, note, print_json, print_table
from .group_options import Group, Groups, Topics, parse_partitions
from .group_reset_command import reset_offsets
from .group_tables import (
    NO_GROUPS,
    described_groups,
    lags_json,
    member_json,
    members_of,
    print_groups,
    print_lags,
)
from .group_transfer import export, import_
from .group_watch import watch_groups

groups = App(
    help="Show lag and members of consumer groups; reset, export and delete offsets.",
    no_args_is_help=True,
)
groups.command("reset-offsets")(reset_offsets)
groups.command()(export)
groups.command("import")(import_)

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
EVERY_SECONDS = 2.0
TYPES = ("classic", "consumer", "share", "streams")


@groups.command("list")
def list_groups(
    state: Annotated[
        list[str],
        typer.Option(
            metavar="STATE", help=f"Only groups in this state: {', '.join(STATES)}; repeatable."
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    kind: Annotated[
        list[str],
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only groups of this type, for example classic; repeatable.",
        ),
    ] = [],  # noqa: B006 -- as above
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List the groups with their states."""
    from ...clients.admin.admin import Admin

    _check_words(state, STATES, "--state")
    _check_words(kind, TYPES, "--type")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = admin.list_groups(states=state, types=kind)
    if as_json:
        print_json(
            [
                {
                    "group": one.group_id,
                    "protocol_type": one.protocol_type,
                    "state": one.state,
                    "type": one.type,
                }
                for one in found
            ]
        )
    elif not found:
        note("no group matches" if state or kind else NO_GROUPS)
    else:
        print_table(
            ("group", "state", "type", "protocol"),
            [(one.group_id, one.state, one.type, one.protocol_type) for one in found],
        )


@groups.command()
def describe(
    group: Groups = [],  # noqa: B006 -- typer reads the default and never changes it
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help=f"Seconds between refreshes of --watch; {EVERY_SECONDS:g} by default.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of refreshes after which --watch ends."),
    ] = None,
    times: Annotated[
        bool,
        typer.Option(
            "--times/--no-times", help="Show the lag in time, too, which takes a fetch per leader."
        ),
    ] = True,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show committed offset and lag of groups in each partition. All groups if none is named."""
    from ...clients.admin.admin import Admin

    if not watch and (every is not None or count is not None):
        raise UsageError("--every and --count need --watch; add it")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        if watch:
            every = EVERY_SECONDS if every is None else every
            watch_groups(admin, group, times=times, every=every, count=count, as_json=as_json)
            return
        found = described_groups(admin, group, times=times)
    if as_json:
        print_json([one.as_json() for one in found])
    else:
        print_groups(found)


@groups.command()
def lag(
    group: Groups = [],  # noqa: B006 -- typer reads the default and never changes it
    times: Annotated[
        bool,
        typer.Option(
            "--times/--no-times", help="Show the lag in time, too, which takes a fetch per leader."
        ),
    ] = True,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the lag of groups, in records and in time, a line each. All groups if none is named."""
    from ...clients.admin.admin import Admin

    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = described_groups(admin, group, times=times)
    if as_json:
        print_json(lags_json(found))
    else:
        print_lags(found)


@groups.command()
def members(group: Groups = [], as_json: AsJson = False, bootstrap: Bootstrap = None) -> None:  # noqa: B006 -- as above
    """Show members of groups, with host and assignment. All groups if none is named."""
    from ...clients.admin.admin import Admin

    with Admin(bootstrap_servers(bootstrap)) as admin:
        names = group or [one.group_id for one in admin.list_groups()]
        found = admin.describe_groups(names)
    if as_json:
        print_json(
            [
                {
                    "group": one.group_id,
                    "state": one.state,
                    "protocol": one.protocol,
                    "coordinator": str(one.coordinator),
                    "members": [member_json(member) for member in one.members],
                }
                for one in found
            ]
        )
        return
    for one in found:
        if one.members:
            print_table(
                ("member", "instance", "client", "host", "partitions", "assigned"),
                members_of(one),
                title=f"{one.group_id}  ({one.state}, {one.protocol or 'no assignor yet'})",
            )
        else:
            note(f"group {one.group_id!r} has no members (state {one.state})")


@groups.command()
def delete(
    group: Groups,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    from ...clients.admin.admin import Admin

    if not yes:
        confirm(f"Delete {', '.join(group)} with all committed offsets?")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        for name in dict.fromkeys(group):
            admin.delete_groups([name])
            note(f"deleted group {name!r}")


@groups.command("delete-offsets")
def delete_offsets(
    group: Group,
    topic: Topics,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete committed offsets of a group, for topics that none of its members reads."""
    from ...clients.admin.admin import Admin

    if not yes:
        confirm(f"Delete the committed offsets of {group!r} for {', '.join(topic)}?")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        committed = admin.group_offsets(group)
        wanted = parse_partitions(admin, topic, known=committed)
        admin.delete_group_offsets(group, wanted)
    gone = sum(key in committed for key in wanted)
    note(f"group {group!r}: deleted {count_text(gone, 'offset')} of {', '.join(topic)}")


@groups.command("remove-members")
def remove_members(
    group: Group,
    instance: Annotated[
        list[str],
        typer.Option(
            "--instance", "-i", metavar="ID", help="Instance id of a static member; repeatable."
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    member: Annotated[
        list[str], typer.Option("--member", "-m", metavar="ID", help="Member id; repeatable.")
    ] = [],  # noqa: B006 -- as above
    everyone: Annotated[bool, typer.Option("--all", help="Remove all members.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove members that will not rejoin: other members get their partitions at once."""
    from ...clients.admin.admin import Admin

    if everyone == bool(instance or member):
        raise UsageError(
            "no member: use --instance ID, --member ID or --all; `groups members` shows the ids"
        )
    with Admin(bootstrap_servers(bootstrap)) as admin:
        removed = admin.remove_members(
            group,
            instance_ids=instance,
            member_ids=member,
            reason="removed by `bradbury groups remove-members`",
        )
    note(f"group {group!r}: removed {', '.join(removed) or 'no member'}")


def _check_words(words: list[str], known: tuple[str, ...], option: str) -> None:
    for word in words:
        if word.lower() not in {one.lower() for one in known}:
            raise UsageError(f"{option} {word!r} is unknown; use one of {', '.join(known)}")
