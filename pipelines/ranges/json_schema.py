"""JSON Schema -> the Arrow schema of the objects' fields.

    string, also with a format or an enum     string        integer   int64
    boolean                                   bool          number    double
    array, with items of one type             list          object    struct of its properties
    null beside one other type                that type; every column may be null anyway

`$ref` points into the schema itself ("#/definitions/Gate", "#/$defs/Gate") or to a reference of a
registered schema. A property without a single type (several types by oneOf, objects with any names)
is refused with its path; value_schema then says which fields to read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from ...clients.schemas.registered_schema import RegisteredSchema

_SINGLE: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_REMEDY: Final = "give the fields as value_schema, a pyarrow.schema"


def arrow_fields(registered: RegisteredSchema) -> pa.Schema:
    """Arrow schema of the objects. Raises ValueError: a property has no single type."""
    documents = {
        name: json.loads(each.schema)
        for name, each in (*registered.all_references(), ("", registered))
    }
    found = _Types(documents).of(documents[""], "", "$", ())
    if not pa.types.is_struct(found):
        raise ValueError(
            f"the JSON Schema with id {registered.schema_id} is one of {found}, and values are "
            "objects here; read them with value_decoder='raw'"
        )
    return pa.schema(list(found))


class _Types:
    """Arrow types of the parts of a schema.

    documents: contents by the names that `$ref` uses; "" is the schema itself.
    """

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def of(self, schema: Any, document: str, path: str, within: tuple[str, ...]) -> pa.DataType:
        """Type of a part. within: references that led to it, to detect recursive schemas."""
        if not isinstance(schema, Mapping):
            raise ValueError(  # noqa: TRY004 -- one kind of error for whatever is wrong with it
                f"JSON Schema: {path} may be anything; {_REMEDY}"
            )
        if "$ref" in schema:
            return self._referenced(str(schema["$ref"]), document, path, within)
        for name in ("oneOf", "anyOf"):
            if name in schema:
                others = [each for each in schema[name] if each != {"type": "null"}]
                if len(others) != 1:
                    raise ValueError(
                        f"JSON Schema: {path} has {len(others)} types by {name}; {_REMEDY}"
                    )
                return self.of(others[0], document, path, within)
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [each for each in kind if each != "null"]
            kind = kinds[0] if len(kinds) == 1 else kind
        if kind is None:
            kind = _kind_without_type(schema)
        if kind == "object":
            properties = schema.get("properties")
            if not properties:
                raise ValueError(
                    f"JSON Schema: {path} is an object that names no properties; {_REMEDY}"
                )
            return pa.struct(
                [
                    (name, self.of(each, document, f"{path}.{name}", within))
                    for name, each in properties.items()
                ]
            )
        if kind == "array":
            return pa.list_(self.of(schema.get("items"), document, f"{path}[]", within))
        if not isinstance(kind, str) or kind not in _SINGLE:
            raise ValueError(f"JSON Schema: {path} is of the type {kind!r}; {_REMEDY}")
        return _SINGLE[kind]

    def _referenced(
        self, reference: str, document: str, path: str, within: tuple[str, ...]
    ) -> pa.DataType:
        name, _, pointer = reference.partition("#")
        target = name or document
        key = f"{target}#{pointer}"
        if key in within:
            raise ValueError(f"JSON Schema: {path} contains itself; columns cannot")
        found = self._documents.get(target)
        for step in filter(None, pointer.split("/")):
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        if found is None:
            raise ValueError(
                f"JSON Schema: {path} refers to {reference!r}, which is not in the schema nor "
                f"among its references; {_REMEDY}"
            )
        return self.of(found, target, path, (*within, key))


def _kind_without_type(schema: Mapping[str, Any]) -> Any:
    """Type that follows from properties, enum or const, if there is one."""
    if "properties" in schema:
        return "object"
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return "string" if values and all(isinstance(each, str) for each in values) else None
