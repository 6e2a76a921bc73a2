"""Do Confluent's serializers and deserializers and ours read one another's values?

Theirs need the extras of confluent-kafka (schemaregistry, avro, json, protobuf).
"""

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import Timestamp

import bradbury
from bradbury.pipelines.ranges.value_decoder import ValueDecoder
from bradbury.tests.support.decoded_values import decoded_values
from bradbury.tests.support.schema_registry import RegistryServer, registry_server

theirs = pytest.importorskip(
    "confluent_kafka.schema_registry.avro",
    reason="confluent-kafka[schemaregistry,avro,json,protobuf] is not installed",
)
pytest.importorskip("confluent_kafka.schema_registry.protobuf")

from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: E402 -- if it is there
from confluent_kafka.schema_registry.json_schema import (  # noqa: E402
    JSONDeserializer,
    JSONSerializer,
)
from confluent_kafka.schema_registry.protobuf import (  # noqa: E402
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: E402

VALUE = SerializationContext("flights", MessageField.VALUE)
NEW_FORMAT = {"use.deprecated.format": False}
AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "delay", "type": ["null", "double"], "default": None},
    ],
}
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Flight",
    "type": "object",
    "properties": {"tail": {"type": "string"}, "delay": {"type": "number"}},
}
ROWS = [{"tail": f"N{number}", "delay": number / 4} for number in range(300)]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


@pytest.fixture
def client(server: RegistryServer) -> Any:
    return SchemaRegistryClient({"url": server.url})


def read(server: RegistryServer, decoder: str, values: list[bytes], schema: Any = None) -> Any:
    found = ValueDecoder(decoder, schema, registry=server.url, topics=["flights"])
    return found.column(decoded_values(*values)).to_pylist()


def test_avro_both_ways(server: RegistryServer, client: Any) -> None:
    serialize = theirs.AvroSerializer(client, json.dumps(AVRO))
    values = [serialize(row, VALUE) for row in ROWS]
    assert read(server, "avro", values) == ROWS
    ours = pickle.loads(
        pickle.dumps(bradbury.RegistrySerializer(server.url, "flights", "avro", AVRO))
    )
    assert ours.column(ROWS).to_pylist() == values
    deserialize = theirs.AvroDeserializer(client)
    assert [deserialize(ours(row), VALUE) for row in ROWS] == ROWS


def test_json_both_ways(server: RegistryServer, client: Any) -> None:
    serialize = JSONSerializer(json.dumps(JSON), client)
    values = [serialize(row, VALUE) for row in ROWS]
    assert read(server, "json", values) == ROWS
    ours = bradbury.RegistrySerializer(server.url, "flights", "json", JSON)
    assert ours.column(ROWS).to_pylist() == values
    deserialize = JSONDeserializer(json.dumps(JSON), schema_registry_client=client)
    assert [deserialize(ours(row), VALUE) for row in ROWS] == ROWS


@pytest.mark.parametrize("name", ["Gate", "Flight", "Flight.Leg"])
def test_protobuf_both_ways(server: RegistryServer, client: Any, name: str) -> None:
    kind = messages()[name]
    given = [kind(number=number) for number in range(300)]
    for each in given:
        each.at.CopyFrom(Timestamp(seconds=each.number))
        each.miles.number = 7
    rows = [
        {
            "number": each.number,
            "at": {"seconds": each.number, "nanos": 0},
            "miles": {"number": 7},
        }
        for each in given
    ]
    serialize = ProtobufSerializer(kind, client, NEW_FORMAT)
    values = [serialize(each, VALUE) for each in given]
    assert read(server, "protobuf", values, kind) == rows
    ours = bradbury.RegistrySerializer(server.url, "flights", "protobuf", kind)
    assert ours.column(given).to_pylist() == values
    deserialize = ProtobufDeserializer(kind, {**NEW_FORMAT}, client)
    assert [deserialize(ours(each), VALUE) for each in given] == given
    if name == "Gate":  # which is the first one: no class is needed
        assert read(server, "protobuf", values) == rows


def messages() -> dict[str, Any]:
    """As protoc would generate them: flight.proto imports x/miles.proto and Timestamp."""
    field = descriptor_pb2.FieldDescriptorProto
    miles = descriptor_pb2.FileDescriptorProto(name="x/miles.proto", syntax="proto3")
    miles.message_type.add(name="Miles").field.add(
        name="number", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL
    )
    flight = descriptor_pb2.FileDescriptorProto(
        name="flight.proto",
        package="air",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "x/miles.proto"],
    )
    gate = flight.message_type.add(name="Gate")
    outer = flight.message_type.add(name="Flight")
    for kind in (gate, outer, outer.nested_type.add(name="Leg")):
        kind.field.add(name="number", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
        for number, (name, of) in enumerate(
            (("at", ".google.protobuf.Timestamp"), ("miles", ".Miles")), 2
        ):
            kind.field.add(
                name=name,
                number=number,
                type=field.TYPE_MESSAGE,
                type_name=of,
                label=field.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(miles.SerializeToString())
    pool.AddSerializedFile(flight.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"air.{name}"))
        for name in ("Gate", "Flight", "Flight.Leg")
    }
