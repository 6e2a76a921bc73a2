"""Values of records -> typed columns, a whole chunk at a time.

    raw     value: binary, as it is
    utf8    value: string
    json    value: struct of the fields of `value_schema`; each value is one JSON object
    avro    value: as `value_schema`, an Avro schema, has it; protobuf: as its class has it
    arrow   each value is an Arrow IPC stream; its columns, and its rows, take the value's place:
            the other columns are repeated for each of them
    a function of a pyarrow binary array that returns an array of the same length

A value that cannot be decoded fails the read and is named by its partition and offset, as far as
the decoder says which it is. A null value (a tombstone) is null, with arrow no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.columns.columns import DecodedBatches
from ...protocol.columns.columns_arrow import constant_text, number_array
from .schema_values import AvroValues, NotOfSchema, ProtobufValues

Decoder = Callable[[Any], Any]
NAMES: Final = ("raw", "utf8", "json", "avro", "protobuf", "arrow")


class UndecodableValue(ValueError):
    """A value is not what `value_decoder` says."""


class ValueDecoder:
    """What becomes of the column `value`.

    schema: for json a pyarrow.Schema of the fields, for avro an Avro schema (a dict, or its JSON),
        for protobuf the generated class.
    """

    def __init__(self, decoder: str | Decoder, schema: Any = None) -> None:
        """Raises ValueError for a name that there is not, or a schema without need, or missing."""
        if isinstance(decoder, str) and decoder not in NAMES:
            raise ValueError(
                f"value_decoder is {decoder!r}; use {', '.join(map(repr, NAMES))} or a function"
            )
        if decoder == "json" and schema is None:
            raise ValueError(
                "value_decoder='json' needs value_schema, a pyarrow.schema of the objects' fields: "
                "blocks that are decoded apart must have the same columns"
            )
        if decoder in ("avro", "protobuf") and schema is None:
            raise ValueError(
                f"value_decoder={decoder!r} needs value_schema: "
                + ("an Avro schema" if decoder == "avro" else "the class that protoc has generated")
            )
        if schema is not None and decoder not in ("json", "avro", "protobuf"):
            raise ValueError("value_schema is for value_decoder='json', 'avro' or 'protobuf'")
        self._decoder = decoder
        self._schema = schema
        self._of_schema: AvroValues | ProtobufValues | None = None
        if decoder == "avro":
            self._of_schema = AvroValues(schema)
        elif decoder == "protobuf":
            self._of_schema = ProtobufValues(schema)

    def __getstate__(self) -> dict[str, Any]:
        """What is made of the schema is made again where it is needed."""
        return {"decoder": self._decoder, "schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ValueDecoder.__init__(self, **state)

    @property
    def repeats_rows(self) -> bool:
        """Whether one value may become several rows, or none."""
        return self._decoder == "arrow"

    def type_of(self, raw: pa.DataType) -> pa.DataType | None:
        """The type of the column `value`; None: not known before values are seen."""
        match self._decoder:
            case "raw":
                return raw
            case "utf8":
                return pa.string()
            case "json":
                assert self._schema is not None
                return pa.struct(list(self._schema))
        return None if self._of_schema is None else self._of_schema.type

    def decode(self, table: pa.Table, decoded: DecodedBatches) -> pa.Table:
        """`table`, with its column `value` decoded. Without that column it stays as it is."""
        if "value" not in table.column_names or self._decoder == "raw":
            return table
        if self._decoder == "arrow":
            with _named(self._decoder, decoded):
                return _with_streams(table, decoded.values)
        column = self.column(decoded)
        if len(column) != len(table):
            raise ValueError(
                f"value_decoder has made {len(column)} rows of {len(table)} values; it must return "
                "an array of the same length"
            )
        place = table.column_names.index("value")
        return table.set_column(place, "value", column)

    def column(self, decoded: DecodedBatches) -> pa.Array:
        """The values, decoded; not of the decoder `arrow`, whose values have several rows.

        Raises:
            UndecodableValue: one cannot be.
        """
        values = decoded.values
        with _named(self._decoder, decoded):
            match self._decoder:
                case "raw":
                    return values
                case "utf8":
                    return values.cast(pa.string())
                case "json":
                    assert self._schema is not None
                    return _json(values, self._schema)
            if self._of_schema is not None:
                return self._of_schema.decode(values)
            assert callable(self._decoder)
            return self._decoder(values)


@contextmanager
def _named(decoder: str | Decoder, decoded: DecodedBatches) -> Iterator[None]:
    """What cannot be decoded, by its place in the log."""
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


def _json(values: pa.Array, schema: pa.Schema) -> pa.Array:
    """One object a value; line ends inside an object are allowed."""
    from pyarrow import json

    values = values.cast(pa.string())  # which is where bytes that are no UTF-8 are found
    _check_objects(values)
    present = values if not values.null_count else values.drop_null()
    if not len(present):
        return pa.nulls(len(values), pa.struct(list(schema)))
    # Not pa.array nor a plain "\n": their first use imports pandas, a second in each new worker.
    whole = number_array(np.array([0, len(present)], np.int32), pa.int32())
    line_end = constant_text("\n", 1)[0]
    joined = pc.binary_join(pa.ListArray.from_arrays(whole, present), line_end)
    read = json.read_json(
        pa.BufferReader(joined[0].as_buffer()),
        read_options=json.ReadOptions(block_size=max(1 << 20, joined[0].as_buffer().size + 1)),
        parse_options=json.ParseOptions(
            explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
        ),
    )
    if len(read) != len(present):
        raise pa.ArrowInvalid(f"{len(present)} values have {len(read)} JSON objects")
    struct = read.combine_chunks().to_struct_array()
    if isinstance(struct, pa.ChunkedArray):
        struct = struct.combine_chunks()
    if not values.null_count:
        return struct
    places = np.cumsum(values.is_valid().to_numpy(zero_copy_only=False)) - 1
    return struct.take(pa.array(places, mask=values.is_null().to_numpy(zero_copy_only=False)))


def _check_objects(values: pa.Array) -> None:
    """Raise NotOfSchema for a value that does not begin and end as an object.

    Where all do, and there are as many objects as values, each is one: a string cannot go on behind
    a line's end. And pyarrow ends the process where it is given nothing but `null`.
    """
    are_objects = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
    if pc.all(are_objects).as_py() is not False:
        return
    for place in np.flatnonzero(~are_objects.fill_null(True).to_numpy(zero_copy_only=False)):
        text = values[place].as_py().strip(" \t\r\n")
        if not (text.startswith("{") and text.endswith("}")):
            raise NotOfSchema(int(place), f"{text[:40]!r} is no JSON object")


def _with_streams(table: pa.Table, values: pa.Array) -> pa.Table:
    """A stream is read once a value: its rows, not the values, are what there are many of."""
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
                f"the values have a column {field.name!r}, and so have records; leave it out with "
                "columns=[...]"
            )
        repeated = repeated.append_column(field, streams.column(field.name))
    return repeated


def _stream(place: int, content: pa.Buffer) -> pa.Table:
    """What is not validated may end the process where it is used: offsets beyond their buffer."""
    try:
        table = pa.ipc.open_stream(content).read_all()
        table.validate(full=True)
        for field in table.schema:
            _check_names(field)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise NotOfSchema(place, error) from error
    return table


def _check_names(field: pa.Field) -> None:
    """Raises UnicodeDecodeError: `validate` does not look at them."""
    _ = field.name
    of_type = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    for number in range(of_type.num_fields):
        _check_names(of_type.field(number))
