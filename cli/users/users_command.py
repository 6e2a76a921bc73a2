"""The command `bradbury users`: SCRAM users, as in kafka-configs.sh, of any Kafka cluster.

A password is never on the command line, where every user of the machine could read it: it is read
from a prompt, a file or stdin. It does not leave this process, either (KIP-554).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.confirmation import confirm
from ..terminal.failure import UsageError
from ..terminal.options import AsJson, Bootstrap
from ..terminal.output import note, print_json, print_table
from ..terminal.secret_input import read_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...clients.admin.users_admin import UserScramCredentialsDescription

users = App(help="List, add and remove SCRAM users.", no_args_is_help=True)

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS = "SCRAM-SHA-256 or SCRAM-SHA-512"
LEAST, MOST = 4096, 16384
User = Annotated[str, typer.Argument(metavar="USER", help="User name.")]
Users = Annotated[list[str], typer.Argument(metavar="USER", help="User names.")]


@users.command("list")
def list_users(as_json: AsJson = False, bootstrap: Bootstrap = None) -> None:
    """List all users and their SCRAM mechanisms."""
    _describe((), bootstrap, as_json=as_json)


@users.command()
def describe(user: Users, as_json: AsJson = False, bootstrap: Bootstrap = None) -> None:
    """Show the SCRAM mechanisms of users."""
    _describe(user, bootstrap, as_json=as_json)


@users.command()
def add(
    user: User,
    mechanism: Annotated[
        Mechanism, typer.Option(metavar="MECHANISM", help=f"SCRAM mechanism: {MECHANISMS}.")
    ] = "SCRAM-SHA-512",
    iterations: Annotated[
        int,
        typer.Option(
            min=LEAST,
            max=MOST,
            metavar="N",
            help="Number of hash iterations: more make guessing and logging in slower.",
        ),
    ] = 8192,
    password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File whose first line is the password; `-`: stdin. By default a prompt.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Add a user, or change a password. The user's other mechanism stays as it is."""
    from ...clients.admin.admin import Admin
    from ...clients.admin.users_admin import UserScramCredentialUpsertion

    if not user or not user.isascii():
        raise UsageError(f"{user!r}: names of SCRAM users have to be ASCII, as in Kafka")
    servers = bootstrap_servers(bootstrap)
    password = read_secret("password", f"Password of {user}", password_file, twice=True)
    change = UserScramCredentialUpsertion(user, password, mechanism, iterations)
    with Admin(servers) as admin:
        admin.alter_user_scram_credentials([change])
    note(f"{user} can log in with {mechanism}")


@users.command()
def remove(
    user: User,
    mechanism: Annotated[
        Mechanism | None,
        typer.Option(
            metavar="MECHANISM", help=f"SCRAM mechanism to remove: {MECHANISMS}; by default both."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove a user, or its credential of one mechanism. Its connections last until their
    sessions end (`connections.max.reauth.ms`).
    """
    from ...clients.admin.admin import Admin
    from ...clients.admin.users_admin import UserScramCredentialDeletion

    if not yes:
        confirm(f"Remove {mechanism or 'all credentials'} of {user}?")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        mechanisms: Sequence[str] = [mechanism] if mechanism else []
        if not mechanisms:
            [described] = admin.describe_user_scram_credentials([user])
            mechanisms = [info.mechanism for info in described.credential_infos]
        for each in mechanisms:  # a request may change a user only once
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, each)])
    note(f"{user} cannot log in with {' and '.join(mechanisms)} any more")


def _describe(names: Sequence[str], bootstrap: str | None, *, as_json: bool) -> None:
    from ...clients.admin.admin import Admin

    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = admin.describe_user_scram_credentials(dict.fromkeys(names))
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        note("there are no users; `bradbury users add` adds one")
    else:
        print_table(
            ("user", "mechanism", "iterations"),
            [(each.name, *info) for each in found for info in each.credential_infos],
        )


def _as_json(described: UserScramCredentialsDescription) -> dict[str, object]:
    credentials = [info._asdict() for info in described.credential_infos]
    return {"user": described.name, "credentials": credentials}
