"""Where a command finds the brokers: --bootstrap, or where clients find them."""

from __future__ import annotations

import typer


def bootstrap_servers(option: str | None) -> str:
    """The addresses to ask first, "host:port,...".

    Raises:
        typer.BadParameter: what is given, or said by the environment, is not an address.
        ConnectionFailed: nothing says where there is a cluster.
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
