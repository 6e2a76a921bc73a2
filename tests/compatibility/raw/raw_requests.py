"""Odd requests of every API and version: one thing at a time is wrong, extreme, missing or there twice.

Made from the sensible request of sample_requests: each field of it, however deep, gets the values
that a careless or hostile client would send. Both brokers of a comparison are sent the same ones.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from bradbury.protocol.schema import ZERO_UUID, Message, Struct, Wire

UNKNOWN_ID = UUID(int=0xBAD)
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
LONG = "x" * 300
TEXTS = ("no-such-name", "bad/name!", LONG)
"""Each gets a number, so that no two requests speak of the same unknown thing."""

# (API key, field): values that would take the broker itself away, or whose answer is a matter of luck.
LEFT_OUT = {
    (64, "broker_id"): (0, 1),
    (81, "voter_id"): (0, 1),
    # Kafka may just make it in a millisecond, or not.
    **{(key, "timeout_ms"): (1,) for key in (19, 20, 37, 43, 45)},
}


# Apache Kafka never answers these, nor anything that the connection asks after them.
NEVER_ANSWERED = {
    (0, "topic_data.partition_data.records null"),
    (11, "protocols twice"),
    (24, "transactions empty"),
    (27, "markers.topics twice"),
    (27, "markers.topics.partition_indexes twice"),
    (27, "markers.topics.partition_indexes[] 1"),  # which makes it there twice
    (33, "resources twice"),
}


@dataclass(frozen=True, slots=True)
class Oddity:
    """What is odd about a request, and the change that makes it so."""

    name: str
    change: Callable[[Any], None]

    def of(self, sensible: Message) -> Message:
        request = deepcopy(sensible)
        self.change(request)
        return request


def oddities(sensible: Message, version: int) -> Iterator[Oddity]:
    """Odd values in the order of the fields; the first element of a list represents all."""
    yield Oddity("as it should be", lambda request: None)
    for oddity in _below(sensible, version, (), sensible.API_KEY):
        if (sensible.API_KEY, oddity.name) not in NEVER_ANSWERED:
            yield oddity


def _below(at: Struct, version: int, path: tuple[Any, ...], api_key: int) -> Iterator[Oddity]:
    number = f"-n{api_key}-{version}-{'-'.join(map(str, path))}"
    for each in fields(at):  # type: ignore[arg-type]
        wire: Wire = each.metadata["wire"]
        if not wire.versions[0] <= version <= wire.versions[1]:
            continue
        value = getattr(at, each.name)
        here = (*path, each.name)
        for name, odd in _values(wire, value, version, f"{number}-{each.name}"):
            if odd in LEFT_OUT.get((api_key, each.name), ()):
                continue
            yield Oddity(f"{_spell(here)} {name}", _setter(here, odd))
        if wire.array and value:
            yield Oddity(f"{_spell(here)} twice", _doubler(here))
            if wire.struct is not None:
                yield from _below(value[0], version, (*here, 0), api_key)
            else:
                for name, odd in _plain_values(wire, value[0], f"{number}-{each.name}"):
                    yield Oddity(f"{_spell(here)}[] {name}", _setter((*here, 0), odd))
        elif wire.struct is not None and isinstance(value, Struct):
            yield from _below(value, version, here, api_key)


def _values(wire: Wire, value: Any, version: int, number: str) -> Iterator[tuple[str, Any]]:
    if wire.nullable and wire.nullable[0] <= version <= wire.nullable[1] and value is not None:
        yield "null", None
    if wire.array:
        if value:
            yield "empty", []
    elif wire.struct is None:
        yield from _plain_values(wire, value, number)


def _plain_values(wire: Wire, value: Any, number: str) -> Iterator[tuple[str, Any]]:
    odd: list[tuple[str, Any]] = []
    if wire.kind in INTEGERS:
        half = 1 << (INTEGERS[wire.kind] - 1)
        odd = [("lowest", -half), ("-1", -1), ("0", 0), ("1", 1), ("highest", half - 1)]
    elif wire.kind == "string":
        odd = [("''", "")]
        odd += [(f"{text!r}" if len(text) < 100 else "long", text + number) for text in TEXTS]
    elif wire.kind == "bool":
        odd = [(str(not value).lower(), not value)]
    elif wire.kind == "uuid":
        odd = [("zero", ZERO_UUID), ("unknown", UNKNOWN_ID)]
    elif wire.kind in ("bytes", "records") and value:
        odd = [
            ("empty", b""),
            ("cut short", bytes(value)[:-1]),
            ("a few bytes", bytes(value)[:20]),
            ("one bit wrong", bytes(value)[:-1] + bytes([bytes(value)[-1] ^ 1])),
            ("two of it", bytes(value) * 2),
        ]
    for name, each in odd:
        if each != value:
            yield name, each


def _spell(path: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in path if part != 0)


def _find(root: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        root = root[part] if isinstance(part, int) else getattr(root, part)
    return root


def _setter(path: tuple[Any, ...], value: Any) -> Callable[[Any], None]:
    def change(request: Any) -> None:
        owner, last = _find(request, path[:-1]), path[-1]
        if isinstance(last, int):
            owner[last] = value
        else:
            setattr(owner, last, value)

    return change


def _doubler(path: tuple[Any, ...]) -> Callable[[Any], None]:
    def change(request: Any) -> None:
        owner = _find(request, path[:-1])
        given = getattr(owner, path[-1])
        setattr(owner, path[-1], [*given, *deepcopy(given)])

    return change
