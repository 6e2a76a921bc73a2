"""Schema file of `bradbury load --schema FILE`, which describes the values.

    avro    an Avro schema (.avsc), as it is
    json    the fields of the objects, in JSON, either with the names of their types,
                {"customer": "string", "total": "double", "items": [{"id": "long"}]}
            where a list of one type is an array and an object is a struct; or as Spark writes a
            schema (StructType.json()):
                {"type": "struct", "fields": [{"name": "customer", "type": "string", ...}, ...]}

Names of types are Spark's (long, integer, timestamp, decimal(10,2), ...) and Arrow's (int64, ...).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from .schema_values import AvroValues

_SPARK: Final[dict[str, pa.DataType]] = {
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Arrow types by Spark's names; string, float, double and binary have the same name in both."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def read_schema_file(file: Path, decoder: str) -> Any:
    """Read a file into the value_schema for value_decoder "json" or "avro".

    Raises:
        ValueError: the file cannot be read, or is no such schema.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the schema {file} cannot be read: {error}") from None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the schema {file} is not JSON: {error}") from None
    if decoder == "avro":
        AvroValues(content, name=f"the schema {file}")  # here, where its file is known
        return content
    try:
        found = _type(content, "the values")
    except ValueError as error:
        raise ValueError(f"the schema {file}: {error}") from None
    if not pa.types.is_struct(found):
        raise ValueError(
            f"the schema {file} is not an object; use the values' fields with their types, as "
            '{"customer": "string", "total": "double"}'
        )
    return pa.schema(list(found))


def _type(said: Any, place: str) -> pa.DataType:
    """Arrow type of a part of the schema. place: its path, for errors. Raises ValueError."""
    if isinstance(said, str):
        return _named(said, place)
    if isinstance(said, list) and len(said) == 1:
        return pa.list_(_type(said[0], f"{place}[]"))
    if not isinstance(said, dict) or not said:
        raise ValueError(
            f'{place} is {json.dumps(said)}; use the name of a type, ["a type"] for an array, or '
            "an object with fields"
        )
    match said:
        case {"type": "struct", "fields": list(fields)}:
            return pa.struct([_spark_field(field, place) for field in fields])
        case {"type": "array", "elementType": element}:
            return pa.list_(_type(element, f"{place}[]"))
        case {"type": "map", "keyType": key, "valueType": value}:
            return pa.map_(_type(key, f"{place}'s keys"), _type(value, f"{place}'s values"))
    return pa.struct([(name, _type(each, _within(place, name))) for name, each in said.items()])


def _spark_field(field: Any, place: str) -> pa.Field:
    match field:
        case {"name": str(name), "type": said}:
            return pa.field(name, _type(said, _within(place, name)))
    raise ValueError(f"{place} has a field without name and type: {json.dumps(field)}")


def _named(name: str, place: str) -> pa.DataType:
    wanted = name.strip().lower()
    if wanted in _SPARK:
        return _SPARK[wanted]
    try:
        if decimal := _DECIMAL.fullmatch(wanted):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        return pa.type_for_alias(wanted)
    except ValueError as error:
        raise ValueError(
            f"{place} has the type {name!r} ({error}); use string, long, integer, double, boolean, "
            "date, timestamp, decimal(10,2), binary, or Arrow's names"
        ) from None


def _within(place: str, name: str) -> str:
    return name if place == "the values" else f"{place}.{name}"
