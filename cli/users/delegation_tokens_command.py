"""The command `bradbury delegation-tokens`, with the functions of kafka-delegation-tokens.sh.

Anyone who has a token's HMAC can log in. So it is read from a file, stdin or a prompt, and only
shown when the token is created, or on request.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import UsageError
from ..terminal.moments import show_time
from ..terminal.options import AsJson, Bootstrap
from ..terminal.output import note, print_json, print_table
from ..terminal.secret_input import read_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...clients.admin.access.tokens_admin import DelegationToken

delegation_tokens = App(
    help="Create, renew, expire and describe delegation tokens (temporary credentials).",
    no_args_is_help=True,
)

LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
HmacFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File whose first line is the token's HMAC; `-`: stdin. By default a prompt.",
        show_default=False,
    ),
]


@delegation_tokens.command()
def create(
    renewer_principal: Annotated[
        list[str],
        typer.Option(
            metavar="User:NAME", help="Principal that may renew and expire it, too; repeatable."
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    owner_principal: Annotated[
        str | None,
        typer.Option(
            metavar="User:NAME", help="Owner of the token; by default you.", show_default=False
        ),
    ] = None,
    max_life_time_period: Annotated[
        int,
        typer.Option(
            min=-1,
            metavar="MS",
            help="Maximum lifetime in ms; -1: delegation.token.max.lifetime.ms of the brokers.",
        ),
    ] = -1,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Create a token, and show its HMAC, which is the password."""
    from ...clients.admin.admin import Admin

    for each in (*renewer_principal, *filter(None, [owner_principal])):
        _check_principal(each)
    with Admin(bootstrap_servers(bootstrap)) as admin:
        made = admin.create_delegation_token(
            renewers=renewer_principal,
            owner=owner_principal,
            max_lifetime_ms=max_life_time_period,
        )
    if as_json:
        print_json(_as_json(made, with_hmac=True))
        return
    _print([made])
    typer.echo(f"HMAC {made.hmac_as_base64_string}")
    note(
        f"log in with it by SCRAM: sasl.jaas.config={LOGIN_MODULE} required "
        f'username="{made.token_info.token_id}" password="HMAC" tokenauth="true";'
    )


@delegation_tokens.command()
def renew(
    hmac_file: HmacFile = None,
    renew_time_period: Annotated[
        int,
        typer.Option(
            min=-1,
            metavar="MS",
            help="Time in ms until it expires; -1: delegation.token.expiry.time.ms of the brokers.",
        ),
    ] = -1,
    bootstrap: Bootstrap = None,
) -> None:
    """Extend the expiry time of a token, up to its maximum lifetime."""
    from ...clients.admin.admin import Admin

    servers, hmac = bootstrap_servers(bootstrap), _hmac(hmac_file)
    with Admin(servers) as admin:
        expiry = admin.renew_delegation_token(hmac, renew_time_period_ms=renew_time_period)
    note(f"the token is valid until {show_time(expiry)}")


@delegation_tokens.command()
def expire(
    hmac_file: HmacFile = None,
    expiry_time_period: Annotated[
        int, typer.Option(min=-1, metavar="MS", help="Time in ms until it expires; -1: at once.")
    ] = -1,
    bootstrap: Bootstrap = None,
) -> None:
    """Expire a token, at once or later. Its connections last until their sessions end
    (`connections.max.reauth.ms`).
    """
    from ...clients.admin.admin import Admin

    servers, hmac = bootstrap_servers(bootstrap), _hmac(hmac_file)
    with Admin(servers) as admin:
        expiry = admin.expire_delegation_token(hmac, expiry_time_period_ms=expiry_time_period)
    if expiry_time_period < 0:
        note("the token is expired")
    else:
        note(f"the token is valid until {show_time(expiry)}")


@delegation_tokens.command()
def describe(
    owner_principal: Annotated[
        list[str], typer.Option(metavar="User:NAME", help="Only tokens of this owner; repeatable.")
    ] = [],  # noqa: B006 -- as above
    show_hmac: Annotated[bool, typer.Option("--show-hmac", help="Show HMACs, too.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the tokens that you may describe."""
    from ...clients.admin.admin import Admin

    for each in owner_principal:
        _check_principal(each)
    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = admin.describe_delegation_token(owner_principal or None)
    if as_json:
        print_json([_as_json(each, with_hmac=show_hmac) for each in found])
    elif not found:
        note("there are no tokens; `bradbury delegation-tokens create` creates one")
    else:
        _print(found)
        for token in found if show_hmac else ():
            typer.echo(f"HMAC of {token.token_info.token_id}: {token.hmac_as_base64_string}")


def _print(tokens: Sequence[DelegationToken]) -> None:
    print_table(
        ("token", "owner", "requester", "renewers", "issued", "expires", "ends"),
        [
            (
                each.token_info.token_id,
                each.token_info.owner,
                each.token_info.token_requester,
                ",".join(each.token_info.renewers) or "-",
                show_time(each.token_info.issue_timestamp),
                show_time(each.token_info.expiry_timestamp),
                show_time(each.token_info.max_timestamp),
            )
            for each in tokens
        ],
        optional=("requester", "issued", "renewers", "ends"),
    )


def _as_json(token: DelegationToken, *, with_hmac: bool) -> dict[str, object]:
    information = token.token_info
    return {
        "token_id": information.token_id,
        "owner": information.owner,
        "requester": information.token_requester,
        "renewers": list(information.renewers),
        "issue_timestamp": information.issue_timestamp,
        "expiry_timestamp": information.expiry_timestamp,
        "max_timestamp": information.max_timestamp,
    } | ({"hmac": token.hmac_as_base64_string} if with_hmac else {})


def _check_principal(text: str) -> None:
    kind, _, name = text.partition(":")
    if not kind or not name:
        raise UsageError(f"{text!r} is not a principal; use User:{text}")


def _hmac(file: Path | None) -> bytes:
    text = read_secret("token's HMAC", "HMAC of the token", file).strip()
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise UsageError("the token's HMAC has to be base64, as it was shown") from None
