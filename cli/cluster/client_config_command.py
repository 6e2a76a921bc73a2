"""The command `bradbury client-config`: settings for other clients to connect with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...discovery.state_file import default_namespace
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed
from ..terminal.options import Bootstrap
from ..terminal.output import note

if TYPE_CHECKING:
    from ...clients.security.security_options import SecurityOptions

Form = Literal["properties", "librdkafka", "python"]


def client_config(
    form: Annotated[
        Form,
        typer.Option(
            metavar="FORM",
            help="Format: properties for Kafka's tools and Java clients (--command-config) and "
            "bradbury --client-config; librdkafka for confluent-kafka, kcat and others; python for "
            "this package.",
        ),
    ] = "properties",
    user: Annotated[
        str | None,
        typer.Option(
            help="User name to print instead of the current one, without its password.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Print the settings with which clients connect to this cluster, password included."""
    from ...clients.security.client_config_file import read_client_config, read_client_options
    from ...discovery.client_config import find_client_config
    from . import client_config_forms

    servers = bootstrap_servers(bootstrap)
    path = find_client_config(servers, default_namespace())
    options: SecurityOptions = {}
    if path is not None:
        read_client_config(path)  # or settings would be printed that no client takes
        options = read_client_options(path)
    if user is not None:
        options = _as_user(options, user)
    printed = {
        "properties": client_config_forms.as_properties,
        "librdkafka": client_config_forms.as_librdkafka,
        "python": client_config_forms.as_python,
    }[form](servers, options)
    for line in printed.lines:
        print(line)  # noqa: T201 -- this is what the command is for
    for text in printed.notes:
        note(text)
    if user is not None:
        note(f"put the password of {user} in the place of PASSWORD")
    elif options and sys.stdout.isatty():
        note("the output has a password: keep the file private (chmod 600)")


def _as_user(options: SecurityOptions, user: str) -> SecurityOptions:
    """Return the options of another user. Raises CommandFailed: clients have no user names."""
    mechanism = options.get("sasl_mechanism")
    if mechanism is None:
        raise CommandFailed(
            f"--user {user}: this cluster has no users, as its clients connect without a "
            "password; omit --user, or start it with `bradbury up --secure`"
        )
    if mechanism == "OAUTHBEARER":
        raise CommandFailed(
            f"--user {user}: with OAUTHBEARER the token says who the user is; omit --user, and "
            "get a token for this user"
        )
    changed = options.copy()
    changed.pop("sasl_jaas_config", None)
    changed["sasl_username"], changed["sasl_password"] = user, "PASSWORD"
    return changed
