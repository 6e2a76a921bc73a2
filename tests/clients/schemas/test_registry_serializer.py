"""Do producers get values with the ids of their schemas, or hear what is wrong with them?"""

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

import bradbury
from bradbury.clients.schemas.registry_request import NotInRegistry, RegistryFailed
from bradbury.tests.support.schema_registry import RegistryServer, registry_server

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {}},
    ],
}
OBJECT = {"type": "object", "properties": {"tail": {"type": "string"}}, "required": ["tail"]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def test_a_schema_is_registered_once_and_asked_for_no_more(server: RegistryServer) -> None:
    serialize = bradbury.RegistrySerializer(server.url, "flights", "avro", FLIGHT)
    assert server.subjects == {"flights-value": [serialize.schema_id]}
    again = pickle.loads(pickle.dumps(serialize))
    asked = len(server.requests)
    value = serialize({"tail": "N1", "tags": {}})
    expected = b"\0" + serialize.schema_id.to_bytes(4, "big") + b"\x04N1\x00"
    assert value == again({"tail": "N1"}) == expected
    assert serialize(None) is None
    assert len(server.requests) == asked


def test_columns_of_arrow_become_columns_of_bytes(server: RegistryServer) -> None:
    serialize = bradbury.RegistrySerializer(server.url, "flights", "avro", FLIGHT)
    tags = pa.map_(pa.string(), pa.int32())
    table = pa.table({"tail": ["a", "b"], "tags": pa.array([[("x", 1)], []], tags)})
    found = serialize.column(table)
    assert found.type == pa.binary()
    assert found.to_pylist() == [
        serialize({"tail": "a", "tags": {"x": 1}}),
        serialize({"tail": "b"}),
    ]
    assert serialize.column([None, {"tail": "a"}]).null_count == 1
    with pytest.raises(ValueError, match="value 1: does not match the schema"):
        serialize.column([{"tail": "a"}, {"tail": 1}])


def test_without_a_schema_it_is_the_latest(server: RegistryServer) -> None:
    with pytest.raises(NotInRegistry, match="subject 'flights-value' is not in"):
        bradbury.RegistrySerializer(server.url, "flights", "avro")
    schema_id = server.add("flights-value", FLIGHT)
    serialize = bradbury.RegistrySerializer(server.url, "flights", "avro")
    assert serialize.schema_id == schema_id
    with pytest.raises(ValueError, match="is of the type AVRO, and value_format is 'json'"):
        bradbury.RegistrySerializer(server.url, "flights", "json")


def test_a_subject_may_be_named_and_must_have_the_schema_if_none_is_registered(
    server: RegistryServer,
) -> None:
    options: dict[str, Any] = {"subject": "flights-key", "register": False}
    with pytest.raises(NotInRegistry, match="this schema of subject 'flights-key'"):
        bradbury.RegistrySerializer(server.url, "flights", "avro", '"string"', **options)
    schema_id = server.add("flights-key", '"string"')
    registry = bradbury.SchemaRegistry(server.url)
    serialize = bradbury.RegistrySerializer(registry, "flights", "avro", '"string"', **options)
    assert serialize.schema_id == schema_id
    assert not any(request.endswith("/versions") for request in server.requests)


def test_a_schema_that_does_not_fit_earlier_ones_is_refused(server: RegistryServer) -> None:
    server.refuses = (409, "incompatible: READER_FIELD_MISSING_DEFAULT_VALUE")
    with pytest.raises(
        RegistryFailed, match="refuses this schema of subject 'flights-value' .*409"
    ):
        bradbury.RegistrySerializer(server.url, "flights", "avro", FLIGHT)


@pytest.mark.parametrize(
    ("value_format", "schema", "said"),
    [
        ("xml", None, "value_format is 'xml'"),
        ("avro", {"type": "recrd"}, "schema is not an Avro schema"),
        ("avro", {"n": "long"}, "an object in it, has no 'type'"),
        ("avro", "{", "schema is not an Avro schema"),
        ("json", {"type": "strin"}, "schema is not a JSON Schema"),
        ("json", "{", "schema is not a JSON Schema"),
        ("protobuf", None, "a class that protoc has generated"),
    ],
)
def test_what_is_no_schema_is_not_registered(
    server: RegistryServer, value_format: str, schema: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        bradbury.RegistrySerializer(server.url, "flights", value_format, schema)
    assert server.requests == []


@pytest.mark.parametrize(
    ("value_format", "schema", "value", "said"),
    [
        ("avro", FLIGHT, {"tail": 1}, "does not match the schema"),
        ("avro", FLIGHT, {}, "does not match the schema"),
        (
            "json",
            OBJECT,
            {"tail": 1},
            r"does not match the schema: \$.tail: 1 is not of type 'string'",
        ),
        ("json", OBJECT, {"tail": b"x"}, "does not match the schema"),
        ("protobuf", Timestamp, {"seconds": 1}, "dict is not a google.protobuf.Timestamp"),
    ],
)
def test_a_value_that_is_not_of_the_schema_is_refused(
    server: RegistryServer, value_format: str, schema: Any, value: Any, said: str
) -> None:
    serialize = bradbury.RegistrySerializer(server.url, "flights", value_format, schema)
    with pytest.raises(ValueError, match=said):
        serialize(value)
