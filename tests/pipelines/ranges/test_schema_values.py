"""Do Avro and Protobuf values become the columns that their schemas say?"""

import io
import json
import pickle
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, strategies as st

from bradbury.pipelines.ranges.schema_values import AvroValues, ProtobufValues, SchemaMismatch
from bradbury.pipelines.ranges.value_decoder import ValueDecoder

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "carrier", "type": ["null", "string"]},
        {"name": "delays", "type": {"type": "array", "items": "int"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["UP", "DOWN"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 4}},
        {
            "name": "gate",
            "type": {"type": "record", "name": "Gate", "fields": [{"name": "x", "type": "float"}]},
        },
        {"name": "next", "type": ["null", "Gate"]},
    ],
}


def avro(schema: Any, *rows: Any) -> pa.Array:
    values = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
        values.append(out.getvalue())
    return pa.array(values, pa.binary())


ROW = {
    "number": 1545,
    "carrier": "UA",
    "delays": [1, -2],
    "tags": {"a": 0.5},
    "state": "DOWN",
    "day": date(2013, 1, 1),
    "at": datetime(2013, 1, 1, 5, 17, tzinfo=UTC),
    "price": Decimal("12.50"),
    "id": b"\0\1\2\3",
    "gate": {"x": 1.5},
    "next": None,
}


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)], ids=["dict", "text"])
def test_avro_records_are_structs(schema: Any) -> None:
    decoder = AvroValues(schema)
    other = {**ROW, "carrier": None, "delays": [], "next": {"x": 2.5}}
    found = decoder.decode(avro(SCHEMA, ROW, other))
    assert found.type == decoder.type
    assert found.to_pylist() == [
        {**row, "tags": list(row["tags"].items())}  # type: ignore[attr-defined]
        for row in (ROW, other)
    ]
    assert decoder.decode(pa.array([None], pa.binary())).to_pylist() == [None]


@pytest.mark.parametrize(
    ("kind", "logical_type", "value", "expected"),
    [
        ("string", "uuid", uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ("int", "time-millis", time(1), time(1)),
        ("long", "time-micros", time(1), time(1)),
        ("long", "local-timestamp-millis", datetime(1970, 1, 2), 86_400_000),
    ],
)
def test_logical_types_are_those_of_arrow_or_what_they_are_made_of(
    kind: str, logical_type: str, value: Any, expected: Any
) -> None:
    schema = {"type": kind, "logicalType": logical_type}
    assert AvroValues(schema).decode(avro(schema, value)).to_pylist() == [expected]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_avro_values_may_be_single_ones(numbers: list[int]) -> None:
    assert AvroValues('"long"').decode(avro("long", *numbers)).to_pylist() == numbers


@pytest.mark.parametrize(
    ("value", "reason"), [(b"", "EOF|read"), (b"\x02\x02", "1 bytes are left over")]
)
def test_what_is_not_of_the_schema_is_named(value: bytes, reason: str) -> None:
    with pytest.raises(SchemaMismatch, match=reason) as error:
        AvroValues('"long"').decode(pa.array([b"\x02", value], pa.binary()))
    assert error.value.place == 1


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "not an Avro schema in JSON"),
        (
            {"type": "recrd"},
            "value_schema is not an Avro schema: there is no type {'type': 'recrd'}",
        ),
        ({"n": "long"}, "value_schema is not an Avro schema: .*an object in it, has no 'type'"),
        ({"type": "array"}, "has no 'items'"),
        (5, "neither a name, an object nor a list"),
        (["int", "string"], "union of 2 types"),
        (
            {"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]},
            "recursively",
        ),
    ],
)
def test_schemas_that_have_no_columns_are_refused(schema: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AvroValues(schema)


def message_class() -> Any:
    """As protoc would generate it."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", syntax="proto3")
    state = file.enum_type.add(name="State")
    state.value.add(name="UP", number=0)
    state.value.add(name="DOWN", number=1)
    gate = file.message_type.add(name="Gate")
    gate.field.add(name="x", number=1, type=field.TYPE_FLOAT, label=field.LABEL_OPTIONAL)
    flight = file.message_type.add(name="Flight")
    entry = flight.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    for number, (name, kind, label, type_name) in enumerate(
        (
            ("number", field.TYPE_SINT64, one, ""),
            ("carrier", field.TYPE_STRING, one, ""),
            ("raw", field.TYPE_BYTES, one, ""),
            ("delays", field.TYPE_INT32, many, ""),
            ("state", field.TYPE_ENUM, one, ".State"),
            ("gate", field.TYPE_MESSAGE, one, ".Gate"),
            ("gates", field.TYPE_MESSAGE, many, ".Gate"),
            ("tags", field.TYPE_MESSAGE, many, ".Flight.TagsEntry"),
        ),
        1,
    ):
        named = {"type_name": type_name} if type_name else {}
        flight.field.add(name=name, number=number, type=kind, label=label, **named)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Flight"))


def test_protobuf_messages_are_structs() -> None:
    flight = message_class()
    decoder = ProtobufValues(flight)
    full = flight(number=-5, carrier="UA", raw=b"\0", delays=[1, 2], state=1, tags={"a": 0.5})
    full.gate.x = 1.5
    full.gates.add(x=2.5)
    unknown = flight(state=7)
    values = [full.SerializeToString(), unknown.SerializeToString(), None]
    found = decoder.decode(pa.array(values, pa.binary()))
    assert found.type == decoder.type
    assert found.to_pylist() == [
        {
            "number": -5,
            "carrier": "UA",
            "raw": b"\0",
            "delays": [1, 2],
            "state": "DOWN",
            "gate": {"x": 1.5},
            "gates": [{"x": 2.5}],
            "tags": [("a", 0.5)],
        },
        {
            "number": 0,
            "carrier": "",
            "raw": b"",
            "delays": [],
            "state": "7",
            "gate": None,
            "gates": [],
            "tags": [],
        },
        None,
    ]
    with pytest.raises(SchemaMismatch) as error:
        decoder.decode(pa.array([b"\xff"], pa.binary()))
    assert error.value.place == 0


def test_a_decoder_travels_to_the_tasks() -> None:
    decoder = pickle.loads(pickle.dumps(ValueDecoder("avro", SCHEMA)))
    assert decoder.type_of(pa.binary()) == AvroValues(SCHEMA).type


@pytest.mark.parametrize(
    ("decoder", "schema", "text"),
    [
        ("avro", None, "an Avro schema"),
        ("protobuf", None, "generated by protoc"),
        ("protobuf", int, "generated by protoc"),
        ("raw", SCHEMA, "value_schema is for"),
    ],
)
def test_a_schema_is_given_where_it_is_needed(decoder: str, schema: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ValueDecoder(decoder, schema)
