"""Declaration of a message class's wire format, for all versions at once.

One dataclass stands for all versions of a Kafka message: a field that a version does not have is
neither read nor written there and keeps its default, as in Kafka's own generated classes. The
classes in messages/ are generated from Kafka's schemas by message_generator.py; codec.py compiles
a reader and a writer for each (class, version) on first use.

A broker imports 280 of these classes and most processes use a tenth of them, so nothing is compiled
for a class before its first object is made: `dataclass` would compile three methods for each, which
took a quarter of the import time of the client, and of a broker's modules without Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform
from uuid import UUID

ZERO_UUID: Final = UUID(int=0)

Versions = tuple[int, int]
"""First and last version, both inclusive."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Wire format of one field.

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
    """Declare a dataclass field with its wire format; arrays default to an empty list.

    secret: not in the repr, so that it is never logged.
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
    """Base of all classes with wire fields. Equality and repr are those of dataclasses."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, *given: Any, **named: Any) -> None:
        """Make the class's own __init__, with all its fields, and call it."""
        cls = type(self)
        cls.__init__ = _compiled_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, *given, **named)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        names = [each.name for each in fields(self)]
        return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr
        )
        return f"{type(self).__qualname__}({shown})"


class Message(Struct):
    """A request or response body.

    FLEXIBLE is the first version with compact lengths and tagged fields (KIP-482).
    """

    __slots__ = ()
    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[int]


S = TypeVar("S", bound=Struct)


@dataclass_transform()
def wire_struct(cls: type[S]) -> type[S]:
    """Make a class whose fields are made by `wire` a dataclass with slots."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # else dataclass computes one, slowly
    return dataclass(init=False, repr=False, eq=False, match_args=False, slots=True)(cls)


def _compiled_init(cls: type[Struct]) -> Callable[..., None]:
    """Compile __init__ as `dataclass` makes it: by position or by name, each field with its
    default.
    """
    parameters, body = [], []
    known: dict[str, Any] = {"_MISSING": MISSING}
    for each in fields(cls):
        name = each.name
        if each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            parameters.append(f"{name}=_MISSING")
            body.append(f" self.{name} = _make_{name}() if {name} is _MISSING else {name}")
        else:
            known[f"_default_{name}"] = each.default
            parameters.append(f"{name}=_default_{name}")
            body.append(f" self.{name} = {name}")
    source = f"def __init__({', '.join(['self', *parameters])}):\n" + "\n".join(body or [" pass"])
    exec(source, known)  # noqa: S102 -- of field names, as dataclass does
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
