"""Avro and Protobuf values -> Arrow, with the libraries of these formats.

    avro        schemaless values (no container, no registry's header) of one Avro schema
    protobuf    messages of one generated class

What always holds:
    The Arrow type follows from the schema alone, so blocks that are decoded apart agree.
    A value that is not of the schema is named by its place.

These libraries decode value by value; everything else of a read is by the batch.

Types: Avro's record is a struct, enum a string, a union of null and one other that other, nullable;
Protobuf's message is a struct, enum a string (its number if it has no name), map a map; a message
field that is not set is null, a scalar one has its default.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from ...discovery.extras import install_command


class NotOfSchema(ValueError):
    """Value number `place` is not what the schema says."""

    def __init__(self, place: int, reason: object) -> None:
        super().__init__(str(reason))
        self.place = place


class AvroValues:
    """Raises ValueError for what is no Avro schema, or has a union of several types."""

    def __init__(self, schema: Mapping[str, Any] | str) -> None:
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except ValueError as error:
                raise ValueError(f"value_schema is no Avro schema in JSON: {error}") from None
        fastavro = _fastavro()
        try:
            self._schema = fastavro.parse_schema(schema)
            self.type = _avro_type(self._schema, {})
        except _refusals(fastavro) as error:
            reason = str(error) or type(error).__name__
            raise ValueError(f"value_schema is no Avro schema: {reason}") from None

    def decode(self, values: pa.Array) -> pa.Array:
        read, schema = _fastavro().schemaless_reader, self._schema

        def one(value: bytes) -> Any:
            stream = io.BytesIO(value)
            found = read(stream, schema, None)
            if stream.tell() != len(value):
                raise ValueError(f"{len(value) - stream.tell()} bytes are left over")
            return found

        return _decoded(values, one, self.type)


class ProtobufValues:
    """Of a class that protoc has generated. Raises ValueError for anything else."""

    def __init__(self, message: Any) -> None:
        if not hasattr(message, "DESCRIPTOR") or not hasattr(message, "FromString"):
            raise ValueError("value_schema must be a class that protoc has generated")
        self._message = message
        self.type = _message_type(message.DESCRIPTOR, ())

    def decode(self, values: pa.Array) -> pa.Array:
        parse = self._message.FromString
        return _decoded(values, lambda value: _message_row(parse(value)), self.type)


def _decoded(values: pa.Array, one: Callable[[bytes], Any], of_type: pa.DataType) -> pa.Array:
    rows = []
    for place, value in enumerate(values.to_pylist()):
        try:
            rows.append(None if value is None else one(value))
        except Exception as error:
            raise NotOfSchema(place, str(error) or type(error).__name__) from error
    return pa.array(rows, of_type)


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError:
        raise ValueError(
            f"value_decoder='avro' needs fastavro, which is missing: {install_command('avro')}"
        ) from None
    return fastavro


def _refusals(fastavro: Any) -> tuple[type[Exception], ...]:
    schema = fastavro.schema
    return schema.SchemaParseException, schema.UnknownType, KeyError, TypeError


# --- types -------------------------------------------------------------------------------------

_AVRO: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_AVRO_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "uuid": pa.string(),
}


def _avro_type(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise ValueError(
                f"value_schema has a union of {len(others)} types; columns have one type each: "
                "use null and one other"
            )
        return _avro_type(others[0], named)
    if isinstance(schema, str):
        if schema in _AVRO:
            return _AVRO[schema]
        if schema in named:
            return named[schema]
        raise ValueError(f"value_schema names {schema!r} within itself, or nowhere")
    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[logical]
    found: pa.DataType
    match schema["type"]:
        case "record" | "error":
            found = pa.struct(
                [(each["name"], _avro_type(each["type"], named)) for each in schema["fields"]]
            )
        case "array":
            found = pa.list_(_avro_type(schema["items"], named))
        case "map":
            found = pa.map_(pa.string(), _avro_type(schema["values"], named))
        case "fixed":
            found = pa.binary(schema["size"])
        case other:
            found = _avro_type(other, named)
    if "name" in schema:
        named[schema["name"]] = found
    return found


def _message_type(descriptor: Any, within: tuple[str, ...]) -> pa.DataType:
    if descriptor.full_name in within:
        raise ValueError(f"message {descriptor.full_name} contains itself; columns cannot")
    within = (*within, descriptor.full_name)
    return pa.struct([(each.name, _field_type(each, within)) for each in descriptor.fields])


def _field_type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_name.values()
        return pa.map_(_single_type(key, within), _single_type(value, within))
    found = _single_type(field, within)
    return pa.list_(found) if _is_repeated(field) else found


def _single_type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        return _message_type(field.message_type, within)
    types = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.uint32(),
        field.CPPTYPE_UINT64: pa.uint64(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
    }
    if field.cpp_type == field.CPPTYPE_STRING:
        return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    return types[field.cpp_type]


def _message_row(message: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if _is_map(field):
            value_field = field.message_type.fields_by_name["value"]
            found: Any = [
                (key, _value(value_field, value))
                for key, value in getattr(message, field.name).items()
            ]
        elif _is_repeated(field):
            found = [_value(field, each) for each in getattr(message, field.name)]
        elif field.has_presence and not message.HasField(field.name):
            found = None
        else:
            found = _value(field, getattr(message, field.name))
        row[field.name] = found
    return row


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _message_row(value)
    if field.cpp_type == field.CPPTYPE_ENUM:
        name = field.enum_type.values_by_number.get(value)
        return str(value) if name is None else name.name
    return value


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _is_map(field: Any) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)
