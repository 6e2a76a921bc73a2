"""Checks before a start on Ray: listeners without authentication, and secrets in settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...actors.ray.placement import is_loopback
from ...actors.ray.secure_folder import FOLDER, NODE_FILE
from ...cluster.security.security_config import SecurityConfig, is_of_a_listener
from ...discovery.ray_errors import UpError
from ...discovery.ray_tokens import asks_for_token
from ...handlers.ports.server_config import ServerConfig, server_key, server_keys
from ...protocol.errors import InvalidConfig
from ...protocol.security.jaas import parse_jaas
from ...protocol.security.secret_reference import is_reference

REMEDY = (
    "use --secure (sets up TLS and passwords) or, where the network is private and trusted, "
    "--insecure"
)


def check_for_a_new_ray(
    config: Mapping[str, Any] | None,
    host: str | None,
    data_dir: str,
    *,
    secure: bool,
    insecure: bool,
) -> None:
    """Refuse settings that a start would refuse, before an embedded Ray is started in vain.

    data_dir: the first data directory, which has the keys of a secured cluster.

    Raises UpError, InvalidConfig.
    """
    settings = {str(key): str(value) for key, value in (config or {}).items()}
    check_secrets(settings)
    if secure:
        return  # incomplete without the settings that SecureCluster adds
    server = ServerConfig.from_kafka(settings)
    if insecure:
        return
    if host is not None:
        refuse_open_listeners(server.security, [host])
    refuse_secured_data(server.security, data_dir)


def refuse_open_listeners(
    security: SecurityConfig, addresses: Iterable[str], remedy: str = REMEDY
) -> None:
    """Raise UpError for listeners without authentication that other machines can reach."""
    unprotected = [each for each in security.listener_configs() if not each.authenticates]
    hosts = sorted({address for address in addresses if not is_loopback(address)})
    if unprotected and hosts:
        raise UpError(
            f"listener {unprotected[0].name} has no authentication, and all machines of the "
            f"network could reach it at {hosts[0]}: {remedy}"
        )


def refuse_ray_without_tokens() -> None:
    """Raise UpError if the connected Ray cluster asks nobody for a token."""
    if not asks_for_token():
        raise UpError(
            "this Ray cluster asks for no token, so whoever reaches its ports can run code on the "
            "nodes and read the keys of a secured cluster: start Ray with RAY_AUTH_MODE=token "
            "(`ray get-auth-token --generate` makes the token; every node needs it) or, where its "
            "network is private and trusted, add --insecure"
        )


def refuse_secured_data(security: SecurityConfig, data_dir: str) -> None:
    """Raise UpError for listeners without authentication on data that --secure has protected.

    Otherwise a forgotten --secure would serve the data of a secured cluster to everyone. Only the
    data directory of this machine is checked.
    """
    unprotected = [each for each in security.listener_configs() if not each.authenticates]
    if unprotected and (Path(data_dir) / FOLDER / NODE_FILE).exists():
        raise UpError(
            f"the data in {data_dir} is a secured cluster's, and listener {unprotected[0].name} "
            "would serve it without authentication: use --secure again or, if everyone who "
            "reaches the brokers may read and change it, --insecure"
        )


def check_secrets(config: Mapping[str, str]) -> None:
    """Raise InvalidConfig if a password or key is given in clear, not as a reference.

    The settings are sent to every node by Ray, which stores them in clear.
    """
    keys = server_keys()
    for name, value in config.items():
        key = server_key(name) if is_of_a_listener(name) else keys.get(name)
        if key is not None and key.is_sensitive and value and not _is_hidden(value):
            raise InvalidConfig(
                f"{name}: a secret would be kept in clear by Ray; give a reference that every node "
                "looks up, ${file:/path/of/a/file:key} or ${env:NAME}"
            )


def _is_hidden(value: str) -> bool:
    if is_reference(value):
        return True
    try:
        options = parse_jaas(value).options
    except InvalidConfig:
        return False
    return all(
        is_reference(option)
        for name, option in options.items()
        if name == "password" or name.startswith("user_")
    )
