r"""A file of security settings, as Kafka's own tools take it with --command-config.

    security.protocol=SASL_SSL
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kafka/ca.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.username=alice
    sasl.password=secret

Lines as in Java's properties (java_properties): `\\` is one backslash, and `\n` a line break, as in
PEM. Values may be references (security_options): a file with `${env:KAFKA_PASSWORD}` is the same on
every machine, and has no secret. Settings that make a Kafka client do what this one always does are
accepted with the value that does so (ALWAYS), so that one file serves both.

Not here: the choice of the file for a client without settings of its own (discovery/client_config).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from ...discovery.client_config import find_client_config
from ...protocol.errors import InvalidConfig
from ...protocol.security.gssapi import refuse_gssapi
from .java_properties import read_lines, unescape
from .security_options import NAMES, ClientSecurity, SecurityOptions

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_PROVIDER: Final = "org.apache.kafka.common.config.provider"
PROVIDERS: Final = {
    "file": f"{_PROVIDER}.FileConfigProvider",
    "dir": f"{_PROVIDER}.DirectoryConfigProvider",
    "env": f"{_PROVIDER}.EnvVarConfigProvider",
}
"""Kafka's classes that look up references, by the kind of reference."""
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
OAUTH_HANDLER: Final = f"{_OAUTH}.OAuthBearerLoginCallbackHandler"
CONFIG_PROVIDERS: Final = "config.providers"
ALWAYS: Final = {
    LOGIN_HANDLER: (OAUTH_HANDLER, f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler"),
    **{f"{CONFIG_PROVIDERS}.{kind}.class": (name,) for kind, name in PROVIDERS.items()},
}
"""Values of Kafka's settings that ask for what this client does without them."""


def default_security(servers: str, namespace: str) -> ClientSecurity:
    """Security settings found for the brokers at `servers` (discovery/client_config), or none.

    Raises:
        InvalidConfig: the file cannot be used.
    """
    path = find_client_config(servers, namespace)
    return read_client_config(path) if path else ClientSecurity()


def read_client_config(path: str | os.PathLike[str]) -> ClientSecurity:
    """Raises:
    InvalidConfig: there is no such file, or something in it is no security setting.
    """
    options = read_client_options(path)
    try:
        return ClientSecurity.from_options(options)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from None


def read_client_options(path: str | os.PathLike[str]) -> SecurityOptions:
    """Settings of the file, by the names of SecurityOptions; not checked together.

    Raises:
        InvalidConfig: there is no such file, or something in it is no security setting.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidConfig(f"{path}: the client configuration cannot be read: {reason}") from None
    options: Any = {}
    for number, line in read_lines(text):
        name, separator, value = line.partition("=")
        name, value = name.strip(), unescape(value).strip()
        key = name.replace(".", "_")
        if not separator:
            # The line is not shown, as it may be the rest of a password.
            raise InvalidConfig(f"{path}: line {number} is not `name=value`")
        try:
            refuse_gssapi({name: value})
        except InvalidConfig as error:
            raise InvalidConfig(f"{path}: {error}") from None
        if _is_always(name, value, path):
            continue
        if key not in NAMES:
            raise InvalidConfig(
                f"{path}: {name} is not a security setting; use security.protocol, ssl.* and sasl.*"
            )
        options[key] = value
    typed: SecurityOptions = options
    return typed


def _is_always(name: str, value: str, path: str | os.PathLike[str]) -> bool:
    """Whether the setting is one of ALWAYS. Raises InvalidConfig: it is, with another value."""
    allowed = ALWAYS.get(name, ())
    if name == CONFIG_PROVIDERS:
        given, allowed = {each.strip() for each in value.split(",")}, tuple(PROVIDERS)
    else:
        given = {value}
    if allowed and not given.issubset(allowed):
        raise InvalidConfig(
            f"{path}: {name}={value} is not available here; use {' or '.join(allowed)}"
        )
    return bool(allowed)
