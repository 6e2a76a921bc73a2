"""Settings by their names in 0.7, as in a properties file, for the two config classes.

Invariants: a setting is applied or refused, never ignored. The error for a removed setting
has the reason or the replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ....protocol.errors import InvalidConfig

Parse = Callable[[object], object]
Names = Mapping[str, tuple[str, Parse]]
"""Field and parser of each setting, by its name in 0.7."""

ZOOKEEPER_GONE: Final = (
    "there is no ZooKeeper; brokers are found by bootstrap.servers, by the environment variable "
    "BRADBURY_BOOTSTRAP, or in the Ray cluster"
)


def read_properties(
    properties: Mapping[str, object], names: Names, gone: Mapping[str, str]
) -> dict[str, Any]:
    """Parse `properties` to values by field name.

    Raises:
        InvalidConfig: an unknown or removed setting, or a value of the wrong type.
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
            raise InvalidConfig(f"{name} is not supported: {gone.get(name, ZOOKEEPER_GONE)}")
        else:
            raise InvalidConfig(f"unknown setting {name!r}; use one of {', '.join(sorted(names))}")
    return fields


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a string")
    return value


def integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("expected an integer") from None


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError("expected true or false")
    return value == "true"


def name_list(value: object) -> tuple[str, ...]:
    """Parse the names in "a,b" or in a list."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError("expected a string of names, separated by commas")
    return tuple(one.strip() for one in value if one.strip())


def check_at_least(config: object, least: int, *fields: str) -> None:
    """Raise InvalidConfig if one of the fields is less than `least`."""
    for field in fields:
        value = getattr(config, field)
        if value < least:
            raise InvalidConfig(f"{field}={value}: use at least {least}")
