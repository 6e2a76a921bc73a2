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
    from ...clients.security.client_config_file import read_client_options
    from ...discovery.client_config import find_client_config

    servers = bootstrap_servers(bootstrap)
    path = find_client_config(servers, default_namespace())
    options: SecurityOptions = {} if path is None else read_client_options(path)
    if user is not None:
        if "sasl_mechanism" not in options:
            raise CommandFailed(
                f"--user {user}: this cluster has no users, as its clients connect without a "
                "password; omit --user, or start it with `bradbury up --secure`"
            )
        options = _as_user(options, user)
    if form == "librdkafka":
        _print_librdkafka(servers, options)
    elif form == "python":
        _print_python(servers, options)
    else:
        _print_properties(servers, options)
    if "sasl_mechanism" in options and user is not None:
        note(f"put the password of {user} in the place of PASSWORD")
    if options and user is None and sys.stdout.isatty():
        note("the output has a password: keep the file private (chmod 600)")


def _as_user(options: SecurityOptions, user: str) -> SecurityOptions:
    """Return the options of another user; only SASL has a user name."""
    changed = options.copy()
    changed.pop("sasl_jaas_config", None)
    changed["sasl_username"], changed["sasl_password"] = user, "PASSWORD"
    return changed


_WHO = ("sasl_jaas_config", "sasl_username", "sasl_password")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def _credentials(options: SecurityOptions) -> tuple[str, str]:
    from ...protocol.security.jaas import parse_jaas

    if "sasl_jaas_config" in options:
        found = parse_jaas(options["sasl_jaas_config"]).options
        return found.get("username", ""), found.get("password", "")
    return options.get("sasl_username", ""), options.get("sasl_password", "")


def _print_properties(servers: str, options: SecurityOptions) -> None:
    print(f"# bootstrap.servers={servers}")  # noqa: T201 -- this is what the command is for
    for name, value in options.items():
        if name not in _WHO:
            print(f"{name.replace('_', '.')}={value}")  # noqa: T201
    if "sasl_mechanism" in options:
        username, password = (_quoted(each) for each in _credentials(options))
        module = _MODULES[options["sasl_mechanism"]]
        print(  # noqa: T201
            f"sasl.jaas.config={module} required username={username} password={password};"
        )


def _print_librdkafka(servers: str, options: SecurityOptions) -> None:
    settings = {"bootstrap.servers": servers}
    for name, theirs in _LIBRDKAFKA.items():
        if name in options:
            settings[theirs] = str(options[name])  # type: ignore[literal-required]  # a key of them
    if "sasl_mechanism" in options:
        settings["sasl.username"], settings["sasl.password"] = _credentials(options)
    for name, value in settings.items():
        print(f"{name}={value}")  # noqa: T201


_LIBRDKAFKA = {
    "security_protocol": "security.protocol",
    "ssl_truststore_location": "ssl.ca.location",
    "ssl_keystore_location": "ssl.certificate.location",
    "ssl_key_password": "ssl.key.password",
    "ssl_endpoint_identification_algorithm": "ssl.endpoint.identification.algorithm",
    "sasl_mechanism": "sasl.mechanism",
}


def _print_python(servers: str, options: SecurityOptions) -> None:
    settings: dict[str, object] = {k: v for k, v in options.items() if k not in _WHO}
    if "sasl_mechanism" in options:
        settings["sasl_username"], settings["sasl_password"] = _credentials(options)
    print("bradbury.Producer(")  # noqa: T201
    print(f"    {servers!r},")  # noqa: T201
    for name, value in settings.items():
        print(f"    {name}={value!r},")  # noqa: T201
    print(")")  # noqa: T201


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
