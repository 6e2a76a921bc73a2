"""How a message class says what it looks like on the wire, at every version at once.

One dataclass stands for all versions of a Kafka message: a field that a version does not have is
neither read nor written there and keeps its default, as in Kafka's own generated classes. The
classes in messages/ are generated from Kafka's schemas by message_generator.py; codec.py compiles
a reader and a writer for each (class, version) on first use.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar
from uuid import UUID

ZERO_UUID = UUID(int=0)

Versions = tuple[int, int]
"""First and last version, both inclusive."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The wire side of one field.

    kind: int8 int16 int32 int64 uint16 uint32 float64 bool string bytes records uuid, or struct.
    struct: the element's class, a subclass of Struct, if kind is struct.
    nullable: the versions in which null is a distinct value.
    tag: the tagged-field number (flexible versions only), or None.
    """

    kind: str
    versions: Versions
    array: bool = False
    struct: Any = None
    nullable: Versions | None = None
    tag: int | None = None


def wire(
    kind: str | type[Struct],
    versions: Versions,
    *,
    array: bool = False,
    nullable: Versions | None = None,
    tag: int | None = None,
    default: Any = MISSING,
    secret: bool = False,
) -> Any:
    """A dataclass field with its wire form; arrays default to an empty list.

    secret: never shown, so that no log can have it.
    """
    struct = None if isinstance(kind, str) else kind
    metadata = {
        "wire": Wire(
            kind if isinstance(kind, str) else "struct", versions, array, struct, nullable, tag
        )
    }
    if default is not MISSING:
        return field(default=default, metadata=metadata, repr=not secret)
    if array:
        return field(default_factory=list, metadata=metadata)
    assert struct is not None, "a plain field needs a default"
    return field(default_factory=struct, metadata=metadata)


class Struct:
    """Base of everything that has wire fields."""

    __slots__ = ()


class Message(Struct):
    """A request or response body.

    FLEXIBLE is the first version with compact lengths and tagged fields (KIP-482).
    """

    __slots__ = ()
    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[int]
