"""A schema as a registry has it, with the schemas that it refers to. It travels by pickle."""

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
"""By the names of our value formats."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """What an id stands for.

    schema: JSON of Avro's or JSON Schema's; of Protobuf the file's descriptor in base64 or, where
        the registry has no such thing, the text of the .proto file.
    references: by the names that `schema` uses for them.
    """

    schema_id: int
    schema_type: SchemaType
    schema: str = field(repr=False)
    references: tuple[tuple[str, RegisteredSchema], ...] = ()

    def all_references(self) -> Iterator[tuple[str, RegisteredSchema]]:
        """Also those of references, each name once, and before what refers to it."""
        seen: set[str] = set()

        def walk(one: RegisteredSchema) -> Iterator[tuple[str, RegisteredSchema]]:
            for name, reference in one.references:
                if name not in seen:
                    yield from walk(reference)
                    if name not in seen:
                        seen.add(name)
                        yield name, reference

        yield from walk(self)
