"""Addresses of the brokers for a command: --bootstrap, or found as clients find them."""

from __future__ import annotations

import typer


def bootstrap_servers(option: str | None) -> str:
    """Bootstrap addresses, "host:port,...".

    Raises:
        typer.BadParameter: the option, or the environment variable, is not an address.
        ConnectionFailed: no option is given, and no cluster is found.
    """
    from ...clients.wire.bootstrap_servers import parse_servers
    from ...discovery.bootstrap import find_servers
    from ...discovery.state_file import default_namespace

    found = find_servers(option, default_namespace())
    try:
        parse_servers(found)
    except ValueError:
        raise typer.BadParameter(
            f"{found!r} is not an address; use --bootstrap host:port[,host:port]"
        ) from None
    return found
