"""Authorization errors, explained to users: the missing right, and the command that grants it."""

from __future__ import annotations

import os
from typing import Final

RESOURCES: Final = {
    "TOPIC_AUTHORIZATION_FAILED": ("topic", "--topic NAME"),
    "GROUP_AUTHORIZATION_FAILED": ("group", "--group NAME"),
    "CLUSTER_AUTHORIZATION_FAILED": ("cluster", "--cluster"),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": ("transactional id", "--transactional-id NAME"),
}
"""The resource, and its option of `bradbury acls add`, by the name of Kafka's error."""
NO_AUTHORIZER: Final = "SECURITY_DISABLED"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def with_remedy(code: str | None, text: str) -> str:
    """Add the missing right and the command that grants it to `text`, of the Kafka error `code`."""
    if code == NO_AUTHORIZER:
        return (
            f"{text.rstrip('.')}: this cluster has no ACLs; start it with `bradbury up --secure`, "
            f"or with --config authorizer.class.name={AUTHORIZER}"
        )
    if code is None or code not in RESOURCES:
        return text
    resource, option = RESOURCES[code]
    what = text.replace(code, f"{resource} authorization failed").rstrip(".")
    user = _user_name()
    who = "the user of this command" if user is None else f"user {user!r}"
    return (
        f"{what[0].upper()}{what[1:]}: {who} lacks a right on the {resource}; an administrator "
        f"gives it with `bradbury acls add --allow-principal User:{user or 'NAME'} {option} "
        "--operation OPERATION` (or --producer --topic NAME, --consumer --topic NAME --group NAME)"
    )


def _user_name() -> str | None:
    """Name of the user in the file of --client-config; None if there is none."""
    from ...clients.security.client_config_file import read_client_options
    from ...discovery.state_file import CLIENT_CONFIG_VARIABLE
    from ...protocol.errors import InvalidConfig
    from ...protocol.security.jaas import parse_jaas

    path = os.environ.get(CLIENT_CONFIG_VARIABLE)
    if not path:
        return None
    try:
        options = read_client_options(path)
        jaas = options.get("sasl_jaas_config")
        return options.get("sasl_username") or (
            parse_jaas(jaas).options.get("username") if jaas else None
        )
    except InvalidConfig:
        return None
