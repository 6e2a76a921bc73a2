"""Decoders of record values to typed columns, a whole chunk at a time.

    raw     value: binary, as it is
    utf8    value: string
    json    value: struct of the fields of `value_schema`; each value is one JSON object
    avro    value: of the type of the Avro schema `value_schema`; protobuf: of its class
    arrow   each value is an Arrow IPC stream, whose columns and rows replace the value; the
                other columns are repeated for each row
    a function of a pyarrow binary array that returns an array of the same length

With a schema registry the values of json, avro and protobuf begin with the ids of the schemas that
they were written with (registry_values).

A value that cannot be decoded fails the read and is named by its partition and offset, as far as
the decoder says which it is. A null value (a tombstone) is null, with arrow no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...clients.schemas.registered_schema import SCHEMA_TYPES
from ...protocol.columns.columns import DecodedBatches
from .registry_values import RegistryValues, SchemaValues, latest_schema, schema_values
from .schema_values import NotOfSchema

Decoder = Callable[[Any], Any]
NAMES: Final = ("raw", "utf8", "json", "avro", "protobuf", "arrow")
_SCHEMAS: Final = {
    "json": "a pyarrow.schema of the objects' fields: blocks that are decoded apart must have the "
    "same columns",
    "avro": "an Avro schema",
    "protobuf": "the class that protoc has generated",
}


class UndecodableValue(ValueError):
    """A value cannot be decoded by `value_decoder`."""


class ValueDecoder:
    """Decoder of the column `value`.

    schema: for json a pyarrow.Schema of the fields, for avro an Avro schema (a dict, or its JSON),
        for protobuf the generated class; for all of them what a registry has
        (RegisteredSchema). None, with a registry: the latest of the subject TOPIC-value of
        `topics`. It is requested here once, and is part of this object when it is pickled.
    registry: URL of the schema registry whose ids the values begin with; None: they have none.
    """

    def __init__(
        self,
        decoder: str | Decoder,
        schema: Any = None,
        *,
        registry: str | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        """Raises ValueError for a name that there is not, or a schema without need, or missing.

        RegistryFailed, NotInRegistry: the latest schema of the topics cannot be had.
        """
        if isinstance(decoder, str) and decoder not in NAMES:
            raise ValueError(
                f"value_decoder is {decoder!r}; use {', '.join(map(repr, NAMES))} or a function"
            )
        if decoder not in SCHEMA_TYPES and (schema is not None or registry is not None):
            given = "value_schema" if schema is not None else "schema_registry"
            raise ValueError(f"{given} is for value_decoder='json', 'avro' or 'protobuf'")
        if registry is not None and schema is None and topics:
            schema = latest_schema(registry, str(decoder), topics)
        if decoder in SCHEMA_TYPES and schema is None:
            raise ValueError(
                f"value_decoder={decoder!r} needs value_schema, {_SCHEMAS[str(decoder)]}; or "
                "schema_registry, where one has the schemas"
            )
        self._decoder = decoder
        self._schema = schema
        self._registry = registry
        self._values: SchemaValues | RegistryValues | None = None
        if isinstance(decoder, str) and decoder in SCHEMA_TYPES:
            self._values = schema_values(decoder, schema)
            if registry is not None:
                self._values = RegistryValues(decoder, self._values, registry)

    def __getstate__(self) -> dict[str, Any]:
        """What is made of the schema is made again where it is needed."""
        return {"decoder": self._decoder, "schema": self._schema, "registry": self._registry}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ValueDecoder.__init__(self, **state)

    @property
    def repeats_rows(self) -> bool:
        """Whether one value may become several rows, or none."""
        return self._decoder == "arrow"

    def type_of(self, raw: pa.DataType) -> pa.DataType | None:
        """Type of the column `value`; None: it depends on the values."""
        match self._decoder:
            case "raw":
                return raw
            case "utf8":
                return pa.string()
        return None if self._values is None else self._values.type

    def decode(self, table: pa.Table, decoded: DecodedBatches) -> pa.Table:
        """`table` with its column `value` decoded; unchanged if it has none."""
        if "value" not in table.column_names or self._decoder == "raw":
            return table
        if self._decoder == "arrow":
            with _named(self._decoder, decoded):
                return _with_streams(table, decoded.values)
        column = self.column(decoded)
        if len(column) != len(table):
            raise ValueError(
                f"value_decoder returned {len(column)} rows for {len(table)} values; it must "
                "return an array of the same length"
            )
        place = table.column_names.index("value")
        return table.set_column(place, "value", column)

    def column(self, decoded: DecodedBatches) -> pa.Array:
        """Decoded values; not for the decoder `arrow`, whose values have several rows.

        Raises:
            UndecodableValue: a value cannot be decoded.
        """
        values = decoded.values
        with _named(self._decoder, decoded):
            match self._decoder:
                case "raw":
                    return values
                case "utf8":
                    return values.cast(pa.string())
            if self._values is not None:
                return self._values.decode(values)
            assert callable(self._decoder)
            return self._decoder(values)


@contextmanager
def _named(decoder: str | Decoder, decoded: DecodedBatches) -> Iterator[None]:
    """Turns decoding errors into UndecodableValue, which names partition and offset."""
    try:
        yield
    except NotOfSchema as error:
        raise UndecodableValue(
            f"the value of {decoded.topic}-{decoded.partition} at offset "
            f"{decoded.offsets[error.place]} is not {decoder}: {error}"
        ) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UndecodableValue(
            f"a value of {decoded.topic}-{decoded.partition} between the offsets "
            f"{decoded.offsets[0]} and {decoded.offsets[-1]} is not {decoder}: {error}"
        ) from error


def _with_streams(table: pa.Table, values: pa.Array) -> pa.Table:
    """Table with the rows of the streams; each value is read on its own, as each has many rows."""
    tables = [
        _stream(place, value.as_buffer()) if value.is_valid else None
        for place, value in enumerate(values)
    ]
    rows = np.repeat(np.arange(len(values)), [0 if each is None else len(each) for each in tables])
    found = [each for each in tables if each is not None]
    if not found:
        return table.drop_columns(["value"]).slice(0, 0)
    streams = pa.concat_tables(found, promote_options="default")
    others = table.drop_columns(["value"])
    if not others.column_names:
        return streams
    repeated = others.take(pa.array(rows))
    for field in streams.schema:
        if field.name in repeated.column_names:
            raise ValueError(
                f"the values have a column {field.name!r}, as the records do; leave it out with "
                "columns=[...]"
            )
        repeated = repeated.append_column(field, streams.column(field.name))
    return repeated


def _stream(place: int, content: pa.Buffer) -> pa.Table:
    """Validated table of a stream: unvalidated offsets beyond a buffer may crash the process."""
    try:
        table = pa.ipc.open_stream(content).read_all()
        table.validate(full=True)
        for field in table.schema:
            _check_names(field)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise NotOfSchema(place, error) from error
    return table


def _check_names(field: pa.Field) -> None:
    """Check field names, which `validate` does not. Raises UnicodeDecodeError."""
    _ = field.name
    of_type = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    for number in range(of_type.num_fields):
        _check_names(of_type.field(number))
