"""Do values with the ids of a registry's schemas become columns of one schema?

The bytes are those that the serializers of confluent-kafka 2.16 have made; with its extras
installed tests/clients/schemas/test_confluent_serializers.py asks them themselves.
"""

import base64
import io
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, strategies as st

import bradbury
from bradbury.clients.schemas.protobuf_schema import described
from bradbury.clients.schemas.registered_schema import RegisteredSchema
from bradbury.clients.schemas.registry_request import NotInRegistry, RegistryFailed
from bradbury.clients.schemas.wire_format import (
    decode_message_indexes,
    encode_message_indexes,
    prefix,
)
from bradbury.pipelines.ranges.registry_values import PlainValues, RegistryValues
from bradbury.pipelines.ranges.schema_values import AvroValues
from bradbury.pipelines.ranges.value_decoder import UndecodableValue, ValueDecoder
from bradbury.tests.support.decoded_values import decoded_values
from bradbury.tests.support.schema_registry import RegistryServer, registry_server

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "delay", "type": ["null", "double"], "default": None},
    ],
}
JSON_FLIGHT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Flight",
    "type": "object",
    "properties": {"tail": {"type": "string"}, "delay": {"type": "number"}},
    "required": ["tail"],
}
PROTOBUF_FLIGHT = (
    "CgxmbGlnaHQucHJvdG8SA2FpciIRCgRHYXRlEgkKAXgYASABKAIiLAoGRmxpZ2h0EgwKBHRhaWwYASABKAkaFAoDTGVn"
    "Eg0KBW1pbGVzGAEgASgFYgZwcm90bzM="
)
AVRO_BYTES = bytes.fromhex("0c4e3134323238020000000000000440")
JSON_BYTES = b'{"tail":"N14228","delay":2.5}'
PROTOBUF_BYTES = {
    "air.Gate": bytes.fromhex("000d0000c03f"),
    "air.Flight": bytes.fromhex("02020a064e3134323238"),
    "air.Flight.Leg": bytes.fromhex("0402000807"),
}
"""Behind their ids, with their message indexes."""
ROW = {"tail": "N14228", "delay": 2.5}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def avro(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return prefix(schema_id) + out.getvalue()


def rows(decoder: ValueDecoder, *values: bytes | None) -> list[Any]:
    found: list[Any] = decoder.column(decoded_values(*values)).to_pylist()
    return found


def latest(server: RegistryServer, decoder: str) -> ValueDecoder:
    return ValueDecoder(decoder, registry=server.url, topics=["flights"])


# --- what Confluent's serializers have made --------------------------------------------------


def test_avro(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    value = prefix(schema_id) + AVRO_BYTES
    assert rows(latest(server, "avro"), value, None, value) == [ROW, None, ROW]


def test_json(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", JSON_FLIGHT, "JSON")
    value = prefix(schema_id) + JSON_BYTES
    assert rows(latest(server, "json"), None, value) == [None, ROW]


def test_protobuf(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", PROTOBUF_FLIGHT, "PROTOBUF")
    value = prefix(schema_id) + PROTOBUF_BYTES["air.Gate"]
    assert rows(latest(server, "protobuf"), value, None) == [{"x": 1.5}, None]
    for name, row in (("air.Flight", {"tail": "N14228"}), ("air.Flight.Leg", {"miles": 7})):
        decoder = ValueDecoder("protobuf", message(name), registry=server.url)
        assert rows(decoder, prefix(schema_id) + PROTOBUF_BYTES[name]) == [row]


def message(name: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(PROTOBUF_FLIGHT))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (1, 0), (300, 2, 70_000)])
def test_message_indexes_are_read_as_they_are_written(indexes: tuple[int, ...]) -> None:
    encoded = encode_message_indexes(indexes)
    assert decode_message_indexes(encoded + b"rest") == (indexes, len(encoded))
    for end in range(len(encoded)):
        with pytest.raises(ValueError, match="ends within"):
            decode_message_indexes(encoded[:end])


# --- several schemas, one column ---------------------------------------------------------------


def with_fields(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Flight", "fields": list(fields)}


def test_several_writers_are_read_as_the_latest_by_avros_rules(server: RegistryServer) -> None:
    tail = {"name": "tail", "type": "string"}
    schemas: list[tuple[Any, Any]] = [
        (with_fields(tail, {"name": "gone", "type": "int"}), {"tail": "a", "gone": 1}),
        (with_fields(tail, {"name": "delay", "type": "int"}), {"tail": "b", "delay": 2}),
        (
            with_fields(
                {"name": "delay", "type": "double", "default": -1.0},
                {"name": "number", "aliases": ["tail"], "type": "string"},
            ),
            {"delay": 0.5, "number": "c"},
        ),
    ]
    ids = [server.add("flights-value", schema) for schema, _ in schemas]
    order = np.random.default_rng(7).integers(-1, 3, 500)
    values = [None if each < 0 else avro(ids[each], *schemas[each]) for each in order]
    expected = [{"delay": -1.0, "number": "a"}, {"delay": 2.0, "number": "b"}, schemas[2][1], None]
    decoder = pickle.loads(pickle.dumps(latest(server, "avro")))
    column = decoder.column(decoded_values(*values))
    assert column.type == decoder.type_of(pa.binary())
    assert column.to_pylist() == [expected[each] for each in order]
    assert len(server.requests) == 1 + 3, "the latest, and each id, once"
    assert rows(decoder, None, None) == [None, None]


def test_the_readers_schema_may_be_given(server: RegistryServer) -> None:
    schema_id = server.add("another-subject", FLIGHT)
    reader = {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "delay", "type": ["null", "double"]},
            {"name": "carrier", "type": "string", "default": "?"},
        ],
    }
    decoder = ValueDecoder("avro", reader, registry=server.url)
    assert rows(decoder, prefix(schema_id) + AVRO_BYTES) == [{"delay": 2.5, "carrier": "?"}]
    assert server.requests == [f"GET /schemas/ids/{schema_id}"]


def test_what_the_latest_schema_is_is_looked_up_once(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    decoder = latest(server, "avro")
    server.add("flights-value", with_fields({"name": "other", "type": "int", "default": 0}))
    again = pickle.loads(pickle.dumps(decoder))
    assert rows(again, prefix(schema_id) + AVRO_BYTES) == [ROW]


def test_references_are_followed(server: RegistryServer) -> None:
    at = {"type": "long", "logicalType": "timestamp-millis"}
    server.add(
        "gate", {"type": "record", "name": "air.Gate", "fields": [{"name": "at", "type": at}]}
    )
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    schema = {
        "type": "record",
        "name": "air.Flight",
        "fields": [
            {"name": "from", "type": "air.Gate"},
            {"name": "to", "type": ["null", "air.Gate"]},
            {"name": "price", "type": price},
        ],
    }
    schema_id = server.add(
        "flights-value",
        schema,
        references=[{"name": "air.Gate", "subject": "gate", "version": 1}],
    )
    value = prefix(schema_id) + (8 << 1).to_bytes(1, "big") + b"\0" + b"\x04\x04\xe2"
    moment = datetime.fromtimestamp(0.008, UTC)
    assert rows(latest(server, "avro"), value) == [
        {"from": {"at": moment}, "to": None, "price": Decimal("12.50")}
    ]


def test_protobuf_files_may_import_others(server: RegistryServer) -> None:
    field = descriptor_pb2.FieldDescriptorProto
    gate = descriptor_pb2.FileDescriptorProto(name="x/gate.proto", syntax="proto3")
    gate.message_type.add(name="Gate").field.add(
        name="x", number=1, type=field.TYPE_FLOAT, label=field.LABEL_OPTIONAL
    )
    flight = descriptor_pb2.FileDescriptorProto(
        name="flight.proto",
        syntax="proto3",
        dependency=["x/gate.proto", "google/protobuf/timestamp.proto"],
    )
    kind = flight.message_type.add(name="Flight")
    for number, (name, of) in enumerate(
        (("gate", ".Gate"), ("at", ".google.protobuf.Timestamp")), 1
    ):
        kind.field.add(
            name=name,
            number=number,
            type=field.TYPE_MESSAGE,
            type_name=of,
            label=field.LABEL_OPTIONAL,
        )
    server.add("gates", base64.b64encode(gate.SerializeToString()).decode(), "PROTOBUF")
    schema_id = server.add(
        "flights-value",
        base64.b64encode(flight.SerializeToString()).decode(),
        "PROTOBUF",
        [{"name": "x/gate.proto", "subject": "gates", "version": 1}],
    )
    value = prefix(schema_id) + b"\0" + bytes.fromhex("0a050d0000c03f" + "1202" + "0807")
    assert rows(latest(server, "protobuf"), value) == [
        {"gate": {"x": 1.5}, "at": {"seconds": 7, "nanos": 0}}
    ]


def test_a_date_is_one_by_the_readers_schema(server: RegistryServer) -> None:
    """Whatever the writer has called the number."""
    plain = with_fields({"name": "at", "type": "long"})
    named = with_fields({"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}})
    ids = [server.add("flights-value", each) for each in (plain, named)]
    values = [avro(each, plain, {"at": 5}) for each in ids]
    moment = datetime.fromtimestamp(5e-6, UTC)
    assert rows(latest(server, "avro"), *values) == [{"at": moment}] * 2
    decoder = ValueDecoder("avro", plain, registry=server.url)
    assert rows(decoder, *values) == [{"at": 5}] * 2


# --- what cannot be decoded --------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", JSON_BYTES, b"\x01" + bytes(20)])
def test_a_value_without_an_id_is_named(server: RegistryServer, value: bytes) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    whole = prefix(schema_id) + AVRO_BYTES
    with pytest.raises(
        UndecodableValue,
        match="value of flights-3 at offset 2 is not avro: it does not begin with a byte 0 and a "
        "schema's id, .*leave schema_registry out",
    ):
        rows(latest(server, "avro"), whole, None, value, whole)


def test_an_id_that_the_registry_does_not_know_is_named(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    decoder = latest(server, "avro")
    whole, unknown = prefix(schema_id) + AVRO_BYTES, prefix(2**32 - 1) + AVRO_BYTES
    with pytest.raises(
        UndecodableValue,
        match=f"offset 1 is not avro: schema id 4294967295 is not in the schema registry {server.url}",
    ):
        rows(decoder, whole, unknown, whole)
    other = server.add("others", JSON_FLIGHT, "JSON")
    with pytest.raises(UndecodableValue, match=f"offset 2 .*id {other} is of the type JSON"):
        rows(decoder, whole, None, prefix(other) + JSON_BYTES)


def test_a_damaged_value_is_named_among_those_of_other_ids(server: RegistryServer) -> None:
    first = server.add("flights-value", with_fields({"name": "tail", "type": "string"}))
    second = server.add("flights-value", {**FLIGHT, "namespace": ""})
    values = [prefix(first) + b"\x02a", prefix(second) + AVRO_BYTES] * 2
    values.append(prefix(first) + b"\x02ab")
    with pytest.raises(UndecodableValue, match="at offset 4 is not avro: 1 bytes are left over"):
        rows(latest(server, "avro"), *values)


def test_a_schema_that_avro_cannot_read_as_the_readers_is_named(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    decoder = ValueDecoder(
        "avro", with_fields({"name": "needed", "type": "int"}), registry=server.url
    )
    with pytest.raises(UndecodableValue, match="offset 0 .*Avro cannot read .*No default .*needed"):
        rows(decoder, prefix(schema_id) + AVRO_BYTES)


def test_another_message_of_the_file_is_named(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", PROTOBUF_FLIGHT, "PROTOBUF")
    with pytest.raises(UndecodableValue, match="offset 0 .*it is a message Flight, and not Gate"):
        rows(latest(server, "protobuf"), prefix(schema_id) + PROTOBUF_BYTES["air.Flight"])
    with pytest.raises(UndecodableValue, match=r"no message with the indexes \[9\]"):
        rows(latest(server, "protobuf"), prefix(schema_id) + encode_message_indexes([9]))


def test_a_registry_with_proto_files_only_needs_the_class(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", PROTOBUF_FLIGHT, "PROTOBUF")
    server.describes_protobuf = False
    with pytest.raises(ValueError, match="only as the text of a .proto file .* give the class"):
        latest(server, "protobuf")
    decoder = ValueDecoder("protobuf", message("air.Flight"), registry=server.url)
    value = prefix(schema_id) + PROTOBUF_BYTES["air.Flight"]
    assert rows(decoder, value) == [{"tail": "N14228"}]


def test_what_may_be_null_is_null_but_not_a_registry_that_is_away(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    values = RegistryValues("avro", AvroValues(FLIGHT), server.url, lenient=True)
    whole = prefix(schema_id) + AVRO_BYTES
    given = pa.array([b"x", whole, whole + b"x", prefix(5) + AVRO_BYTES, None, whole], pa.binary())
    assert values.decode(given).to_pylist() == [None, ROW, None, None, None, ROW]
    assert values.decode(given.slice(1, 1)).to_pylist() == [ROW]
    assert values.decode(given.cast(pa.large_binary()).slice(5)).to_pylist() == [ROW]
    server.answers += [(503, "")] * 4
    with pytest.raises(RegistryFailed, match="HTTP 503"):
        values.decode(pa.array([prefix(6) + AVRO_BYTES]))


@given(st.data())
def test_whatever_a_column_is_cut_from_its_values_lose_their_ids_only(data: st.DataObject) -> None:
    """PlainValues show what the decoders are given."""
    contents = data.draw(st.lists(st.none() | st.binary(max_size=9), max_size=12))
    ids = [data.draw(st.sampled_from([3, 5])) for _ in contents]
    framed = pa.array(
        [
            None if content is None else prefix(each) + content
            for each, content in zip(ids, contents, strict=True)
        ],
        pa.binary(),
    )
    start = data.draw(st.integers(0, len(contents)))
    length = data.draw(st.integers(0, len(contents) - start))
    values = RegistryValues("json", PlainValues(), "http://nowhere:1")
    values._registry = KnownIds()  # type: ignore[assignment]  # it is the columns that are tried
    found = values.decode(framed.slice(start, length))
    found.validate(full=True)
    assert found.to_pylist() == contents[start : start + length]


class KnownIds:
    def schema(self, schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(schema_id, "JSON", "{}")


# --- what is refused before a record is read ------------------------------------------------------


def test_a_topic_needs_a_schema_somewhere(server: RegistryServer) -> None:
    with pytest.raises(NotInRegistry, match="subject 'flights-value' is not .*: give a schema, or"):
        latest(server, "avro")
    server.add("flights-value", JSON_FLIGHT, "JSON")
    with pytest.raises(
        ValueError, match="latest schema of flights .* is of the type JSON, .*'avro'"
    ):
        latest(server, "avro")
    with pytest.raises(ValueError, match="schema_registry is for value_decoder='json', 'avro' or"):
        latest(server, "utf8")


def test_topics_that_are_read_together_have_one_schema(server: RegistryServer) -> None:
    server.add("a-value", FLIGHT)
    server.add("b-value", FLIGHT)
    server.add("c-value", '"string"')
    ValueDecoder("avro", registry=server.url, topics=["a", "b"])
    with pytest.raises(ValueError, match="the topics a, c have different schemas"):
        ValueDecoder("avro", registry=server.url, topics=["a", "c"])


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"a": {"type": ["null", "integer"]}}, {"a": pa.int64()}),
        ({"a": {"oneOf": [{"type": "null"}, {"type": "boolean"}]}}, {"a": pa.bool_()}),
        ({"a": {"enum": ["x", "y"]}}, {"a": pa.string()}),
        ({"a": {"type": "array", "items": {"type": "number"}}}, {"a": pa.list_(pa.float64())}),
        ({"a": {"$ref": "#/definitions/Gate"}}, {"a": pa.struct([("x", pa.int64())])}),
        ({"a": {"$ref": "gate.json"}}, {"a": pa.struct([("y", pa.string())])}),
    ],
)
def test_json_schemas_have_arrow_types(
    server: RegistryServer, properties: Any, expected: dict[str, pa.DataType]
) -> None:
    other = {"properties": {"y": {"type": "string", "format": "date"}}}
    server.add("gates", other, "JSON")
    schema = {
        "type": "object",
        "properties": properties,
        "definitions": {"Gate": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    }
    reference = {"name": "gate.json", "subject": "gates", "version": 1}
    server.add("flights-value", schema, "JSON", [reference])
    assert latest(server, "json").type_of(pa.binary()) == pa.struct(list(expected.items()))


@pytest.mark.parametrize(
    ("a", "said"),
    [
        ({}, r"\$.a is of the type None"),
        (True, r"\$.a may be anything"),
        ({"type": "object"}, "names no properties"),
        ({"type": "array"}, r"\$.a\[\] may be anything"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "2 types by oneOf"),
        ({"$ref": "#"}, "contains itself"),
        ({"$ref": "other.json"}, "not in the schema nor among its references"),
    ],
)
def test_json_schemas_without_one_type_are_refused(
    server: RegistryServer, a: Any, said: str
) -> None:
    server.add("flights-value", {"type": "object", "properties": {"a": a}}, "JSON")
    with pytest.raises(ValueError, match=said) as error:
        latest(server, "json")
    assert "value_schema" in str(error.value) or "columns cannot" in str(error.value)


def test_the_schema_of_the_oracle_is_what_we_would_register() -> None:
    assert described(message("air.Flight").DESCRIPTOR.file) == PROTOBUF_FLIGHT


def test_the_schema_of_another_subject_may_be_given(server: RegistryServer) -> None:
    registry = bradbury.SchemaRegistry(server.url)
    for decoder, schema_type, schema, content, row in (
        ("avro", "AVRO", FLIGHT, AVRO_BYTES, ROW),
        ("json", "JSON", JSON_FLIGHT, JSON_BYTES, ROW),
        ("protobuf", "PROTOBUF", PROTOBUF_FLIGHT, PROTOBUF_BYTES["air.Gate"], {"x": 1.5}),
    ):
        schema_id = server.add(f"air.{decoder}", schema, schema_type)
        given = registry.latest(f"air.{decoder}")
        found = pickle.loads(pickle.dumps(ValueDecoder(decoder, given, registry=server.url)))
        assert rows(found, prefix(schema_id) + content) == [row]
