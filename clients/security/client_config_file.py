r"""A file of security settings, as Kafka's own tools take it with --command-config.

    security.protocol=SASL_SSL
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kafka/ca.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.username=alice
    sasl.password=secret

Lines as in Java's properties: `#` and `!` begin a comment, a line that ends with `\` goes on in the
next. Values may be references (security_options): a file with `${env:KAFKA_PASSWORD}` is the same
on every machine, and has no secret.

Not here: the choice of the file for a client without settings of its own (discovery/client_config).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...discovery.client_config import find_client_config
from ...protocol.errors import InvalidConfig
from ...protocol.security.gssapi import refuse_gssapi
from .security_options import NAMES, ClientSecurity, SecurityOptions


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
    for number, line in _lines(text):
        name, separator, value = (part.strip() for part in line.partition("="))
        key = name.replace(".", "_")
        if not separator:
            # The line is not shown, as it may be the rest of a password.
            raise InvalidConfig(f"{path}: line {number} is not `name=value`")
        try:
            refuse_gssapi({name: value})
        except InvalidConfig as error:
            raise InvalidConfig(f"{path}: {error}") from None
        if key not in NAMES:
            raise InvalidConfig(
                f"{path}: {name} is not a security setting; use security.protocol, ssl.* and sasl.*"
            )
        options[key] = value
    typed: SecurityOptions = options
    return typed


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, without comments; continued lines are joined."""
    line = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line += raw.strip()
        if line[:1] in ("", "#", "!"):
            line = ""
        elif line.endswith("\\"):
            line = line[:-1]
        else:
            yield number, line
            line = ""
