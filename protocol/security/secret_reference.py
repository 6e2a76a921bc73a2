"""References to secrets stored elsewhere: `${file:/run/secrets/broker:password}` or `${env:NAME}`.

Kafka's FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider (KIP-297, KIP-887). The
settings of a cluster, and those of a client in a task, are sent to other nodes by Ray or Spark, and
both store them in clear; a reference is resolved only on the node where the secret is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..errors import InvalidConfig

_REFERENCE: Final = re.compile(r"\$\{(file|dir|env):([^}]*?)(?::([^}:]*))?\}")


def is_reference(text: str) -> bool:
    """Whether the text is a reference and nothing else, so that it has no secret."""
    return bool(_REFERENCE.fullmatch(text.strip()))


def resolve(
    text: str, *, read: Callable[[str], str], environment: Callable[[str], str | None]
) -> str:
    """Replace the references in `text`. `read` returns the text of a file, or raises OSError.

    Raises:
        InvalidConfig: a secret cannot be found or read. The message names the place, no content.
    """

    def value(match: re.Match[str]) -> str:
        kind, place, key = match.groups()
        if kind == "env":
            found = environment(place)
            if found is None:
                raise InvalidConfig(
                    f"${{env:{place}}}: there is no such environment variable; it has to be set "
                    "where this is used"
                )
            return found
        if not key:
            raise InvalidConfig(
                f"{match.group()}: it has to name a file and a key in it; write ${{file:PATH:KEY}}"
            )
        path = f"{place}/{key}" if kind == "dir" else place
        try:
            content = read(path)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(
                f"{match.group()}: cannot be read ({error}); "
                "each machine that uses it needs the file"
            ) from None
        if kind == "dir":
            return content.strip("\n")
        found = _property(content, key)
        if found is None:
            raise InvalidConfig(f"{match.group()}: the file does not set {key}; add {key}=VALUE")
        return found

    return _REFERENCE.sub(value, text)


def _property(content: str, key: str) -> str | None:
    for line in content.splitlines():
        name, separator, value = line.partition("=")
        if separator and name.strip() == key:
            return value.strip()
    return None
