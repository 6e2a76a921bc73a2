"""Settings under the names of 0.7, as in a properties file, for the two config classes.

What always holds: a name is acted on or refused, never ignored. What is gone says why, and what
there is instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ....protocol.errors import InvalidConfig

Parse = Callable[[object], object]
Names = Mapping[str, tuple[str, Parse]]
"""Name in 0.7 -> (field, how its value is read)."""

ZOOKEEPER_GONE: Final = (
    "there is no ZooKeeper; brokers are found by bootstrap.servers, by the environment's "
    "BRADBURY_BOOTSTRAP, or inside Ray by themselves"
)


def read_properties(
    properties: Mapping[str, object], names: Names, gone: Mapping[str, str]
) -> dict[str, Any]:
    """The fields that `properties` set.

    Raises:
        InvalidConfig: an unknown or a gone name, or a value of the wrong kind.
    """
    fields: dict[str, Any] = {}
    for name, value in properties.items():
        if name in names:
            field, parse = names[name]
            try:
                fields[field] = parse(value)
            except ValueError as error:
                raise InvalidConfig(f"{name}={value!r}: {error}") from None
        elif name in gone or name.startswith("zk."):
            raise InvalidConfig(f"{name} is gone: {gone.get(name, ZOOKEEPER_GONE)}")
        else:
            raise InvalidConfig(f"unknown setting {name!r}; there are {', '.join(sorted(names))}")
    return fields


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("use a text")
    return value


def integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("use a whole number") from None


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError("use true or false")
    return value == "true"


def name_list(value: object) -> tuple[str, ...]:
    """The names in "a,b" or in a list."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError("use names, separated by commas")
    return tuple(one.strip() for one in value if one.strip())


def check_at_least(config: object, least: int, *fields: str) -> None:
    """Raises InvalidConfig: one of the fields is less."""
    for field in fields:
        value = getattr(config, field)
        if value < least:
            raise InvalidConfig(f"{field} is at least {least}, not {value}")
