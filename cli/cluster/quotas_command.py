"""The command `bradbury quotas`: client quotas, which each broker applies by itself.

It does what kafka-configs.sh does for quotas, with any Kafka cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.options import AsJson, Bootstrap, parse_pairs
from ..terminal.output import note, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...clients.quotas.quotas_admin import ClientQuotaEntity, ClientQuotaFilterComponent

KEYS: Final = {
    "producer_byte_rate": "bytes per second produced",
    "consumer_byte_rate": "bytes per second fetched",
    "request_percentage": "percent of a core for requests",
    "controller_mutation_rate": "partitions per second created or deleted",
    "connection_creation_rate": "connections per second, of an address",
}
DEFAULT: Final = "<default>"
"""Name of the default entity, as kafka-configs.sh shows it."""

quotas = App(
    help="List, set and remove client quotas, which apply per broker.", no_args_is_help=True
)

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="User name.")]
DefaultUser = Annotated[
    bool, typer.Option("--user-default", help="Default of users without their own quota.")
]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="Client id.")]
DefaultClientId = Annotated[
    bool, typer.Option("--client-id-default", help="Default of client ids without their own quota.")
]
Address = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Client address.")]
DefaultAddress = Annotated[
    bool, typer.Option("--ip-default", help="Default of addresses without their own quota.")
]


@quotas.command("list")
def list_quotas(
    user: User = None,
    user_default: DefaultUser = False,
    client_id: ClientId = None,
    client_id_default: DefaultClientId = False,
    ip: Address = None,
    ip_default: DefaultAddress = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List quotas: all, or those of the named entities."""
    from ...clients.admin.admin import Admin
    from ...clients.quotas.quotas_admin import ClientQuotaFilter

    entity = _entity(
        (user, user_default), (client_id, client_id_default), (ip, ip_default), may_be_empty=True
    )
    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = admin.describe_client_quotas(ClientQuotaFilter(_components(entity)))
    if as_json:
        print_json(
            [{"entity": entity.parts(), "quotas": values} for entity, values in found.items()]
        )
    elif not found:
        note("no quota matches")
    else:
        print_table(
            ("user", "client id", "ip", "quota", "value"),
            [
                (*(_shown(name) for name in entity), key, f"{value:g}" if value % 1 else int(value))
                for entity, values in found.items()
                for key, value in sorted(values.items())
            ],
            optional=("ip",),
        )


@quotas.command("set")
def set_quotas(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=NUMBER",
            help="; ".join(f"{key}: {words}" for key, words in KEYS.items()),
        ),
    ],
    user: User = None,
    user_default: DefaultUser = False,
    client_id: ClientId = None,
    client_id_default: DefaultClientId = False,
    ip: Address = None,
    ip_default: DefaultAddress = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Set quotas of a user, a client id, both together, or an address; others stay."""
    entity = _entity((user, user_default), (client_id, client_id_default), (ip, ip_default))
    numbers = {}
    for key, text in parse_pairs(values, "").items():
        if key not in KEYS:
            raise UsageError(f"there is no quota {key!r}; use {', '.join(KEYS)}")
        try:
            numbers[key] = float(text)
        except ValueError:
            raise UsageError(f"{key}={text}: use a number") from None
    _alter(bootstrap, entity, numbers)


@quotas.command()
def remove(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUOTA", help="Name of a quota to remove; by default all."),
    ] = None,
    user: User = None,
    user_default: DefaultUser = False,
    client_id: ClientId = None,
    client_id_default: DefaultClientId = False,
    ip: Address = None,
    ip_default: DefaultAddress = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove quotas of a user, a client id, both together, or an address."""
    from ...clients.admin.admin import Admin
    from ...clients.quotas.quotas_admin import ClientQuotaFilter

    entity = _entity((user, user_default), (client_id, client_id_default), (ip, ip_default))
    with Admin(bootstrap_servers(bootstrap)) as admin:
        present = admin.describe_client_quotas(ClientQuotaFilter(_components(entity), strict=True))
    values = present.get(entity, {})
    missing = [key for key in keys or () if key not in values]
    if missing or not values:
        raise CommandFailed(f"no such quota is set: {', '.join(missing) or 'there are none'}")
    _alter(bootstrap, entity, dict.fromkeys(keys or values))


def _alter(
    bootstrap: str | None, entity: ClientQuotaEntity, values: Mapping[str, float | None]
) -> None:
    from ...clients.admin.admin import Admin

    with Admin(bootstrap_servers(bootstrap)) as admin:
        admin.alter_client_quotas({entity: values})
    note("quotas changed; each broker applies them from now on")


def _entity(
    user: tuple[str | None, bool],
    client_id: tuple[str | None, bool],
    ip: tuple[str | None, bool],
    *,
    may_be_empty: bool = False,
) -> ClientQuotaEntity:
    """Return the quota entity. Each argument: (name or None, whether the default is meant)."""
    from ...clients.quotas.quotas_admin import ClientQuotaEntity

    names: list[Any] = []
    for option, (name, is_default) in (("user", user), ("client-id", client_id), ("ip", ip)):
        if name is not None and is_default:
            raise UsageError(f"use either --{option} or --{option}-default")
        if name == "":
            raise UsageError(f"--{option} needs a name; --{option}-default is for all others")
        names.append("" if is_default else name)
    entity = ClientQuotaEntity(*names)
    if not may_be_empty and not entity.parts():
        raise UsageError("no entity: use --user, --client-id, both, or --ip (or their -default)")
    return entity


def _components(entity: ClientQuotaEntity) -> tuple[ClientQuotaFilterComponent, ...]:
    from ...clients.quotas.quotas_admin import ClientQuotaFilterComponent

    return tuple(
        ClientQuotaFilterComponent.of_default_entity(kind)
        if name is None
        else ClientQuotaFilterComponent.of_entity(kind, name)
        for kind, name in entity.parts().items()
    )


def _shown(name: str | None) -> str:
    return "" if name is None else name or DEFAULT
