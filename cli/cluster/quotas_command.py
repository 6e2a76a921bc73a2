"""`bradbury quotas`: how much of each node a client may use.

As kafka-configs.sh, against any Kafka cluster.
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
    "producer_byte_rate": "bytes a second that it produces",
    "consumer_byte_rate": "bytes a second that it fetches",
    "request_percentage": "percent of a core for its requests",
    "controller_mutation_rate": "partitions a second that are made or deleted for it",
    "connection_creation_rate": "connections a second, of an address",
}
DEFAULT: Final = "<default>"
"""As kafka-configs.sh shows it."""

quotas = App(
    help="How much of each node a client may use: list, set, remove.", no_args_is_help=True
)

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")]
DefaultUser = Annotated[
    bool, typer.Option("--user-default", help="Of each user that has none of its own.")
]
ClientId = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="Of this client id.")
]
DefaultClientId = Annotated[
    bool, typer.Option("--client-id-default", help="Of each client id that has none of its own.")
]
Address = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Of this address.")]
DefaultAddress = Annotated[
    bool, typer.Option("--ip-default", help="Of each address that has none of its own.")
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
    """Show quotas: all, or those of the entities that are named."""
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
        note("there are no such quotas")
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
        try:
            numbers[key] = float(text)
        except ValueError:
            raise UsageError(f"{key}={text}: use a number") from None
    _alter(bootstrap, entity, numbers)


@quotas.command()
def remove(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="QUOTA", help="Which; by default all of them.")
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
        raise CommandFailed(f"there is no such quota: {', '.join(missing) or 'none is set'}")
    _alter(bootstrap, entity, dict.fromkeys(keys or values))


def _alter(
    bootstrap: str | None, entity: ClientQuotaEntity, values: Mapping[str, float | None]
) -> None:
    from ...clients.admin.admin import Admin

    with Admin(bootstrap_servers(bootstrap)) as admin:
        admin.alter_client_quotas({entity: values})
    note("done; it counts from now on, for each node")


def _entity(
    user: tuple[str | None, bool],
    client_id: tuple[str | None, bool],
    ip: tuple[str | None, bool],
    *,
    may_be_empty: bool = False,
) -> ClientQuotaEntity:
    """Of each: its name, and whether the default is meant."""
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
        raise UsageError("whose? Use --user, --client-id, both, or --ip (or their -default)")
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
