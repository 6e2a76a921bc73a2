"""A schema as a registry stores it, with the schemas that it refers to. It can be pickled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
SCHEMA_TYPES: Final[dict[str, SchemaType]] = {
    "avro": "AVRO",
    "json": "JSON",
    "protobuf": "PROTOBUF",
}
"""Types of the registry, by the names of our value formats."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """Schema that an id stands for.

    schema: for Avro and JSON Schema the schema's JSON; for Protobuf the descriptor of the file in
        base64, or the text of the .proto file where the registry has no descriptors.
    references: schemas that this one uses, with the names it has for them.
    """

    schema_id: int
    schema_type: SchemaType
    schema: str = field(repr=False)
    references: tuple[tuple[str, RegisteredSchema], ...] = ()

    def all_references(self) -> Iterator[tuple[str, RegisteredSchema]]:
        """All references, also indirect ones: each name once, before the schemas that use it."""
        seen: set[str] = set()

        def walk(one: RegisteredSchema) -> Iterator[tuple[str, RegisteredSchema]]:
            for name, reference in one.references:
                if name not in seen:
                    yield from walk(reference)
                    if name not in seen:
                        seen.add(name)
                        yield name, reference

        yield from walk(self)
